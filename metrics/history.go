package metrics

import (
	"maps"
	"math"
	"sync"
	"time"
	"weak"

	"github.com/penstock-go/penstock/resilience"
)

var states = [...]resilience.State{resilience.Closed, resilience.HalfOpen, resilience.Open}

// record sums up what a breaker's events tell.
type record struct {
	moves    [len(states)][len(states)]uint64 // from, to
	closed   uint64                           // probes that closed it
	reopened uint64                           // probes that opened it again
	spent    [len(states)]time.Duration
}

// history follows one breaker, which it does not keep alive.
//
// Its events give the moves and, with their dates, the seconds in each state. A
// scrape also sees what no event has told yet: events that wait for a slow
// observer or were dropped, and the end of a probe that fell silent, which the
// breaker commits at its next call. Seconds go by whichever comes first and are
// counted once, so they never shrink and always add up to the time that passed.
type history struct {
	clock interface{ Now() time.Time } // nil for the system's
	base  time.Time
	first uint64 // the generation in which it began

	mu    sync.Mutex
	sum   record
	at    time.Duration    // the seconds are counted up to here
	state resilience.State // as committed: open where a reader sees half-open once the wait is over
	until time.Duration    // the end of that wait
	gen   uint64
}

const (
	always = time.Duration(math.MinInt64) // before every instant
	never  = time.Duration(math.MaxInt64)
)

// follow starts the history of a breaker in its present state.
func follow(b *resilience.Breaker) *history {
	h := &history{clock: b.Config().Clock}
	h.mu.Lock()
	defer h.mu.Unlock()
	b.Observe(h.note)
	h.base = h.look().wall
	now := h.look()
	h.at = now.at
	s := b.Snapshot()
	h.takeLocked(s, now)
	h.first = s.Generation
	return h
}

// look is one look at a breaker's two clocks. Seconds are those of the
// monotonic one; the wall clock, which may be set meanwhile, gives the dates.
type look struct {
	wall time.Time
	at   time.Duration
}

func (h *history) look() look {
	if h.clock == nil {
		now := time.Now()
		return look{now, now.Sub(h.base)}
	}
	now := h.clock.Now()
	if steady, ok := h.clock.(interface{ Monotonic() time.Duration }); ok {
		return look{now, steady.Monotonic()}
	}
	return look{now, now.Sub(h.base)}
}

// when is the instant of a date, or else what stands for none.
func (l look) when(date time.Time, none time.Duration) time.Duration {
	if date.IsZero() {
		return none
	}
	return l.at + date.Sub(l.wall)
}

// note is told of every transition, those before the history began included if
// they were still to be told.
func (h *history) note(t resilience.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.From != t.To && t.Generation > h.first {
		h.countLocked(t)
	}
	if t.Generation < h.gen {
		return // a scrape has seen what came after it
	}
	now := h.look()
	at := max(h.at, min(now.at, now.when(t.At, always)))
	if t.From != h.state { // what led there was not told
		h.passLocked(at - t.InState)
		h.state, h.until = t.From, never
	}
	h.passLocked(at)
	h.state, h.until, h.gen = t.To, now.when(t.OpenUntil, never), t.Generation
}

func (h *history) countLocked(t resilience.Transition) {
	h.sum.moves[t.From][t.To]++
	if t.From != resilience.HalfOpen || t.ProbeID == 0 || t.Origin != "" {
		return // an operator's doing, or that of another process
	}
	if t.To == resilience.Closed {
		h.sum.closed++
	} else {
		h.sum.reopened++
	}
}

// passLocked counts the time up to an instant. A breaker that is open past its
// wait counts as half-open, as it does for every reader.
func (h *history) passLocked(to time.Duration) {
	if to <= h.at {
		return
	}
	end := to
	if h.state == resilience.Open {
		end = min(to, max(h.at, h.until))
	}
	h.sum.spent[h.state] += end - h.at
	h.sum.spent[resilience.HalfOpen] += to - end
	h.at = to
}

// read is a snapshot of the breaker, and the record as of the same moment.
func (h *history) read(b *resilience.Breaker) (resilience.Snapshot, record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.look()
	s := b.Snapshot()
	h.catchUpLocked(s, now)
	h.takeLocked(s, now)
	h.passLocked(now.at)
	return s, h.sum
}

// catchUpLocked counts the time up to the changes that a snapshot dates and no
// event has told yet.
func (h *history) catchUpLocked(s resilience.Snapshot, now look) {
	if s.Generation != h.gen {
		first := change{resilience.Open, now.when(s.LastOpened, always)}
		last := change{resilience.Closed, now.when(s.LastClosed, always)}
		if first.at > last.at || first.at == last.at && committed(s) != resilience.Closed {
			first, last = last, first
		}
		h.changeLocked(first)
		h.changeLocked(last)
	}
	h.passLocked(now.when(s.HeldSince, always))
	if h.state != committed(s) {
		h.passLocked(now.at)
	}
}

type change struct {
	to resilience.State
	at time.Duration
}

func (h *history) changeLocked(c change) {
	if c.at > h.at || c.at == h.at && c.to != h.state {
		h.passLocked(c.at)
		h.state, h.until = c.to, never
	}
}

// takeLocked continues from the state of a snapshot.
func (h *history) takeLocked(s resilience.Snapshot, now look) {
	h.state, h.until, h.gen = committed(s), now.when(s.OpenUntil, never), s.Generation
}

// committed is a snapshot's state without what time has made of it.
func committed(s resilience.Snapshot) resilience.State {
	if !s.OpenUntil.IsZero() {
		return resilience.Open
	}
	return s.State
}

// histories holds the history of each breaker for as long as the breaker lives:
// one that its family has forgotten continues it when it comes back.
type histories struct {
	mu sync.Mutex
	by map[weak.Pointer[resilience.Breaker]]*history
}

// of returns the histories of these breakers, in their order, starts missing
// ones and drops those of breakers that are gone.
func (hs *histories) of(breakers []*resilience.Breaker) []*history {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	maps.DeleteFunc(hs.by, func(p weak.Pointer[resilience.Breaker], _ *history) bool { return p.Value() == nil })
	all := make([]*history, len(breakers))
	for i, b := range breakers {
		p := weak.Make(b)
		if hs.by[p] == nil {
			hs.by[p] = follow(b)
		}
		all[i] = hs.by[p]
	}
	return all
}
