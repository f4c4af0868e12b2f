package inflight

import (
	"maps"
	"math"

	"github.com/penstock-go/penstock/resilience"
)

// maxLanes is how many operations a limiter remembers, unless more have calls
// in flight.
const maxLanes = 128

// lane counts the calls and the failures of one operation, or of all.
type lane struct {
	inFlight int
	waiting  int
	streak   int // failures since the last good call admitted after the first of them
	since    int // calls admitted when the streak began
}

// count takes the verdict on the call of that number. A good answer to a call
// that was in flight when the failures began says nothing about the upstream
// now, though it clears the breaker's streak.
func (l *lane) count(number, admitted int, v resilience.Verdict) {
	switch {
	case v.Failed():
		if l.streak == 0 {
			l.since = admitted
		}
		l.streak++
	case v.Outcome == resilience.Success && number > l.since:
		l.streak = 0
	}
}

// enter gives a slot that is admitted, or one in the queue.
func (l *Limiter) enter(operation string) (*Slot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return nil, l.cause
	}
	s := &Slot{limiter: l, operation: operation, lane: l.laneLocked(operation)}
	l.lookLocked()
	l.admitLocked() // the room may have grown since a call last left
	if l.roomLocked(s) {
		l.takeLocked(s)
		return s, nil
	}
	s.ready = make(chan struct{})
	s.place = l.queue.PushBack(s)
	s.lane.waiting++
	return s, nil
}

// giveUp takes a slot whose caller waits no longer out of the queue, and gives
// it back if it was admitted at the same time.
func (l *Limiter) giveUp(s *Slot) {
	l.mu.Lock()
	if s.place != nil {
		l.dequeueLocked(s)
	}
	admitted := s.number > 0
	l.mu.Unlock()
	if admitted {
		s.Leave()
	}
}

func (l *Limiter) dequeueLocked(s *Slot) {
	l.queue.Remove(s.place)
	s.place = nil
	s.lane.waiting--
	close(s.ready)
}

// admitLocked admits those in the queue that there is room for.
func (l *Limiter) admitLocked() {
	for e := l.queue.Front(); e != nil && l.spaceLocked(); {
		s := e.Value.(*Slot)
		e = e.Next()
		if l.roomLocked(s) {
			l.takeLocked(s)
			l.dequeueLocked(s)
		}
	}
}

func (l *Limiter) takeLocked(s *Slot) {
	l.admitted++
	s.number, s.episode = l.admitted, l.episode
	l.all.inFlight++
	s.lane.inFlight++
	if s.asking = !l.closedLocked(); s.asking {
		l.asking++
	}
}

// answeredLocked says that the breaker, which was not closed, has admitted or
// refused the call of s.
func (l *Limiter) answeredLocked(s *Slot) {
	if s.asking {
		s.asking = false
		l.asking--
	}
}

// lookLocked reads the breaker. It is read under the lock, so that a call that
// fails meanwhile cannot give its slot back before its failure shows. A breaker
// that has closed again, or was reset, starts with an empty streak, and so do
// the lanes.
func (l *Limiter) lookLocked() {
	state, streak, generation := l.breaker.Streak()
	l.state, l.streak = state, streak
	if state == resilience.Closed && generation != l.generation {
		l.beginLocked(generation)
	}
}

// beginLocked begins an episode of a closed breaker, with empty streaks.
func (l *Limiter) beginLocked(generation uint64) {
	l.generation = generation
	l.episode++
	l.all.streak = 0
	for _, own := range l.lanes {
		own.streak = 0
	}
}

// forcedClosed is what Snapshot and Transition say of ForceClose.
const forcedClosed = "forced_closed"

// transition is told by the breaker, so that waiting callers learn what others
// have made of it. Failures under an operator's hold count for nothing.
func (l *Limiter) transition(t resilience.Transition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked()
	if held := t.Held == forcedClosed; held != l.held {
		l.held = held
		l.beginLocked(l.generation)
	}
	l.admitLocked()
}

// spaceLocked says whether a call could be admitted whose operation has no
// failures. A breaker that is not closed is asked by as many callers at a time
// as may be in flight once it is closed, whatever is still in flight: it
// refuses or sends a probe by itself. A call that has failed is counted by the
// breaker before it leaves, so the sum of streak and calls in flight never
// falls short.
func (l *Limiter) spaceLocked() bool {
	if !l.closedLocked() {
		return l.asking < l.bound(0)
	}
	return l.all.inFlight < l.bound(max(l.streak, l.all.streak))
}

// closedLocked says whether the breaker lets calls through, as one in shadow
// mode always does.
func (l *Limiter) closedLocked() bool { return l.shadow || l.state == resilience.Closed }

func (l *Limiter) roomLocked(s *Slot) bool {
	return l.spaceLocked() && (!l.closedLocked() || s.lane.inFlight < l.bound(s.lane.streak))
}

// bound is how many calls may be in flight after so many failures.
func (l *Limiter) bound(streak int) int {
	if l.failMax == 0 {
		return l.limit
	}
	return max(1, min(l.limit, l.failMax-streak))
}

// count keeps the lanes' streaks, and gives the reason where the breaker is to
// be tripped. The verdict on a call from before the breaker last closed is
// stale, to the breaker as well.
func (s *Slot) count(v resilience.Verdict) (reason string) {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked()
	if s.settled || s.left || s.episode != l.episode {
		return ""
	}
	s.settled = true
	if l.held {
		return ""
	}
	l.all.count(s.number, l.admitted, v)
	s.lane.count(s.number, l.admitted, v)
	switch {
	case !v.Failed() || l.state != resilience.Closed || l.failMax == 0:
		return ""
	case l.all.streak >= l.failMax:
		return "consecutive failures, apart from calls that were in flight when they began"
	case s.lane.streak >= l.failMax:
		return "consecutive failures of " + s.operation
	}
	return ""
}

func (l *Limiter) laneLocked(operation string) *lane {
	if own := l.lanes[operation]; own != nil {
		return own
	}
	if len(l.lanes) >= l.crowd {
		l.forgetLocked()
	}
	own := &lane{}
	l.lanes[operation] = own
	return own
}

// forgetLocked forgets operations with nothing in flight: those without
// failures, and where that does not halve the number, all.
func (l *Limiter) forgetLocked() {
	for _, most := range []int{0, math.MaxInt} {
		maps.DeleteFunc(l.lanes, func(_ string, own *lane) bool {
			return own.inFlight+own.waiting == 0 && own.streak <= most
		})
		if len(l.lanes) <= maxLanes/2 {
			break
		}
	}
	l.crowd = max(maxLanes, 2*len(l.lanes))
}
