package resilience

import "sync/atomic"

// Under a window, a success of a closed breaker whose last call was good
// changes nothing but counts. It is left in the stripe of its goroutine, and
// recorded with the others before the next step, or the next look at the
// window: such a success takes no lock.
//
// A stripe's pending is a number of successes below the epoch that they belong
// to. Collecting them ends the epoch, so that a success that is late for it
// finds another one, and takes the lock.

const (
	pendingBits = 24
	pendingMost = 1<<pendingBits - 1
)

// period is where successes may be left: one generation, and one span of the
// window.
type period struct {
	gen      uint64
	from, to int64
	epoch    uint64
}

// pending is the successes that no step has seen yet.
type pending struct {
	current atomic.Pointer[period] // nil where every success is a step
	epoch   uint64                 // under the breaker's lock
}

// leave counts a success that ended at now without a step, if it can.
func (b *Breaker) leave(gen uint64, now int64) bool {
	p := b.pending.current.Load()
	if p == nil || p.gen != gen || now < p.from || now >= p.to {
		return false
	}
	left := &b.totals.mine().pending
	for {
		n := left.Load()
		switch {
		case n>>pendingBits != p.epoch || n&pendingMost == pendingMost:
			return false
		case !left.CompareAndSwap(n, n+1):
			continue
		case (n+1)%watched == 0:
			b.totals.watch(left, n+1)
		}
		return true
	}
}

// collectLocked records what was left.
func (b *Breaker) collectLocked() {
	p := b.pending.current.Load()
	if p == nil {
		return
	}
	b.pending.current.Store(nil)
	b.pending.epoch++
	n := 0
	for i := range b.totals.stripes {
		s := &b.totals.stripes[i]
		left := s.pending.Swap(b.pending.epoch<<pendingBits) & pendingMost
		s.n[statSuccess].Add(left)
		n += int(left)
	}
	if n > 0 {
		b.core.window.succeed(n, p.from)
	}
}

// acceptLocked lets successes be left again, if c is in a state in which they
// only count.
func (b *Breaker) acceptLocked(c *core) {
	if c.window == nil || c.state != Closed || c.streak != 0 || c.held != free {
		return
	}
	from, to := c.window.span(c.latest)
	b.pending.current.Store(&period{c.gen, from, to, b.pending.epoch})
}
