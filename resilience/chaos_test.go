package resilience_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// chaos is one breaker under everything at once.
type chaos struct {
	t           *testing.T
	b           *resilience.Breaker
	asked, gone atomic.Uint64 // calls; those among them whose context was done
	task        atomic.Pointer[context.Context]

	mu     sync.Mutex
	parked []*resilience.Permit // dropped by their callers
}

var gone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// act does one thing at random.
func (c *chaos) act(rng *rand.Rand) {
	ctx := context.Background()
	switch dice := rng.IntN(100); {
	case dice < 50:
		c.call(ctx, rng.IntN(8))
	case dice < 60:
		c.call(*c.task.Load(), rng.IntN(2))
	case dice < 62:
		task := resilience.WithTask(ctx, "t")
		c.task.Store(&task)
	case dice < 64:
		c.call(gone, 0)
	case dice < 80:
		c.permit(ctx, rng)
	case dice < 90:
		s := c.b.Snapshot()
		assert.Equal(c.t, s.Successes+s.Failures+s.Ignored+s.Throttled+s.Denied+s.Panics, s.Calls)
		c.b.State()
		c.b.Ready()
		_ = c.b.Check(ctx)
	case dice < 92:
		c.b.Observe(func(resilience.Transition) { c.b.Snapshot() })()
	default:
		c.operate(rng.IntN(8))
	}
}

func (c *chaos) operate(dice int) {
	switch dice {
	case 0:
		c.b.ForceOpen("chaos")
	case 1:
		c.b.ForceClose("chaos")
	case 2, 3, 4:
		c.b.Trip("chaos")
	default:
		c.b.Reset()
	}
}

// call is a call that ends in one of eight ways.
func (c *chaos) call(ctx context.Context, end int) {
	c.asked.Add(1)
	outcome := resilience.Outcome(min(end, int(resilience.Denied)))
	op := resilience.Op[int]{Name: "chaos", Classify: func(context.Context, error) resilience.Verdict {
		return resilience.Verdict{Outcome: outcome, RetryAfter: time.Microsecond}
	}}
	testutil.Isolate(func() {
		_, err := resilience.CallOp(ctx, c.b, op, func(ctx context.Context) (int, error) {
			switch end {
			case 0:
				return 1, nil
			case 5:
				panic("chaos")
			case 6:
				runtime.Goexit()
			case 7:
				c.call(ctx, 0) // nested
			}
			return 0, errDown
		})
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			c.gone.Add(1)
		}
	})
}

func (c *chaos) permit(ctx context.Context, rng *rand.Rand) {
	c.asked.Add(1)
	p, err := c.b.Allow(ctx)
	if err != nil {
		return
	}
	if rng.IntN(4) == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.parked = append(c.parked, p)
		return
	}
	var group sync.WaitGroup
	for range 2 { // the first end counts
		group.Go(p.Renew)
		group.Go(func() { p.Done(nil) })
		group.Go(p.Panicked)
	}
	if rng.IntN(2) == 0 {
		p.Settle(resilience.Verdict{Outcome: resilience.Failure}, errDown)
	}
	group.Wait()
}

// Rules 7, 8, 20, 30, 31 and 34 to 36 under everything at once, with 64
// goroutines: what was asked is what was settled, is in flight or was refused,
// exactly; events make one chain; and a reset repairs it all.
func TestChaos(t *testing.T) {
	for name, cfg := range map[string]resilience.Config{
		"plain": {FailMax: 1, ResetTimeout: 1, ProbeTimeout: time.Hour},
		"leases": {
			FailMax: 3, ResetTimeout: time.Microsecond, ProbeTimeout: time.Millisecond,
			MaxProbes: 3, SuccessThreshold: 3,
		},
		"throttled": {
			FailMax: 2, ResetTimeout: 10 * time.Microsecond, ProbeTimeout: time.Hour,
			OpenOnThrottle: true, StopOnDenied: true, CallTimeout: time.Millisecond,
		},
		"count window": {
			Trip:         trip.CountWindow{Size: 4, MinCalls: 2, Slow: trip.SlowCall{Threshold: time.Microsecond}},
			ResetTimeout: time.Microsecond, ProbeTimeout: time.Millisecond,
		},
		"time window": {
			Trip: trip.TimeWindow{Period: time.Millisecond, MinCalls: 2}, ResetTimeout: time.Microsecond, MaxProbes: 2,
		},
		"designated": {
			FailMax: 2, ResetTimeout: 1, SuccessThreshold: 2,
			Probe: func(context.Context) error { runtime.Gosched(); return nil },
		},
		"ramp": {
			FailMax: 2, ResetTimeout: 1, MaxResetTimeout: time.Microsecond, ProbeTimeout: time.Millisecond,
			Ramp: time.Millisecond,
		},
		"shadow": {
			FailMax: 2, ResetTimeout: time.Microsecond, Shadow: true, Ramp: time.Millisecond, StopOnDenied: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &chaos{t: t}
			if probe := cfg.Probe; probe != nil {
				cfg.Probe = func(ctx context.Context) error { c.asked.Add(1); return probe(ctx) }
			}
			cfg.Logger = quiet
			var chain []resilience.Transition // observers are told one at a time
			cfg.OnTransition = func(e resilience.Transition) { chain = append(chain, e) }
			c.b = testutil.NewBreaker(t, "chaos", cfg)
			task := resilience.WithTask(context.Background(), "t")
			c.task.Store(&task)
			var group sync.WaitGroup
			for g := range 64 {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				group.Go(func() {
					for range 60 {
						c.act(rng)
					}
				})
			}
			group.Wait()
			c.checkCounts()
			c.checkEvents(&chain)
			c.b.Reset()
			require.Equal(t, resilience.Closed, c.b.State())
			require.NoError(t, c.b.Do(context.Background(), fine))
		})
	}
}

// checkCounts holds the totals against what was asked. A permit that was
// dropped is in flight until it is ended, or until its lease runs out.
func (c *chaos) checkCounts() {
	settled := func() uint64 {
		s := c.b.Snapshot()
		return s.Calls + s.Stale + s.Rejected + s.Shed + c.gone.Load()
	}
	before := settled()
	require.LessOrEqual(c.t, before, c.asked.Load())
	require.LessOrEqual(c.t, c.asked.Load()-before, uint64(len(c.parked)), "in flight")
	for _, p := range c.parked {
		p.Done(nil)
	}
	require.Equal(c.t, c.asked.Load(), settled(), "%+v", c.b.Snapshot())
}

// checkEvents follows the chain of events to the last state. A hold that begins
// or ends in a state is part of it, though Reset makes its generation a new
// one.
func (c *chaos) checkEvents(chain *[]resilience.Transition) {
	told := make(chan struct{})
	c.b.Observe(func(e resilience.Transition) {
		if e.Reason == "last" {
			close(told)
		}
	})
	c.b.Reset()
	c.b.Trip("last")
	<-told
	s := c.b.Snapshot()
	state, gen, opened, dropped := resilience.Closed, uint64(0), uint64(0), uint64(0)
	for i, e := range *chain {
		if dropped += e.Dropped; e.Dropped == 0 {
			require.Equal(c.t, state, e.From, "event %d: %+v", i, e)
		}
		require.GreaterOrEqual(c.t, e.Generation, gen, "event %d: %+v", i, e)
		require.True(c.t, e.From == e.To || e.Generation > gen, "event %d: %+v", i, e)
		state, gen = e.To, e.Generation
		if e.To == resilience.Open && e.From != e.To {
			opened++
		}
	}
	require.Equal(c.t, s.Generation, gen)
	require.LessOrEqual(c.t, opened, s.Opened)
	require.GreaterOrEqual(c.t, opened+dropped, s.Opened)
}
