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
//
// The same holds for each operation by itself. Behind one breaker there may be
// two servers, one that embeds and one that chats, or a store that reads and no
// longer writes: an operation that fails FailMax times in a row trips the
// breaker, however well the others are answered meanwhile.
type gate struct {
	breaker  *resilience.Breaker
	classify func(context.Context, error) resilience.Verdict
	limit    int
	closed   <-chan struct{} // the run has ended

	mu         sync.Mutex
	admitted   int // calls so far
	all        lane
	operations map[string]*lane
	left       chan struct{} // closed and replaced whenever a call ends
}

// lane counts the calls in flight and the failures of one operation, or of all.
type lane struct {
	inFlight int
	streak   int // failures since the last good call of an admission after the first of them
	since    int // admitted when the streak began
}

func newGate(breaker *resilience.Breaker, classify func(context.Context, error) resilience.Verdict, limit int, closed <-chan struct{}) *gate {
	return &gate{
		breaker: breaker, classify: classify, limit: limit, closed: closed,
		operations: map[string]*lane{}, left: make(chan struct{}),
	}
}

// do runs fn, a call of the named operation, when there is room. It returns
// errStopped, without running fn, once the run has ended, and the context's
// cause when that is done first.
func (g *gate) do(ctx context.Context, operation string, fn func() error) error {
	number, err := g.enter(ctx, operation)
	if err != nil {
		return err
	}
	outcome := resilience.Ignored // of a panic
	defer func() { g.leave(operation, number, outcome) }()
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
func (g *gate) enter(ctx context.Context, operation string) (int, error) {
	for {
		select {
		case <-g.closed:
			return 0, errStopped
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		default:
		}
		number, left, ok := g.tryEnter(operation)
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

func (g *gate) tryEnter(operation string) (number int, left <-chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.laneLocked(operation)
	// The breaker is read under the lock: a call that fails meanwhile cannot give
	// its place away before its failure shows.
	s := g.breaker.Snapshot()
	if g.all.inFlight < g.room(s, max(s.Streak, g.all.streak)) && own.inFlight < g.room(s, own.streak) {
		g.all.inFlight++
		own.inFlight++
		g.admitted++
		return g.admitted, nil, true
	}
	return 0, g.left, false
}

func (g *gate) laneLocked(operation string) *lane {
	if g.operations[operation] == nil {
		g.operations[operation] = &lane{}
	}
	return g.operations[operation]
}

// room is how many calls may be in flight after so many failures. An open
// breaker lets one caller through, to be refused and end the run. A call that
// has failed is counted by the breaker before it leaves the gate, so the sum of
// streak and calls in flight never falls short.
func (g *gate) room(s resilience.Snapshot, streak int) int {
	switch {
	case s.State != resilience.Closed:
		return 1
	case s.FailMax == 0: // a window rules, there is no streak
		return g.limit
	}
	return max(1, min(g.limit, s.FailMax-streak))
}

// leave gives the place back. The breaker is tripped before that, and outside
// the lock: its observers may do as they like.
func (g *gate) leave(operation string, number int, outcome resilience.Outcome) {
	if reason := g.count(operation, number, outcome); reason != "" {
		g.breaker.Trip(reason)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all.inFlight--
	g.laneLocked(operation).inFlight--
	close(g.left)
	g.left = make(chan struct{})
}

// count keeps the gate's own streaks, and gives the reason if the breaker is to
// be tripped.
func (g *gate) count(operation string, number int, outcome resilience.Outcome) (reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.laneLocked(operation)
	g.all.count(number, outcome, g.admitted)
	own.count(number, outcome, g.admitted)
	s := g.breaker.Snapshot()
	switch {
	case outcome != resilience.Failure || s.State != resilience.Closed || s.FailMax == 0:
		return ""
	case g.all.streak >= s.FailMax:
		return "consecutive failures, apart from calls that were in flight when they began"
	case own.streak >= s.FailMax:
		return "consecutive failures of " + operation
	}
	return ""
}

// count takes the outcome of a call: a good answer to one that was in flight
// when the failures began says nothing of how the upstream is now, though it
// clears the breaker's streak.
func (l *lane) count(number int, outcome resilience.Outcome, admitted int) {
	switch {
	case outcome == resilience.Success && number > l.since:
		l.streak = 0
	case outcome == resilience.Failure:
		if l.streak == 0 {
			l.since = admitted
		}
		l.streak++
	}
}
