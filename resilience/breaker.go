package resilience

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Breaker guards one upstream. New, Registry.Register and Registry.Keyed make
// one. All methods are safe for concurrent use.
type Breaker struct {
	name      string
	cfg       Config
	version   string
	policy    policy
	timer     timer
	plain     bool        // Consecutive: a closed success touches the word alone
	shadow    bool        // Config.Shadow
	timely    bool        // the window asks when a success ended
	slow      int64       // calls this long are slow; 0 if nothing asks
	extras    bool        // a call needs enterExtras
	latch     any         // the key of its refusals in a task
	addresses []string    // see Locate
	family    string      // empty for a single breaker
	member    *membership // nil for one that is never forgotten

	word      atomic.Uint64 // see core.word
	gate      atomic.Pointer[gate]
	link      atomic.Pointer[link]
	announced atomic.Bool // the episode's first refusal has been logged
	totals    totals
	pending   pending
	events    dispatcher

	mu      sync.Mutex
	core    core
	next    core       // the copy that a step works on, here so that it stays off the heap
	shed    *OpenError // the last refusal of a ramp
	refused uint64     // rejected calls when the episode began
}

// New makes a breaker that belongs to no registry. name appears in errors, logs
// and metric labels: 1 to 128 bytes of printable UTF-8. The error names the
// fields of cfg that are out of bounds or cannot work together.
func New(name string, cfg Config) (*Breaker, error) {
	return newBreaker(name, cfg, cfg.single())
}

// newBreaker checks the name and the policy. problem is an earlier one.
func newBreaker(name string, cfg Config, problem error) (*Breaker, error) {
	cfg, err := cfg.normal()
	if err = errors.Join(validName(name), problem, err); err != nil {
		return nil, fmt.Errorf("resilience: breaker %q: %w", name, err)
	}
	return makeBreaker(name, cfg), nil
}

// makeBreaker takes a valid name and a normal configuration.
func makeBreaker(name string, cfg Config) *Breaker {
	b := &Breaker{
		name: name, cfg: cfg, version: cfg.version(), timer: newTimer(cfg.Clock), shadow: cfg.Shadow,
		policy: policy{
			failMax: cfg.FailMax, reset: int64(cfg.ResetTimeout), probeTimeout: int64(cfg.ProbeTimeout),
			maxThrottle: int64(cfg.MaxThrottle), maxProbes: cfg.MaxProbes, goodProbes: cfg.SuccessThreshold,
			maxReset: int64(cfg.MaxResetTimeout), jitter: int64(cfg.Jitter), ramp: int64(cfg.Ramp),
			openOnThrottle: cfg.OpenOnThrottle, stopOnDenied: cfg.StopOnDenied,
		},
	}
	b.latch = b
	b.totals.init()
	b.core = core{policy: &b.policy, window: newWindow(cfg.Trip), closedAt: never, random: rand.Uint64()}
	if b.core.window == nil {
		b.plain = true
	} else {
		b.slow = b.core.window.rule().threshold
		_, b.timely = b.core.window.(*timeWindow)
		b.acceptLocked(&b.core)
	}
	b.extras = b.slow > 0 || cfg.CallTimeout > 0
	b.Observe(b.logTransition)
	if cfg.OnTransition != nil {
		b.Observe(cfg.OnTransition)
	}
	if cfg.Shared != nil {
		b.join(cfg.Shared)
	}
	return b
}

// Name is the upstream's name.
func (b *Breaker) Name() string { return b.name }

// Config is the policy with its defaults filled in.
func (b *Breaker) Config() Config { return b.cfg }

// State is the state as of now: once the wait is over an open breaker reads
// half_open, with or without traffic. Reading changes nothing.
func (b *Breaker) State() State {
	state, _, _ := b.Streak()
	return state
}

// Streak is State with the consecutive counted failures and the generation that
// go with it, as Snapshot has them, for code that asks at every call: for a
// closed breaker it takes no lock and reads no clock.
func (b *Breaker) Streak() (state State, failures int, generation uint64) {
	w := b.word.Load()
	if wordState(w) == Closed || b.shut(w) != nil {
		return wordState(w), wordStreak(w), wordGen(w)
	}
	c := b.view()
	return c.reads(), c.longest(), c.gen
}

// Ready reports whether a call would be admitted now.
func (b *Breaker) Ready() bool {
	if w := b.word.Load(); b.shadow || wordState(w) == Closed && w&rampBit == 0 {
		return true
	}
	c := b.view()
	if c.state == Closed {
		return c.rampAdmits(c.latest)
	}
	return c.probeDue(c.latest)
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
	if l := b.link.Load(); l != nil && w&veteranBit != 0 {
		l.await(ctx)
		w = b.word.Load()
	}
	if w&(stateMask|veteranBit) == 0 || b.shadow {
		return nil
	}
	if err := taskOf(ctx).refusal(b); err != nil || wordState(w) == Closed {
		return err
	}
	if g := b.shutFor(ctx, w); g != nil {
		return g.err
	}
	c := b.view()
	if c.state == Closed || c.lease(b.markOf(ctx)) >= 0 {
		return nil
	}
	return b.refusal(&c, nil)
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
	b.collectLocked()
	b.acceptLocked(&b.core)
	c := b.core
	c.hear(b.word.Load())
	c.tick(now)
	return c
}

// Trip opens the breaker as failures would, so it recovers by time. A breaker
// that is open, forced or stopped stays as it is. cause, if given, is the
// Transition's.
func (b *Breaker) Trip(reason string, cause ...error) {
	b.operate(func(c *core, now int64) { c.trip(why{reason: reason, cause: cmp.Or(cause...)}, now) })
}

// ForceOpen opens the breaker until Reset; it sends no probes. One that is
// forced open already keeps its reason, and one in shadow mode refuses nothing
// all the same.
func (b *Breaker) ForceOpen(reason string) {
	b.operate(func(c *core, now int64) { c.forceOpen(why{reason: reason}, now) })
}

// ForceClose closes the breaker until Reset; failures are counted in the
// totals and open nothing. One that is forced closed already keeps its reason.
// Tasks that were refused before stay refused.
func (b *Breaker) ForceClose(reason string) {
	b.operate(func(c *core, now int64) { c.forceClose(why{reason: reason}, now) })
}

// Reset closes the breaker and clears its streak, its window, its ramp and
// every hold: an operator's, a throttling upstream's, a denied credential's.
// Calls in flight become stale. Totals stay.
//
// Of a shared breaker it lifts those of all processes, and replaces a record
// that cannot be read.
func (b *Breaker) Reset() {
	if l := b.link.Load(); l != nil {
		l.discard()
	}
	b.operate(func(c *core, now int64) { c.restart(now) })
}

func (b *Breaker) operate(event func(*core, int64)) {
	if b.member != nil {
		b.member.hold(b)
		defer b.unpin()
	}
	now := b.now()
	dated := func(c *core) { event(c, now) }
	if l := b.link.Load(); l != nil {
		l.operate(dated)
	} else {
		b.apply(dated)
	}
}

// step commits one event and then, under the same lock, has then look at the
// result, if it is given. It reports whether there are transitions to deliver.
func (b *Breaker) step(event, then func(*core)) (moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	moved = b.stepLocked(event)
	if then != nil {
		then(&b.core)
	}
	return moved
}

func (b *Breaker) stepLocked(event func(*core)) (moved bool) {
	if b.plain {
		b.stepCopyLocked(event)
	} else {
		b.collectLocked()
		event(&b.core) // no success bypasses the lock until the next period
		b.publish(&b.core)
		b.word.Store(b.core.word())
		b.acceptLocked(&b.core)
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
	if b.step(event, nil) {
		b.deliver()
	}
}

// stepCopyLocked steps a copy. A success may clear the streak in the word
// before the copy is committed; the event then runs again on the new streak.
func (b *Breaker) stepCopyLocked(event func(*core)) {
	for {
		old := b.word.Load()
		b.next = b.core
		b.next.hear(old)
		event(&b.next)
		b.publish(&b.next)
		if b.word.CompareAndSwap(old, b.next.word()) {
			b.core = b.next
			return
		}
		b.gate.Store(nil) // what was published did not happen
	}
}
