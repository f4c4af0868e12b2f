package resilience_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

// Faults that other breakers have shipped, one test each. Those that have a
// rule's test of their own elsewhere are not repeated: hung, ignored and
// panicking probes (rules 7, 14, 20), the stampede, two last probes, a stale
// probe's slot (rules 5, 7), the threshold (rule 21), the episode's counts in
// its event (rule 31).

func TestFaultCallbackThatReadsTheBreakerDeadlocks(t *testing.T) {
	r := newRig(t, resilience.Config{})
	read := 0
	r.Observe(func(resilience.Transition) {
		r.State()
		r.Snapshot()
		r.Ready()
		r.Observe(func(resilience.Transition) {})()
		read++
	})
	r.due()
	r.succeed(1)
	assert.Equal(t, 3, read)
}

func TestFaultSuccessFromBeforeTheTripClosesAFreshOpenState(t *testing.T) {
	r := newRig(t, resilience.Config{})
	early := r.allow()
	r.fail(5)
	early.Done(nil)
	r.want(resilience.Open)
	r.at(time.Minute)
	probe := r.allow()
	early.Done(nil)
	r.want(resilience.HalfOpen)
	probe.Done(errDown)
	r.want(resilience.Open)
}

func TestFaultLateFailuresExtendTheOpenPeriod(t *testing.T) {
	r := newRig(t, resilience.Config{})
	var late []*resilience.Permit
	for range 20 {
		late = append(late, r.allow())
	}
	r.fail(5)
	until := r.Snapshot().OpenUntil
	r.at(30 * time.Second)
	for _, p := range late {
		p.Done(errDown)
	}
	assert.Equal(t, until, r.Snapshot().OpenUntil)
	r.seen.Want("closed → open")
}

func TestFaultOwnRefusalsCountAsFailures(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.Trip("drill")
	for range 10 {
		r.refused()
	}
	r.at(time.Minute)
	r.succeed(1)
	r.want(resilience.Closed)
	assert.Zero(t, r.Snapshot().Failures)
}

func TestFaultCallersCancellationCounts(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		_ = r.Do(ctx, func(ctx context.Context) error { cancel(); return ctx.Err() })
	}
	r.want(resilience.Closed)
	r.wantTotals("calls 10, ignored 10")
}

func TestFaultConsecutiveStreakDecaysWithTime(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(4)
	r.at(365 * 24 * time.Hour)
	r.fail(1)
	r.want(resilience.Open)
}

func TestFaultExcludedErrorCountsAsASuccess(t *testing.T) {
	r := newRig(t, resilience.Config{SuccessThreshold: 2})
	r.fail(4)
	r.act("ignored")
	r.fail(1)
	r.want(resilience.Open)
	r.at(time.Minute)
	r.succeed(1)
	r.act("ignored")
	r.want(resilience.HalfOpen)
	w := newRig(t, resilience.Config{Trip: trip.CountWindow{}})
	w.act("ignored")
	assert.Equal(t, [2]int{0, 0}, w.window())
}

func TestFaultGaugeStuckAtOpenLongAfterTheWait(t *testing.T) {
	r := newRig(t, resilience.Config{})
	assert.Equal(t, resilience.Closed, r.State(), "there before the first event")
	r.fail(5)
	r.at(24 * time.Hour)
	r.want(resilience.HalfOpen)
}

func TestFaultStreamThatDiesHalfWayCountsAsASuccess(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	stream := r.allow()
	// The headers were fine; the body was not.
	stream.Done(io.ErrUnexpectedEOF)
	r.want(resilience.Open)
	assert.Equal(t, io.ErrUnexpectedEOF, r.Snapshot().LastFailure)
}

func TestFaultFiredOnceTransitionTwice(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1, MaxProbes: 3})
	r.fail(1)
	r.at(time.Minute)
	a, b, c := r.allow(), r.allow(), r.allow()
	a.Done(errDown)
	b.Done(errDown)
	c.Done(nil)
	r.seen.Want("closed → open", "open → half_open", "half_open → open")
	assert.Equal(t, uint64(2), r.Snapshot().Stale)
}

// A forced-open breaker that had been stopped by a denied credential continued
// to answer with the denied error.
func TestFaultForceAfterAStopKeepsTheOldRefusal(t *testing.T) {
	r := newRig(t, resilience.Config{StopOnDenied: true})
	r.act("denied")
	var denied *resilience.DeniedError
	require.True(t, errors.As(r.Do(t.Context(), fine), &denied))
	r.ForceOpen("hand")
	require.ErrorIs(t, r.Do(t.Context(), fine), resilience.ErrOpen)
}
