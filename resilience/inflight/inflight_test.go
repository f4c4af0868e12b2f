package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

var errDown = errors.New("upstream is down")

// rig is a limiter and its breaker.
type rig struct {
	*inflight.Limiter
	t       testing.TB
	breaker *resilience.Breaker
}

func newRig(t testing.TB, limit int, cfg resilience.Config) *rig {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	b, err := resilience.New("llm", cfg)
	require.NoError(t, err)
	l, err := inflight.New(b, limit)
	require.NoError(t, err)
	return &rig{l, t, b}
}

// call is one call of an operation that fn answers.
func (r *rig) call(operation string, fn func() error) error {
	op := resilience.Op[struct{}]{Name: operation}
	_, err := inflight.Do(r.t.Context(), r.Limiter, op, func(context.Context) (struct{}, error) {
		return struct{}{}, fn()
	})
	return err
}

func (r *rig) fail(operation string) { _ = r.call(operation, func() error { return errDown }) }

func (r *rig) succeed(operation string) {
	require.NoError(r.t, r.call(operation, func() error { return nil }))
}

// held is a call in flight.
type held struct {
	end  chan error
	done chan error
}

// hold begins a call that lasts until it is finished. It belongs in a bubble.
func (r *rig) hold(operation string) *held {
	h := &held{make(chan error), make(chan error, 1)}
	go func() { h.done <- r.call(operation, func() error { return <-h.end }) }()
	synctest.Wait()
	return h
}

// finish ends the call, and gives what its caller got.
func (h *held) finish(err error) error {
	h.end <- err
	synctest.Wait()
	return <-h.done
}

// enter is a slot that must be there at once.
func (r *rig) enter(operation string) *inflight.Slot {
	s, err := r.Enter(r.t.Context(), operation)
	require.NoError(r.t, err)
	return s
}

// full says whether a call of the operation has to wait. It belongs in a
// bubble.
func (r *rig) full(operation string) bool {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Nanosecond)
	defer cancel()
	s, err := r.Enter(ctx, operation)
	if err == nil {
		s.Leave()
	}
	return err != nil
}

// A thousand goroutines at a dead server cost FailMax requests.
func TestThousandCallersCostFiveRequests(t *testing.T) {
	upstream := testutil.NewFaultyServer(t, nil)
	upstream.Always(testutil.Status(http.StatusInternalServerError))
	r := newRig(t, 0, resilience.Config{})
	errs := testutil.Stampede(1000, func() error {
		return r.call("get", func() error {
			answer, err := http.Get(upstream.URL())
			if err != nil {
				return err
			}
			return errors.Join(answer.Body.Close(), errors.New(answer.Status))
		})
	})
	for i, err := range errs {
		require.Error(t, err, "caller %d", i)
	}
	assert.LessOrEqual(t, upstream.Count("/"), 5)
	assert.Equal(t, resilience.Open, r.breaker.State())
}

// However many callers there are and however the doomed calls interleave, no
// more than FailMax of them are sent.
func TestNoMoreThanFailMaxDoomedCalls(t *testing.T) {
	unavailable := func(context.Context, error) resilience.Verdict {
		return resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Second, Unavailable: true}
	}
	for seed := range 200 {
		cfg := resilience.Config{}
		if seed%2 == 1 {
			cfg.Classify = unavailable
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, seed%7, cfg)
			var sent atomic.Int64
			var callers sync.WaitGroup
			for range 20 + seed%30 {
				callers.Go(func() {
					for range 5 {
						assert.Error(t, r.call("call", func() error { sent.Add(1); return errDown }))
					}
				})
			}
			callers.Wait()
			assert.Equal(t, int64(5), sent.Load())
		})
	}
}

// A healthy upstream sees limit calls at a time, or FailMax, and no more.
func TestHealthyUpstreamSeesLimitCallsAtATime(t *testing.T) {
	for _, row := range []struct{ limit, failMax, most int }{{0, 5, 5}, {3, 5, 3}, {9, 5, 5}, {0, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, row.limit, resilience.Config{FailMax: row.failMax})
			var now, most atomic.Int64
			errs := testutil.Stampede(100, func() error {
				return r.call(strconv.FormatInt(most.Load(), 10), func() error {
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(time.Second)
					now.Add(-1)
					return nil
				})
			})
			for i, err := range errs {
				require.NoError(t, err, "caller %d", i)
			}
			assert.Equal(t, int64(row.most), most.Load())
		})
	}
}

// First come, first served.
func TestWaitersEnterInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, resilience.Config{})
		first := r.enter("call")
		var order []int
		for i := range 10 {
			go func() { _ = r.call("call", func() error { order = append(order, i); return nil }) }()
			synctest.Wait()
		}
		first.Leave()
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order)
	})
}

// Each failure takes a place away, a good answer gives them back.
func TestRoomIsWhatTheBreakerTolerates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 3 {
			r.fail("call")
		}
		one, two := r.enter("call"), r.enter("other")
		assert.True(t, r.full("call"))
		one.Leave() // without a verdict
		one.Leave()
		three := r.enter("call")
		assert.True(t, r.full("call"))
		two.Leave()
		three.Leave()
		r.succeed("call")
		var slots []*inflight.Slot
		for range 5 {
			slots = append(slots, r.enter("call"))
		}
		assert.True(t, r.full("call"))
		for _, s := range slots {
			s.Leave()
		}
	})
}

// room is how many calls of the operation could begin now.
func (r *rig) room(operation string) int {
	var slots []*inflight.Slot
	for len(slots) < 100 && !r.full(operation) {
		slots = append(slots, r.enter(operation))
	}
	for _, s := range slots {
		s.Leave()
	}
	return len(slots)
}

// Failures of calls that bypass the limiter take room away, and good answers to
// them give it back, to the callers that wait longest.
func TestCallsThatBypassTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		bypass := func(err error) { _ = r.breaker.Do(t.Context(), func(context.Context) error { return err }) }
		for range 3 {
			bypass(errDown)
		}
		assert.Equal(t, 2, r.room("call"))
		bypass(errDown)
		first, waits := r.hold("call"), r.hold("call")
		bypass(nil)
		later := r.hold("call") // whose arrival shows that there is room
		for _, h := range []*held{waits, later, first} {
			require.NoError(t, h.finish(nil))
		}
	})
}

// A good answer to a call that began after the first failure counts, whatever
// failed meanwhile. One to a call from before leaves the room as it is.
func TestGoodAnswersCountFromTheFirstFailureOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		before := r.hold("call")
		r.fail("call")
		after := r.hold("call")
		r.fail("call")
		require.NoError(t, before.finish(nil))
		assert.Equal(t, 2, r.room("other"))
		require.NoError(t, after.finish(nil))
		assert.Equal(t, 5, r.room("call"))
	})
}

// A breaker that is forced closed never opens, so failures take no room: not
// those before the hold, nor those under it. After it they count afresh.
func TestForcedClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 3 {
			r.fail("call")
		}
		assert.Equal(t, 2, r.room("call"))
		r.breaker.ForceClose("drill")
		assert.Equal(t, 5, r.room("call"))
		for range 20 {
			r.fail("call")
		}
		assert.Equal(t, resilience.Closed, r.breaker.State())
		assert.Equal(t, 5, r.room("call"))
		r.breaker.Reset()
		assert.Equal(t, 5, r.room("call"))
		r.fail("call")
		assert.Equal(t, 4, r.room("call"))
	})
}

// A breaker in shadow mode refuses nothing, so its failures take no room
// either, in any state.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{Shadow: true})
		for range 20 {
			r.fail("call")
		}
		assert.Equal(t, resilience.Open, r.breaker.State())
		assert.Equal(t, 5, r.room("call"))
	})
}

// The trip of the limiter shows the failure that made it.
func TestTripHasACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		seen := testutil.Record(t, r.breaker)
		for range 5 {
			require.NoError(t, r.breaker.Do(t.Context(), func(context.Context) error { return nil }))
			r.fail("embed") // the breaker's streak is never more than one
		}
		require.Len(t, seen.Transitions(), 1)
		assert.Contains(t, seen.Transitions()[0].Reason, "consecutive failures")
		assert.Equal(t, r.breaker.Snapshot().LastFailure, seen.Transitions()[0].Cause)
	})
}

// Failures that come late do not extend the time that the breaker is open.
func TestLateFailuresTripNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{FailMax: 2})
		one, two := r.hold("call"), r.hold("call")
		r.breaker.Trip("drill")
		time.Sleep(time.Minute)
		for _, h := range []*held{one, two} {
			require.ErrorIs(t, h.finish(errDown), errDown)
		}
		assert.Equal(t, resilience.HalfOpen, r.breaker.State())
		assert.Equal(t, uint64(1), r.breaker.Snapshot().Opened)
	})
}

// Calls that were in flight when an outage began, and end well in the middle of
// it, clear the breaker's streak; they do not buy more doomed calls.
func TestLateGoodAnswersBuyNoDoomedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		seen := testutil.Record(t, r.breaker)
		early := r.hold("call")
		for range 3 {
			r.fail("call")
		}
		require.NoError(t, early.finish(nil)) // one good answer from before the outage
		_, streak, _ := r.breaker.Streak()
		assert.Zero(t, streak)
		doomed := 3
		for range 10 {
			_ = r.call("call", func() error { doomed++; return errDown })
		}
		assert.Equal(t, 5, doomed)
		assert.Equal(t, "consecutive failures, apart from calls that were in flight when they began",
			seen.Transitions()[0].Reason)
	})
}

// Behind one breaker one operation fails and another is answered well, as where
// a chat model is down and the embedding model is another server: the good
// answers buy no doomed calls.
func TestGoodAnswersToAnotherOperationBuyNoDoomedCalls(t *testing.T) {
	for seed := range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 0, resilience.Config{})
			seen := testutil.Record(t, r.breaker)
			var doomed atomic.Int64
			var callers sync.WaitGroup
			for range 1 + seed%12 {
				callers.Go(func() {
					for range 20 {
						_ = r.call("chat", func() error { doomed.Add(1); return errDown })
					}
				})
				callers.Go(func() {
					for range 20 {
						_ = r.call("embed", func() error { return nil })
					}
				})
			}
			callers.Wait()
			assert.Equal(t, int64(5), doomed.Load())
			assert.Contains(t, seen.Transitions()[0].Reason, "consecutive failures")
		})
	}
}

// An operation that fails alone is slowed down alone, and named in the reason.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		seen := testutil.Record(t, r.breaker)
		for range 4 {
			r.fail("chat")
			r.succeed("embed")
		}
		chat := r.hold("chat")
		assert.True(t, r.full("chat"))
		waits := r.hold("chat")
		assert.False(t, r.full("embed"), "a waiter whose lane is full holds nobody else up")
		require.ErrorIs(t, chat.finish(errDown), errDown)
		assert.Equal(t, "consecutive failures of chat", seen.Transitions()[0].Reason)
		require.ErrorIs(t, <-waits.done, resilience.ErrOpen)
	})
}

// A 429 is not a failure of any lane.
func TestThrottledAndDeniedSayNothing(t *testing.T) {
	for _, outcome := range []resilience.Outcome{resilience.Throttled, resilience.Denied, resilience.Ignored} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 0, resilience.Config{Classify: func(context.Context, error) resilience.Verdict {
				return resilience.Verdict{Outcome: outcome}
			}})
			for range 100 {
				r.fail("call")
			}
			var slots []*inflight.Slot
			for range 5 {
				assert.False(t, r.full("call"))
				slots = append(slots, r.enter("call"))
			}
			for _, s := range slots {
				s.Leave()
			}
			assert.Equal(t, resilience.Closed, r.breaker.State())
		})
	}
}

// A panic returns the slot and does not count.
func TestPanicSaysNothing(t *testing.T) {
	r := newRig(t, 0, resilience.Config{})
	for range 100 {
		assert.PanicsWithValue(t, "a bug", func() { _ = r.call("call", func() error { panic("a bug") }) })
	}
	r.succeed("call")
}

// An open breaker refuses at once, whatever is still in flight. No more callers
// ask it at a time than may be in flight once it is closed.
func TestOpenBreakerRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stop := range []func(*rig){
			func(r *rig) { r.breaker.Trip("drill") },
			func(r *rig) { r.breaker.ForceOpen("drill") },
		} {
			r := newRig(t, 0, resilience.Config{})
			var calls []*held
			for range 5 {
				calls = append(calls, r.hold("call"))
			}
			stop(r)
			for _, err := range testutil.Stampede(100,
				func() error { return r.call("call", func() error { return nil }) }) {
				require.ErrorIs(t, err, resilience.ErrOpen)
			}
			assert.Equal(t, 5, r.room("call"))
			for _, c := range calls {
				require.NoError(t, c.finish(nil))
			}
		}
	})
}

// Callers that wait when the breaker opens pass as well, no more of them at a
// time.
func TestWaitersMeetAnOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, resilience.Config{})
		slots := []*inflight.Slot{r.enter("call"), r.enter("call")}
		admitted := make(chan *inflight.Slot, 3)
		for range 3 {
			go func() { admitted <- r.enter("call") }()
		}
		synctest.Wait()
		r.breaker.Trip("drill")
		for _, s := range slots {
			s.Leave()
		}
		synctest.Wait()
		require.Len(t, admitted, 2)
		(<-admitted).Leave()
		synctest.Wait()
		require.Len(t, admitted, 2)
	})
}

// An admission that takes long, such as one that runs the designated probe or
// tells a slow observer, holds up nobody else.
func TestSlowAdmissionHoldsUpNobody(t *testing.T) {
	for name, cfg := range map[string]resilience.Config{
		"designated probe": {Probe: func(context.Context) error { time.Sleep(time.Hour); return nil }},
		"observer": {OnTransition: func(e resilience.Transition) {
			if e.To == resilience.HalfOpen {
				time.Sleep(time.Hour)
			}
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg.ProbeTimeout = 2 * time.Hour
			r := newRig(t, 0, cfg)
			r.breaker.Trip("drill")
			time.Sleep(time.Minute)
			slow := r.hold("call")
			for range 100 {
				require.ErrorIs(t, <-r.hold("call").done, resilience.ErrOpen, name)
			}
			time.Sleep(time.Hour)
			require.NoError(t, slow.finish(nil), name)
			r.succeed("call")
		})
	}
}

// Reset of a closed breaker makes no transition, and clears the streaks of the
// limiter as well as the breaker's.
func TestResetOfAClosedBreakerGivesRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 4 {
			r.fail("call")
		}
		assert.Equal(t, 1, r.room("call"))
		r.breaker.Reset()
		assert.Equal(t, 5, r.room("call"))
	})
}

// At the reset time one call is the probe, whatever is still in flight, and the
// others are refused at once: neither a probe that hangs nor a call from before
// the outage holds anybody up.
func TestNobodyWaitsForTheProbe(t *testing.T) {
	for _, good := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 0, resilience.Config{})
			hung := r.hold("call")
			r.breaker.Trip("drill")
			time.Sleep(time.Minute)
			probe := r.hold("call")
			for _, operation := range []string{"call", "other"} {
				require.ErrorIs(t, <-r.hold(operation).done, resilience.ErrOpen)
			}
			if good {
				require.NoError(t, probe.finish(nil))
				r.succeed("call")
			} else {
				require.ErrorIs(t, probe.finish(errDown), errDown)
				require.ErrorIs(t, <-r.hold("call").done, resilience.ErrOpen)
			}
			require.NoError(t, hung.finish(nil))
		})
	}
}

// A probe that is silent for longer than its lease wedges nothing.
func TestHungProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 5 {
			r.fail("call")
		}
		time.Sleep(time.Minute)
		hung := r.hold("call")
		time.Sleep(2 * time.Minute) // its lease runs out, and so does the wait after that
		r.succeed("call")
		require.Equal(t, resilience.Closed, r.breaker.State())
		require.NoError(t, hung.finish(nil))
	})
}

// Waiting callers learn what others make of the breaker.
func TestTransitionsWakeWaitingCallers(t *testing.T) {
	for name, act := range map[string]func(*resilience.Breaker){
		"trip":       func(b *resilience.Breaker) { b.Trip("drill") },
		"force open": func(b *resilience.Breaker) { b.ForceOpen("drill") },
		"failures around the limiter": func(b *resilience.Breaker) {
			for range 5 {
				_ = b.Do(context.Background(), func(context.Context) error { return errDown })
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, resilience.Config{})
			first := r.hold("call")
			waiting := r.hold("call")
			act(r.breaker)
			require.ErrorIs(t, <-waiting.done, resilience.ErrOpen, name)
			require.NoError(t, first.finish(nil))
		})
	}
}

// Reset of a closed breaker clears the limiter's streaks as well, and what was
// in flight then counts for nothing.
func TestResetOfAClosedBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 4 {
			r.fail("call")
		}
		r.breaker.Reset()
		r.fail("call")
		require.Equal(t, resilience.Closed, r.breaker.State())
		r.breaker.Reset()
		r.succeed("call")

		var old []*held
		for range 5 {
			old = append(old, r.hold("call"))
		}
		r.breaker.Reset()
		for _, h := range old {
			require.ErrorIs(t, h.finish(errDown), errDown)
		}
		require.Equal(t, resilience.Closed, r.breaker.State())
	})
}

// Rule 6: the hundredth episode trips at the same threshold as the first, and
// what is left of an earlier one counts for nothing.
func TestEpisodesStartAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 100 {
			old := r.hold("chat")
			for range 4 {
				r.fail("chat")
				r.succeed("embed")
			}
			r.breaker.Trip("drill")
			r.fail("chat") // refused
			time.Sleep(time.Minute)
			r.breaker.Reset()
			r.succeed("embed")
			require.ErrorIs(t, old.finish(errDown), errDown) // stale
			for i := range 5 {
				require.Equal(t, resilience.Closed, r.breaker.State(), "failure %d", i)
				r.fail("chat")
				r.succeedUnlessOpen("embed")
			}
			require.Equal(t, resilience.Open, r.breaker.State())
			r.breaker.Reset()
			r.succeed("embed")
		}
	})
}

// Closing gives all the room back.
func TestClosingGivesTheRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		for range 6 {
			r.fail("call")
		}
		r.breaker.Reset()
		assert.Equal(t, 5, r.room("call"))
	})
}

func (r *rig) succeedUnlessOpen(operation string) {
	if err := r.call(operation, func() error { return nil }); err != nil {
		require.ErrorIs(r.t, err, resilience.ErrOpen)
	}
}

// A window has no streak: the limit holds.
func TestWindowHasItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, resilience.Config{Trip: trip.CountWindow{Size: 10, MinCalls: 10, FailureRate: 0.5}})
		for range 9 {
			r.fail("call")
		}
		var calls []*held
		for range 3 {
			calls = append(calls, r.hold("call"))
		}
		assert.True(t, r.full("call"))
		for _, c := range calls {
			_ = c.finish(errDown)
		}
		require.ErrorIs(t, r.call("call", func() error { return nil }), resilience.ErrOpen)
	})
}

func TestNewWantsWhatMakesSense(t *testing.T) {
	streak := newRig(t, 0, resilience.Config{}).breaker
	window := newRig(t, 1, resilience.Config{Trip: trip.CountWindow{}}).breaker
	_, err := inflight.New(nil, 1)
	require.EqualError(t, err, "inflight: the breaker is nil")
	_, err = inflight.New(streak, -1)
	require.EqualError(t, err, `inflight: limit of breaker "llm" is -1; it must not be negative`)
	_, err = inflight.New(window, 0)
	require.EqualError(t, err, `inflight: breaker "llm" opens by a window and needs a positive limit`)
	l, err := inflight.New(streak, 0)
	require.NoError(t, err)
	assert.Same(t, streak, l.Breaker())
}

func TestEnterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, resilience.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		first := r.enter("call")
		waiting := make(chan error)
		go func() {
			_, err := r.Enter(ctx, "call")
			waiting <- err
		}()
		synctest.Wait()
		cancel()
		require.Equal(t, context.Canceled, <-waiting)
		first.Leave()
		_, err := r.Enter(ctx, "call")
		require.Equal(t, context.Canceled, err)
		r.succeed("call")
	})
}

// A caller that gives up just as it is admitted keeps no slot.
func TestNoSlotIsLostToCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, resilience.Config{})
		for range 500 {
			first := r.enter("call")
			ctx, cancel := context.WithCancel(t.Context())
			for range 3 {
				go func() {
					if s, err := r.Enter(ctx, "call"); err == nil {
						s.Leave()
					}
				}()
			}
			synctest.Wait()
			cancel()
			first.Leave()
			synctest.Wait()
		}
		assert.False(t, r.full("call"))
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errRun := errors.New("the run has ended")
		r := newRig(t, 1, resilience.Config{})
		first := r.hold("call")
		waits := r.hold("call")
		r.Close(errRun)
		r.Close(errDown)
		require.ErrorIs(t, <-waits.done, errRun)
		require.ErrorIs(t, r.call("call", func() error { return nil }), errRun)
		require.NoError(t, first.finish(nil))
		_, err := r.Enter(t.Context(), "call")
		require.Same(t, errRun, err)

		r = newRig(t, 1, resilience.Config{})
		r.Close(nil)
		_, err = r.Enter(t.Context(), "call")
		require.EqualError(t, err, "inflight: the limiter is closed")
	})
}

// The first verdict of a slot counts, before it is given back.
func TestSlotIsSettledOnce(t *testing.T) {
	r := newRig(t, 0, resilience.Config{})
	for range 4 {
		s := r.enter("call")
		for range 10 {
			s.Settled(resilience.Verdict{Outcome: resilience.Failure})
		}
		s.Leave()
		s.Settled(resilience.Verdict{Outcome: resilience.Failure})
	}
	late := r.enter("call")
	late.Leave()
	late.Settled(resilience.Verdict{Outcome: resilience.Failure})
	assert.Equal(t, resilience.Closed, r.breaker.State())
	s := r.enter("call")
	s.Settled(resilience.Verdict{Outcome: resilience.Failure})
	assert.Equal(t, resilience.Open, r.breaker.State())
	s.Leave()
}

// An observer of the early trip may use the limiter.
func TestObserverMayEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, resilience.Config{})
		told := 0
		r.breaker.Observe(func(resilience.Transition) {
			told++
			require.ErrorIs(t, r.call("call", func() error { return nil }), resilience.ErrOpen)
		})
		early := r.hold("call")
		r.fail("call")
		require.NoError(t, early.finish(nil))
		for range 4 {
			r.fail("call")
		}
		assert.Equal(t, 1, told)
	})
}

// The caller's own Settled is told what the limiter is told, after it.
func TestDoTellsTheCaller(t *testing.T) {
	r := newRig(t, 0, resilience.Config{FailMax: 1, Trip: trip.Consecutive{}})
	var heard []resilience.Verdict
	op := resilience.Op[int]{Name: "get", Settled: func(v resilience.Verdict) { heard = append(heard, v) }}
	_, err := inflight.Do(t.Context(), r.Limiter, op, func(context.Context) (int, error) { return 1, errDown })
	require.Same(t, errDown, err)
	assert.Equal(t, []resilience.Verdict{{Outcome: resilience.Failure}}, heard)
}

// Operations with names without end take bounded memory, and one that fails is
// remembered longer than those that do not.
func TestOperationsAreForgotten(t *testing.T) {
	r := newRig(t, 0, resilience.Config{})
	for range 4 {
		r.fail("chat")
		r.succeed("embed")
	}
	for i := range 10_000 {
		r.succeed(fmt.Sprint("good ", i))
		require.LessOrEqual(t, r.Lanes(), 128)
	}
	r.fail("chat")
	require.Equal(t, resilience.Open, r.breaker.State())
	r.breaker.Reset()
	for i := range 10_000 {
		r.fail(fmt.Sprint("bad ", i))
		r.succeed("embed")
		require.LessOrEqual(t, r.Lanes(), 128)
	}
}

// Names that are all in use at once cost no search at each.
func TestOperationsInUseAreKept(t *testing.T) {
	r := newRig(t, 0, resilience.Config{FailMax: 1000})
	var slots []*inflight.Slot
	for i := range 1000 {
		slots = append(slots, r.enter(strconv.Itoa(i)))
	}
	for _, s := range slots {
		s.Leave()
	}
	assert.GreaterOrEqual(t, r.Lanes(), 1000)
	for i := range 200 {
		r.succeed(fmt.Sprint("later ", i))
	}
	r.succeed("1")
}

// An operation with a call that waits is not forgotten.
func TestOperationsThatWaitAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, resilience.Config{FailMax: 2})
		first := r.hold("first")
		waits := r.hold("chat")
		for i := range 300 {
			assert.True(t, r.full(strconv.Itoa(i)))
		}
		require.NoError(t, first.finish(nil))
		require.ErrorIs(t, waits.finish(errDown), errDown)
		r.succeed("embed")
		assert.Equal(t, resilience.Closed, r.breaker.State())
		r.fail("chat")
		assert.Equal(t, resilience.Open, r.breaker.State())
	})
}

func BenchmarkEnterLeave(b *testing.B) {
	r := newRig(b, 0, resilience.Config{})
	b.ReportAllocs()
	for b.Loop() {
		s, err := r.Enter(b.Context(), "call")
		if err != nil {
			b.Fatal(err)
		}
		s.Settled(resilience.Verdict{})
		s.Leave()
	}
}

func BenchmarkDo(b *testing.B) {
	r := newRig(b, 0, resilience.Config{})
	op := resilience.Op[int]{Name: "call"}
	fn := func(context.Context) (int, error) { return 1, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := inflight.Do(b.Context(), r.Limiter, op, fn); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStreak sets Streak beside the whole picture that it spares.
func BenchmarkStreak(b *testing.B) {
	breakers := map[resilience.State]*resilience.Breaker{
		resilience.Closed:   newRig(b, 0, resilience.Config{}).breaker,
		resilience.HalfOpen: newRig(b, 0, resilience.Config{ResetTimeout: 1}).breaker,
		resilience.Open:     newRig(b, 0, resilience.Config{}).breaker,
	}
	breakers[resilience.HalfOpen].Trip("bench")
	breakers[resilience.Open].Trip("bench")
	for state, breaker := range breakers {
		b.Run(state.String()+"/streak", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				breaker.Streak()
			}
		})
		b.Run(state.String()+"/snapshot", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				breaker.Snapshot()
			}
		})
	}
}
