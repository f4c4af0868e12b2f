package resilience_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

// window is [failures, calls] as a snapshot shows them.
func (r *rig) window() [2]int {
	s := r.Snapshot()
	return [2]int{s.WindowFailures, s.WindowCalls}
}

// Rule 21: the last Size calls; the threshold is inclusive and compared in
// integers, for every rate that floats would miss.
func TestRule21ThresholdIsExact(t *testing.T) {
	for calls := 1; calls <= 60; calls++ {
		for failures := 1; failures <= calls; failures++ {
			r := newRig(t, resilience.Config{Trip: trip.CountWindow{
				Size: calls, MinCalls: calls, FailureRate: float64(failures) / float64(calls),
			}})
			r.succeed(calls - failures)
			r.fail(failures - 1)
			require.Equal(t, resilience.Closed, r.State(), "%d of %d, before", failures, calls)
			r.fail(1)
			// Even if the rate is not a whole number of parts per million, as
			// 2/3.
			require.Equal(t, resilience.Open, r.State(), "%d of %d", failures, calls)
		}
	}
}

// Rule 21: old calls leave the window one by one.
func TestRule21CountWindowForgetsTheOldest(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.CountWindow{Size: 4, MinCalls: 4, FailureRate: 0.75}})
	for range 10 { // fail fail ok ok, over and over, is never 3 of 4
		r.fail(2)
		r.succeed(2)
		assert.Equal(t, [2]int{2, 4}, r.window())
	}
	r.succeed(4)
	assert.Equal(t, [2]int{0, 4}, r.window())
}

// A window replaces FailMax: cold-start failures below the minimum open
// nothing.
func TestRule21FiveColdStartFailures(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.CountWindow{Size: 20, MinCalls: 10}})
	r.fail(9)
	r.want(resilience.Closed)
	assert.Equal(t, 9, r.Snapshot().Streak)
	r.fail(1)
	r.want(resilience.Open)
	assert.Equal(t, "failure rate", r.refused().Reason())
}

// Rule 22: buckets slide; boundaries at −1 ns, 0 and +1 ns.
func TestRule22BucketsSlide(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		at   time.Duration
		want [2]int
	}{
		{0, [2]int{1, 1}},
		{59 * s, [2]int{1, 1}},
		{60*s - 1, [2]int{1, 1}},
		{60 * s, [2]int{0, 0}},
		{60*s + 1, [2]int{0, 0}},
		{time.Hour, [2]int{0, 0}},
	} {
		r := newRig(t, resilience.Config{Trip: trip.TimeWindow{Period: time.Minute, Buckets: 6}})
		r.fail(1)
		r.at(row.at)
		require.Equal(t, row.want, r.window(), "row %+v", row)
		r.succeed(1)
		require.Equal(t, [2]int{row.want[0], row.want[1] + 1}, r.window(), "row %+v", row)
	}
}

// Rule 22: opening, one bucket, and sliding past several at once.
func TestRule22TimeWindowOpens(t *testing.T) {
	const s = time.Second
	for _, buckets := range []int{1, 2, 7, 60} {
		r := newRig(t, resilience.Config{Trip: trip.TimeWindow{Period: time.Minute, Buckets: buckets, MinCalls: 4}})
		r.play([]step{
			{0, "fail", resilience.Closed},
			{0, "fail", resilience.Closed},
			{0, "fail", resilience.Closed},
			{120 * s, "fail", resilience.Closed}, // the first three are gone
			{120 * s, "ok", resilience.Closed},
			{121 * s, "ok", resilience.Closed},
			{122 * s, "fail", resilience.Open}, // 2 of 4
			{150 * s, "refused", resilience.Open},
		})
		assert.Equal(t, [2]int{2, 4}, r.window(), "%d buckets, while open", buckets)
		r.play([]step{{182 * s, "ok", resilience.Closed}})
		assert.Equal(t, [2]int{0, 0}, r.window())
	}
}

// Rule 22: a result whose time was read before the window slid goes to its own
// bucket, or to the oldest live one.
func TestRule22LateResultGoesToTheOldestBucket(t *testing.T) {
	const s = time.Second
	r := newRig(t, resilience.Config{Trip: trip.TimeWindow{Period: 10 * s, Buckets: 10}})
	r.at(100 * s)
	r.succeed(1)
	r.at(95 * s)
	r.fail(1) // its own bucket
	r.at(50 * s)
	r.fail(1) // the oldest, 91 s
	r.at(-50 * s)
	r.fail(1) // that one too
	r.at(100 * s)
	assert.Equal(t, [2]int{3, 4}, r.window())
	r.at(101 * s)
	assert.Equal(t, [2]int{1, 2}, r.window())
	r.at(105 * s)
	assert.Equal(t, [2]int{0, 1}, r.window())
	r.at(110 * s)
	assert.Equal(t, [2]int{0, 0}, r.window())
}

// Rule 22: a clock that starts before the breaker's base.
func TestRule22NegativeTime(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.TimeWindow{Period: 10, Buckets: 3}})
	r.at(-7)
	r.fail(2)
	assert.Equal(t, [2]int{2, 2}, r.window())
}

// Rule 23: slow calls open a window though they succeed, −1 ns, 0 and +1 ns
// about the threshold.
func TestRule23SlowCalls(t *testing.T) {
	slow := trip.SlowCall{Threshold: time.Second, Rate: 0.5}
	for name, trip := range map[string]trip.Rule{
		"count": trip.CountWindow{Size: 4, MinCalls: 2, Slow: slow},
		"time":  trip.TimeWindow{MinCalls: 2, Slow: slow},
	} {
		for _, row := range []struct {
			took time.Duration
			want resilience.State
		}{{time.Second - 1, resilience.Closed}, {time.Second, resilience.Open}, {time.Second + 1, resilience.Open}} {
			r := newRig(t, resilience.Config{Trip: trip})
			take := func(d time.Duration) {
				require.NoError(t, r.Do(t.Context(), func(context.Context) error { r.clock.Advance(d); return nil }))
			}
			take(0)
			take(row.took)
			require.Equal(t, row.want, r.State(), "%s, row %+v", name, row)
			if row.want == resilience.Open {
				assert.Equal(t, "slow call rate", r.refused().Reason())
				assert.Equal(t, 1, r.Snapshot().WindowSlow)
			}
		}
	}
}

// Rule 23: a slow failure counts as both.
func TestRule23SlowFailure(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.CountWindow{Size: 4, MinCalls: 4, Slow: trip.SlowCall{Threshold: 1}}})
	_ = r.Do(t.Context(), func(context.Context) error { r.clock.Advance(1); return errDown })
	s := r.Snapshot()
	assert.Equal(t, []int{1, 1, 1}, []int{s.WindowCalls, s.WindowFailures, s.WindowSlow})
}
