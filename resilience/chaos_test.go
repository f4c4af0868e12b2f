package resilience_test

import (
	"context"
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
		if err != nil && ctx.Err() != nil {
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

// Rules 7, 8, 20, 30 and 31 under everything at once: what was asked is what
// was counted, events make one chain, and a reset repairs it all.
func TestChaos(t *testing.T) {
	for name, cfg := range map[string]resilience.Config{
		"plain": {FailMax: 1, ResetTimeout: 1, ProbeTimeout: time.Hour},
		"leases": {
			FailMax: 3, ResetTimeout: time.Microsecond, ProbeTimeout: time.Microsecond,
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
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Logger = quiet
			var chain []resilience.Transition // observers are told one at a time
			cfg.OnTransition = func(e resilience.Transition) { chain = append(chain, e) }
			c := &chaos{t: t, b: testutil.NewBreaker(t, "chaos", cfg)}
			task := resilience.WithTask(context.Background(), "t")
			c.task.Store(&task)
			var group sync.WaitGroup
			for g := range 8 {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				group.Go(func() {
					for range 300 {
						c.act(rng)
					}
				})
			}
			group.Wait()
			c.check(cfg, chain)
		})
	}
}

func (c *chaos) check(cfg resilience.Config, chain []resilience.Transition) {
	s := c.b.Snapshot()
	counted := s.Calls + s.Stale + s.Rejected + c.gone.Load()
	if cfg.ProbeTimeout == time.Hour { // no lost leases, and no designated probes
		require.Equal(c.t, c.asked.Load(), counted, "%+v", s)
	}
	require.GreaterOrEqual(c.t, counted, c.asked.Load())
	state, gen, opened := resilience.Closed, uint64(0), uint64(0)
	for i, e := range chain {
		require.Equal(c.t, state, e.From, "event %d: %+v", i, e)
		require.Greater(c.t, e.Generation, gen, "event %d: %+v", i, e)
		state, gen = e.To, e.Generation
		if e.To == resilience.Open {
			opened++
		}
	}
	require.Equal(c.t, opened, s.Opened)
	c.b.Reset()
	require.Equal(c.t, resilience.Closed, c.b.State())
	require.NoError(c.t, c.b.Do(context.Background(), fine))
}
