package resilience

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/resilience/internal/mask"
)

// Transition is one committed change of state. Where an operator's hold begins
// or ends and the state stays what it is, From and To are equal.
type Transition struct {
	Upstream      string
	From, To      State
	At            time.Time
	Generation    uint64 // of the state that begins
	Reason        string
	Cause         error         `json:"-"` // the error that made it; nil for time and operators. See CauseText
	Origin        string        // the host in whose process it was made, if that was another one; empty otherwise
	Held          string        // what holds To until Reset: forced_open, forced_closed, denied, or nothing
	Shadow        bool          // the breaker only tells (Config.Shadow)
	Eligible      int           // calls that counted in the state that ends
	Failures      int           // failures among them
	OpenUntil     time.Time     // zero unless To is Open and time will end it
	ProbeID       uint64        // the probe that caused it, or is about to run; 0 for none
	PolicyVersion string        // equal for equal policies
	InState       time.Duration // how long From has lasted, also where it continues as To
	SinceOpened   time.Duration // since the breaker last left closed; 0 where it does now
	Refused       uint64        // on closing: calls refused since the breaker last left closed
	Dropped       uint64        // transitions before this one that no observer was told of
}

// CauseText is Cause on one short line, without secrets; empty without a Cause.
func (t Transition) CauseText() string { return mask.Text(t.Cause) }

const (
	// maxQueue is how many transitions wait for slow observers.
	maxQueue = 1024
	// maxDelivery is how many transitions a caller delivers before it returns.
	maxDelivery = 32
)

// dispatcher delivers transitions in order and one at a time, outside every
// lock. The goroutine that made one delivers it, unless another is delivering.
// To bound what that costs a caller while the breaker flaps, what is left after
// maxDelivery of them is delivered by a goroutine of its own, and the oldest of
// more than maxQueue that wait are dropped.
type dispatcher struct {
	mu        sync.Mutex
	queue     []Transition
	dropped   uint64 // before the first of queue
	busy      bool
	observers []*observer // replaced, never written in place

	warned  bool // that it is not closed; of the one that delivers
	current Transition
	rest    []*observer // that current is yet to be told to
}

type observer struct {
	fn      func(Transition)
	removed atomic.Bool
}

// Observe has fn told of every transition, in order, one at a time and outside
// the breaker's locks. fn may call the breaker and may panic (which is logged).
// It may be slow: the call that made the transition waits for it, and for what
// follows meanwhile, up to 32 transitions; the rest is told by a goroutine of
// its own. If more than 1024 wait, the oldest are dropped
// (Transition.Dropped).
//
// remove ends that: no call of fn begins after it has returned. It does not
// wait for one that has begun, and fn may call it.
func (b *Breaker) Observe(fn func(Transition)) (remove func()) {
	d, o := &b.events, &observer{fn: fn}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.observers = append(slices.Clip(d.observers), o)
	return func() { d.remove(o) }
}

func (d *dispatcher) remove(o *observer) {
	o.removed.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.observers = slices.DeleteFunc(slices.Clone(d.observers), func(other *observer) bool { return other == o })
}

// enqueueLocked dates a change. It runs under the breaker's lock, so the queue
// is in the order of the commits.
func (b *Breaker) enqueueLocked(ch change) {
	dates := b.dates()
	t := Transition{
		Upstream: b.name, From: ch.from, To: ch.to, At: dates.wall(ch.at), Generation: ch.gen, Reason: ch.reason,
		Cause: ch.cause, Origin: ch.origin, Held: ch.held.String(), Shadow: b.shadow,
		Eligible: ch.eligible, Failures: ch.failures, ProbeID: ch.probe, PolicyVersion: b.version,
		InState: time.Duration(ch.at - ch.since),
	}
	if ch.to == Open && ch.until != never {
		t.OpenUntil = dates.wall(ch.until)
	}
	rejected := b.totals.sum(statRejected) + b.totals.sum(statShadowed)
	if ch.from == Closed {
		b.refused = rejected
		b.announced.Store(false)
	} else {
		t.SinceOpened = time.Duration(ch.at - ch.sinceEpisode)
	}
	if ch.to == Closed {
		t.Refused = rejected - b.refused
	}
	b.events.push(t)
}

func (d *dispatcher) push(t Transition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == maxQueue {
		d.queue = d.queue[1:]
		d.dropped++
	}
	d.queue = append(d.queue, t)
}

// waiting reports whether a transition is yet to be delivered.
func (d *dispatcher) waiting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.busy && len(d.queue) > 0
}

// begin makes the caller the one that delivers, unless there is one.
func (d *dispatcher) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := !d.busy && len(d.queue) > 0
	d.busy = d.busy || begun
	return begun
}

// next is the next observer to tell. most counts down with each transition that
// begins. At zero next returns no observer, and more if transitions wait. At
// the end of the queue the caller no longer delivers.
func (d *dispatcher) next(most *int) (o *observer, t Transition, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.rest) > 0 {
			o, d.rest = d.rest[0], d.rest[1:]
			if !o.removed.Load() {
				return o, d.current, true
			}
		}
		if len(d.queue) == 0 {
			d.busy, d.queue, d.current = false, nil, Transition{}
			return nil, t, false
		}
		if *most == 0 {
			return nil, t, true
		}
		*most--
		d.current, d.queue, d.rest = d.queue[0], d.queue[1:], d.observers
		d.current.Dropped, d.dropped = d.dropped, 0
	}
}

// deliver must run without the breaker's lock.
func (b *Breaker) deliver() {
	if b.events.begin() {
		b.drain(maxDelivery)
	}
}

// drain delivers up to so many transitions; what is left then is delivered by
// another goroutine. It continues if an observer, or the logger that is told of
// its panic, ends the goroutine.
func (b *Breaker) drain(most int) {
	returned := false
	defer func() {
		if !returned {
			b.drain(most)
		}
	}()
	for {
		o, t, more := b.events.next(&most)
		if o == nil {
			returned = true
			if more {
				go b.drain(math.MaxInt)
			}
			return
		}
		b.tell(o, t)
	}
}

// tell survives an observer that panics.
func (b *Breaker) tell(o *observer, t Transition) {
	defer func() {
		if r := recover(); r != nil {
			b.log(slog.LevelError, "circuit breaker observer panicked",
				slog.String("upstream", b.name), slog.String("panic", mask.String(fmt.Sprint(r))))
		}
	}()
	if !o.removed.Load() { // since next looked
		o.fn(t)
	}
}

// log survives a logger that panics, since nothing is left to report it to.
func (b *Breaker) log(level slog.Level, what string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	cmp.Or(b.cfg.Logger, slog.Default()).LogAttrs(context.Background(), level, what, attrs...)
}

func (b *Breaker) logTransition(t Transition) {
	attrs := []slog.Attr{
		slog.String("upstream", t.Upstream),
		slog.String("old_state", t.From.String()),
		slog.String("new_state", t.To.String()),
		slog.String("reason", mask.String(t.Reason)),
	}
	optional := func(there bool, a slog.Attr) {
		if there {
			attrs = append(attrs, a)
		}
	}
	optional(t.Cause != nil, slog.String("cause", t.CauseText()))
	optional(t.Origin != "", slog.String("origin", t.Origin))
	optional(t.Held != "", slog.String("held", t.Held))
	optional(t.Shadow, slog.Bool("shadow", true))
	attrs = append(attrs,
		slog.Duration("in_old_state", t.InState),
		slog.Duration("since_opened", t.SinceOpened),
		slog.Uint64("generation", t.Generation),
		slog.Int("eligible", t.Eligible),
		slog.Int("failures", t.Failures),
		slog.String("policy_version", t.PolicyVersion),
	)
	optional(t.ProbeID != 0, slog.Uint64("probe_id", t.ProbeID))
	optional(!t.OpenUntil.IsZero(), slog.Time("open_until", t.OpenUntil))
	optional(!t.OpenUntil.IsZero(), slog.Duration("retry_in", t.OpenUntil.Sub(t.At)))
	optional(t.To == Closed, slog.Uint64("refused", t.Refused))
	optional(t.Dropped > 0, slog.Uint64("dropped", t.Dropped))
	what := "circuit breaker changed state"
	if t.From == t.To {
		what = "circuit breaker hold changed"
	}
	b.log(b.levelOf(t), what, attrs...)
}

// levelOf is info for what another process did, which has warned of it, except
// for the end of what this one has warned of.
func (b *Breaker) levelOf(t Transition) slog.Level {
	warned := b.events.warned
	b.events.warned = t.To != Closed && (warned || t.Origin == "")
	if t.Origin != "" && (t.To != Closed || !warned) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

func (b *Breaker) logRefusal(op string, t *task, err error) {
	attrs := []slog.Attr{slog.String("upstream", b.name), slog.Any("error", err)}
	if op != "" {
		attrs = append(attrs, slog.String("operation", op))
	}
	if t != nil {
		attrs = append(attrs, slog.String("task", t.id))
	}
	what := "circuit breaker refuses calls"
	if b.shadow {
		what = "circuit breaker in shadow mode would refuse calls"
	}
	b.log(slog.LevelWarn, what, attrs...)
}
