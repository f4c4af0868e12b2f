package resilience

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
)

// Op describes one kind of call, so that a door states it once.
type Op[T any] struct {
	// Name is the operation in logs, such as create_embeddings.
	Name string
	// Classify replaces Config.Classify for this operation. It is asked only
	// about errors that are not nil. callerCtx is the context that the caller
	// gave, not the one that the call ran under, so that callerCtx.Err()
	// answers whether the caller left. It runs outside every lock and may be
	// called concurrently.
	Classify func(callerCtx context.Context, err error) Verdict
	// Validate, when set, checks an answer that came without an error. The
	// error it returns becomes the call's error and is classified as one: an
	// upstream that answers garbage over a healthy transport has failed.
	Validate func(T) error
	// Settled, when set, is told the verdict of each admitted call: once, in
	// the caller's goroutine, after the breaker has counted it and before the
	// call returns. There is no verdict for a refused call, a panic or
	// runtime.Goexit.
	Settled func(Verdict)
}

// Call runs fn under b and returns what fn returned, the very error included. A
// refused call returns the zero T and an *OpenError or a *DeniedError, and fn
// does not run. A context that is already done returns its own error. fn runs
// in the caller's goroutine; a panic in it propagates to the caller.
func Call[T any](ctx context.Context, b *Breaker, fn func(context.Context) (T, error)) (T, error) {
	return CallOp(ctx, b, Op[T]{}, fn)
}

// CallOp is Call with the classifier and the validator of an operation.
func CallOp[T any](ctx context.Context, b *Breaker, op Op[T], fn func(context.Context) (T, error)) (v T, err error) {
	c := call{op: op.Name}
	if err = b.enter(ctx, &c); err != nil {
		return v, err
	}
	defer c.finish()
	v, err = fn(c.ctx)
	if err == nil && op.Validate != nil {
		err = op.Validate(v)
	}
	verdict := c.end(err, op.Classify)
	if op.Settled != nil {
		op.Settled(verdict)
	}
	return v, err
}

// Do is Call for functions that return only an error.
func (b *Breaker) Do(ctx context.Context, fn func(context.Context) error) error {
	var c call
	if err := b.enter(ctx, &c); err != nil {
		return err
	}
	defer c.finish()
	err := fn(c.ctx)
	c.end(err, nil)
	return err
}

// Allow is admission in two steps, for streams and transfers, whose outcome is
// known long after the call has returned. The caller must end the permit with
// Done, Settle or Panicked. The permit of a probe that is not ended counts as a
// failure when its lease runs out.
func (b *Breaker) Allow(ctx context.Context) (*Permit, error) {
	if w := b.word.Load(); w&(stateMask|rampBit) == 0 && !b.extras && ctx.Err() == nil &&
		(w&veteranBit == 0 || taskOf(ctx) == nil) {
		return &Permit{b: b, ctx: ctx, gen: wordGen(w)}, nil
	}
	return b.allow(ctx)
}

// allow is Allow for every breaker.
func (b *Breaker) allow(ctx context.Context) (*Permit, error) {
	var c call
	if err := b.enter(ctx, &c); err != nil {
		return nil, err
	}
	if c.common() {
		return &Permit{b: c.b, ctx: ctx, gen: c.ticket.gen}, nil
	}
	p := &Permit{b: c.b, ctx: c.ctx, special: &special{call: c}}
	if c.pinned {
		p.special.watch = runtime.AddCleanup(p, (*Breaker).unpin, c.b)
	}
	return p, nil
}

// Permit is one admitted call. It is safe for concurrent use.
type Permit struct {
	b       *Breaker
	ctx     context.Context
	gen     uint64
	special *special
	ended   atomic.Bool
}

// special is the permit of a call that is more than a generation.
type special struct {
	call  call
	watch runtime.Cleanup // for a breaker of a family: the permit may be dropped
}

// common reports whether the call is of a closed breaker, with its caller's own
// context and nothing to give back.
func (c *call) common() bool {
	return c.ticket.probe == 0 && c.cancel == nil && c.started == 0 && !c.pinned
}

// take fills in the call if this is the end that counts.
func (p *Permit) take(c *call) (first bool) {
	if !p.ended.CompareAndSwap(false, true) {
		return false
	}
	if p.special != nil {
		p.special.watch.Stop()
		*c = p.special.call
	} else {
		c.b, c.caller, c.ctx, c.ticket.gen = p.b, p.ctx, p.ctx, p.gen
	}
	return true
}

// Context is the context to call the upstream with.
func (p *Permit) Context() context.Context { return p.ctx }

// Holds reports whether something waits for the end of the call: a probe's
// slot, a timer, or a place in a family. The permit of any other call may be
// forgotten.
func (p *Permit) Holds() bool { return p.special != nil }

// Renew reports that data still flows: the lease of a probe starts again. For
// other calls it does nothing.
func (p *Permit) Renew() { p.renew(0, false) }

// RenewFor is Renew before a silence that is bounded elsewhere, such as by a
// client's own timeout: where that is longer than ProbeTimeout, so is the
// lease. It never makes a lease shorter; the next Renew does.
func (p *Permit) RenewFor(silence time.Duration) { p.renew(silence, true) }

func (p *Permit) renew(silence time.Duration, extend bool) {
	if p.special == nil || p.special.call.ticket.probe == 0 || p.special.call.shadow || p.ended.Load() {
		return
	}
	p.b.renew(p.special.call.ticket, int64(min(silence, maxWait)), extend)
}

// Done ends the call with its error, read by Config.Classify; nil is a
// success. The first Done, Settle or Panicked counts, later ones do nothing.
func (p *Permit) Done(err error) {
	if err == nil && p.special == nil && p.b.plain { // the most common end, without what it has no use for
		if p.ended.CompareAndSwap(false, true) {
			p.b.totals.add(p.b.clearStreak(p.gen))
		}
		return
	}
	var c call
	if p.take(&c) {
		defer c.finish()
		c.end(err, nil)
	}
}

// errSettled is the error of a call that Settle ended without one.
var errSettled = errors.New("the call was settled without an error to show")

// Settle ends the call with a verdict, for callers that have already classified
// the outcome, and returns the verdict that counted. cause, if given, is what a
// refusal shows as the last failure; a call whose cause is the refusal of
// another breaker is ignored. The first Done, Settle or Panicked counts, later
// ones do nothing.
func (p *Permit) Settle(v Verdict, cause ...error) Verdict {
	var c call
	if !p.take(&c) {
		return v
	}
	defer c.finish()
	return c.settle(v, cmp.Or(cmp.Or(cause...), errSettled))
}

// Panicked ends a call that a panic or runtime.Goexit cut short: it is counted
// in Panics, returns its slot and says nothing about the upstream. It belongs
// in a deferred function, which lets the panic continue. The first Done, Settle
// or Panicked counts, later ones do nothing.
func (p *Permit) Panicked() {
	var c call
	if p.take(&c) {
		c.finish()
	}
}

// call is an admission on its way through the caller's function.
type call struct {
	b           *Breaker
	op          string
	ctx, caller context.Context
	cancel      context.CancelFunc
	ticket      ticket
	started     int64
	nested      bool // part of a live probe
	shadow      bool // let through in place of a refusal
	pinned      bool // counted in flight by the breaker's family
	done        bool
	late        bool // its state ended before it did
}

// finish returns what the call holds.
func (c *call) finish() {
	switch {
	case c.pinned:
		c.closePinned()
	case c.cancel != nil || !c.done:
		c.close()
	}
}

func (c *call) closePinned() {
	defer c.b.unpin()
	c.close()
}

// close is finish for a call that does not go through the breaker's family by
// itself. A call that has not ended by then was cut short by a panic or by
// runtime.Goexit, which continue.
func (c *call) close() {
	if c.cancel != nil {
		c.cancel()
	}
	if !c.done {
		c.record(result{verdict: Verdict{Outcome: Ignored}}, statPanics)
	}
}

// end classifies err, records the outcome and returns the verdict that counted.
func (c *call) end(err error, classify func(context.Context, error) Verdict) Verdict {
	if err == nil {
		c.succeed()
		return Verdict{}
	}
	if classify == nil {
		classify = c.b.cfg.Classify
	}
	v := classify(c.caller, err).final()
	if v.Outcome == Failure && left(c.caller) {
		v = Verdict{Outcome: Ignored}
	}
	return c.settle(v, err)
}

// left reports whether the caller has gone. What its call ended with then, in
// whatever words, says nothing about the upstream. A deadline is another
// matter: a call that hangs is an outage.
func left(caller context.Context) bool { return caller.Err() == context.Canceled }

// ranOut reports whether CallTimeout ended the call while its caller waited.
func (c *call) ranOut() bool {
	return c.cancel != nil && c.ctx.Err() == context.DeadlineExceeded && c.caller.Err() == nil
}

func (c *call) settle(v Verdict, err error) Verdict {
	v = v.final()
	switch {
	case isRefusal(err): // another breaker's word, not the upstream's
		v = Verdict{Outcome: Ignored}
	case v.Outcome == Ignored && c.ranOut():
		v.Outcome = Failure
	case v.Outcome == Success:
		c.succeed()
		return v
	}
	c.record(result{verdict: v, err: err}, stat(v.Outcome))
	return v
}

// succeed takes no lock if the breaker is closed, and reads no clock unless it
// has a window of time or counts slow calls.
func (c *call) succeed() {
	b := c.b
	switch {
	case c.ticket.probe != 0:
	case b.plain:
		c.done = true
		b.totals.add(b.clearStreak(c.ticket.gen))
		return
	case !b.timely && b.slow == 0 && b.leave(c.ticket.gen, 0):
		c.done = true
		return
	}
	c.record(result{}, statSuccess)
}

// clearStreak is a success of the closed state of generation gen.
func (b *Breaker) clearStreak(gen uint64) stat {
	for {
		w := b.word.Load()
		if wordGen(w) != gen {
			return statStale
		}
		if w&(streakMask|suspectBit) == 0 {
			return statSuccess
		}
		if b.word.CompareAndSwap(w, w&^(streakMask|suspectBit)) {
			if l := b.link.Load(); l != nil {
				l.sync()
			}
			return statSuccess
		}
	}
}

// record hands a result to the core and counts it, before any observer is told.
func (c *call) record(r result, s stat) {
	c.done = true
	b, now := c.b, c.b.now()
	r.slow = b.slow > 0 && now-c.started >= b.slow
	if s == statSuccess && !r.slow && c.ticket.probe == 0 && b.leave(c.ticket.gen, now) {
		return
	}
	end := settling{ticket: c.ticket, shadow: c.shadow, nested: c.nested, result: r, now: now}
	var moved bool
	if l := b.link.Load(); l != nil {
		moved, end.how = l.settle(end)
	} else {
		moved = b.step(end.event, nil)
	}
	c.late = end.how != inTime
	switch end.how {
	case inTime:
		b.totals.add(s)
	case late:
		b.totals.add(statStale)
	case counted: // as a failure, when its lease ran out
	}
	if moved {
		b.deliver()
	}
}

// settling is the end of a call, and how it counts.
type settling struct {
	ticket         ticket
	shadow, nested bool
	result         result
	now            int64

	how count
}

func (s *settling) event(core *core) {
	switch s.how = inTime; {
	case s.shadow, s.nested: // as if it had been refused; or the probe that it is part of decides
		core.tick(s.now)
		core.throttle(s.result, s.now)
		if s.nested && core.lease(s.ticket) < 0 {
			s.how = late
		}
	default:
		s.how = core.settle(s.ticket, s.result, s.now)
	}
}
