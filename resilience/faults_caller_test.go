package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// Faults that callers met, one test each, named after the fault.

// Five callers left, and the driver said so in words of its own.
func TestFaultCancellationInTheDriversWordsOpens(t *testing.T) {
	for name, err := range map[string]error{
		"gRPC":      status.Error(codes.Canceled, "context canceled"),
		"plain":     errors.New("canceling statement due to user request"),
		"wrapped":   fmt.Errorf("query: %w", context.Canceled),
		"broken":    errors.New("use of closed network connection"),
		"deadline?": context.DeadlineExceeded,
	} {
		r := newRig(t, resilience.Config{})
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			require.Equal(t, err, r.Do(ctx, func(context.Context) error { cancel(); return err }))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		p, allowed := r.Allow(ctx)
		require.NoError(t, allowed)
		cancel(errors.New("the budget is spent"))
		p.Done(err)
		r.want(resilience.Closed)
		assert.Equal(t, "calls 6, ignored 6", totals(r.Snapshot()), name)
	}
}

// The caller's context decides for a classifier that never looks at it, too,
// but only about what would have counted against the upstream.
func TestFaultCancellationAndAClassifierOfItsOwn(t *testing.T) {
	for outcome, want := range map[resilience.Outcome]string{
		resilience.Failure:   "calls 1, ignored 1",
		resilience.Success:   "calls 1, successes 1",
		resilience.Throttled: "calls 1, throttled 1",
		resilience.Denied:    "calls 1, denied 1",
	} {
		var told resilience.Verdict
		op := resilience.Op[int]{
			Classify: func(context.Context, error) resilience.Verdict { return resilience.Verdict{Outcome: outcome} },
			Settled:  func(v resilience.Verdict) { told = v },
		}
		r := newRig(t, resilience.Config{FailMax: 1})
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = resilience.CallOp(ctx, r.Breaker, op, func(context.Context) (int, error) { cancel(); return 0, errDown })
		r.wantTotals(want)
		ignored := told.Outcome == resilience.Ignored
		assert.Equal(t, outcome == resilience.Failure, ignored, "%v told as %v", outcome, told)
	}
}

// A call that hangs until its caller's deadline is an outage all the same.
func TestFaultADeadlineIsNoCancellation(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	verdict := r.Config().Classify(ctx, errors.New("i/o timeout"))
	assert.Equal(t, resilience.Failure, verdict.Outcome)
}

// The refusal of a breaker further in counted as a failure of the outer one.
func TestFaultInnerRefusalOpensTheOuterBreaker(t *testing.T) {
	open := testutil.NewBreaker(t, "open", resilience.Config{Logger: quiet})
	open.Trip("drill")
	denied := testutil.NewBreaker(t, "denied", resilience.Config{Logger: quiet, StopOnDenied: true})
	p, err := denied.Allow(t.Context())
	require.NoError(t, err)
	p.Settle(resilience.Verdict{Outcome: resilience.Denied})
	for _, inner := range []*resilience.Breaker{open, denied} {
		for name, wrap := range map[string]func(error) error{
			"bare":    func(err error) error { return err },
			"wrapped": func(err error) error { return fmt.Errorf("%w: page 2: %w", errDown, err) },
			"joined":  func(err error) error { return errors.Join(err, nil) },
		} {
			outer := newRig(t, resilience.Config{FailMax: 1})
			refuse := func(ctx context.Context) error { return wrap(inner.Do(ctx, fine)) }
			require.Error(t, outer.Do(t.Context(), refuse))
			permit := outer.allow()
			permit.Done(refuse(t.Context()))
			permit = outer.allow()
			permit.Settle(resilience.Verdict{Outcome: resilience.Failure}, refuse(t.Context()))
			outer.want(resilience.Closed)
			assert.Equal(t, "calls 3, ignored 3", totals(outer.Snapshot()), "%s, %s", inner.Name(), name)
			assert.NoError(t, outer.Snapshot().LastFailure)
		}
	}
}

// A probe that only met another breaker's refusal proves nothing: its slot is
// free again.
func TestFaultInnerRefusalOfAProbe(t *testing.T) {
	inner := testutil.NewBreaker(t, "inner", resilience.Config{Logger: quiet})
	inner.Trip("drill")
	r := newRig(t, resilience.Config{})
	r.due()
	err := r.Do(t.Context(), func(ctx context.Context) error { return inner.Do(ctx, fine) })
	require.ErrorIs(t, err, resilience.ErrOpen)
	r.want(resilience.HalfOpen)
	r.succeed(1)
	r.want(resilience.Closed)
}

// A worker that marked its own context was refused for ever by a closed
// breaker.
func TestFaultWorkerThatIsATaskIsRefusedForEver(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	worker := resilience.WithTask(t.Context(), "worker")
	r.fail(1)
	require.Error(t, r.Do(resilience.NewTask(worker, "job 1"), fine))
	r.at(time.Hour)
	r.succeed(1)
	for i := range 1000 {
		require.NoError(t, r.Do(resilience.NewTask(worker, fmt.Sprint("job ", i)), fine))
	}
	require.NoError(t, r.Do(worker, fine), "what a job was refused is not the worker's")
}

// A new task is as much of a latch as any, apart from the outer one, and a
// library's WithTask below it shares it.
func TestNewTaskLatchesByItself(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	outer := resilience.WithTask(t.Context(), "outer")
	r.fail(1)
	job := resilience.NewTask(outer, "job")
	first := r.Do(job, fine)
	require.ErrorIs(t, first, resilience.ErrOpen)
	require.ErrorIs(t, r.Do(outer, fine), resilience.ErrOpen)
	r.at(time.Minute)
	assert.Same(t, first, r.Do(resilience.WithTask(job, "in a library"), fine))
	require.NoError(t, r.Do(resilience.NewTask(job, "next"), fine))
	require.Error(t, r.Do(outer, fine))
	require.NoError(t, r.Do(resilience.WithoutTask(outer), fine), "left")
	assert.Equal(t, t.Context(), resilience.WithoutTask(t.Context()), "there is nothing to leave")
	require.Error(t, r.Do(job, fine))
}

// A slow probe closed a breaker that slow calls had opened, so that it flapped.
func TestFaultSlowProbeCloses(t *testing.T) {
	slow := trip.SlowCall{Threshold: time.Second}
	for name, rule := range map[string]trip.Rule{
		"calls": trip.CountWindow{Size: 4, MinCalls: 4, Slow: slow},
		"time":  trip.TimeWindow{Period: time.Hour, MinCalls: 4, Slow: slow},
	} {
		r := newRig(t, resilience.Config{Trip: rule, SuccessThreshold: 2})
		call := func(took time.Duration) {
			p := r.allow()
			r.clock.Advance(took)
			p.Done(nil)
		}
		for range 4 {
			call(time.Second)
		}
		r.want(resilience.Open)
		r.clock.Advance(time.Minute)
		call(time.Second - 1)
		call(time.Second)
		r.want(resilience.Open)
		last := r.seen.Transitions()[2]
		assert.Equal(t, "probe too slow", last.Reason, name)
		assert.Equal(t, [2]int{2, 1}, [2]int{last.Eligible, last.Failures}, name)
		r.clock.Advance(time.Minute)
		call(0)
		call(time.Second - 1)
		r.want(resilience.Closed)
		r.wantTotals("calls 8, successes 8, probes 4, opened 2")
	}
}

// A hung probe that came back at last was counted twice: as a failure when its
// lease ran out, and as stale.
func TestFaultHungProbeIsCountedTwice(t *testing.T) {
	for name, end := range map[string]func(*resilience.Permit){
		"done":     func(p *resilience.Permit) { p.Done(nil) },
		"failed":   func(p *resilience.Permit) { p.Done(errDown) },
		"panicked": (*resilience.Permit).Panicked,
		"settled":  func(p *resilience.Permit) { p.Settle(verdicts["throttled"]) },
	} {
		r := newRig(t, resilience.Config{ProbeTimeout: time.Second, FailMax: 1, MaxProbes: 2})
		r.fail(1)
		r.at(time.Minute)
		hung, beside := r.allow(), r.allow()
		r.at(time.Hour)
		end(hung)
		end(hung)
		assert.Equal(t, "calls 2, failures 2, probes 2, opened 2", totals(r.Snapshot()), name)
		end(beside)
		assert.Equal(t, "calls 2, failures 2, stale 1, probes 2, opened 2", totals(r.Snapshot()), name)
	}
}

// Many probes hang and come back in another order, some of them never.
func TestFaultHungProbesThatComeBackInAnyOrder(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	r.fail(1)
	var hung []*resilience.Permit
	for range 10 {
		r.clock.Advance(2 * time.Minute)
		hung = append(hung, r.allow())
	}
	r.clock.Advance(2 * time.Minute)
	for _, i := range []int{9, 0, 5, 3, 4} {
		hung[i].Done(nil)
	}
	r.succeed(1)
	r.wantTotals("calls 12, successes 1, failures 11, probes 11, opened 11")
}

// State and Outcome wrote themselves as text that they could not read.
func TestFaultStateCannotReadItsOwnText(t *testing.T) {
	type record struct {
		State   resilience.State
		Outcome resilience.Outcome
		By      map[resilience.State]int
	}
	for s := resilience.Closed; s <= resilience.Open; s++ {
		for o := resilience.Success; o <= resilience.Denied; o++ {
			want := record{s, o, map[resilience.State]int{s: 1}}
			text, err := json.Marshal(want)
			require.NoError(t, err)
			var got record
			require.NoError(t, json.Unmarshal(text, &got), "%s", text)
			assert.Equal(t, want, got)
		}
	}
	var s resilience.State
	require.EqualError(t, json.Unmarshal([]byte(`"Closed"`), &s),
		`resilience: "Closed" is no state; it is one of closed, half_open, open`)
	require.Error(t, s.UnmarshalText(nil))
	var o resilience.Outcome
	require.EqualError(t, o.UnmarshalText([]byte("Outcome(7)")),
		`resilience: "Outcome(7)" is no outcome; it is one of success, failure, ignored, throttled, denied`)
}
