package pipeline

import (
	"context"
	"sync"

	"github.com/penstock-go/penstock/resilience"
)

// gate bounds the calls in flight to one upstream: never more than the breaker
// still tolerates failures, so that however many of them are doomed, the
// breaker is open before another is sent.
type gate struct {
	breaker *resilience.Breaker
	limit   int
	closed  <-chan struct{} // the run has ended

	mu       sync.Mutex
	inFlight int
	left     chan struct{} // closed and replaced whenever a call ends
}

func newGate(breaker *resilience.Breaker, limit int, closed <-chan struct{}) *gate {
	return &gate{breaker: breaker, limit: limit, closed: closed, left: make(chan struct{})}
}

// do runs fn when there is room. It returns errStopped, without running fn,
// once the run has ended, and the context's cause when that is done first.
func (g *gate) do(ctx context.Context, fn func() error) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	return fn()
}

func (g *gate) enter(ctx context.Context) error {
	for {
		select {
		case <-g.closed:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		left, ok := g.tryEnter()
		if ok {
			return nil
		}
		select {
		case <-left:
		case <-g.closed:
		case <-ctx.Done():
		}
	}
}

func (g *gate) tryEnter() (left <-chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The streak is read under the lock: a call that fails meanwhile cannot give
	// its place away before its failure shows.
	if g.inFlight < g.room() {
		g.inFlight++
		return nil, true
	}
	return g.left, false
}

// room is how many calls may be in flight now. An open breaker lets one caller
// through, to be refused and end the run. A call that has failed is counted by
// the breaker before it leaves the gate, so the sum of streak and calls in
// flight never falls short.
func (g *gate) room() int {
	s := g.breaker.Snapshot()
	switch {
	case s.State != resilience.Closed:
		return 1
	case s.FailMax == 0: // a window rules, there is no streak
		return g.limit
	}
	return max(1, min(g.limit, s.FailMax-s.Streak))
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	close(g.left)
	g.left = make(chan struct{})
}
