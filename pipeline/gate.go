package pipeline

import (
	"context"
	"errors"
	"sync"

	"github.com/penstock-go/penstock/resilience"
)

// gate bounds the calls in flight to one upstream: never more than the breaker
// still tolerates failures, so that however many of them are doomed, the
// breaker is open before another is sent.
type gate struct {
	breaker  *resilience.Breaker
	classify resilience.Classifier
	limit    int
	closed   <-chan struct{} // the run has ended

	mu       sync.Mutex
	inFlight int
	admitted int           // calls so far
	streak   int           // failures since the last good call of an admission after the first of them
	since    int           // admitted when the streak began
	left     chan struct{} // closed and replaced whenever a call ends
}

func newGate(breaker *resilience.Breaker, classify resilience.Classifier, limit int, closed <-chan struct{}) *gate {
	return &gate{breaker: breaker, classify: classify, limit: limit, closed: closed, left: make(chan struct{})}
}

// do runs fn when there is room. It returns errStopped, without running fn,
// once the run has ended, and the context's cause when that is done first.
func (g *gate) do(ctx context.Context, fn func() error) error {
	number, err := g.enter(ctx)
	if err != nil {
		return err
	}
	outcome := resilience.Ignored // of a panic
	defer func() { g.leave(number, outcome) }()
	err = fn()
	outcome = resilience.Success
	if err != nil {
		outcome = g.classify(ctx, err).Outcome
	}
	if errors.Is(err, resilience.ErrOpen) {
		outcome = resilience.Ignored
	}
	return err
}

// enter gives the number of the admission.
func (g *gate) enter(ctx context.Context) (int, error) {
	for {
		select {
		case <-g.closed:
			return 0, errStopped
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		default:
		}
		number, left, ok := g.tryEnter()
		if ok {
			return number, nil
		}
		select {
		case <-left:
		case <-g.closed:
		case <-ctx.Done():
		}
	}
}

func (g *gate) tryEnter() (number int, left <-chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The streak is read under the lock: a call that fails meanwhile cannot give
	// its place away before its failure shows.
	if g.inFlight < g.room() {
		g.inFlight++
		g.admitted++
		return g.admitted, nil, true
	}
	return 0, g.left, false
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
	return max(1, min(g.limit, s.FailMax-max(s.Streak, g.streak)))
}

// leave gives the place back. The breaker is tripped before that, and outside
// the lock: its observers may do as they like.
func (g *gate) leave(number int, outcome resilience.Outcome) {
	if g.count(number, outcome) {
		g.breaker.Trip("consecutive failures, apart from calls that were in flight when they began")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	close(g.left)
	g.left = make(chan struct{})
}

// count keeps the gate's own streak: a good answer to a call that was in flight
// when the failures began says nothing of how the upstream is now, though it
// clears the breaker's streak. It reports whether the breaker is to be tripped.
func (g *gate) count(number int, outcome resilience.Outcome) (trip bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case outcome == resilience.Success && number > g.since:
		g.streak = 0
	case outcome == resilience.Failure:
		if g.streak == 0 {
			g.since = g.admitted
		}
		g.streak++
		s := g.breaker.Snapshot()
		return s.State == resilience.Closed && s.FailMax > 0 && g.streak >= s.FailMax
	}
	return false
}
