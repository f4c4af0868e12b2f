package resilience

import (
	"context"
	"math"
	"sync/atomic"
)

// gate is what a breaker that refuses tells every caller until a deadline.
// Refusals by a gate take no lock and allocate nothing.
type gate struct {
	gen     uint64
	held    hold
	busy    bool // half-open with every slot taken
	closing bool
	until   atomic.Int64 // moves only where busy: a probe renews its lease
	err     error
}

// shut is the gate of a breaker that admits nothing yet.
func (b *Breaker) shut(w uint64) *gate {
	if wordState(w) == Closed {
		return nil
	}
	if g := b.gate.Load(); g != nil && g.gen == wordGen(w) && b.now() < g.until.Load() {
		return g
	}
	return nil
}

// shutFor is shut for a call with ctx: the context of a live probe is admitted
// as part of it.
func (b *Breaker) shutFor(ctx context.Context, w uint64) *gate {
	g := b.shut(w)
	if g != nil && wordState(w) == HalfOpen && b.markOf(ctx).probe != 0 {
		return nil
	}
	return g
}

// publish stores the refusal of a breaker that is not closed, before the word
// says so.
func (b *Breaker) publish(c *core) {
	if c.state == Closed {
		return
	}
	until, busy := c.refusesUntil(), c.busy()
	g := b.gate.Load()
	known := g != nil && g.gen == c.gen
	switch {
	case until == math.MinInt64:
		if known {
			g.until.Store(until)
		}
	case known && g.held == c.held && g.busy == busy && g.closing == c.closing && (busy || g.until.Load() == until):
		g.until.Store(until)
	default:
		g = &gate{gen: c.gen, held: c.held, busy: busy, closing: c.closing}
		g.until.Store(until)
		g.err = b.refusal(c, &g.until)
		b.gate.Store(g)
	}
}

// turnedAway is the error for a call that c has decided on.
func (b *Breaker) turnedAway(c *core, ok bool) error {
	switch {
	case ok:
		return nil
	case c.state == Closed:
		return b.shedding(c)
	case c.probeDue(c.latest):
		return b.refusal(c, nil)
	}
	b.publish(c)
	return b.gate.Load().err
}

// shedding is the refusal of a ramp, one value for all of its calls.
func (b *Breaker) shedding(c *core) error {
	if b.shed == nil || b.shed.retry != c.rampUntil {
		b.shed = &OpenError{
			b: b, state: Closed, reason: c.reason, openedAt: c.openedAt, lastFailure: c.lastFailure, retry: c.rampUntil,
		}
	}
	return b.shed
}

// refusesUntil is when a breaker that is not closed may admit a call, the
// beginning of time if it may now.
func (c *core) refusesUntil() int64 {
	switch {
	case c.held != free:
		return never
	case c.probeDue(c.latest): // though a clock that stepped back may not show it
		return math.MinInt64
	}
	return c.retry()
}

// busy reports whether every slot of a half-open breaker is taken.
func (c *core) busy() bool {
	return c.state == HalfOpen && c.latest >= c.pause && !c.probeDue(c.latest)
}

// refusal is the error for the calls that c refuses. until, if given, is its
// deadline while c is busy.
func (b *Breaker) refusal(c *core, until *atomic.Int64) error {
	if c.held == heldDenied {
		return &DeniedError{b: b, since: c.openedAt, cause: c.lastFailure}
	}
	return &OpenError{
		b: b, state: c.reads(), held: c.held == heldOpen, busy: c.busy(), closing: c.closing,
		reason: c.reason, openedAt: c.openedAt, opener: c.opener, cause: c.cause, lastFailure: c.lastFailure,
		until: until, retry: c.retry(),
	}
}
