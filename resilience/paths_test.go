package resilience_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// Rules 3 and 11: what a call does most of the time takes no lock and allocates
// nothing, two-step permits apart, which allocate themselves.
func TestRule11CommonPathsTakeNoLockAndAllocateNothing(t *testing.T) {
	ctx := context.Background()
	task := resilience.WithTask(ctx, "t")
	none, window := resilience.Config{}, resilience.Config{Trip: trip.TimeWindow{}}
	open := resilience.ErrOpen
	for name, row := range map[string]struct {
		cfg     resilience.Config
		prepare func(*rig)
		ctx     context.Context
		want    error
	}{
		"closed":                   {none, func(*rig) {}, ctx, nil},
		"closed in a task":         {none, func(*rig) {}, task, nil},
		"time window":              {window, func(*rig) {}, ctx, nil},
		"count window":             {resilience.Config{Trip: trip.CountWindow{}}, func(*rig) {}, ctx, nil},
		"has opened before":        {none, func(r *rig) { r.due(); r.succeed(1) }, ctx, nil},
		"window after a failure":   {window, func(r *rig) { r.fail(1); r.succeed(1) }, ctx, nil},
		"window at a later time":   {window, func(r *rig) { r.at(time.Hour); r.succeed(1) }, ctx, nil},
		"open":                     {none, func(r *rig) { r.Trip("drill") }, ctx, open},
		"forced open":              {none, func(r *rig) { r.ForceOpen("drill") }, ctx, open},
		"half-open":                {none, func(r *rig) { r.due(); r.allow() }, ctx, open},
		"half-open, probe renewed": {none, renewed, ctx, open},
		"half-open after a hold":   {none, heldBack, ctx, open},
		"half-open, two probes": {
			resilience.Config{MaxProbes: 2}, func(r *rig) { r.due(); r.allow(); r.allow() }, ctx, open,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, row.cfg)
			row.prepare(r)
			call := func() { _ = r.Do(row.ctx, fine) }
			permit := func() {
				if p, err := r.Allow(row.ctx); err == nil {
					p.Done(nil)
				}
			}
			require.ErrorIs(t, r.Do(row.ctx, fine), row.want)
			r.Locked(func() { // or it hangs
				call()
				permit()
				r.State()
			})
			assert.Zero(t, testing.AllocsPerRun(100, call))
			granted := map[bool]float64{true: 1, false: 0}[row.want == nil]
			assert.InDelta(t, granted, testing.AllocsPerRun(100, permit), 0)
		})
	}
}

// renewed is half-open, with a probe that has renewed its lease.
func renewed(r *rig) {
	r.due()
	p := r.allow()
	r.refused()
	r.clock.Advance(50 * time.Second)
	p.Renew()
	r.clock.Advance(50 * time.Second)
}

// heldBack is half-open with a free slot and an upstream that asked for a wait.
func heldBack(r *rig) {
	late := r.allow()
	r.due()
	r.act("ignored")
	late.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Hour})
	r.refused()
}

// The refusal of a half-open breaker is one value for as long as the probe
// lives, and says when the lease that the probe has renewed ends.
func TestRefusalFollowsTheLeaseOfTheProbe(t *testing.T) {
	r := newRig(t, resilience.Config{ProbeTimeout: 10 * time.Second})
	r.due()
	p := r.allow()
	refusal := r.refused()
	for range 5 {
		assert.Equal(t, r.clock.Now().Add(10*time.Second), refusal.RetryAt())
		r.clock.Advance(9 * time.Second)
		r.refused()
		p.Renew()
		require.Same(t, refusal, r.refused())
	}
	r.clock.Advance(10*time.Second - 1)
	require.Same(t, refusal, r.refused())
	r.clock.Advance(1)
	r.want(resilience.Open)
	require.NotSame(t, refusal, r.refused())
}

// Nested calls of a live probe are admitted, however busy the breaker is.
func TestBusyBreakerAdmitsThePartsOfItsProbe(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	p := r.allow()
	r.refused()
	require.NoError(t, r.Do(p.Context(), fine))
	require.NoError(t, r.Check(p.Context()))
	late, err := r.Allow(p.Context())
	require.NoError(t, err)
	late.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Minute})
	require.NoError(t, r.Do(p.Context(), fine), "held back, but not it")
	p.Done(nil)
	r.want(resilience.Closed)
}

// Successes that take no lock are each in the totals and in the window, of
// their own generation only.
func TestWindowLosesNoSuccess(t *testing.T) {
	for name, rule := range map[string]trip.Rule{
		"count": trip.CountWindow{Size: 1 << 20, MinCalls: 1 << 20, FailureRate: 1},
		"time":  trip.TimeWindow{Period: 10 * time.Hour, Buckets: 4096, MinCalls: 1 << 20, FailureRate: 1},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testutil.NewClock()
			b := testutil.NewBreaker(t, "x", resilience.Config{Trip: rule, Logger: quiet, Clock: clock})
			var group sync.WaitGroup
			const calls = 5000
			for g := range 8 {
				group.Go(func() {
					for i := range calls {
						switch {
						case g == 0 && i%10 == 0:
							_ = b.Do(context.Background(), down)
						case g == 1 && i%10 == 0:
							b.Snapshot()
						case g == 2:
							clock.Advance(time.Millisecond)
						}
						_ = b.Do(context.Background(), fine)
					}
				})
			}
			group.Wait()
			s := b.Snapshot()
			assert.Equal(t, []uint64{8 * calls, calls / 10}, []uint64{s.Successes, s.Failures})
			assert.Equal(t, []int{8*calls + calls/10, calls / 10}, []int{s.WindowCalls, s.WindowFailures})
		})
	}
}

// The same while the breaker opens and closes: a window never holds more than
// was counted in its generation.
func TestWindowOfANewGenerationIsEmpty(t *testing.T) {
	b := testutil.NewBreaker(t, "x", resilience.Config{
		Trip: trip.CountWindow{Size: 1 << 16, MinCalls: 1 << 16}, Logger: quiet,
	})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20_000 {
				_ = b.Do(context.Background(), fine)
			}
		})
	}
	group.Go(func() {
		for range 2000 {
			b.Reset()
		}
	})
	group.Wait()
	b.Reset()
	s := b.Snapshot()
	assert.Zero(t, s.WindowCalls)
	assert.Equal(t, uint64(80_000), s.Successes+s.Stale)
	require.NoError(t, b.Do(t.Context(), fine))
	assert.Equal(t, 1, b.Snapshot().WindowCalls)
}
