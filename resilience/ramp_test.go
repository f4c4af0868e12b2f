package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

// Rule 34: after failed probes the wait doubles, less up to half of it, up to
// MaxResetTimeout, and never below ResetTimeout; it starts again once closed.
func TestRule34WaitGrows(t *testing.T) {
	const s = time.Second
	bounds := [][2]time.Duration{
		{10 * s, 10 * s}, {10 * s, 20 * s}, {20 * s, 40 * s}, {30 * s, 60 * s}, {30 * s, 60 * s},
	}
	seen := map[time.Duration]bool{}
	for range 50 {
		r := newRig(t, resilience.Config{FailMax: 1, ResetTimeout: 10 * s, MaxResetTimeout: 60 * s})
		wait := func() time.Duration { return r.Snapshot().OpenUntil.Sub(r.clock.Now()) }
		for range 2 {
			for i, between := range bounds {
				r.fail(1)
				require.Equal(t, r.Snapshot().OpenUntil, r.refused().RetryAt())
				assert.GreaterOrEqual(t, wait(), between[0], "failed probe %d", i)
				assert.LessOrEqual(t, wait(), between[1], "failed probe %d", i)
				seen[wait()] = true
				r.clock.Advance(wait() - 1)
				r.want(resilience.Open)
				r.clock.Advance(1)
				r.want(resilience.HalfOpen)
			}
			r.succeed(1)
		}
	}
	assert.Greater(t, len(seen), 50, "jitter: no two processes wait alike")
}

// Rule 34: a hung probe and a slow one have failed too; a throttled one and an
// operator's Trip leave the wait what it is.
func TestRule34WhatMakesTheWaitGrow(t *testing.T) {
	const s = time.Second
	r := newRig(t, resilience.Config{ResetTimeout: 10 * s, MaxResetTimeout: 1000 * s, ProbeTimeout: s})
	wait := func() time.Duration { return r.Snapshot().OpenUntil.Sub(r.Snapshot().LastOpened) }
	r.Trip("drill")
	assert.Equal(t, 10*s, wait())
	r.clock.Advance(10 * s)
	r.allow().Settle(resilience.Verdict{Outcome: resilience.Throttled})
	assert.Equal(t, 10*s, wait())
	r.clock.Advance(10 * s)
	r.allow()
	r.clock.Advance(s)
	assert.Greater(t, wait(), 10*s, "hung")
	first := wait()
	for range 3 {
		assert.Equal(t, first, wait(), "looking draws no other number")
	}
	r.clock.Advance(20 * s)
	r.fail(1)
	assert.GreaterOrEqual(t, wait(), 20*s)
	r.clock.Advance(40 * s)
	r.Trip("drill")
	assert.Equal(t, 10*s, wait())
	slow := newRig(t, resilience.Config{
		ResetTimeout: 10 * s, MaxResetTimeout: 20 * s, Trip: trip.CountWindow{Slow: trip.SlowCall{Threshold: s}},
	})
	slow.Trip("drill")
	for range 10 {
		slow.clock.Advance(20 * s)
		p := slow.allow()
		slow.clock.Advance(s)
		p.Done(nil)
		between := slow.Snapshot().OpenUntil.Sub(slow.clock.Now())
		assert.True(t, between >= 10*s && between <= 20*s, between)
	}
}

// Rule 34: what an upstream asks for is the least.
func TestRule34AHoldOutlastsTheWait(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1, ResetTimeout: time.Second, MaxResetTimeout: 4 * time.Second})
	r.allow().Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Minute})
	r.fail(1)
	assert.Equal(t, time.Minute, r.Snapshot().OpenUntil.Sub(r.start))
}

// Rule 35, on the timeline: Ramp 100 s, a call each 100 ms. The share of each
// ten seconds is the mean of the line over them.
func TestRule35RampOnTheTimeline(t *testing.T) {
	r := newRig(t, resilience.Config{Ramp: 100 * time.Second})
	r.due()
	r.succeed(1)
	assert.InDelta(t, 0.1, r.Snapshot().RampShare, 1e-9)
	var admitted []int
	for range 11 {
		n := 0
		for range 100 {
			if r.Do(t.Context(), fine) == nil {
				n++
			}
			r.clock.Advance(100 * time.Millisecond)
		}
		admitted = append(admitted, n)
		r.want(resilience.Closed)
	}
	want := []int{10, 15, 25, 35, 45, 55, 65, 75, 85, 95, 100}
	for i := range want {
		assert.InDelta(t, want[i], admitted[i], 1.5, "%d–%d s of %v", 10*i, 10*i+10, admitted)
	}
	s := r.Snapshot()
	assert.InDelta(t, 1, s.RampShare, 0)
	assert.Equal(t, uint64(1100), s.Calls-1+s.Shed)
	assert.Zero(t, s.Rejected, "counted apart")
	r.seen.Want("closed → open", "open → half_open", "half_open → closed")
}

// Rule 35: the refusal of a ramp says so, and latches no task.
func TestRule35RampTurnsCallsAway(t *testing.T) {
	r := newRig(t, resilience.Config{Ramp: time.Minute})
	r.due()
	r.succeed(1)
	task := resilience.WithTask(t.Context(), "t")
	require.NoError(t, r.Do(task, fine), "the first call is admitted")
	var away *resilience.OpenError
	require.ErrorAs(t, r.Do(task, fine), &away)
	require.ErrorIs(t, away, resilience.ErrOpen)
	assert.Equal(t, resilience.Closed, away.State())
	assert.Equal(t, r.start.Add(2*time.Minute), away.RetryAt(), "from then on every call is admitted")
	assert.EqualError(t, away, `circuit breaker ramping up for "milvus", failing fast; all calls admitted in 1m0s`)
	assert.Same(t, away, r.Do(task, fine), "one value for a ramp")
	assert.False(t, r.Ready())
	assert.NoError(t, r.Check(task))
	for range 7 {
		require.Error(t, r.Do(task, fine))
	}
	assert.True(t, r.Ready())
	require.NoError(t, r.Do(task, fine), "the tenth")
	assert.Equal(t, "calls 3, successes 3, probes 1, opened 1", totals(r.Snapshot()))
	assert.Equal(t, uint64(9), r.Snapshot().Shed)
	r.at(2*time.Minute - 1)
	assert.EqualError(t, away, `circuit breaker ramping up for "milvus", failing fast; all calls admitted in 1ms`)
	r.at(2 * time.Minute)
	for range 100 {
		require.NoError(t, r.Do(task, fine))
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Do(task, fine) }))
}

// Rule 35: it opens by its rule as ever, and an operator ends the ramp.
func TestRule35WhatEndsARamp(t *testing.T) {
	all := func(r *rig) {
		t.Helper()
		for range 20 {
			require.NoError(t, r.Do(t.Context(), fine))
		}
	}
	for name, rule := range map[string]trip.Rule{"streak": nil, "window": trip.CountWindow{Size: 10, MinCalls: 5}} {
		r := newRig(t, resilience.Config{Trip: rule, Ramp: time.Minute})
		ramp := func() {
			t.Helper()
			r.Trip("drill")
			r.clock.Advance(time.Minute)
			r.succeed(1)
			require.NoError(t, r.Do(t.Context(), fine))
			require.Error(t, r.Do(t.Context(), fine))
		}
		ramp()
		r.Reset()
		all(r)
		ramp()
		r.ForceClose("hand")
		all(r)
		r.Reset()
		all(r)
		ramp()
		failed := 0
		for range 200 {
			if errors.Is(r.Do(t.Context(), down), errDown) {
				failed++
			}
			if r.State() == resilience.Open {
				break
			}
		}
		r.want(resilience.Open)
		assert.Equal(t, map[string]int{"streak": 5, "window": 4}[name], failed, "%s: one of five was good", name)
		r.clock.Advance(time.Minute)
		p := r.allow()
		r.ForceClose("hand")
		p.Done(nil)
		all(r)
	}
}

// Rule 36: shadow mode counts and tells, and refuses nothing.
func TestRule36Shadow(t *testing.T) {
	for name, cfg := range map[string]resilience.Config{
		"streak": {FailMax: 5},
		"window": {Trip: trip.CountWindow{Size: 5, MinCalls: 5}},
		"probe":  {FailMax: 5, Probe: down},
	} {
		cfg.Shadow = true
		r := newRig(t, cfg)
		task := resilience.WithTask(t.Context(), "t")
		for range 25 {
			require.Same(t, errDown, r.Do(task, down), name)
		}
		r.want(resilience.Open)
		s := r.Snapshot()
		assert.True(t, s.Shadow)
		assert.Equal(t, []uint64{25, 20, 0, 1}, []uint64{s.Failures, s.Shadowed, s.Rejected, s.Opened}, name)
		assert.True(t, r.seen.Transitions()[0].Shadow)
		assert.NoError(t, r.Check(task))
		assert.True(t, r.Ready())
		p, err := r.Allow(task)
		require.NoError(t, err)
		p.Panicked()
		assert.Equal(t, uint64(1), r.Snapshot().Panics)
		r.at(time.Minute)
		if name == "probe" {
			require.NoError(t, r.Do(task, fine))
			r.want(resilience.Open)
			continue
		}
		probe := r.allow()
		require.NoError(t, r.Do(task, fine), "beside the probe")
		r.want(resilience.HalfOpen)
		probe.Done(nil)
		r.want(resilience.Closed)
		assert.Equal(t, uint64(22), r.seen.Transitions()[2].Refused, "what it would have refused")
	}
}

// Rule 36: in no state, under no hold.
func TestRule36ShadowUnderHolds(t *testing.T) {
	r := newRig(t, resilience.Config{Shadow: true, StopOnDenied: true, Ramp: time.Minute})
	r.allow().Settle(verdicts["denied"])
	require.NoError(t, r.Do(t.Context(), fine))
	assert.Equal(t, "denied", r.Snapshot().Held)
	r.Reset()
	r.ForceOpen("hand")
	require.NoError(t, r.Do(t.Context(), fine))
	r.Reset()
	r.due()
	for range 30 {
		r.succeed(1)
	}
	s := r.Snapshot()
	assert.Equal(t, []uint64{0, 0}, []uint64{s.Rejected, s.Shed})
	assert.Greater(t, s.Shadowed, uint64(20), "a ramp's included")
}

// A refusal of the caller's own choice is told in shadow mode: once an episode,
// in words that nobody takes for a refusal.
func ExampleConfig_shadow() {
	b, err := resilience.New("reranker", resilience.Config{Shadow: true, FailMax: 3, Logger: quiet})
	if err != nil {
		panic(err)
	}
	for range 5 {
		fmt.Println(b.Do(context.Background(), down))
	}
	s := b.Snapshot()
	fmt.Println(s.State, s.Shadowed)
	// Output:
	// upstream is down
	// upstream is down
	// upstream is down
	// upstream is down
	// upstream is down
	// open 2
}
