package resilience_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// checked calls Check and requires that it changed nothing.
func (r *rig) checked(ctx context.Context) error {
	r.t.Helper()
	before, moves := r.Snapshot(), r.seen.Moves()
	err := r.Check(ctx)
	require.Equal(r.t, before, r.Snapshot())
	require.Equal(r.t, moves, r.seen.Moves())
	return err
}

func TestCheckSaysWhatACallIsRefusedWith(t *testing.T) {
	r := newRig(t, resilience.Config{})
	ctx := t.Context()
	require.NoError(t, r.checked(ctx))
	r.fail(5)
	require.Same(t, r.refused(), r.checked(ctx), "the one value for the deadline")
	r.at(time.Minute - 1)
	require.ErrorIs(t, r.checked(ctx), resilience.ErrOpen)
	r.at(time.Minute)
	var due *resilience.OpenError
	require.ErrorAs(t, r.checked(ctx), &due, "the wait is over, but this is no probe")
	assert.Equal(t, resilience.HalfOpen, due.State())
	assert.Equal(t, "consecutive failures", due.Reason())
	assert.Equal(t, r.start, due.OpenedAt())
	assert.Same(t, errDown, due.LastFailure())
	require.EqualError(t, due,
		`circuit breaker half-open for "milvus", failing fast; next probe due; last failure: upstream is down`)

	probe := r.allow()
	require.EqualError(t, r.checked(ctx),
		`circuit breaker half-open for "milvus", failing fast; waiting for the probe in flight`+
			`; last failure: upstream is down`)
	require.NoError(t, r.checked(probe.Context()), "part of the probe")
	probe.Done(nil)
	require.NoError(t, r.checked(ctx))
}

func TestCheckWithASlotFreeBesideARunningProbe(t *testing.T) {
	r := newRig(t, resilience.Config{MaxProbes: 2})
	r.due()
	r.allow()
	var free *resilience.OpenError
	require.ErrorAs(t, r.checked(t.Context()), &free)
	assert.Equal(t, r.clock.Now(), free.RetryAt())
	require.EqualError(t, free, `circuit breaker half-open for "milvus", failing fast; next probe due`)
}

func TestCheckKnowsContextTaskForceAndStop(t *testing.T) {
	r := newRig(t, resilience.Config{StopOnDenied: true})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, r.checked(gone))
	r.ForceOpen("hand")
	require.EqualError(t, r.checked(t.Context()),
		`circuit breaker forced open for "milvus", failing fast; only a reset closes it: hand`)
	task := resilience.WithTask(t.Context(), "t")
	require.Error(t, r.checked(task))
	r.Reset()
	require.NoError(t, r.checked(task), "Check latches nothing")
	r.act("denied")
	var denied *resilience.DeniedError
	require.ErrorAs(t, r.checked(task), &denied)
	kept := r.Do(task, fine)
	r.Reset()
	require.Same(t, kept, r.checked(task), "a call was refused, so the task is")
	require.NoError(t, r.checked(t.Context()))
}

func TestCheckOfAnOpenBreakerAllocatesNothing(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.Trip("drill")
	ctx := context.Background()
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Check(ctx) }))
}

// Rule 20: a permit whose user panics is counted as a panic and returns its
// slot.
func TestRule20PanickedPermit(t *testing.T) {
	r := newRig(t, resilience.Config{CallTimeout: time.Hour})
	r.fail(4)
	p := r.allow()
	p.Panicked()
	p.Panicked()
	p.Done(errors.New("too late"))
	require.ErrorIs(t, p.Context().Err(), context.Canceled)
	r.fail(1)
	r.at(time.Minute)
	r.allow().Panicked()
	r.want(resilience.HalfOpen)
	r.succeed(1)
	r.wantTotals("calls 8, successes 1, failures 5, panics 2, probes 2, opened 1")
	done := r.allow()
	done.Done(nil)
	done.Panicked()
	assert.EqualValues(t, 2, r.Snapshot().Panics)
}

// Rule 24: a clock that steps back past a deadline that has been reached
// leaves it reached, for readers and callers alike.
func TestRule24ClockThatStepsBackPastAReachedDeadline(t *testing.T) {
	r := newRig(t, resilience.Config{})
	late := r.allow()
	r.due()
	late.Done(errDown) // the breaker has seen this instant
	r.at(0)
	r.want(resilience.HalfOpen)
	assert.True(t, r.Ready())
	r.succeed(1)
	r.want(resilience.Closed)
}
