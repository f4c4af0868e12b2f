package resilience

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker guards one upstream. New, Registry.Register and Registry.Keyed make
// one. All methods are safe for concurrent use.
type Breaker struct {
	name    string
	cfg     Config
	version string
	base    time.Time
	policy  policy
	plain   bool  // Consecutive: a closed success touches the word alone
	slow    int64 // calls this long are slow; 0 if nothing asks
	tracked bool  // count calls in flight
	extras  bool  // a call needs equip

	word      atomic.Uint64 // see core.word
	gate      atomic.Pointer[gate]
	announced atomic.Bool // the episode's first refusal has been logged
	totals    totals
	events    dispatcher

	mu      sync.Mutex
	core    core
	next    core       // the copy that a step works on, here so that it stays off the heap
	busy    *OpenError // the last refusal of a half-open breaker
	refused uint64     // rejected calls when the episode began
}

// gate is what an open breaker tells every caller until a deadline.
type gate struct {
	gen   uint64
	held  hold
	until int64
	err   error
}

// New makes a breaker that belongs to no registry. name appears in errors, logs
// and metric labels: 1 to 128 bytes of printable UTF-8. The error names the
// fields of cfg that are out of bounds.
func New(name string, cfg Config) (*Breaker, error) {
	cfg, err := cfg.normal()
	if err = errors.Join(validName(name), err); err != nil {
		return nil, fmt.Errorf("resilience: breaker %q: %w", name, err)
	}
	return newBreaker(name, cfg), nil
}

// newBreaker takes a valid name and a normal configuration.
func newBreaker(name string, cfg Config) *Breaker {
	b := &Breaker{
		name: name, cfg: cfg, version: cfg.version(), base: time.Now(), totals: newTotals(),
		policy: policy{
			failMax: cfg.FailMax, reset: int64(cfg.ResetTimeout), probeTimeout: int64(cfg.ProbeTimeout),
			maxThrottle: int64(cfg.MaxThrottle), maxProbes: cfg.MaxProbes, goodProbes: cfg.SuccessThreshold,
			openOnThrottle: cfg.OpenOnThrottle, stopOnDenied: cfg.StopOnDenied,
		},
	}
	if cfg.Clock != nil {
		b.base = cfg.Clock.Now()
	}
	b.core = core{policy: &b.policy, window: newWindow(cfg.Trip), closedAt: never}
	if b.core.window == nil {
		b.plain = true
	} else {
		b.slow = b.core.window.rule().threshold
	}
	b.extras = b.slow > 0 || cfg.CallTimeout > 0
	b.Observe(b.logTransition)
	if cfg.OnTransition != nil {
		b.Observe(cfg.OnTransition)
	}
	return b
}

// now is the time since the breaker was made. Without a Clock it reads the
// monotonic clock alone.
func (b *Breaker) now() int64 {
	if b.cfg.Clock == nil {
		return int64(time.Since(b.base))
	}
	return min(max(int64(b.cfg.Clock.Now().Sub(b.base)), -horizon), horizon)
}

// horizon is as far as a Clock can go, so that a wait added to it still fits.
const horizon = int64(100 * 365 * 24 * time.Hour)

// wall dates an instant.
func (b *Breaker) wall(at int64) time.Time { return b.base.Add(time.Duration(at)) }

// Name is the upstream's name.
func (b *Breaker) Name() string { return b.name }

// Config is the policy with its defaults filled in.
func (b *Breaker) Config() Config { return b.cfg }

// State is the state as of now: once the wait is over an open breaker reads
// half_open, with or without traffic. Reading changes nothing.
func (b *Breaker) State() State {
	state, _ := b.Streak()
	return state
}

// Streak is State with the consecutive counted failures that go with it, as
// Snapshot has them, for code that asks at every call: for a closed breaker it
// takes no lock and reads no clock.
func (b *Breaker) Streak() (State, int) {
	w := b.word.Load()
	if wordState(w) == Closed || b.shut(w) != nil {
		return wordState(w), wordStreak(w)
	}
	c := b.view()
	return c.reads(), c.streak
}

// Ready reports whether a call would be admitted now.
func (b *Breaker) Ready() bool {
	if wordState(b.word.Load()) == Closed {
		return true
	}
	c := b.view()
	return c.state == Closed || c.probeDue(c.latest)
}

// Check is admission for work that relies on the upstream without calling it,
// such as signing a URL for another party. It returns nil while the breaker is
// closed. If the breaker is not closed, or has refused the context's task
// before, it returns the error that a call would be refused with. A half-open
// breaker refuses even with a free slot, since such work is not a probe. Check
// takes no slot, counts nothing and changes nothing. A context that is already
// done returns its own error.
func (b *Breaker) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := b.word.Load()
	if w&(stateMask|veteranBit) == 0 {
		return nil
	}
	if err := taskOf(ctx).refusal(b); err != nil || wordState(w) == Closed {
		return err
	}
	if g := b.shut(w); g != nil {
		return g.err
	}
	c := b.view()
	if c.state == Closed || c.lease(b.markOf(ctx)) >= 0 {
		return nil
	}
	return b.refusal(&c)
}

// shut is the gate of an open breaker that admits nothing yet.
func (b *Breaker) shut(w uint64) *gate {
	if wordState(w) != Open {
		return nil
	}
	if g := b.gate.Load(); g != nil && g.gen == wordGen(w) && b.now() < g.until {
		return g
	}
	return nil
}

// markOf is the live probe that ctx belongs to.
func (b *Breaker) markOf(ctx context.Context) ticket {
	mark, _ := ctx.Value(probeKey{b}).(ticket)
	return mark
}

// view is a copy of the core as of now.
func (b *Breaker) view() core {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.viewLocked(now)
}

func (b *Breaker) viewLocked(now int64) core {
	c := b.core
	c.streak = wordStreak(b.word.Load())
	c.tick(now)
	return c
}

// Trip opens the breaker as failures would, so it recovers by time. A breaker
// that is open, forced or stopped stays as it is.
func (b *Breaker) Trip(reason string) {
	b.operate(func(c *core, now int64) { c.trip(reason, now) })
}

// ForceOpen opens the breaker until Reset; it sends no probes.
func (b *Breaker) ForceOpen(reason string) {
	b.operate(func(c *core, now int64) { c.forceOpen(reason, now) })
}

// ForceClose closes the breaker until Reset; failures are counted in the
// totals and open nothing.
func (b *Breaker) ForceClose(reason string) {
	b.operate(func(c *core, now int64) { c.forceClose(reason, now) })
}

// Reset closes the breaker and clears its streak, its window and every hold: an
// operator's, a throttling upstream's, a denied credential's. Calls in flight
// become stale. Totals stay.
func (b *Breaker) Reset() { b.operate(func(c *core, now int64) { c.restart(now) }) }

func (b *Breaker) operate(event func(*core, int64)) {
	now := b.now()
	b.apply(func(c *core) { event(c, now) })
}

// step commits one event. It reports whether there are transitions to deliver.
func (b *Breaker) step(event func(*core)) (moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.plain {
		b.stepCopyLocked(event)
	} else {
		event(&b.core) // here no success bypasses the lock
		b.publish(&b.core)
		b.word.Store(b.core.word())
	}
	out := b.core.out
	b.core.out = nil
	for _, ch := range out {
		b.enqueueLocked(ch)
	}
	return len(out) > 0
}

// apply is step and delivery, with nothing to do between them.
func (b *Breaker) apply(event func(*core)) {
	if b.step(event) {
		b.deliver()
	}
}

// stepCopyLocked steps a copy. A success may clear the streak in the word
// before the copy is committed; the event then runs again on the new streak.
func (b *Breaker) stepCopyLocked(event func(*core)) {
	for {
		old := b.word.Load()
		b.next = b.core
		b.next.streak = wordStreak(old)
		event(&b.next)
		b.publish(&b.next)
		if b.word.CompareAndSwap(old, b.next.word()) {
			b.core = b.next
			return
		}
		b.gate.Store(nil) // what was published did not happen
	}
}

// publish stores the refusal of an open breaker, before the word says open.
func (b *Breaker) publish(c *core) {
	if c.state != Open {
		return
	}
	until := c.until
	switch {
	case c.held != free:
		until = never
	case c.latest >= until: // due, though a clock that stepped back may not show it
		until = math.MinInt64
	}
	if g := b.gate.Load(); g != nil && g.gen == c.gen && g.held == c.held && g.until == until {
		return
	}
	b.gate.Store(&gate{gen: c.gen, held: c.held, until: until, err: b.refusal(c)})
}

// refusal is the error for the calls that c refuses.
func (b *Breaker) refusal(c *core) error {
	if c.held == heldDenied {
		return &DeniedError{upstream: b.name, since: b.wall(c.openedAt), cause: c.lastFailure}
	}
	e := &OpenError{
		upstream: b.name, state: c.reads(), held: c.held == heldOpen, reason: c.reason,
		openedAt: b.wall(c.openedAt), lastFailure: c.lastFailure, now: b.now,
	}
	if !e.held {
		e.retry = c.retry()
		e.retryAt = b.wall(e.retry)
		e.busy = c.state == HalfOpen && c.latest >= c.pause && !c.probeDue(c.latest)
	}
	return e
}

// busyRefusal is the refusal of a half-open breaker, shared while it holds.
func (b *Breaker) busyRefusal(c *core) error {
	if b.busy == nil || b.busy.gen != c.gen || b.busy.retry != c.retry() {
		b.busy, _ = b.refusal(c).(*OpenError) //nolint:errorlint // made here, wrapped by nobody
		b.busy.gen = c.gen
	}
	return b.busy
}

// probeKey is the context key of a breaker's live probe.
type probeKey struct{ b *Breaker }

// enter asks for admission and fills in c.
func (b *Breaker) enter(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.b, c.caller, c.ctx = b, ctx, ctx
	w := b.word.Load()
	if w&(stateMask|veteranBit) == 0 {
		c.ticket.gen = wordGen(w)
	} else if err := b.enterVeteran(ctx, c, w); err != nil {
		return err
	}
	if b.extras {
		b.equip(c)
	}
	return nil
}

// equip gives an admitted call what the breaker's policy asks for.
func (b *Breaker) equip(c *call) {
	if b.cfg.CallTimeout > 0 {
		c.ctx, c.cancel = context.WithTimeout(c.ctx, b.cfg.CallTimeout)
	}
	if b.slow > 0 {
		c.started = b.now()
	}
	if c.tracked = b.tracked; c.tracked {
		b.totals.add(statStarted)
	}
}

// track makes the breaker count the calls in flight. It must precede any call.
func (b *Breaker) track() { b.tracked, b.extras = true, true }

// enterVeteran is the admission to a breaker that has opened before.
func (b *Breaker) enterVeteran(ctx context.Context, c *call, w uint64) error {
	t := taskOf(ctx)
	if err := t.refusal(b); err != nil {
		b.totals.add(statLatched)
		b.totals.add(statRejected)
		return err
	}
	if wordState(w) == Closed {
		c.ticket.gen = wordGen(w)
		return nil
	}
	if g := b.shut(w); g != nil {
		return b.reject(c, t, g.err)
	}
	err := b.admit(ctx, c)
	if err == nil && c.ticket.probe != 0 && !c.nested && b.cfg.Probe != nil {
		err = b.designated(ctx, c)
	}
	if err != nil && ctx.Err() == nil {
		return b.reject(c, t, err)
	}
	return err
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
	mark, now := b.markOf(ctx), b.now()
	var ok bool
	moved = b.step(func(core *core) {
		core.tick(now)
		if c.nested = core.lease(mark) >= 0; c.nested {
			c.ticket, ok = mark, true
			return
		}
		c.ticket, ok = core.admit(now)
		err = b.turnedAway(core, ok)
	})
	return moved, err
}

// begin starts the lease of a probe after its goroutine has told the observers
// of half-open. They may have taken so long that the slot is lost.
func (b *Breaker) begin(c *call) (begun bool) {
	now := b.now()
	b.apply(func(core *core) { begun = core.renew(c.ticket, now) })
	return begun
}

func (b *Breaker) turnedAway(c *core, ok bool) error {
	switch {
	case ok:
		return nil
	case c.state == Open:
		b.publish(c)
		return b.gate.Load().err
	}
	return b.busyRefusal(c)
}

// reject counts a refusal, latches it in the task, and logs the first one of an
// episode.
func (b *Breaker) reject(c *call, t *task, err error) error {
	b.totals.add(statRejected)
	if !b.announced.Load() && b.announced.CompareAndSwap(false, true) {
		b.logRefusal(c.op, t, err)
	}
	return t.latch(b, err)
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
	defer c.finish()
	err := b.cfg.Probe(ctx)
	return c.end(err, b.cfg.Classify)
}

// afterProbe answers a caller whose probe did not take place, or whose
// designated probe did not succeed. There is no further probe for it.
func (b *Breaker) afterProbe(c *call) (err error) {
	if err := c.caller.Err(); err != nil {
		return err
	}
	now := b.now()
	b.apply(func(core *core) {
		core.tick(now)
		*c = call{b: b, op: c.op, caller: c.caller, ctx: c.caller, ticket: ticket{gen: core.gen}}
		err = b.turnedAway(core, core.state == Closed)
	})
	return err
}
