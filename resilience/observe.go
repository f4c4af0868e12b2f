package resilience

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Transition is one committed change of state.
type Transition struct {
	Upstream      string
	From, To      State
	At            time.Time
	Generation    uint64 // of the state that begins
	Reason        string
	Eligible      int           // calls that counted in the state that ends
	Failures      int           // failures among them
	OpenUntil     time.Time     // zero unless To is Open and time will end it
	ProbeID       uint64        // the probe that caused it, or is about to run; 0 for none
	PolicyVersion string        // equal for equal policies
	InState       time.Duration // how long the state that ends lasted
	SinceOpened   time.Duration // since the breaker last left closed; 0 where it does now
	Refused       uint64        // on closing: calls refused since the breaker last left closed
}

// dispatcher delivers transitions in order and one at a time, outside every
// lock, in the goroutine that made one or in the one that already delivers.
type dispatcher struct {
	mu        sync.Mutex
	queue     []Transition
	busy      bool
	observers []*observer // replaced, never written in place
}

type observer struct{ fn func(Transition) }

// Observe has fn told of every transition, in order, one at a time and outside
// the breaker's locks. fn may call the breaker, may be slow (only the goroutine
// that made the transition waits for it) and may panic (which is logged).
// remove ends that.
func (b *Breaker) Observe(fn func(Transition)) (remove func()) {
	d, o := &b.events, &observer{fn}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.observers = append(slices.Clip(d.observers), o)
	return func() { d.remove(o) }
}

func (d *dispatcher) remove(o *observer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := make([]*observer, 0, len(d.observers))
	for _, other := range d.observers {
		if other != o {
			kept = append(kept, other)
		}
	}
	d.observers = kept
}

// enqueueLocked dates a change. It runs under the breaker's lock, so the queue
// is in the order of the commits.
func (b *Breaker) enqueueLocked(ch change) {
	t := Transition{
		Upstream: b.name, From: ch.from, To: ch.to, At: b.wall(ch.at), Generation: ch.gen, Reason: ch.reason,
		Eligible: ch.eligible, Failures: ch.failures, ProbeID: ch.probe, PolicyVersion: b.version,
		InState: time.Duration(ch.at - ch.since),
	}
	if ch.to == Open && ch.until != never {
		t.OpenUntil = b.wall(ch.until)
	}
	rejected := b.totals.sum(statRejected)
	if ch.from == Closed {
		b.refused = rejected
		b.announced.Store(false)
	} else {
		t.SinceOpened = time.Duration(ch.at - ch.sinceEpisode)
	}
	if ch.to == Closed {
		t.Refused = rejected - b.refused
	}
	b.events.mu.Lock()
	b.events.queue = append(b.events.queue, t)
	b.events.mu.Unlock()
}

// take returns the next transition, or nothing if another goroutine delivers.
// A goroutine that gets a transition must continue until there are no more.
func (d *dispatcher) take(mine bool) (t Transition, to []*observer, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy && !mine {
		return t, nil, false
	}
	d.busy = len(d.queue) > 0
	if !d.busy {
		d.queue = nil
		return t, nil, false
	}
	t, d.queue = d.queue[0], d.queue[1:]
	return t, d.observers, true
}

// deliver must run without the breaker's lock.
func (b *Breaker) deliver() {
	if t, to, ok := b.events.take(false); ok {
		b.drain(t, to)
	}
}

func (b *Breaker) drain(t Transition, to []*observer) {
	for ok := true; ok; t, to, ok = b.events.take(true) {
		for len(to) > 0 {
			o := to[0]
			to = to[1:]
			b.tell(o, t, to)
		}
	}
}

// tell survives an observer that panics, and delivers the rest of the queue if
// one ends the goroutine.
func (b *Breaker) tell(o *observer, t Transition, rest []*observer) {
	returned := false
	defer func() {
		if r := recover(); r != nil {
			b.log(slog.LevelError, "circuit breaker observer panicked",
				slog.String("upstream", b.name), slog.String("panic", fmt.Sprint(r)))
		} else if !returned {
			b.drain(t, rest)
		}
	}()
	o.fn(t)
	returned = true
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
		slog.String("reason", t.Reason),
		slog.Duration("in_old_state", t.InState),
		slog.Duration("since_opened", t.SinceOpened),
		slog.Uint64("generation", t.Generation),
		slog.Int("eligible", t.Eligible),
		slog.Int("failures", t.Failures),
		slog.String("policy_version", t.PolicyVersion),
	}
	if t.ProbeID != 0 {
		attrs = append(attrs, slog.Uint64("probe_id", t.ProbeID))
	}
	if !t.OpenUntil.IsZero() {
		attrs = append(attrs, slog.Time("open_until", t.OpenUntil))
		attrs = append(attrs, slog.Duration("retry_in", t.OpenUntil.Sub(t.At)))
	}
	if t.To == Closed {
		attrs = append(attrs, slog.Uint64("refused", t.Refused))
	}
	b.log(slog.LevelWarn, "circuit breaker changed state", attrs...)
}

func (b *Breaker) logRefusal(op string, t *task, err error) {
	attrs := []slog.Attr{slog.String("upstream", b.name), slog.Any("error", err)}
	if op != "" {
		attrs = append(attrs, slog.String("operation", op))
	}
	if t != nil {
		attrs = append(attrs, slog.String("task", t.id))
	}
	b.log(slog.LevelWarn, "circuit breaker refuses calls", attrs...)
}
