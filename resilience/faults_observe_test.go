package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// Faults that observers and operators met, one test each, named after the
// fault.

// ForceOpen and ForceClose left no event, no reason and no field.
func TestFaultHoldsAreInvisible(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, resilience.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	held := func(how, reason string, since time.Duration) {
		t.Helper()
		s := r.Snapshot()
		assert.Equal(t, []any{how, reason, r.start.Add(since)}, []any{s.Held, s.HeldReason, s.HeldSince})
	}
	r.at(time.Second)
	r.ForceClose("disk is swapped")
	r.ForceClose("again")
	held("forced_closed", "disk is swapped", time.Second)
	r.at(2 * time.Second)
	r.ForceOpen("maintenance")
	held("forced_open", "maintenance", 2*time.Second)
	r.at(3 * time.Second)
	r.Reset()
	s := r.Snapshot()
	assert.Equal(t, []any{"", "", true}, []any{s.Held, s.HeldReason, s.HeldSince.IsZero()})
	r.Trip("drill")
	r.at(4 * time.Second)
	r.ForceOpen("until the morning")
	held("forced_open", "until the morning", 4*time.Second)
	r.ForceClose("now")
	r.Reset()
	r.seen.Want("closed → closed", "closed → open", "open → closed", "closed → open", "open → open",
		"open → closed", "closed → closed")
	var holds []string
	for _, e := range r.seen.Transitions() {
		holds = append(holds, fmt.Sprintf("%s %q %v", e.Held, e.Reason, e.At.Sub(r.start)))
	}
	assert.Equal(t, []string{
		`forced_closed "disk is swapped" 1s`, `forced_open "maintenance" 2s`, ` "reset" 3s`, ` "drill" 3s`,
		`forced_open "until the morning" 4s`, `forced_closed "now" 4s`, ` "reset" 4s`,
	}, holds)
	assert.Contains(t, log.String(), `msg="circuit breaker hold changed" upstream=milvus old_state=closed `+
		`new_state=closed reason="disk is swapped" held=forced_closed`)
	assert.Contains(t, log.String(), `reason="until the morning" held=forced_open`)
}

// A credential stop is a hold like any other, which nobody forced.
func TestFaultStopIsAnInvisibleHold(t *testing.T) {
	r := newRig(t, resilience.Config{StopOnDenied: true})
	r.at(time.Second)
	refused := errors.New("401 bad key")
	r.allow().Settle(resilience.Verdict{Outcome: resilience.Denied}, refused)
	s := r.Snapshot()
	assert.Equal(t, []any{"denied", "denied", r.start.Add(time.Second)}, []any{s.Held, s.HeldReason, s.HeldSince})
	last := r.seen.Transitions()[0]
	assert.Equal(t, "denied", last.Held)
	assert.Same(t, refused, last.Cause)
	r.ForceClose("new key")
	assert.Equal(t, "forced_closed", r.Snapshot().Held)
}

// A hold that ends in a closed breaker ended its generation unseen.
func TestFaultHoldOfAClosedBreakerEndsUnseen(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.Reset()
	r.seen.Want()
	r.ForceClose("drill")
	r.Reset()
	r.Reset()
	r.seen.Want("closed → closed", "closed → closed")
}

// One caller delivered the transitions of all others for as long as they
// flapped, from a queue without bound.
func TestFaultOneCallerDeliversForAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testutil.NewBreaker(t, "x", resilience.Config{Logger: quiet, FailMax: 1, ResetTimeout: time.Nanosecond})
		var told, dropped uint64
		b.Observe(func(e resilience.Transition) {
			time.Sleep(time.Second)
			told, dropped = told+1, dropped+e.Dropped
		})
		start, returned := time.Now(), make(chan time.Duration)
		go func() {
			_ = b.Do(context.Background(), down)
			returned <- time.Since(start)
		}()
		synctest.Wait()
		for range 3000 { // while the observer sleeps
			b.Reset()
			b.Trip("drill")
		}
		assert.Equal(t, 32*time.Second, <-returned, "a caller delivers a bounded number of transitions")
		time.Sleep(2000 * time.Second)
		synctest.Wait()
		assert.Equal(t, uint64(1+2*3000), told+dropped, "and each was told, or counted as dropped")
		assert.Equal(t, uint64(1+1024), told, "of which so many wait")
		b.Reset()
		assert.Equal(t, uint64(1+1024+1), told, "a caller delivers its own again")
	})
}

// An observer was told after remove had returned.
func TestFaultToldAfterRemove(t *testing.T) {
	b := testutil.NewBreaker(t, "x", resilience.Config{Logger: quiet})
	in, goOn := make(chan struct{}), make(chan struct{})
	b.Observe(func(resilience.Transition) { in <- struct{}{}; <-goOn })
	remove := b.Observe(func(resilience.Transition) { t.Error("told after remove had returned") })
	done := make(chan struct{})
	go func() { b.Trip("x"); close(done) }()
	<-in
	remove()
	remove()
	close(goOn)
	<-done
}

// It may remove itself and others while it is told.
func TestObserverRemovesItself(t *testing.T) {
	b := testutil.NewBreaker(t, "x", resilience.Config{Logger: quiet})
	told := 0
	var removeFirst, removeSecond func()
	removeFirst = b.Observe(func(resilience.Transition) { told++; removeFirst(); removeSecond() })
	removeSecond = b.Observe(func(resilience.Transition) { t.Error("removed by the first") })
	b.Trip("x")
	b.Reset()
	assert.Equal(t, 1, told)
}

// exits is a log handler that ends the goroutine over a message with these
// words.
type exits struct {
	slog.Handler
	over string
}

func (exits) Enabled(context.Context, slog.Level) bool { return true }
func (e exits) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, e.over) {
		runtime.Goexit()
	}
	return nil
}

// An observer panicked and the log handler ended the goroutine: nobody was told
// of anything again.
func TestFaultDispatcherStaysBusy(t *testing.T) {
	for name, fault := range map[string]func(){"panics": func() { panic("a bug") }, "exits": runtime.Goexit} {
		r := newRig(t, resilience.Config{Logger: slog.New(exits{over: "panicked"})})
		remove := r.Observe(func(resilience.Transition) { fault() })
		after := testutil.Record(t, r.Breaker)
		testutil.Isolate(func() { r.Trip("x") })
		r.seen.Want("closed → open")
		after.Want("closed → open")
		for range 100 { // each ends its goroutine
			testutil.Isolate(r.Reset)
			testutil.Isolate(func() { r.Trip("x") })
		}
		remove()
		r.Reset()
		assert.Len(t, r.seen.Transitions(), 202, name)
		assert.Len(t, after.Transitions(), 202, name)
	}
}

// What made a transition was in none of them, and a refusal named no failure.
func TestFaultTransitionsHaveNoCause(t *testing.T) {
	throttled := errors.New("429 slow down")
	r := newRig(t, resilience.Config{OpenOnThrottle: true, ProbeTimeout: time.Second})
	r.fail(5)
	r.at(time.Minute)
	require.Same(t, errDown, r.Do(t.Context(), down))
	r.at(2 * time.Minute)
	r.allow().Settle(verdicts["throttled"], throttled)
	r.at(3 * time.Minute)
	r.allow() // and hangs
	r.at(5 * time.Minute)
	r.succeed(1)
	r.allow().Settle(verdicts["throttled"], throttled)
	r.Reset()
	r.Trip("by hand")
	r.Reset()
	r.Trip("by a watchdog", errDown)
	var causes []string
	for _, e := range r.seen.Transitions() {
		if e.To == resilience.Open {
			causes = append(causes, e.Reason+": "+e.CauseText())
		} else {
			assert.NoError(t, e.Cause, "%v", e)
		}
	}
	assert.Equal(t, []string{
		"consecutive failures: upstream is down",
		"probe failed: upstream is down",
		"throttled: 429 slow down",
		"probe lease ran out: the probe neither ended nor renewed its lease within ProbeTimeout",
		"throttled: 429 slow down",
		"by hand: ",
		"by a watchdog: upstream is down",
	}, causes)
	assert.Same(t, errDown, r.seen.Transitions()[0].Cause, "the very error")
}

// The cause is shown short, on one line and without secrets, wherever it is.
func TestCauseIsShownWithoutSecrets(t *testing.T) {
	const key = "sk-proj-Zm9vYmFyYmF6cXV4Zm9vYmFy"
	secret := fmt.Errorf("401 Incorrect API key provided:\n%s %s", key, strings.Repeat("long ", 1000))
	var log bytes.Buffer
	r := newRig(t, resilience.Config{FailMax: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_ = r.Do(t.Context(), func(context.Context) error { return secret })
	refusal := r.refused()
	stopped := newRig(t, resilience.Config{StopOnDenied: true})
	stopped.allow().Settle(verdicts["denied"], secret)
	denied := stopped.Do(t.Context(), fine)
	for where, text := range map[string]string{
		"refusal": refusal.Error(), "transition": r.seen.Transitions()[0].CauseText(), "log": log.String(),
		"denied": denied.Error(),
	} {
		assert.Contains(t, text, "Incorrect API key provided", where)
		assert.NotContains(t, text, key, where)
		assert.NotContains(t, strings.TrimSuffix(text, "\n"), "provided:\n", where)
		assert.Less(t, len(text), 1500, where)
	}
	assert.Same(t, secret, refusal.LastFailure())
}

// broken is an error that cannot say what it is.
type broken struct{ text *string }

func (b *broken) Error() string { return *b.text }

func TestCauseThatCannotBeShown(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	_ = r.Do(t.Context(), func(context.Context) error { return (*broken)(nil) })
	assert.NotPanics(t, func() { _ = r.refused().Error() })
	assert.NotPanics(t, func() { _ = r.seen.Transitions()[0].CauseText() })
}

// Many read the text of one refusal at once.
func TestRefusalsAreReadConcurrently(t *testing.T) {
	r := newRig(t, resilience.Config{FailMax: 1})
	r.fail(1)
	refusal := r.refused()
	var group sync.WaitGroup
	var same atomic.Int32
	want := `circuit breaker open for "milvus", failing fast; next probe in 1m0s; last failure: upstream is down`
	for range 8 {
		group.Go(func() {
			if refusal.Error() == want {
				same.Add(1)
			}
		})
	}
	group.Wait()
	assert.Equal(t, int32(8), same.Load())
}

// Dates showed the wall clock as it had been when the breaker was made.
func TestFaultDatesDoNotFollowTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		r := newRig(t, resilience.Config{})
		r.fail(5)
		refusal := r.refused()
		r.clock.Step(step)
		start := r.start.Add(step)
		assert.Equal(t, start.Add(time.Minute), refusal.RetryAt(), "of a refusal from before the step")
		assert.Equal(t, start, refusal.OpenedAt())
		assert.Equal(t, start.Add(time.Minute), r.refused().RetryAt())
		s := r.Snapshot()
		assert.Equal(t, []time.Time{start.Add(time.Minute), start}, []time.Time{s.OpenUntil, s.LastOpened})
		assert.Contains(t, refusal.Error(), "next probe in 1m0s", "a deadline keeps its distance")
		r.clock.Advance(time.Minute - 1)
		r.refused()
		r.clock.Advance(1)
		r.succeed(1)
		last := r.seen.Transitions()[2]
		assert.Equal(t, start.Add(time.Minute), last.At)
		assert.Equal(t, time.Minute, last.SinceOpened)
	}
}
