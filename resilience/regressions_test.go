package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
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

// A designated probe was timed from the breaker's birth, and was too slow for
// ever.
func TestFaultDesignatedProbeIsSlow(t *testing.T) {
	r := newRig(t, resilience.Config{
		Probe: fine, Trip: trip.CountWindow{Size: 2, MinCalls: 1, Slow: trip.SlowCall{Threshold: time.Second}},
	})
	r.fail(1)
	r.at(time.Minute)
	r.succeed(1)
	r.want(resilience.Closed)
}

// A designated probe ended the call of its caller too: its family forgot a
// breaker with a call in flight, or never again an idle one. An observer that
// ended the goroutine during the admission had the latter effect.
func TestFaultFamilyLosesCountOfCallsInFlight(t *testing.T) {
	exit := false
	for name, row := range map[string]struct {
		probe  func(context.Context) error
		before func(*resilience.Breaker)
	}{
		"good probe":   {fine, func(b *resilience.Breaker) { _ = b.Do(context.Background(), fine) }},
		"failed probe": {down, func(b *resilience.Breaker) { _ = b.Do(context.Background(), fine); b.Reset() }},
		"panic": {func(context.Context) error { panic("a bug") }, func(b *resilience.Breaker) {
			testutil.Isolate(func() { _ = b.Do(context.Background(), fine) })
			b.Reset()
		}},
		"goexit": {nil, func(b *resilience.Breaker) {
			exit = true
			testutil.Isolate(func() { _ = b.Do(context.Background(), fine) })
			exit = false
			b.Reset()
		}},
	} {
		k, _, clock := newFamily(t, resilience.Config{
			MaxKeys: 1, FailMax: 1, Probe: row.probe, OnTransition: func(e resilience.Transition) {
				if exit && e.To == resilience.HalfOpen {
					runtime.Goexit()
				}
			},
		})
		a := k.Get("a")
		_ = a.Do(t.Context(), down)
		clock.Advance(time.Minute)
		row.before(a)
		flight, err := a.Allow(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, "tenant/(overflow)", k.Get("b").Name(), "%s: a call is in flight", name)
		flight.Done(nil)
		assert.Equal(t, "tenant/b", k.Get("b").Name(), "%s: and has ended", name)
	}
}

// A logger that ended the goroutine kept the refusal from the task, which
// became the probe later.
func TestFaultLoggerKeepsTheRefusalFromTheTask(t *testing.T) {
	r := newRig(t, resilience.Config{Logger: slog.New(exits{})})
	testutil.Isolate(func() { r.Trip("drill") })
	task := resilience.WithTask(t.Context(), "t")
	testutil.Isolate(func() { _ = r.Do(task, fine) })
	r.at(time.Minute)
	require.ErrorIs(t, r.Do(task, fine), resilience.ErrOpen)
}

// Another breaker's refusal that a classifier took for a denial stopped the
// outer breaker; taken for a success it closed it.
func TestFaultInnerRefusalUnderAnyVerdict(t *testing.T) {
	inner := testutil.NewBreaker(t, "inner", resilience.Config{Logger: quiet})
	inner.ForceOpen("drill")
	for outcome := resilience.Success; outcome <= resilience.Denied; outcome++ {
		r := newRig(t, resilience.Config{
			FailMax: 2, StopOnDenied: true, OpenOnThrottle: true,
			Classify: func(context.Context, error) resilience.Verdict { return resilience.Verdict{Outcome: outcome} },
		})
		r.allow().Settle(resilience.Verdict{Outcome: resilience.Failure})
		require.Error(t, r.Do(t.Context(), func(ctx context.Context) error { return inner.Do(ctx, fine) }))
		r.want(resilience.Closed)
		assert.Equal(t, "calls 2, failures 1, ignored 1", totals(r.Snapshot()), outcome)
		assert.Equal(t, 1, r.Snapshot().Streak, outcome)
	}
}

// A breaker in shadow mode refused a task that the breaker before it had.
func TestFaultShadowRefusesATaskOfTheBreakerBefore(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet})
	reg.MustRegister("x", resilience.Config{}).Trip("drill")
	b, _ := reg.Get("x")
	task := resilience.NewTask(t.Context(), "t")
	require.Error(t, b.Do(task, fine))
	shadow, err := reg.Replace("x", resilience.Config{Shadow: true})
	require.NoError(t, err)
	require.NoError(t, shadow.Do(task, fine))
}

// A call that was refused while an observer cancelled its context was counted
// nowhere.
func TestFaultRefusalOfACancelledCallerIsNotCounted(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRig(t, resilience.Config{Shadow: shadow})
		r.Observe(func(e resilience.Transition) {
			if e.To == resilience.HalfOpen {
				r.Trip("again")
				cancel()
			}
		})
		r.due()
		err := r.Do(ctx, fine)
		s := r.Snapshot()
		if shadow {
			require.NoError(t, err)
			assert.Equal(t, []uint64{1, 1, 0}, []uint64{s.Calls, s.Shadowed, s.Rejected})
		} else {
			require.ErrorIs(t, err, resilience.ErrOpen)
			assert.Equal(t, []uint64{0, 0, 1}, []uint64{s.Calls, s.Shadowed, s.Rejected})
		}
	}
}

// A family that had exceeded its bound, for breakers that an operator acted on,
// stayed so.
func TestFaultFamilyDoesNotShrink(t *testing.T) {
	k, _, _ := newFamily(t, resilience.Config{MaxKeys: 2})
	var all []*resilience.Breaker
	for i := range 20 {
		all = append(all, k.Get(strconv.Itoa(i)))
	}
	for _, b := range all {
		b.Trip("drill")
	}
	for _, b := range all {
		require.False(t, b.Forgotten())
		b.Reset()
	}
	k.Get("new")
	members := 0
	for range k.All() {
		members++
	}
	assert.Equal(t, 2, members)
}

// An upstream's wait was lost with its breaker.
func TestFaultFamilyForgetsAWait(t *testing.T) {
	k, _, clock := newFamily(t, resilience.Config{MaxKeys: 1, FailMax: 1, ResetTimeout: time.Second})
	p, err := k.Allow(t.Context(), "a")
	require.NoError(t, err)
	p.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Minute})
	assert.Equal(t, "tenant/(overflow)", k.Get("b").Name())
	clock.Advance(time.Minute)
	assert.Equal(t, "tenant/b", k.Get("b").Name())
}

// A throttled call without a time opened the breaker for what was left of an
// earlier wait, however short.
func TestFaultLeftoverWaitShortensResetTimeout(t *testing.T) {
	r := newRig(t, resilience.Config{OpenOnThrottle: true})
	late := r.allow()
	r.Trip("drill")
	r.Reset()
	late.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Millisecond})
	r.act("throttled")
	assert.Equal(t, r.start.Add(time.Minute), r.Snapshot().OpenUntil)
}

// The window that a snapshot of an open breaker shows emptied itself when the
// breaker opened again.
func TestFaultWindowOfAReopenedBreaker(t *testing.T) {
	r := newRig(t, resilience.Config{Trip: trip.TimeWindow{Period: 10 * time.Second, MinCalls: 2}})
	r.fail(2)
	for range 3 {
		assert.Equal(t, [2]int{2, 2}, r.window())
		r.clock.Advance(time.Minute)
		r.fail(1)
	}
}

// Long prefixes left no room for the keys, and two families shared a name.
func TestFaultFamiliesOfLongPrefixesShareAName(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet})
	_, err := reg.Keyed(strings.Repeat("x", 111), resilience.Config{})
	require.ErrorContains(t, err, "length of the prefix is 111; it must be between 1 and 110")
	names := map[string]bool{}
	for _, last := range "ab" {
		k, err := reg.Keyed(strings.Repeat("x", 109)+string(last), resilience.Config{})
		require.NoError(t, err)
		for _, key := range []string{"\n", "\t", "long key", "long key too"} {
			names[k.Get(key).Name()] = true
		}
	}
	assert.Len(t, names, 8)
}

// A cause that includes the refusal that shows it, such as a list of errors
// that grows, locked up when it was printed.
func TestFaultCauseThatIncludesItsRefusal(t *testing.T) {
	list := &growing{}
	for _, cfg := range []resilience.Config{{FailMax: 1}, {
		StopOnDenied: true,
		Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Denied}
		},
	}} {
		r := newRig(t, cfg)
		list.all = []error{errDown}
		_ = r.Do(t.Context(), func(context.Context) error { return list })
		list.all = append(list.all, r.Do(t.Context(), fine))
		assert.Contains(t, list.Error(), "upstream is down; ")
		assert.Contains(t, r.Do(t.Context(), fine).Error(), "upstream is down")
	}
}

type growing struct{ all []error }

func (g *growing) Error() string {
	var texts []string
	for _, err := range g.all {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// A snapshot and a transition wrote JSON that they could not read.
func TestFaultSnapshotCannotReadItsOwnJSON(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	r.fail(1)
	for _, v := range []any{r.Snapshot(), r.seen.Transitions()[0]} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		again := reflect.New(reflect.TypeOf(v))
		require.NoError(t, json.Unmarshal(text, again.Interface()), "%s", text)
		repeated, err := json.Marshal(again.Elem().Interface())
		require.NoError(t, err)
		assert.JSONEq(t, string(text), string(repeated))
	}
}

// The reason of an operator was on as many lines as he had typed, secrets
// included.
func TestForcedRefusalIsOneLineWithoutSecrets(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.ForceOpen("rotate\napi_key=hunter2hunter2")
	assert.EqualError(t, r.refused(),
		`circuit breaker forced open for "milvus", failing fast; only a reset closes it: rotate api_key=***`)
}
