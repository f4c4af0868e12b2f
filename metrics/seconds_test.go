package metrics_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// spent are the seconds in closed, open and half-open.
func spent(got map[string]float64) [3]float64 {
	return [3]float64{
		got["state_seconds_total closed"], got["state_seconds_total open"], got["state_seconds_total half_open"],
	}
}

func sum(s [3]float64) float64 { return s[0] + s[1] + s[2] }

// TestSecondsWhenTheWallClockSteps sets it back and forth throughout.
func TestSecondsWhenTheWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 0} {
		for _, scrapes := range []bool{true, false} {
			clock := testutil.NewClock()
			reg := registry(clock)
			b := reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Minute})
			c := metrics.NewCollector(reg)
			pass := func(d time.Duration) {
				clock.Advance(d)
				clock.Step(step)
				if scrapes {
					values(t, c, "s3")
				}
			}
			pass(10 * time.Second)
			fail(t, b, 1)
			pass(20 * time.Second)
			want(t, values(t, c, "s3"), map[string]float64{
				"open_until_timestamp_seconds ": unix(clock.Now().Add(40 * time.Second)),
			}, "a date is of the wall clock as it is now")
			pass(50 * time.Second)
			succeed(t, b)
			pass(5 * time.Second)
			b.ForceOpen("op")
			pass(7 * time.Second)
			got := values(t, c, "s3")
			assert.Equal(t, [3]float64{15, 67, 10}, spent(got), "%v, %v", step, scrapes)
			want(t, got, map[string]float64{
				"held_since_timestamp_seconds ": unix(clock.Now().Add(-7 * time.Second)),
			}, "so is this one")
		}
	}
}

// slow is a breaker with an observer that waits, once, until resume.
func slow(t *testing.T) (b *resilience.Breaker, c *metrics.Collector, clock *testutil.FakeClock, resume func()) {
	t.Helper()
	clock = testutil.NewClock()
	reg := registry(clock)
	waits, goOn, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first, last := true, ""
	b = reg.MustRegister("s3", resilience.Config{
		FailMax: 1, ResetTimeout: time.Minute,
		OnTransition: func(resilience.Transition) {
			if first {
				first = false
				close(waits)
				<-goOn
			}
		},
	})
	c = metrics.NewCollector(reg)
	b.Observe(func(tr resilience.Transition) {
		if last = tr.Reason; last == "the last" {
			close(told)
		}
	})
	go b.Trip("the first")
	<-waits
	return b, c, clock, func() {
		b.Reset()
		b.Trip("the last")
		close(goOn)
		<-told
	}
}

// TestSecondsWhileEventsWait has a slow observer keep events back, so that a
// scrape sees what the collector was not told of.
func TestSecondsWhileEventsWait(t *testing.T) {
	b, c, clock, resume := slow(t) // open, which nobody has been told
	for _, step := range []struct {
		do   func()
		want [3]float64
	}{
		{func() {}, [3]float64{0, 10, 0}},
		{b.Reset, [3]float64{10, 10, 0}},
		{func() { b.Trip("again") }, [3]float64{10, 20, 0}},
		{func() { clock.Advance(time.Minute) }, [3]float64{10, 70, 20}},
		{func() { b.ForceOpen("op") }, [3]float64{10, 80, 20}},
		{func() { b.ForceClose("op") }, [3]float64{20, 80, 20}},
	} {
		step.do()
		clock.Advance(10 * time.Second)
		assert.Equal(t, step.want, spent(values(t, c, "s3")))
	}
	resume()
	clock.Advance(10 * time.Second)
	got := values(t, c, "s3")
	assert.Equal(t, [3]float64{20, 90, 20}, spent(got), "no second is counted again when the events are told")
	assert.InDelta(t, 3, got["transitions_total closed open"], 0)
	assert.InDelta(t, 2, got["transitions_total open closed"], 0)
}

// TestSecondsWhereEventsWereDropped loses more than a thousand transitions.
func TestSecondsWhereEventsWereDropped(t *testing.T) {
	b, c, clock, resume := slow(t)
	passed := 0.0
	pass := func() {
		clock.Advance(time.Second)
		passed++
	}
	for i := range 3000 {
		pass()
		b.Reset()
		pass()
		b.Trip("flapping")
		if i%1000 == 999 {
			assert.InDelta(t, passed, sum(spent(values(t, c, "s3"))), 1e-6)
		}
	}
	resume()
	pass()
	got := values(t, c, "s3")
	assert.InDelta(t, passed, sum(spent(got)), 1e-6)
	assert.InDelta(t, 3002, got["opened_total "], 0, "the breaker's own count is whole")
	assert.Less(t, got["transitions_total closed open"], 3002.0)
	clock.Advance(30 * time.Second)
	after := values(t, c, "s3")
	assert.InDelta(t, 30, spent(after)[1]-spent(got)[1], 1e-6, "it continues in the right state")
}

// TestSecondsOfABreakerThatComesBack has a family forget a breaker that the
// program holds.
func TestSecondsOfABreakerThatComesBack(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	keyed, err := reg.Keyed("tenant", resilience.Config{MaxKeys: 1, FailMax: 2})
	require.NoError(t, err)
	c := metrics.NewCollector(reg)
	held := keyed.Get("held")
	for i := range 20 {
		values(t, c, held.Name())
		clock.Advance(time.Second)
		keyed.Get(strconv.Itoa(i))
		values(t, c, held.Name())
		clock.Advance(time.Second)
		_ = held.Do(t.Context(), func(context.Context) error { return nil })
	}
	got := values(t, c, held.Name())
	assert.Equal(t, [3]float64{40, 0, 0}, spent(got))
	fail(t, held, 2)
	assert.InDelta(t, 1, values(t, c, held.Name())["transitions_total closed open"], 0)
}
