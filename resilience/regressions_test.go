package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

// Faults that this breaker had, one test each, named after the fault.

// An observer slower than ProbeTimeout ate the lease of the probe whose
// goroutine told it of half-open, so no probe was ever in time.
func TestFaultSlowObserverEatsTheProbesLease(t *testing.T) {
	cfg := resilience.Config{ResetTimeout: time.Minute, ProbeTimeout: time.Second}
	bubble(t, cfg, func(t *testing.T, b *resilience.Breaker) {
		b.Observe(func(resilience.Transition) { time.Sleep(5 * time.Second) })
		b.Trip("drill")
		time.Sleep(time.Minute)
		require.NoError(t, b.Do(t.Context(), fine))
		assert.Equal(t, resilience.Closed, b.State())
		assert.Zero(t, b.Snapshot().Failures)
	})
}

// The same with others asking meanwhile: one of them becomes the probe.
func TestFaultSlowObserverEatsTheProbesLeaseUnderTraffic(t *testing.T) {
	cfg := resilience.Config{ResetTimeout: time.Minute, ProbeTimeout: time.Second}
	bubble(t, cfg, func(t *testing.T, b *resilience.Breaker) {
		b.Observe(func(resilience.Transition) { time.Sleep(5 * time.Second) })
		b.Trip("drill")
		time.Sleep(time.Minute)
		first := make(chan error)
		go func() { first <- b.Do(t.Context(), fine) }()
		synctest.Wait()
		require.ErrorIs(t, b.Do(t.Context(), fine), resilience.ErrOpen, "the slot is taken")
		time.Sleep(time.Second)
		assert.True(t, b.Ready())
		require.NoError(t, b.Do(t.Context(), fine), "the slot is given away, for nothing has failed")
		assert.Equal(t, resilience.Closed, b.State())
		require.NoError(t, <-first, "and who was held up is admitted as what the state is by then")
		s := b.Snapshot()
		assert.Equal(t, []uint64{2, 2, 0, 0}, []uint64{s.Calls, s.Successes, s.Failures, s.Stale})
	})
}

// An observer that never came back, and one that ends the goroutine.
func TestFaultObserverThatNeverReturnsWedgesTheSlot(t *testing.T) {
	for name, leave := range map[string]func(){"hangs": func() { time.Sleep(time.Hour) }, "goexit": runtime.Goexit} {
		cfg := resilience.Config{ResetTimeout: time.Minute, ProbeTimeout: time.Second}
		bubble(t, cfg, func(t *testing.T, b *resilience.Breaker) {
			b.Trip("drill")
			t.Cleanup(b.Observe(func(e resilience.Transition) {
				if e.To == resilience.HalfOpen {
					leave()
				}
			}))
			time.Sleep(time.Minute)
			go func() { _ = b.Do(t.Context(), fine) }()
			synctest.Wait()
			time.Sleep(time.Second)
			require.NoError(t, b.Do(t.Context(), fine), name)
			assert.Equal(t, resilience.Closed, b.State(), name)
			time.Sleep(2 * time.Hour) // the one that hangs comes back
		})
	}
}

// A late result from inside a probe that had ended was counted as if in time.
func TestFaultLateNestedResultIsCounted(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	probe := r.allow()
	nested, err := r.Allow(probe.Context())
	require.NoError(t, err)
	probe.Done(nil)
	nested.Done(errDown)
	r.want(resilience.Closed)
	r.wantTotals("calls 1, successes 1, stale 1, probes 1, opened 1")
}

// net/http returns the cause of a cancelled context in place of
// context.Canceled: a shared budget that ended opened a healthy breaker.
func TestFaultCauseOfTheCallersCancellationCounts(t *testing.T) {
	errBudget := errors.New("the run's budget is spent")
	r := newRig(t, resilience.Config{FailMax: 1})
	ctx, cancel := context.WithCancelCause(t.Context())
	err := r.Do(ctx, func(ctx context.Context) error {
		cancel(errBudget)
		return fmt.Errorf("Get: %w", context.Cause(ctx))
	})
	require.ErrorIs(t, err, errBudget)
	r.wantTotals("calls 1, ignored 1")
	late, cancelLate := context.WithDeadlineCause(t.Context(), time.Now(), errBudget)
	defer cancelLate()
	verdict := r.Config().Classify(late, errBudget)
	assert.Equal(t, resilience.Failure, verdict.Outcome, "a deadline is no cancellation, whatever its cause")
}

// Two keys of one name: a gatherer of metrics by name stumbles over them.
func TestFaultKeysThatShareAName(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet, FailMax: 1})
	k, err := reg.Keyed("k", resilience.Config{MaxKeys: 7})
	require.NoError(t, err)
	for _, key := range []string{"a\nb", "a_b", "a\tb", "(overflow)"} {
		k.Get(k.Get(key).Name()[len("k/"):]).Trip("whose key is the other's name")
		k.Get(key).Trip("so that it stays")
	}
	_ = k.Get("one too many").Do(t.Context(), fine)
	seen := map[string]bool{}
	for _, b := range reg.All() {
		assert.False(t, seen[b.Name()], "%q twice", b.Name())
		seen[b.Name()] = true
	}
	assert.Len(t, seen, 8, "a_b names itself")
}

// A registered name, or another family's, inside a family's.
func TestFaultNamesInsideAFamilys(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet})
	_, err := reg.Keyed("tenant", resilience.Config{})
	require.NoError(t, err)
	_, err = reg.Register("tenant/acme", resilience.Config{})
	require.EqualError(t, err, `resilience: breaker "tenant/acme" would be among those keyed "tenant"`)
	_, err = reg.Keyed("tenant/eu", resilience.Config{})
	require.EqualError(t, err, `resilience: breakers keyed "tenant/eu" would be among those keyed "tenant"`)
	reg.MustRegister("tenants", resilience.Config{})
	reg.MustRegister("model/small", resilience.Config{})
	_, err = reg.Keyed("model", resilience.Config{})
	require.EqualError(t, err, `resilience: breaker "model/small" would be among those keyed "model"`)
	_, err = reg.Keyed("a/b", resilience.Config{})
	require.NoError(t, err)
	_, err = reg.Keyed("a", resilience.Config{})
	require.EqualError(t, err, `resilience: breakers keyed "a/b" would be among those keyed "a"`)
}

// A breaker whose window was about to open was forgotten as idle, since its
// last call had been good.
func TestFaultKeyedForgetsAWindowFullOfFailures(t *testing.T) {
	k, err := resilience.NewRegistry(resilience.Config{Logger: quiet}).Keyed("k", resilience.Config{
		MaxKeys: 2, Trip: trip.CountWindow{Size: 8, MinCalls: 8},
	})
	require.NoError(t, err)
	failing := k.Get("failing")
	_, _ = failing.Do(t.Context(), down), failing.Do(t.Context(), fine)
	k.Get("idle")
	k.Get("new")
	assert.Same(t, failing, k.Get("failing"))
}

// Keys whose last call had failed were kept for ever, until no other key found
// room.
func TestFaultKeyedFillsUpWithStreaks(t *testing.T) {
	k, err := resilience.NewRegistry(resilience.Config{Logger: quiet}).Keyed("k", resilience.Config{MaxKeys: 3})
	require.NoError(t, err)
	for i := range 3 {
		_ = k.Get(strconv.Itoa(i)).Do(t.Context(), down)
	}
	for i := range 9 {
		b := k.Get(fmt.Sprint("new", i))
		require.Equal(t, fmt.Sprint("k/new", i), b.Name(), "the one used longest ago made room")
		_ = b.Do(t.Context(), down)
	}
}

// A permit that was dropped without an end kept its breaker in the family for
// ever.
func TestFaultKeyedKeepsAbandonedPermits(t *testing.T) {
	k, err := resilience.NewRegistry(resilience.Config{Logger: quiet}).Keyed("k", resilience.Config{MaxKeys: 1})
	require.NoError(t, err)
	func() {
		p, err := k.Get("leaky").Allow(t.Context())
		require.NoError(t, err)
		p.Renew()
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return k.Get("next").Name() == "k/next"
	}, time.Minute, time.Millisecond)
}

// A clock at the ends of time made deadlines that had passed before they
// began.
func TestFaultClockAtTheEndsOfTime(t *testing.T) {
	for _, jump := range []time.Duration{math.MaxInt64, math.MinInt64} {
		r := newRig(t, resilience.Config{ResetTimeout: 10 * 365 * 24 * time.Hour})
		r.clock.Advance(jump)
		r.clock.Advance(jump)
		r.fail(5)
		r.want(resilience.Open)
		r.refused()
		w := newRig(t, resilience.Config{Trip: trip.TimeWindow{MinCalls: 2}})
		w.clock.Advance(jump)
		w.clock.Advance(jump)
		w.fail(2)
		w.want(resilience.Open)
	}
}

// A designated probe that succeeded after its lease had run out was run again
// and again while its caller waited.
func TestFaultLateDesignatedProbeRunsAgain(t *testing.T) {
	var r *rig
	probes := 0
	r = newRig(t, resilience.Config{Probe: func(context.Context) error {
		probes++
		require.Less(t, probes, 10)
		r.clock.Advance(3 * time.Minute) // its lease, and the wait after it
		return nil
	}})
	r.due()
	r.refused()
	assert.Equal(t, 1, probes)
	r.want(resilience.HalfOpen)
}

// If observers took longer than the lease each time, a caller asked again for
// ever.
func TestFaultSlowObserversKeepTheirCaller(t *testing.T) {
	r := newRig(t, resilience.Config{ProbeTimeout: time.Second, ResetTimeout: time.Second})
	told := 0
	t.Cleanup(r.Observe(func(e resilience.Transition) {
		if told++; told < 100 && e.To == resilience.HalfOpen {
			r.Trip("again") // and the wait is over by the time they are done
			r.clock.Advance(time.Minute)
		}
	}))
	r.due()
	_ = r.Do(t.Context(), fine)
	assert.Less(t, told, 10)
}

// panicking is a log handler with a bug.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("a bug in the log") }

// A logger that panicked over a transition, and again over its own panic, left
// the dispatcher busy for ever: observers were no longer told.
func TestFaultPanickingLoggerSilencesTheObservers(t *testing.T) {
	r := newRig(t, resilience.Config{Logger: slog.New(panicking{})})
	r.Trip("drill")
	r.Reset()
	r.Trip("drill")
	r.seen.Want("closed → open", "open → closed", "closed → open")
	r.refused()
}
