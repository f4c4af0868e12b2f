package resilience_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

var err503 = errors.New("503 service unavailable")

// unavailable is a call that is answered with a 503 and a time to wait.
func (r *rig) unavailable(times int, wait time.Duration) {
	r.t.Helper()
	for range times {
		p := r.allow()
		p.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: wait, Unavailable: true}, err503)
	}
}

// Rule 17: an unavailable upstream opens the breaker, until the later of its
// hold and the reset timeout.
func TestRule17UnavailableOpens(t *testing.T) {
	for _, row := range []struct{ asked, wait time.Duration }{
		{time.Second, time.Minute},
		{time.Minute, time.Minute},
		{90 * time.Second, 90 * time.Second},
		{time.Hour, 5 * time.Minute}, // capped
		{0, time.Minute},
		{-time.Second, time.Minute},
	} {
		r := newRig(t, resilience.Config{})
		r.unavailable(4, row.asked)
		r.want(resilience.Closed)
		r.unavailable(1, row.asked)
		r.want(resilience.Open)
		assert.Equal(t, r.start.Add(row.wait), r.Snapshot().OpenUntil, "row %+v", row)
		open := r.refused()
		assert.Equal(t, "consecutive failures", open.Reason())
		assert.Same(t, err503, open.LastFailure())
		r.wantTotals("calls 5, throttled 5, rejected 1, opened 1")
		assert.Equal(t, 5, r.seen.Transitions()[0].Failures)
		r.at(row.wait)
		r.succeed(1)
		r.want(resilience.Closed)
	}
}

// Rule 17: unavailable answers and failures are one streak, which a success
// clears and a 429 leaves alone.
func TestRule17UnavailableIsPartOfTheStreak(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 3})
	r.play([]step{
		{0, "unavailable", resilience.Closed},
		{0, "fail", resilience.Closed},
		{0, "ok", resilience.Closed},
		{0, "unavailable", resilience.Closed},
		{0, "throttled", resilience.Closed},
		{0, "unavailable", resilience.Closed},
		{0, "ignored", resilience.Closed},
		{0, "fail", resilience.Open},
	})
	r.wantTotals("calls 8, successes 1, failures 2, ignored 1, throttled 4, opened 1")
}

// Rule 17: a 429 never opens, however many there are.
func TestRule17ThrottlingAloneNeverOpens(t *testing.T) {
	r := newRig(t, resilience.Config{})
	w := newRig(t, resilience.Config{Trip: trip.CountWindow{Size: 2}})
	for range 1000 {
		r.allow().Settle(throttle(time.Hour))
		w.allow().Settle(throttle(time.Hour))
	}
	r.want(resilience.Closed)
	w.want(resilience.Closed)
	state, streak, _ := r.Streak()
	assert.Equal(t, resilience.Closed, state)
	assert.Zero(t, streak)
}

// Rules 17, 21 and 22: windows count it as a failed call.
func TestRule17UnavailableCountsInWindows(t *testing.T) {
	for _, trip := range []trip.Rule{
		trip.CountWindow{Size: 4, MinCalls: 4, FailureRate: 0.5},
		trip.TimeWindow{MinCalls: 4, FailureRate: 0.5},
	} {
		r := newRig(t, resilience.Config{Trip: trip})
		r.succeed(2)
		r.unavailable(1, 2*time.Minute)
		s := r.Snapshot()
		assert.Equal(t, [2]int{1, 3}, [2]int{s.WindowFailures, s.WindowCalls})
		r.unavailable(1, 2*time.Minute)
		r.want(resilience.Open)
		assert.Equal(t, r.start.Add(2*time.Minute), r.Snapshot().OpenUntil)
		assert.Equal(t, "failure rate", r.refused().Reason())
	}
}

// Rule 17: in half-open it is a throttled probe like any other, and a breaker
// that opens on throttling needs no FailMax of them.
func TestRule17UnavailableProbe(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	r.unavailable(1, 90*time.Second)
	r.want(resilience.Open)
	open := r.refused()
	assert.Equal(t, r.start.Add(150*time.Second), open.RetryAt())
	assert.Equal(t, "throttled", open.Reason())
	assert.Same(t, err503, open.LastFailure())
	o := newRig(t, resilience.Config{OpenOnThrottle: true})
	o.unavailable(1, 5*time.Second)
	assert.Equal(t, o.start.Add(5*time.Second), o.Snapshot().OpenUntil)
	assert.Equal(t, "throttled", o.refused().Reason())
	f := newRig(t, resilience.Config{OpenOnThrottle: true, FailMax: 1})
	f.unavailable(1, 5*time.Second)
	assert.Equal(t, f.start.Add(time.Minute), f.Snapshot().OpenUntil)
}

// Rule 17: Unavailable changes nothing beside another outcome.
func TestRule17UnavailableGoesWithThrottledAlone(t *testing.T) {
	for _, outcome := range []resilience.Outcome{resilience.Success, resilience.Ignored, resilience.Denied} {
		r := newRig(t, resilience.Config{FailMax: 1})
		r.allow().Settle(resilience.Verdict{Outcome: outcome, Unavailable: true})
		r.want(resilience.Closed)
	}
}

// Op.Settled is told what the breaker counted: once, and after it has counted.
func TestSettledHearsTheVerdictThatCounted(t *testing.T) {
	unavailable := resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Second, Unavailable: true}
	failed := resilience.Verdict{Outcome: resilience.Failure}
	says := func(v resilience.Verdict) func(context.Context, error) resilience.Verdict {
		return func(context.Context, error) resilience.Verdict { return v }
	}
	for name, row := range map[string]struct {
		err      error
		classify func(context.Context, error) resilience.Verdict
		validate error
		want     resilience.Verdict
		totals   string
	}{
		"success":    {totals: "calls 1, successes 1"},
		"failure":    {err: errDown, want: failed, totals: "calls 1, failures 1"},
		"good error": {err: errDown, classify: says(resilience.Verdict{}), totals: "calls 1, successes 1"},
		"unavailable": {
			err: errDown, classify: says(unavailable), want: unavailable, totals: "calls 1, throttled 1",
		},
		"garbage": {validate: errDown, want: failed, totals: "calls 1, failures 1"},
		"unknown outcome": {
			err: errDown, classify: says(resilience.Verdict{Outcome: 9, RetryAfter: -1, Unavailable: true}),
			want: failed, totals: "calls 1, failures 1",
		},
	} {
		r := newRig(t, resilience.Config{})
		var heard []resilience.Verdict
		op := resilience.Op[int]{
			Classify: row.classify,
			Validate: func(int) error { return row.validate },
			Settled: func(v resilience.Verdict) {
				r.wantTotals(row.totals)
				heard = append(heard, v)
			},
		}
		_, err := resilience.CallOp(
			t.Context(),
			r.Breaker,
			op,
			func(context.Context) (int, error) { return 1, row.err },
		)
		assert.Equal(t, row.err != nil || row.validate != nil, err != nil, name)
		assert.Equal(t, []resilience.Verdict{row.want}, heard, name)
	}
}

// Rule 16: Op.Settled is told that a call ran out of CallTimeout.
func TestSettledHearsThatTheTimeRanOut(t *testing.T) {
	r := newRig(t, resilience.Config{CallTimeout: time.Nanosecond})
	var heard []resilience.Verdict
	op := resilience.Op[int]{
		Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Ignored}
		},
		Settled: func(v resilience.Verdict) { heard = append(heard, v) },
	}
	_, err := resilience.CallOp(t.Context(), r.Breaker, op, func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, []resilience.Verdict{{Outcome: resilience.Failure}}, heard)
}

func TestSettledHearsNothingOfARefusalOrAPanic(t *testing.T) {
	r := newRig(t, resilience.Config{})
	op := resilience.Op[int]{Settled: func(v resilience.Verdict) { t.Errorf("settled as %v", v) }}
	call := func() (int, error) {
		return resilience.CallOp(t.Context(), r.Breaker, op, func(context.Context) (int, error) { panic("a bug") })
	}
	assert.PanicsWithValue(t, "a bug", func() { _, _ = call() })
	r.Trip("drill")
	_, err := call()
	require.ErrorIs(t, err, resilience.ErrOpen)
}

// A Settled that panics leaves nothing behind.
func TestSettledMayPanic(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	op := resilience.Op[int]{Settled: func(resilience.Verdict) { panic("a bug") }}
	assert.PanicsWithValue(t, "a bug", func() {
		_, _ = resilience.CallOp(t.Context(), r.Breaker, op, func(context.Context) (int, error) { return 1, nil })
	})
	r.want(resilience.Closed)
	r.wantTotals("calls 1, successes 1, probes 1, opened 1")
}

func TestStreakIsWhatTheSnapshotShows(t *testing.T) {
	r := newRig(t, resilience.Config{})
	same := func(state resilience.State, streak int) {
		t.Helper()
		gotState, gotStreak, generation := r.Streak()
		s := r.Snapshot()
		assert.Equal(t, s.Generation, generation)
		assert.Equal(t, state, gotState)
		assert.Equal(t, streak, gotStreak)
		assert.Equal(t, [2]any{s.State, s.Streak}, [2]any{gotState, gotStreak})
	}
	same(resilience.Closed, 0)
	r.fail(3)
	same(resilience.Closed, 3)
	r.fail(2)
	same(resilience.Open, 5)
	r.at(time.Minute)
	same(resilience.HalfOpen, 5)
	r.succeed(1)
	same(resilience.Closed, 0)
}
