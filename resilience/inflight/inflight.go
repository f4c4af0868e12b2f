package inflight

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/resilience"
)

// errClosed is what Enter returns after Close(nil).
var errClosed = errors.New("inflight: the limiter is closed")

// Limiter bounds the calls in flight through one breaker. It is safe for
// concurrent use, and it starts no goroutine.
type Limiter struct {
	breaker *resilience.Breaker
	limit   int
	failMax int // 0 where failures do not bound the calls
	shadow  bool

	remove func() // the observer

	mu     sync.Mutex
	cause  error            // of Close
	state  resilience.State // of the breaker when it was last read
	streak int              // likewise
	held   bool             // the breaker is forced closed: failures open nothing

	generation uint64 // of the breaker in this episode
	episode    int    // how often the breaker was seen to close, or to be reset
	admitted   int    // calls so far
	asking     int    // callers on their way to a breaker that is not closed
	all        lane
	lanes      map[string]*lane
	crowd      int        // lanes at which some are forgotten
	queue      *list.List // of *Slot, the longest waiting first
}

// New makes a limiter for the calls through b. limit is the most calls in
// flight at a time, 0 for b's FailMax; above FailMax it changes nothing. A
// breaker with a window has no FailMax and needs a positive limit. Where
// failures open nothing, because b is in shadow mode or forced closed, limit is
// the only bound.
func New(b *resilience.Breaker, limit int) (*Limiter, error) {
	if b == nil {
		return nil, errors.New("inflight: the breaker is nil")
	}
	cfg := b.Config()
	failMax := cfg.FailMax
	limit = cmp.Or(limit, failMax)
	switch {
	case limit < 0:
		return nil, fmt.Errorf("inflight: limit of breaker %q is %d; it must not be negative", b.Name(), limit)
	case limit == 0:
		return nil, fmt.Errorf("inflight: breaker %q opens by a window and needs a positive limit", b.Name())
	}
	if cfg.Shadow {
		failMax = 0
	}
	l := &Limiter{
		breaker: b, limit: limit, failMax: failMax, shadow: cfg.Shadow,
		lanes: map[string]*lane{}, crowd: maxLanes, queue: list.New(),
	}
	l.mu.Lock() // no transition is heard before the state that it follows is known
	defer l.mu.Unlock()
	l.remove = b.Observe(l.transition)
	now := b.Snapshot()
	l.generation, l.held = now.Generation, now.Held == forcedClosed
	return l, nil
}

// Breaker is the breaker that the limiter was made for.
func (l *Limiter) Breaker() *resilience.Breaker { return l.breaker }

// Close ends the limiter: from now on Enter returns cause, also to waiting
// callers. Calls in flight finish. The first cause is kept; nil stands for an
// error that says that the limiter is closed.
func (l *Limiter) Close(cause error) {
	l.remove()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	if l.cause = cause; cause == nil {
		l.cause = errClosed
	}
	for e := l.queue.Front(); e != nil; e = l.queue.Front() {
		l.dequeueLocked(e.Value.(*Slot))
	}
}

// Enter waits until there is room for a call of the named operation, in the
// order of arrival among those that there is room for. The caller must make the
// call through the limiter's breaker and then give the slot back with Leave.
//
// The error is that of ctx where that is done first, or the cause that
// Close was given. Enter itself refuses nothing: where the breaker is open, the
// caller is let through to hear that from the breaker.
func (l *Limiter) Enter(ctx context.Context, operation string) (*Slot, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s, err := l.enter(operation)
	if err != nil || s.ready == nil {
		return s, err
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		l.giveUp(s)
		return nil, ctx.Err()
	}
	if s.number == 0 {
		return nil, l.cause
	}
	return s, nil
}

// Slot is one call that entered a Limiter. It is safe for concurrent use.
type Slot struct {
	limiter   *Limiter
	operation string
	lane      *lane
	number    int // of the admission; 0 before it
	episode   int
	asking    bool // on its way to a breaker that is not closed
	settled   bool
	left      bool
	place     *list.Element // in the queue; nil outside
	ready     chan struct{} // closed when it leaves the queue; nil if it never was there
}

// Settled tells the limiter what came of the call, as resilience.Op.Settled
// does. It may trip the breaker, whose observers then run in this goroutine.
// The first verdict counts, and none counts after Leave. A call without a
// verdict, as one that was refused or that panicked, says nothing.
func (s *Slot) Settled(v resilience.Verdict) {
	if reason := s.count(v); reason != "" { // outside the lock: observers may do as they like
		b := s.limiter.breaker
		b.Trip(reason, b.Snapshot().LastFailure)
	}
}

// Leave gives the slot back. It must come after the breaker has counted the
// call. Only the first Leave does anything.
func (s *Slot) Leave() {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.left {
		return
	}
	s.left = true
	l.all.inFlight--
	s.lane.inFlight--
	l.answeredLocked(s)
	l.lookLocked()
	l.admitLocked()
}

// Admitted says that the breaker has admitted the call. A breaker that is not
// closed is asked by a bounded number of callers at a time; without Admitted
// one of those places is taken until Leave. Do and the doors call it.
func (s *Slot) Admitted() {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answeredLocked(s)
	l.admitLocked()
}

// Do is resilience.CallOp through the limiter's breaker, in a slot of op.Name.
// The error is that of Enter where the call did not enter. Op.Settled is told
// after the limiter.
func Do[T any](ctx context.Context, l *Limiter, op resilience.Op[T], fn func(context.Context) (T, error)) (T, error) {
	slot, err := l.Enter(ctx, op.Name)
	if err != nil {
		var zero T
		return zero, err
	}
	defer slot.Leave()
	told := op.Settled
	op.Settled = func(v resilience.Verdict) {
		slot.Settled(v)
		if told != nil {
			told(v)
		}
	}
	return resilience.CallOp(ctx, l.breaker, op, func(ctx context.Context) (T, error) {
		slot.Admitted()
		return fn(ctx)
	})
}
