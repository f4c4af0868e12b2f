package resilience_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// Rule 7: a hung probe's lease at −1 ns, 0 and +1 ns.
func TestRule7LeaseRunsOutAtItsInstant(t *testing.T) {
	for _, row := range []struct {
		offset time.Duration
		want   resilience.State
	}{{-1, resilience.HalfOpen}, {0, resilience.Open}, {1, resilience.Open}} {
		r := newRig(t, resilience.Config{ProbeTimeout: 10 * time.Second})
		r.due()
		hung := r.allow()
		r.at(70*time.Second + row.offset)
		require.Equal(t, row.want, r.State(), "row %+v", row)
		r.seen.Want("closed → open", "open → half_open")
		r.refused()
		if row.want == resilience.HalfOpen {
			hung.Done(nil)
			r.want(resilience.Closed)
			continue
		}
		r.seen.Want("closed → open", "open → half_open", "half_open → open")
		last := r.seen.Transitions()[2]
		assert.Equal(t, r.start.Add(70*time.Second), last.At, "dated when it ran out, not when it was seen")
		assert.Equal(t, r.start.Add(130*time.Second), last.OpenUntil)
		assert.Equal(t, "probe lease ran out", last.Reason)
		assert.EqualError(t, r.Snapshot().LastFailure, "the probe neither ended nor renewed its lease within ProbeTimeout")
		hung.Done(nil) // too late
		r.want(resilience.Open)
		r.wantTotals("calls 1, failures 1, rejected 1, probes 1, opened 2")
	}
}

// Rule 7: found lazily, even if nothing looked until the next probe is due.
func TestRule7HungProbeNeverWedges(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.Trip("drill")
	for i := range 10 {
		r.clock.Advance(2 * time.Minute)
		require.Equal(t, resilience.HalfOpen, r.State(), "round %d", i)
		r.allow() // and never ended
	}
	r.clock.Advance(2 * time.Minute)
	r.succeed(1)
	r.want(resilience.Closed)
	r.wantTotals("calls 11, successes 1, failures 10, probes 11, opened 11")
}

// Rule 7: a stream renews its lease as data flows.
func TestRule7RenewKeepsAStreamAlive(t *testing.T) {
	r := newRig(t, resilience.Config{ProbeTimeout: 10 * time.Second})
	closed := r.allow()
	closed.Renew() // nothing to renew
	r.due()
	stream := r.allow()
	for range 10 {
		r.clock.Advance(10*time.Second - 1)
		stream.Renew()
	}
	r.want(resilience.HalfOpen)
	r.clock.Advance(10 * time.Second)
	stream.Renew() // too late
	r.want(resilience.Open)
	stream.Done(nil)
	stream.Renew()
	r.want(resilience.Open)
}

// Rule 7: a wait that the client bounds may be longer than ProbeTimeout, and
// what comes after it may not.
func TestRule7RenewForOutlastsProbeTimeout(t *testing.T) {
	r := newRig(t, resilience.Config{ProbeTimeout: 10 * time.Second})
	r.due()
	thinking := r.allow()
	thinking.RenewFor(10 * time.Minute)
	r.clock.Advance(9 * time.Minute)
	r.want(resilience.HalfOpen)
	thinking.RenewFor(time.Second) // no lease is made shorter
	r.clock.Advance(59 * time.Second)
	r.want(resilience.HalfOpen)
	thinking.RenewFor(math.MaxInt64)
	r.clock.Advance(time.Hour)
	thinking.Renew()
	r.clock.Advance(10 * time.Second)
	r.want(resilience.Open)
}

// Rule 7: the first of several leases to run out is the one that counts, and
// an old lease frees nothing.
func TestRule7OldLeaseFreesNothing(t *testing.T) {
	r := newRig(t, resilience.Config{MaxProbes: 2, ProbeTimeout: 10 * time.Second})
	r.Trip("drill")
	r.at(60 * time.Second)
	first := r.allow()
	r.at(65 * time.Second)
	second := r.allow()
	r.at(70 * time.Second)
	assert.Equal(t, r.start.Add(130*time.Second), r.Snapshot().OpenUntil)
	r.at(130 * time.Second)
	r.allow()
	r.allow()
	first.Done(nil)
	second.Done(errDown)
	r.refused()
	r.want(resilience.HalfOpen)
	assert.Equal(t, uint64(1), r.Snapshot().Stale, "the other has been counted, when its lease ran out")
}

// Rule 7: the first Done or Settle of a permit counts, later ones do nothing.
func TestRule7PermitEndsOnce(t *testing.T) {
	r := newRig(t, resilience.Config{})
	p := r.allow()
	p.Done(nil)
	p.Done(errDown)
	p.Settle(resilience.Verdict{Outcome: resilience.Failure})
	p = r.allow()
	p.Settle(resilience.Verdict{Outcome: resilience.Failure})
	p.Done(nil)
	r.wantTotals("calls 2, successes 1, failures 1")
	assert.Equal(t, 1, r.Snapshot().Streak)
}

// Rule 8: every kind of late result is stale and nothing else.
func TestRule8LateResultsAreStale(t *testing.T) {
	for _, policy := range []resilience.Config{{}, {Trip: trip.CountWindow{Size: 5, MinCalls: 5}}} {
		r := newRig(t, policy)
		var late []*resilience.Permit
		for range 6 {
			late = append(late, r.allow())
		}
		r.fail(5)
		before := r.Snapshot()
		r.at(30 * time.Second)
		for i, p := range late {
			p.Settle(resilience.Verdict{Outcome: resilience.Outcome(i % 5)})
		}
		after := r.Snapshot()
		assert.Equal(t, uint64(6), after.Stale)
		after.Stale = 0
		assert.Equal(t, before, after)
		r.seen.Want("closed → open")
	}
}

// Rule 8: a call of an earlier closed state cannot touch a later one.
func TestRule8ResultOfAnEarlierClosedState(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 2})
	bad, good := r.allow(), r.allow()
	r.fail(2)
	r.at(time.Minute)
	r.succeed(1)
	r.fail(1)
	good.Done(nil)
	assert.Equal(t, 1, r.Snapshot().Streak, "a late success clears no streak")
	bad.Done(errDown)
	r.want(resilience.Closed)
	r.wantTotals("calls 4, successes 1, failures 3, stale 2, probes 1, opened 1")
}

// Rule 9.
func TestRule9DoneContextReturnsItsOwnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRig(t, resilience.Config{})
	ask := func() error {
		return r.Do(ctx, func(context.Context) error { t.Error("the function ran"); return nil })
	}
	require.Equal(t, context.Canceled, ask())
	r.Trip("drill")
	require.Equal(t, context.Canceled, ask(), "before the state is looked at")
	_, err := r.Allow(ctx)
	require.Equal(t, context.Canceled, err)
	r.wantTotals("opened 1")
}

// Rule 10: nested calls of a live probe are part of it.
func TestRule10NestedCallRunsAsPartOfTheProbe(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	var kept context.Context
	err := r.Do(t.Context(), func(ctx context.Context) error {
		kept = ctx
		require.NoError(t, r.Do(ctx, fine), "a nested success does not close")
		require.Same(t, errDown, r.Do(ctx, down), "a nested failure does not open")
		require.ErrorIs(t, r.Do(context.WithoutCancel(t.Context()), fine), resilience.ErrOpen, "a stranger is refused")
		r.want(resilience.HalfOpen)
		return nil
	})
	require.NoError(t, err)
	r.want(resilience.Closed)
	r.Trip("again")
	require.ErrorIs(t, r.Do(kept, fine), resilience.ErrOpen, "the mark died with its lease")
	r.wantTotals("calls 3, successes 2, failures 1, rejected 2, probes 1, opened 2")
}

// Rule 10: a mark dies when its lease runs out, and a nested call's own hold is
// kept.
func TestRule10MarkLivesAsLongAsTheLease(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	p := r.allow()
	nested, err := r.Allow(p.Context())
	require.NoError(t, err)
	nested.Settle(throttle(4 * time.Minute))
	r.want(resilience.HalfOpen)
	r.at(2 * time.Minute) // the lease runs out
	_, err = r.Allow(p.Context())
	require.ErrorIs(t, err, resilience.ErrOpen)
	assert.Equal(t, r.start.Add(5*time.Minute), r.Snapshot().OpenUntil)
}

// Rule 10: closed calls are not marked, and count each for itself.
func TestRule10NestedClosedCallsCountEach(t *testing.T) {
	r := newRig(t, resilience.Config{})
	_ = r.Do(t.Context(), func(ctx context.Context) error { return r.Do(ctx, down) })
	assert.Equal(t, 2, r.Snapshot().Streak)
}

// Rule 11: the closed success path reads no clock.
func TestRule11ClosedSuccessReadsNoClock(t *testing.T) {
	clock := &countingClock{now: time.Now()}
	b := testutil.NewBreaker(t, "milvus", resilience.Config{Clock: clock, Logger: quiet})
	b.Trip("drill")
	b.Reset() // a breaker that has opened before
	reads := clock.reads
	for range 100 {
		require.NoError(t, b.Do(t.Context(), fine))
	}
	assert.Equal(t, reads, clock.reads)
	assert.Equal(t, resilience.Closed, b.State())
	assert.Equal(t, reads, clock.reads)
}

type countingClock struct {
	now   time.Time
	reads int
}

func (c *countingClock) Now() time.Time {
	c.reads++
	return c.now
}

// Rule 11: and allocates nothing; a permit is one allocation.
func TestRule11ClosedSuccessAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	for name, cfg := range map[string]resilience.Config{
		"consecutive": {}, "count": {Trip: trip.CountWindow{}}, "time": {Trip: trip.TimeWindow{}},
	} {
		b := testutil.NewBreaker(t, "milvus", cfg)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = b.Do(ctx, fine) }), name)
		assert.Equal(t, 1.0, testing.AllocsPerRun(100, func() {
			p, _ := b.Allow(ctx)
			p.Done(nil)
		}), name)
	}
}

// Rule 12.
func TestRule12DesignatedProbeRunsFirst(t *testing.T) {
	var probes int
	answer := errDown
	r := newRig(t, resilience.Config{SuccessThreshold: 2, Probe: func(ctx context.Context) error {
		probes++
		_, bounded := ctx.Deadline()
		assert.True(t, bounded, "by ProbeTimeout")
		return answer
	}})
	r.succeed(1)
	assert.Zero(t, probes, "it has nothing to do while closed")
	r.due()
	r.refused()
	assert.Equal(t, 1, probes)
	r.want(resilience.Open)
	r.refused()
	assert.Equal(t, 1, probes, "one probe a wait")
	r.at(2 * time.Minute)
	answer = nil
	r.succeed(1)
	assert.Equal(t, 3, probes, "both good probes it takes, then the call")
	r.want(resilience.Closed)
	r.wantTotals("calls 5, successes 4, failures 1, rejected 2, probes 3, opened 2")
}

// Rule 12: a door's own call inside the designated probe is part of it, and
// real calls wait outside.
func TestRule12DesignatedProbeMayUseTheDoor(t *testing.T) {
	var r *rig
	r = newRig(t, resilience.Config{Probe: func(ctx context.Context) error {
		r.refused()
		return r.Do(ctx, fine)
	}})
	r.due()
	r.succeed(1)
	r.want(resilience.Closed)
}

// Rule 12: a designated probe that panics, or whose caller leaves, gives its
// slot back.
func TestRule12DesignatedProbeLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	act := func(context.Context) error { panic("boom") }
	r := newRig(t, resilience.Config{Probe: func(ctx context.Context) error { return act(ctx) }})
	r.due()
	got, _ := leave(func() { _ = r.Do(context.Background(), fine) })
	assert.Equal(t, "boom", got)
	act = func(ctx context.Context) error { cancel(); return ctx.Err() }
	require.Equal(t, context.Canceled, r.Do(ctx, fine))
	r.want(resilience.HalfOpen)
	act = func(context.Context) error { r.Reset(); return errDown } // an operator was faster
	r.succeed(1)
	r.wantTotals("calls 3, successes 1, ignored 1, panics 1, stale 1, probes 3, opened 1")
}

// Rule 12: an ignored outcome gives the caller no second probe.
func TestRule12IgnoredDesignatedProbeRefusesItsCaller(t *testing.T) {
	probes := 0
	r := newRig(t, resilience.Config{
		Probe: func(context.Context) error { probes++; return errDown },
		Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Ignored}
		},
	})
	r.due()
	r.refused()
	r.want(resilience.HalfOpen)
	r.refused()
	assert.Equal(t, 2, probes)
}

// Rule 12: with several probes to go, another caller may open the breaker in
// between.
func TestRule12DesignatedProbeLosesTheRace(t *testing.T) {
	r := newRig(t, resilience.Config{SuccessThreshold: 2, Probe: func(context.Context) error { return nil }})
	t.Cleanup(r.Observe(func(e resilience.Transition) {
		if e.To == resilience.HalfOpen {
			r.ForceOpen("no")
		}
	}))
	r.due()
	assert.EqualError(
		t,
		r.refused(),
		`circuit breaker forced open for "milvus", failing fast; only a reset closes it: no`,
	)
}

// The order of admission: context, latch, forced state, credential stop, the
// probe's own context, state.
func TestOrderOfAdmission(t *testing.T) {
	r := newRig(t, resilience.Config{StopOnDenied: true})
	r.due()
	probe := r.allow()
	task := resilience.WithTask(probe.Context(), "t")
	require.NoError(t, r.Do(task, fine), "the probe's own context goes before the state")
	r.act("reset")
	r.act("denied")
	var denied *resilience.DeniedError
	require.ErrorAs(t, r.Do(probe.Context(), fine), &denied, "the stop goes before the probe's own context")
	r.ForceOpen("hand")
	forced := r.Do(task, fine)
	require.ErrorIs(t, forced, resilience.ErrOpen, "force goes before the stop")
	r.ForceClose("hand")
	require.Same(t, forced, r.Do(task, fine), "the latch goes before force")
	gone, cancel := context.WithCancel(task)
	cancel()
	require.Equal(t, context.Canceled, r.Do(gone, fine), "the context goes before the latch")
}

// Rule 27: a loop that retries an open error inside one task never becomes a
// probe.
func TestRule27TaskLatch(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(5)
	task := resilience.WithTask(t.Context(), "embed/42")
	first := r.Do(task, fine)
	for range 999 {
		r.clock.Advance(time.Second) // well past the reset time
		child := resilience.WithTask(context.WithoutCancel(task), "nested tasks share the latch")
		require.Same(t, first, r.Do(child, func(context.Context) error {
			t.Error("the upstream was called")
			return nil
		}))
	}
	r.want(resilience.HalfOpen)
	r.wantTotals("calls 5, failures 5, rejected 1000, in task 999, opened 1")
	next := resilience.WithTask(t.Context(), "embed/42")
	require.NoError(t, r.Do(next, fine), "the next attempt, under the same id, probes as usual")
	r.want(resilience.Closed)
	require.Same(t, first, r.Do(task, fine), "the old task stays refused")
}

// Rule 27: a busy half-open slot latches too; other breakers and calls in
// flight are unaffected.
func TestRule27BusySlotLatches(t *testing.T) {
	r, other := newRig(t, resilience.Config{}), newRig(t, resilience.Config{})
	r.Trip("drill")
	other.Trip("drill")
	other.Reset()
	r.at(time.Minute)
	task := resilience.WithTask(t.Context(), "t")
	probe, err := r.Allow(task)
	require.NoError(t, err)
	busy := r.Do(task, fine)
	require.ErrorIs(t, busy, resilience.ErrOpen)
	probe.Done(nil) // in flight: it finishes and counts
	r.want(resilience.Closed)
	require.Same(t, busy, r.Do(task, fine))
	require.NoError(t, other.Do(task, fine))
}

// Rule 27: a closed breaker that never opened does not look for a task, and a
// stopped one latches its own error.
func TestRule27DeniedLatches(t *testing.T) {
	r := newRig(t, resilience.Config{StopOnDenied: true})
	task := resilience.WithTask(t.Context(), "t")
	require.NoError(t, r.Do(task, fine))
	r.act("denied")
	first := r.Do(task, fine)
	r.Reset()
	require.Same(t, first, r.Do(task, fine))
	var denied *resilience.DeniedError
	require.True(t, errors.As(first, &denied))
}

// Rule 27: if two refusals of one task race, both callers get the first.
func TestRule27FirstRefusalOfTheTaskIsTheOneItKeeps(t *testing.T) {
	var r *rig
	var first error
	task := resilience.WithTask(t.Context(), "t")
	r = newRig(t, resilience.Config{Probe: func(context.Context) error {
		first = r.Do(task, fine) // from beside the probe, not from inside
		return errDown
	}})
	r.due()
	err := r.Do(task, fine)
	require.ErrorIs(t, first, resilience.ErrOpen)
	require.Same(t, first, err)
}

// Rule 28: each attempt is one call at the breaker, however a caller loops.
func TestRule28EachAttemptIsOneCall(t *testing.T) {
	r := newRig(t, resilience.Config{})
	reached := 0
	for range 100 {
		_ = r.Do(t.Context(), func(context.Context) error { reached++; return errDown })
	}
	assert.Equal(t, 5, reached)
	r.wantTotals("calls 5, failures 5, rejected 95, opened 1")
}

// Rule 3: a refusal by a half-open breaker, and one by the latch, allocate
// nothing either.
func TestBusyAndLatchedRefusalsAllocateNothing(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	r.allow()
	ctx := context.Background()
	task := resilience.WithTask(ctx, "t")
	_, _ = r.Do(ctx, fine), r.Do(task, fine)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Do(ctx, fine) }), "busy")
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Do(task, fine) }), "latched")
}
