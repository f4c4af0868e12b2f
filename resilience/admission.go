package resilience

import "context"

// probeKey is the context key of a breaker's live probe.
type probeKey struct{ b *Breaker }

// enter asks for admission and fills in c.
func (b *Breaker) enter(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.b, c.caller, c.ctx = b, ctx, ctx
	if b.extras {
		return b.enterExtras(ctx, c)
	}
	w := b.word.Load() // in line, here and in enterAlone: every call comes this way
	if w&(stateMask|veteranBit) != 0 {
		return b.enterVeteran(ctx, c, w)
	}
	c.ticket.gen = wordGen(w)
	return nil
}

// enterExtras is the admission to a breaker that asks more of a call than its
// outcome: its time, or its place in a family.
func (b *Breaker) enterExtras(ctx context.Context, c *call) error {
	if b.member != nil {
		return b.enterFamily(ctx, c)
	}
	return b.enterAlone(ctx, c)
}

// enterFamily is the admission to a breaker that may be forgotten, unless a
// call is in flight.
func (b *Breaker) enterFamily(ctx context.Context, c *call) error {
	b = b.member.pin(b)
	entered := false
	defer func() {
		if !entered { // refused, or an observer has ended the goroutine
			b.unpin()
		}
	}()
	c.b = b
	err := b.enterAlone(ctx, c)
	entered = err == nil
	c.pinned = entered && b.member != nil
	return err
}

func (b *Breaker) enterAlone(ctx context.Context, c *call) error {
	w := b.word.Load()
	if w&(stateMask|veteranBit) == 0 {
		c.ticket.gen = wordGen(w)
	} else if err := b.enterVeteran(ctx, c, w); err != nil {
		return err
	}
	if b.cfg.CallTimeout > 0 {
		c.ctx, c.cancel = context.WithTimeout(c.ctx, b.cfg.CallTimeout)
	}
	c.start()
	return nil
}

// unpin ends what a breaker of a family counts as in flight.
func (b *Breaker) unpin() {
	if b.member != nil {
		b.totals.add(statEnded)
	}
}

// start notes when a call begins, where slow calls are counted.
func (c *call) start() {
	if c.b.slow > 0 {
		c.started = c.b.now()
	}
}

// enterVeteran is the admission to a breaker that has opened before.
func (b *Breaker) enterVeteran(ctx context.Context, c *call, w uint64) error {
	if l := b.link.Load(); l != nil && !l.fleet.answered() {
		l.await(ctx)
		w = b.word.Load()
	}
	t := taskOf(ctx)
	if err := t.refusal(b); err != nil && !b.shadow {
		b.totals.add(statLatched)
		b.totals.add(statRejected)
		return err
	}
	if wordState(w) == Closed && w&rampBit == 0 {
		c.ticket.gen = wordGen(w)
		return nil
	}
	if g := b.shutFor(ctx, w); g != nil {
		return b.reject(c, t, g.err, false)
	}
	err := b.admit(ctx, c)
	if err == nil && c.ticket.probe != 0 && !c.nested && b.cfg.Probe != nil {
		err = b.designated(ctx, c)
	}
	if _, refused := err.(refusal); refused { //nolint:errorlint // made here, wrapped by nobody
		open, ok := err.(*OpenError) //nolint:errorlint // likewise
		return b.reject(c, t, err, ok && open.state == Closed)
	}
	return err // nil, or the context's own
}

// admit asks the core, and once more if the slot was lost while observers were
// told.
func (b *Breaker) admit(ctx context.Context, c *call) error {
	for range 2 {
		moved, err := b.ask(ctx, c)
		if moved {
			b.deliver()
		}
		if c.ticket.probe == 0 || c.nested {
			return err
		}
		if !moved || b.begin(c) {
			c.ctx = context.WithValue(ctx, probeKey{b}, c.ticket)
			return nil
		}
	}
	return b.afterProbe(c)
}

// ask steps the core. A context that carries a live probe of this breaker is
// admitted as part of that probe.
func (b *Breaker) ask(ctx context.Context, c *call) (moved bool, err error) {
	a := asking{now: b.now(), mark: b.markOf(ctx)}
	if l := b.link.Load(); l != nil {
		moved, a, err = l.ask(a)
	} else {
		moved = b.step(a.event, func(core *core) { err = b.turnedAway(core, a.ok) })
	}
	c.ticket, c.nested = a.ticket, a.nested
	return moved, err
}

// asking is a question for admission, and its answer.
type asking struct {
	now   int64
	mark  ticket // of the live probe that asks
	after bool   // the caller's probe is over: there is no other for it

	ticket ticket
	nested bool
	ok     bool
}

func (a *asking) event(core *core) {
	core.tick(a.now)
	switch a.nested = core.lease(a.mark) >= 0; {
	case a.nested:
		a.ticket, a.ok = a.mark, true
	case a.after:
		a.ticket, a.ok = ticket{gen: core.gen}, core.state == Closed && core.rampAdmits(core.latest)
	default:
		a.ticket, a.ok = core.admit(a.now)
	}
}

// begin starts the lease of a probe after its goroutine has told the observers
// of half-open. They may have taken so long that the slot is lost.
func (b *Breaker) begin(c *call) (begun bool) { return b.renew(c.ticket, 0, false) }

// renew starts the lease of a probe again, if it still has one.
func (b *Breaker) renew(t ticket, silence int64, extend bool) (renewed bool) {
	now := b.now()
	if l := b.link.Load(); l != nil {
		return l.renew(t, now, silence, extend)
	}
	b.apply(func(core *core) { renewed = core.renew(t, now, silence, extend) })
	return renewed
}

// reject counts a refusal, latches it in the task, and logs the first one of an
// episode. What a ramp turns away latches nothing, and a breaker in shadow mode
// only counts.
func (b *Breaker) reject(c *call, t *task, err error, ramp bool) error {
	if b.shadow {
		*c = call{b: b, op: c.op, caller: c.caller, ctx: c.caller, ticket: ticket{probe: never}, shadow: true}
		b.totals.add(statShadowed)
		b.announce(c.op, t, err)
		return nil
	}
	if ramp {
		b.totals.add(statShed)
		return err
	}
	b.totals.add(statRejected)
	if t != nil {
		err = t.latch(b, err)
	}
	b.announce(c.op, t, err)
	return err
}

// announce logs the first refusal of an episode.
func (b *Breaker) announce(op string, t *task, err error) {
	if !b.announced.Load() && b.announced.CompareAndSwap(false, true) {
		b.logRefusal(op, t, err)
	}
}

// designated runs Config.Probe with the lease that c holds until the breaker
// is closed, and then admits c.
func (b *Breaker) designated(ctx context.Context, c *call) error {
	for {
		if v := b.runProbe(c); v.Outcome != Success || c.late {
			return b.afterProbe(c)
		}
		*c = call{b: b, op: c.op, caller: ctx, ctx: ctx}
		if err := b.admit(ctx, c); err != nil || c.ticket.probe == 0 {
			return err
		}
	}
}

func (b *Breaker) runProbe(c *call) Verdict {
	ctx, cancel := context.WithTimeout(c.ctx, b.cfg.ProbeTimeout)
	defer cancel()
	defer c.close()
	c.start()
	err := b.cfg.Probe(ctx)
	return c.end(err, b.cfg.Classify)
}

// afterProbe answers a caller whose probe did not take place, or whose
// designated probe did not succeed. There is no further probe for it.
func (b *Breaker) afterProbe(c *call) (err error) {
	if err := c.caller.Err(); err != nil {
		return err
	}
	*c = call{b: b, op: c.op, caller: c.caller, ctx: c.caller}
	a := asking{now: b.now(), after: true}
	var moved bool
	if l := b.link.Load(); l != nil {
		moved, a, err = l.ask(a)
	} else {
		moved = b.step(a.event, func(core *core) { err = b.turnedAway(core, a.ok) })
	}
	c.ticket = a.ticket
	if moved {
		b.deliver()
	}
	return err
}
