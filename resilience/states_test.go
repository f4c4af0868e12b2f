package resilience_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// Rule 1: the numbers of the gauge and the words of the log.
func TestRule1StateNumbersAndText(t *testing.T) {
	for state, want := range map[resilience.State]struct {
		number int
		text   string
	}{
		resilience.Closed:   {0, "closed"},
		resilience.HalfOpen: {1, "half_open"},
		resilience.Open:     {2, "open"},
		resilience.State(9): {9, "State(9)"},
	} {
		text, err := state.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, want.number, int(state))
		assert.Equal(t, want.text, string(text))
	}
}

func TestClosedStatePassesThrough(t *testing.T) {
	r := newRig(t, resilience.Config{})
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "mine")
	got, err := resilience.Call(ctx, r.Breaker, func(inner context.Context) (string, error) {
		assert.Equal(t, ctx, inner, "a closed call is not marked")
		return "answer", nil
	})
	require.NoError(t, err)
	assert.Equal(t, "answer", got)
	got, err = resilience.Call(ctx, r.Breaker, func(context.Context) (string, error) { return "partial", errDown })
	assert.Same(t, errDown, err)
	assert.Equal(t, "partial", got, "what the function returned with its error is the caller's")
	r.want(resilience.Closed)
	r.seen.Want()
}

// Rule 2.
func TestOpensAfter5ConsecutiveFailures(t *testing.T) {
	r := newRig(t, resilience.Config{})
	for i := range 5 {
		r.want(resilience.Closed)
		require.Equal(t, i, r.Snapshot().Streak)
		r.clock.Advance(24 * time.Hour) // however far apart
		r.fail(1)
	}
	r.want(resilience.Open)
	r.seen.Want("closed → open")
	assert.Equal(t, 5, r.seen.Transitions()[0].Failures)
}

// Rule 2: only consecutive failures count.
func TestSuccessClearsTheStreak(t *testing.T) {
	r := newRig(t, resilience.Config{})
	for range 100 {
		r.fail(4)
		r.succeed(1)
	}
	r.want(resilience.Closed)
	r.fail(5)
	r.want(resilience.Open)
}

// Rule 3.
func TestOpenBlocksCallsWithOpenError(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(5)
	r.clock.Advance(18 * time.Second)
	err := r.refused()
	require.ErrorIs(t, err, resilience.ErrOpen)
	assert.EqualError(t, err,
		`circuit breaker open for "milvus", failing fast; next probe in 42s; last failure: upstream is down`)
	assert.Same(t, err, r.refused(), "one value for a deadline")
	_, allowErr := r.Allow(t.Context())
	assert.Same(t, err, allowErr)
	got, callErr := resilience.Call(t.Context(), r.Breaker, func(context.Context) (int, error) { return 7, nil })
	assert.Same(t, err, callErr)
	assert.Zero(t, got)
}

// Rule 3: a refusal allocates nothing.
func TestOpenRefusalAllocatesNothing(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.Trip("drill")
	ctx := context.Background()
	r.refused() // the first is logged
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Do(ctx, fine) }))
}

// Rule 4, with the boundary at −1 ns, 0 and +1 ns.
func TestHalfOpenAfterResetTimeout(t *testing.T) {
	for _, row := range []struct {
		offset time.Duration
		want   resilience.State
	}{{-1, resilience.Open}, {0, resilience.HalfOpen}, {1, resilience.HalfOpen}} {
		r := newRig(t, resilience.Config{ResetTimeout: time.Minute})
		r.fail(5)
		r.at(time.Minute + row.offset)
		for range 3 { // reading changes nothing
			require.Equal(t, row.want, r.State(), "row %+v", row)
			require.Equal(t, row.want == resilience.HalfOpen, r.Ready(), "row %+v", row)
		}
		r.seen.Want("closed → open")
		p, err := r.Allow(t.Context())
		if row.want == resilience.Open {
			require.ErrorIs(t, err, resilience.ErrOpen, "row %+v", row)
			continue
		}
		require.NoError(t, err, "row %+v", row)
		r.seen.Want("closed → open", "open → half_open")
		p.Done(nil)
		r.seen.Want("closed → open", "open → half_open", "half_open → closed")
	}
}

// Rule 5.
func TestHalfOpenSuccessCloses(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(5)
	r.at(time.Minute)
	r.succeed(1)
	r.want(resilience.Closed)
	r.seen.Want("closed → open", "open → half_open", "half_open → closed")
	assert.Zero(t, r.Snapshot().Streak)
}

// Rule 5: a full wait from the failure of the probe, at −1 ns, 0 and +1 ns.
func TestHalfOpenFailureReopens(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(5)
	r.at(90 * time.Second)
	p := r.allow()
	r.at(100 * time.Second)
	p.Done(errDown)
	r.want(resilience.Open)
	r.at(160*time.Second - 1)
	r.want(resilience.Open)
	r.refused()
	r.at(160 * time.Second)
	r.want(resilience.HalfOpen)
	r.at(160*time.Second + 1)
	r.succeed(1)
	r.want(resilience.Closed)
}

// Rule 5: slots and the threshold of good probes.
func TestRule5ProbesAtATimeAndGoodProbesInARow(t *testing.T) {
	r := newRig(t, resilience.Config{MaxProbes: 2, SuccessThreshold: 3})
	r.due()
	one, two := r.allow(), r.allow()
	err := r.refused()
	assert.Equal(t, resilience.HalfOpen, err.State())
	assert.EqualError(t, err, `circuit breaker half-open for "milvus", failing fast; waiting for the probe in flight`)
	assert.Same(t, err, r.refused())
	assert.False(t, r.Ready())
	one.Done(nil)
	two.Done(nil)
	r.want(resilience.HalfOpen)
	r.fail(1) // throws the good ones away
	r.want(resilience.Open)
	r.at(2 * time.Minute)
	r.succeed(2)
	r.want(resilience.HalfOpen)
	r.succeed(1)
	r.want(resilience.Closed)
}

// Rule 6.
func TestRule6HundredthEpisodeTripsLikeTheFirst(t *testing.T) {
	for name, cfg := range map[string]resilience.Config{
		"consecutive":  {},
		"count window": {Trip: trip.CountWindow{Size: 5, MinCalls: 5, FailureRate: 1}},
		"time window":  {Trip: trip.TimeWindow{MinCalls: 5, FailureRate: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg)
			for range 100 {
				r.fail(4)
				r.want(resilience.Closed)
				r.fail(1)
				r.want(resilience.Open)
				r.clock.Advance(time.Minute)
				r.succeed(1)
				r.want(resilience.Closed)
				assert.Zero(t, r.Snapshot().WindowCalls)
			}
			assert.Equal(t, uint64(100), r.Snapshot().Opened)
		})
	}
}

func TestWorkedTimeline(t *testing.T) {
	const s = time.Second
	r := newRig(t, resilience.Config{
		Trip:         trip.CountWindow{Size: 6, MinCalls: 6, FailureRate: 0.5},
		ResetTimeout: 20 * s, SuccessThreshold: 2,
	})
	window := func(failures, calls int) {
		t.Helper()
		snap := r.Snapshot()
		assert.Equal(t, []int{failures, calls}, []int{snap.WindowFailures, snap.WindowCalls})
	}
	r.play([]step{
		{0, "ok", resilience.Closed},
		{2 * s, "fail", resilience.Closed},
		{4 * s, "ok", resilience.Closed},
		{6 * s, "fail", resilience.Closed},
		{8 * s, "ok", resilience.Closed},
	})
	window(2, 5)
	r.play([]step{{10 * s, "fail", resilience.Open}})
	window(3, 6)
	assert.Equal(t, r.start.Add(30*s), r.Snapshot().OpenUntil)
	r.play([]step{
		{11 * s, "refused", resilience.Open},
		{15 * s, "refused", resilience.Open},
		{19 * s, "refused", resilience.Open},
	})
	window(3, 6)
	r.at(30 * s)
	probe := r.allow()
	r.at(31 * s)
	probe.Done(nil)
	r.want(resilience.HalfOpen)
	r.at(34 * s)
	probe = r.allow()
	r.at(35 * s)
	probe.Done(errDown)
	r.want(resilience.Open)
	assert.Equal(t, r.start.Add(55*s), r.Snapshot().OpenUntil)
	for _, at := range []time.Duration{55 * s, 57 * s} {
		r.at(at)
		probe = r.allow()
		r.at(at + s)
		probe.Done(nil)
	}
	r.want(resilience.Closed)
	window(0, 0)
	r.wantTotals("calls 10, successes 6, failures 4, rejected 3, probes 4, opened 2")
	r.seen.Want("closed → open", "open → half_open", "half_open → open",
		"open → half_open", "half_open → closed")
}

// Rule 30: exact totals.
func TestExactCounts(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.succeed(2)
	r.fail(5)
	for range 3 {
		r.refused()
	}
	r.wantTotals("calls 7, successes 2, failures 5, rejected 3, opened 1")
}

func TestRateWindowOpensThenRecovers(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.CountWindow{Size: 4, MinCalls: 4, FailureRate: 0.5}})
	r.play([]step{
		{0, "fail", resilience.Closed},
		{1, "fail", resilience.Closed},
		{2, "ok", resilience.Closed},
		{3, "ok", resilience.Closed}, // 2 of 4, but a success opens nothing
		{4, "fail", resilience.Open}, // fail ok ok fail
		{5, "refused", resilience.Open},
		{4 + time.Minute, "ok", resilience.Closed},
		{5 + time.Minute, "fail", resilience.Closed},
		{6 + time.Minute, "fail", resilience.Closed},
		{7 + time.Minute, "fail", resilience.Closed}, // three of a minimum of four
		{8 + time.Minute, "fail", resilience.Open},
	})
}

// Rule 24: the clock goes backwards; time stands still for the breaker, and no
// wait gets shorter.
func TestRule24ClockGoingBackwards(t *testing.T) {
	const s = time.Second
	for name, steps := range map[string][]step{
		"while closed": {
			{10 * s, "fail", resilience.Closed},
			{0, "fail", resilience.Closed},
			{-5 * s, "fail", resilience.Closed},
			{3 * s, "fail", resilience.Closed},
			{0, "fail", resilience.Open}, // until 70 s, counted from the latest time seen
			{60 * s, "refused", resilience.Open},
			{70*s - 1, "refused", resilience.Open},
			{70 * s, "ok", resilience.Closed},
		},
		"while open": {
			{0, "trip", resilience.Open},
			{-time.Hour, "refused", resilience.Open},
			{60 * s, "look", resilience.HalfOpen},
			{59 * s, "refused", resilience.Open}, // looking had changed nothing
			{60 * s, "ok", resilience.Closed},
		},
		"while half-open": {
			{0, "trip", resilience.Open},
			{60 * s, "ignored", resilience.HalfOpen},
			{0, "look", resilience.HalfOpen},
			{0, "fail", resilience.Open}, // until 120 s
			{119 * s, "refused", resilience.Open},
			{120 * s, "ok", resilience.Closed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, resilience.Config{})
			r.play(steps)
			for _, e := range r.seen.Transitions() {
				assert.GreaterOrEqual(t, e.InState, time.Duration(0))
				assert.GreaterOrEqual(t, e.SinceOpened, time.Duration(0))
			}
		})
	}
}

// Rule 24: without a Clock only the monotonic clock is read; it keeps going
// where the wall clock is stripped.
func TestRule24SystemClockIsTheDefault(t *testing.T) {
	b := testutil.NewBreaker(t, "milvus", resilience.Config{
		ResetTimeout: time.Nanosecond, ProbeTimeout: time.Minute, Logger: quiet,
	})
	b.Trip("drill")
	require.Eventually(t, func() bool { return b.State() == resilience.HalfOpen }, time.Minute, time.Microsecond)
	require.NoError(t, b.Do(t.Context(), fine))
	assert.Equal(t, resilience.Closed, b.State())
}
