package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

// Rule 13.
func TestRule13OutcomesAndTheDefaultClassifier(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	classify := newRig(t, resilience.Config{}).Config().Classify
	for _, row := range []struct {
		name string
		ctx  context.Context
		err  error
		want resilience.Outcome
	}{
		{"any error", t.Context(), errDown, resilience.Failure},
		{"caller cancelled", gone, fmt.Errorf("call: %w", context.Canceled), resilience.Ignored},
		{"someone else cancelled", t.Context(), context.Canceled, resilience.Failure},
		{"caller cancelled, other error", gone, errDown, resilience.Ignored},
		{"deadline of the call", t.Context(), context.DeadlineExceeded, resilience.Failure},
		{"deadline of the caller", late, context.DeadlineExceeded, resilience.Failure},
		{"deadline of the caller, reported as cancelled", late, context.Canceled, resilience.Failure},
	} {
		assert.Equal(t, row.want, classify(row.ctx, row.err).Outcome, "row %s", row.name)
	}
	assert.Equal(t, "[success failure ignored throttled denied Outcome(7)]", fmt.Sprint([]resilience.Outcome{
		resilience.Success, resilience.Failure, resilience.Ignored, resilience.Throttled, resilience.Denied,
		resilience.Outcome(7),
	}))
}

// Rule 13: the same classifier rules in every state, and an operation's own
// precedes the breaker's.
func TestRule13ClassifierOfTheOperationRulesInEveryState(t *testing.T) {
	notFound := errors.New("404")
	r := newRig(t, resilience.Config{})
	op := resilience.Op[int]{Name: "get", Classify: func(context.Context, error) resilience.Verdict {
		return resilience.Verdict{Outcome: resilience.Success}
	}}
	get := func() error {
		_, err := resilience.CallOp(
			t.Context(),
			r.Breaker,
			op,
			func(context.Context) (int, error) { return 0, notFound },
		)
		return err
	}
	r.fail(4)
	assert.Same(t, notFound, get(), "an answer may be a success and an error")
	assert.Zero(t, r.Snapshot().Streak)
	r.fail(5)
	r.at(time.Minute)
	assert.Same(t, notFound, get())
	r.want(resilience.Closed)
}

// Rule 13: an unknown outcome counts as a failure.
func TestRule13UnknownOutcomeIsAFailure(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.allow().Settle(resilience.Verdict{Outcome: resilience.Outcome(99)})
	r.wantTotals("calls 1, failures 1")
	assert.EqualError(t, r.Snapshot().LastFailure, "the call was settled without an error to show")
	r.allow().Settle(resilience.Verdict{Outcome: resilience.Failure}, nil, errDown)
	assert.Same(t, errDown, r.Snapshot().LastFailure)
}

// Rule 14.
func TestRule14IgnoredFreesTheSlotAndChangesNothingElse(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(4)
	r.act("ignored")
	assert.Equal(t, 4, r.Snapshot().Streak)
	r.fail(1)
	r.at(time.Minute)
	for range 3 {
		r.act("ignored")
		r.want(resilience.HalfOpen)
	}
	r.succeed(1)
	r.wantTotals("calls 10, successes 1, failures 5, ignored 4, probes 4, opened 1")
}

// Rule 15.
func TestRule15RefusalsAreNoOutcomes(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.CountWindow{Size: 4, MinCalls: 2}})
	r.fail(2)
	for range 50 {
		r.refused()
	}
	snap := r.Snapshot()
	assert.Equal(t, 2, snap.WindowCalls)
	r.wantTotals("calls 2, failures 2, rejected 50, opened 1")
}

// Rule 16.
func TestRule16CallTimeoutBoundsTheContextAndFails(t *testing.T) {
	r := newRig(t, resilience.Config{CallTimeout: time.Nanosecond})
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	require.ErrorIs(t, r.Do(t.Context(), hang), context.DeadlineExceeded)
	assert.Equal(t, 1, r.Snapshot().Streak)
	p := r.allow()
	p.Done(hang(p.Context()))
	assert.Equal(t, 2, r.Snapshot().Streak)
}

// Rule 16: a classifier that ignores whatever looks cancelled does not hide
// that the breaker's own time ran out.
func TestRule16RunningOutIsAFailureWhateverTheClassifierSays(t *testing.T) {
	r := newRig(t, resilience.Config{
		CallTimeout: time.Nanosecond,
		Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Ignored}
		},
	})
	_ = r.Do(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("canceled")
	})
	r.wantTotals("calls 1, failures 1")
}

func throttle(d time.Duration) resilience.Verdict {
	return resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: d}
}

// Rule 17: neither success nor failure, and in no window.
func TestRule17ThrottledIsNeutralWhileClosed(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(4)
	r.allow().Settle(throttle(time.Hour))
	r.want(resilience.Closed)
	assert.Equal(t, 4, r.Snapshot().Streak)
	w := newRig(t, resilience.Config{Trip: trip.CountWindow{}})
	w.allow().Settle(throttle(0))
	assert.Zero(t, w.Snapshot().WindowCalls)
}

// Rule 17: a throttled probe, with and without a time, at −1 ns and 0.
func TestRule17ThrottledProbeWaits(t *testing.T) {
	for _, row := range []struct{ asked, wait time.Duration }{
		{0, time.Minute},
		{-time.Second, time.Minute},
		{7 * time.Second, 7 * time.Second},
		{2 * time.Minute, 2 * time.Minute},
		{time.Hour, 5 * time.Minute}, // capped
	} {
		r := newRig(t, resilience.Config{})
		r.due()
		r.allow().Settle(throttle(row.asked))
		require.Equal(t, resilience.Open, r.State(), "row %+v", row)
		r.at(time.Minute + row.wait - 1)
		require.Equal(t, resilience.Open, r.State(), "row %+v", row)
		r.refused()
		r.at(time.Minute + row.wait)
		require.Equal(t, resilience.HalfOpen, r.State(), "row %+v", row)
		r.succeed(1)
	}
}

// Rule 17: the later of the holds that are known counts, whatever generation
// it comes from.
func TestRule17HoldsSurviveGenerations(t *testing.T) {
	r := newRig(t, resilience.Config{})
	slow, slower := r.allow(), r.allow()
	r.fail(5) // open until 60 s
	first := r.refused()
	slow.Settle(throttle(90 * time.Second))
	slower.Settle(throttle(30 * time.Second)) // known to be later already
	second := r.refused()
	assert.NotSame(t, first, second, "a new deadline is a new value")
	assert.Equal(t, r.start.Add(90*time.Second), second.RetryAt())
	assert.Equal(t, r.start.Add(60*time.Second), first.RetryAt(), "and the old one stays as it was")
	r.at(90*time.Second - 1)
	r.refused()
	r.at(90 * time.Second)
	r.succeed(1)
	assert.Equal(t, uint64(2), r.Snapshot().Stale)
}

// Rule 17: a hold learned while closed is kept for the next opening, and one
// learned in half-open keeps further probes in.
func TestRule17HoldsReachForward(t *testing.T) {
	r := newRig(t, resilience.Config{MaxThrottle: time.Hour})
	r.allow().Settle(throttle(10 * time.Minute))
	late := r.allow()
	r.fail(5)
	assert.Equal(t, r.start.Add(10*time.Minute), r.Snapshot().OpenUntil)
	r.at(10 * time.Minute)
	r.act("ignored") // half-open with a free slot
	late.Settle(throttle(time.Minute))
	r.want(resilience.HalfOpen)
	err := r.refused()
	const half = `circuit breaker half-open for "milvus", failing fast; %s; last failure: upstream is down`
	assert.EqualError(t, err, fmt.Sprintf(half, "next probe in 1m0s"))
	assert.False(t, r.Ready())
	r.at(11 * time.Minute)
	assert.EqualError(t, err, fmt.Sprintf(half, "next probe due"))
	r.succeed(1)
}

// Rule 17: OpenOnThrottle.
func TestRule17OpenOnThrottle(t *testing.T) {
	r := newRig(t, resilience.Config{OpenOnThrottle: true})
	r.allow().Settle(throttle(5 * time.Second))
	r.want(resilience.Open)
	assert.Equal(t, r.start.Add(5*time.Second), r.Snapshot().OpenUntil)
	assert.Equal(t, "throttled", r.refused().Reason())
	r.at(5 * time.Second)
	r.succeed(1)
	r.allow().Settle(throttle(0))
	assert.Equal(t, r.start.Add(65*time.Second), r.Snapshot().OpenUntil)
}

// Rule 18.
func TestRule18DeniedIsNeutralByDefault(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(4)
	r.act("denied")
	assert.Equal(t, 4, r.Snapshot().Streak)
	r.fail(1)
	r.at(time.Minute)
	r.act("denied")
	r.want(resilience.HalfOpen)
	r.wantTotals("calls 7, failures 5, denied 2, probes 1, opened 1")
}

// Rule 18: StopOnDenied.
func TestRule18StopOnDenied(t *testing.T) {
	errKey := errors.New("401 invalid api key")
	for _, probe := range []bool{false, true} {
		r := newRig(t, resilience.Config{StopOnDenied: true, Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Denied}
		}})
		if probe {
			r.due()
		}
		since := r.clock.Now()
		_ = r.Do(t.Context(), func(context.Context) error { return errKey })
		r.clock.Advance(365 * 24 * time.Hour)
		r.want(resilience.Open)
		assert.False(t, r.Ready())
		assert.Zero(t, r.Snapshot().OpenUntil)
		err := r.Do(t.Context(), fine)
		var denied *resilience.DeniedError
		require.ErrorAs(t, err, &denied)
		require.NotErrorIs(t, err, resilience.ErrOpen, "a credential stop is no outage")
		require.NotErrorIs(t, err, errKey)
		assert.Same(t, errKey, denied.Cause())
		assert.Equal(t, "milvus", denied.Upstream())
		assert.Equal(t, since, denied.Since())
		assert.EqualError(
			t,
			err,
			`"milvus" denied its credential or quota, not calling it again; fix that and reset the breaker: 401 invalid api key`,
		)
		r.Trip("no effect")
		r.Reset()
		r.succeed(1)
	}
}

// Rule 19.
func TestRule19GarbageDoesNotCloseTheBreaker(t *testing.T) {
	errGarbage := errors.New("no vectors in the answer")
	r := newRig(t, resilience.Config{})
	op := resilience.Op[[]int]{Validate: func(v []int) error {
		if len(v) == 0 {
			return errGarbage
		}
		return nil
	}}
	ask := func(answer []int) error {
		_, err := resilience.CallOp(
			t.Context(),
			r.Breaker,
			op,
			func(context.Context) ([]int, error) { return answer, nil },
		)
		return err
	}
	r.due()
	require.Same(t, errGarbage, ask(nil))
	r.want(resilience.Open)
	r.at(2 * time.Minute)
	require.NoError(t, ask([]int{1}))
	r.want(resilience.Closed)
}

// leave runs fn in a goroutine of its own and returns what it panicked with,
// and the stack, or nil for Goexit.
func leave(fn func()) (value any, stack string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value = recover(); value != nil {
				buf := make([]byte, 16<<10)
				stack = string(buf[:runtime.Stack(buf, false)])
			}
		}()
		fn()
	}()
	<-done
	return value, stack
}

func explode(context.Context) error { panic("boom") }

// Rule 20.
func TestRule20PanicsGoOnAndFreeTheSlot(t *testing.T) {
	bad := resilience.Op[int]{
		Classify: func(context.Context, error) resilience.Verdict { panic("classifier") },
		Validate: func(int) error { panic("validator") },
	}
	for _, row := range []struct {
		name string
		fn   func(r *rig)
		want any
	}{
		{"function", func(r *rig) { _ = r.Do(context.Background(), explode) }, "boom"},
		{"goexit", func(r *rig) {
			_ = r.Do(context.Background(), func(context.Context) error { runtime.Goexit(); return nil })
		}, nil},
		{"classifier", func(r *rig) {
			fail := func(context.Context) (int, error) { return 0, errDown }
			_, _ = resilience.CallOp(context.Background(), r.Breaker, bad, fail)
		}, "classifier"},
		{"validator", func(r *rig) {
			_, _ = resilience.CallOp(context.Background(), r.Breaker, bad,
				func(context.Context) (int, error) { return 0, nil })
		}, "validator"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, resilience.Config{})
			r.fail(4)
			got, stack := leave(func() { row.fn(r) })
			assert.Equal(t, row.want, got)
			if row.name == "function" {
				assert.True(
					t,
					strings.Contains(stack, "resilience_test.explode"),
					"the stack of the panic is kept:\n%s",
					stack,
				)
			}
			assert.Equal(t, 4, r.Snapshot().Streak, "a bug here says nothing about the upstream")
			r.fail(1)
			r.at(time.Minute)
			leave(func() { row.fn(r) })
			r.want(resilience.HalfOpen)
			r.succeed(1)
			r.wantTotals("calls 8, successes 1, failures 5, panics 2, probes 2, opened 1")
		})
	}
}

// Rule 20: a permit whose classifier panics has ended all the same.
func TestRule20PanickingClassifierOfAPermit(t *testing.T) {
	r := newRig(t, resilience.Config{Classify: func(context.Context, error) resilience.Verdict { panic("classifier") }})
	p := r.allow()
	got, _ := leave(func() { p.Done(errDown) })
	assert.Equal(t, "classifier", got)
	p.Done(nil)
	r.wantTotals("calls 1, panics 1")
}

// Rule 14 by example: errors that a door may call a success.
func TestRule14AnswersThatProveTheUpstreamWorks(t *testing.T) {
	r := newRig(t, resilience.Config{})
	for _, status := range []int{
		http.StatusNotFound, http.StatusNotModified, http.StatusConflict, http.StatusPreconditionFailed,
	} {
		r.fail(4)
		r.allow().Settle(resilience.Verdict{Outcome: resilience.Success})
		assert.Zero(t, r.Snapshot().Streak, "status %d", status)
	}
}
