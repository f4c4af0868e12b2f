package resilience_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble makes a breaker inside a synctest bubble, on the bubble's own clock.
func bubble(t *testing.T, cfg resilience.Config, run func(t *testing.T, b *resilience.Breaker)) {
	synctest.Test(t, func(t *testing.T) {
		cfg.Logger = quiet
		run(t, testutil.NewBreaker(t, "milvus", cfg))
	})
}

// Rule 5: a thousand goroutines at the reset instant, exactly one probe.
func TestStampedeAtTheResetInstant(t *testing.T) {
	bubble(t, resilience.Config{}, func(t *testing.T, b *resilience.Breaker) {
		b.Trip("drill")
		var ran, refused atomic.Int32
		for range 1000 {
			go func() {
				time.Sleep(time.Minute)
				err := b.Do(t.Context(), func(context.Context) error {
					ran.Add(1)
					time.Sleep(time.Second)
					return nil
				})
				if err != nil {
					refused.Add(1)
				}
			}()
		}
		time.Sleep(time.Minute + 500*time.Millisecond)
		synctest.Wait()
		assert.Equal(t, int32(1), ran.Load())
		assert.Equal(t, int32(999), refused.Load())
		assert.Equal(t, resilience.HalfOpen, b.State())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, resilience.Closed, b.State())
		s := b.Snapshot()
		assert.Equal(t, []uint64{1, 1, 999}, []uint64{s.Probes, s.Calls, s.Rejected})
	})
}

// Rule 5: with several slots, exactly as many probes; the two last good ones
// close once.
func TestTwoLastProbesCloseOnce(t *testing.T) {
	bubble(t, resilience.Config{MaxProbes: 4, SuccessThreshold: 3}, func(t *testing.T, b *resilience.Breaker) {
		var moves []resilience.State
		b.Observe(func(e resilience.Transition) { moves = append(moves, e.To) })
		b.Trip("drill")
		time.Sleep(time.Minute)
		for range 100 {
			go func() {
				_ = b.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil })
			}()
		}
		synctest.Wait()
		assert.Equal(t, uint64(4), b.Snapshot().Probes)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []resilience.State{resilience.Open, resilience.HalfOpen, resilience.Closed}, moves)
		assert.Equal(t, uint64(1), b.Snapshot().Stale, "the fourth came after the third had closed it")
	})
}

// Rule 7: probes that hang, panic, leave or are cancelled, with real deadlines.
func TestProbesThatGoWrong(t *testing.T) {
	bubble(t, resilience.Config{ProbeTimeout: 10 * time.Second}, func(t *testing.T, b *resilience.Breaker) {
		hung := make(chan struct{})
		b.Trip("drill")
		time.Sleep(time.Minute)
		go func() { _ = b.Do(t.Context(), func(context.Context) error { <-hung; return nil }) }()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		assert.Equal(t, resilience.Open, b.State(), "the lease ran out, with nobody looking")
		time.Sleep(time.Minute)
		leave(func() { _ = b.Do(context.Background(), explode) })
		leave(func() {
			_ = b.Do(context.Background(), func(context.Context) error { runtime.Goexit(); return nil })
		})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, nil)
		go func() { time.Sleep(time.Second); cancel() }()
		err := b.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, resilience.HalfOpen, b.State())
		close(hung)
		synctest.Wait()
		assert.Equal(t, resilience.HalfOpen, b.State(), "the hung probe's answer frees and closes nothing")
		require.NoError(t, b.Do(t.Context(), fine))
		assert.Equal(t, resilience.Closed, b.State())
	})
}

// Rule 16: CallTimeout in real time.
func TestCallTimeoutEndsAHangingCall(t *testing.T) {
	bubble(t, resilience.Config{FailMax: 2, CallTimeout: time.Second}, func(t *testing.T, b *resilience.Breaker) {
		start := time.Now()
		for range 2 {
			err := b.Do(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, resilience.Open, b.State())
	})
}

// Rule 31: a slow observer holds up the goroutine that made the transition
// and no other.
func TestSlowObserverHoldsUpNobodyElse(t *testing.T) {
	bubble(t, resilience.Config{}, func(t *testing.T, b *resilience.Breaker) {
		var order []uint64
		b.Observe(func(e resilience.Transition) {
			time.Sleep(time.Minute)
			order = append(order, e.Generation)
		})
		start := time.Now()
		go b.Trip("one")
		synctest.Wait()
		b.Reset()
		b.Trip("two")
		require.ErrorIs(t, b.Do(t.Context(), fine), resilience.ErrOpen)
		assert.Zero(t, time.Since(start))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []uint64{1, 2, 3}, order)
	})
}

// Rule 30: totals are exact once calls have ended, however many goroutines
// make them.
func TestTotalsAreExactUnderConcurrency(t *testing.T) {
	for name, cfg := range map[string]resilience.Config{
		"consecutive": {FailMax: 3, ResetTimeout: time.Microsecond, ProbeTimeout: time.Hour},
		"window": {
			Trip:         trip.TimeWindow{Period: time.Millisecond, MinCalls: 3, FailureRate: 0.2},
			ResetTimeout: time.Microsecond, ProbeTimeout: time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Logger = quiet
			b := testutil.NewBreaker(t, "milvus", cfg)
			var last atomic.Uint64
			b.Observe(func(e resilience.Transition) {
				before := e.Generation - 1 - e.Dropped
				assert.True(t, last.CompareAndSwap(before, e.Generation), "events in order, one at a time")
			})
			var asked, ran atomic.Uint64
			var group sync.WaitGroup
			for g := range 8 {
				group.Go(func() {
					for i := range 3000 {
						asked.Add(1)
						_ = b.Do(context.Background(), func(context.Context) error {
							ran.Add(1)
							if (i/10+g)%3 == 0 {
								return errDown
							}
							return nil
						})
					}
				})
			}
			group.Wait()
			s := b.Snapshot()
			assert.Equal(t, ran.Load(), s.Calls+s.Stale)
			assert.Equal(t, asked.Load(), s.Calls+s.Stale+s.Rejected)
			assert.Equal(t, s.Successes+s.Failures, s.Calls)
			require.Eventually(t, func() bool { return last.Load() == s.Generation }, time.Minute, time.Millisecond,
				"what a goroutine of its own delivers comes last")
			assert.Positive(t, s.Opened)
		})
	}
}

// linOp is one operation of a client: ask, ok, fail, look or reset.
type linOp struct {
	kind   string
	client int
}

// linState is a breaker of FailMax 2 whose wait never ends, and the generation
// that each client was last admitted to.
type linState struct {
	view    linView
	tickets [4]uint64
}

type linView struct {
	state  resilience.State
	gen    uint64
	streak int
}

var linModel = porcupine.Model{
	Init: func() any { return linState{} },
	Step: func(state, in, out any) (bool, any) {
		s, op := state.(linState), in.(linOp)
		switch op.kind {
		case "ask":
			s.tickets[op.client] = s.view.gen
			return (s.view.state == resilience.Closed) == out.(bool), s
		case "look":
			return s.view == out.(linView), s
		case "reset":
			s.view = linView{gen: s.view.gen + 1}
		default:
			s.view = s.view.after(op.kind == "ok", s.tickets[op.client])
		}
		return true, s
	},
}

func (v linView) after(ok bool, ticket uint64) linView {
	switch {
	case ticket != v.gen: // stale
	case ok:
		v.streak = 0
	default:
		if v.streak++; v.streak == 2 {
			v.state, v.gen = resilience.Open, v.gen+1
		}
	}
	return v
}

// Rule 30, and the atomic word of rule 11: histories of concurrent calls have
// an order in which a single-threaded breaker would have answered the same.
func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	for round := range 60 {
		b := testutil.NewBreaker(t, "milvus", resilience.Config{FailMax: 2, Logger: quiet, ResetTimeout: time.Hour})
		h := &history{t: t, b: b, start: time.Now()}
		var group sync.WaitGroup
		for client := range 4 {
			group.Go(func() { h.client(client, round) })
		}
		group.Wait()
		result := porcupine.CheckOperationsTimeout(linModel, h.ops, 20*time.Second)
		require.Equal(t, porcupine.Ok, result, "round %d: %v", round, h.ops)
	}
}

type history struct {
	t     *testing.T
	b     *resilience.Breaker
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// record runs do and logs it as one operation.
func (h *history) record(client int, op func() (in, out any)) {
	call := time.Since(h.start).Nanoseconds()
	in, out := op()
	end := time.Since(h.start).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

func (h *history) client(client, round int) {
	for i := range 12 {
		var p *resilience.Permit
		h.record(client, func() (any, any) {
			p, _ = h.b.Allow(context.Background())
			return linOp{"ask", client}, p != nil
		})
		switch dice := (client*7 + i*5 + round) % 8; {
		case p == nil && dice < 3:
			h.record(client, func() (any, any) { h.b.Reset(); return linOp{"reset", client}, nil })
		case p == nil || dice == 7:
			h.record(client, func() (any, any) {
				s := h.b.Snapshot()
				return linOp{"look", client}, linView{s.State, s.Generation, s.Streak}
			})
		case dice%2 == 0:
			h.record(client, func() (any, any) { p.Done(nil); return linOp{"ok", client}, nil })
		default:
			h.record(client, func() (any, any) { p.Done(errDown); return linOp{"fail", client}, nil })
		}
		runtime.Gosched()
	}
}
