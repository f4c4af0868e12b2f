package metrics

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

var states = [...]resilience.State{resilience.Closed, resilience.HalfOpen, resilience.Open}

// record sums up a breaker's transitions.
type record struct {
	moves [len(states)][len(states)]uint64 // from, to
	spent [len(states)]time.Duration
}

// history follows one breaker.
type history struct {
	mu    sync.Mutex
	sum   record // of the states that have ended
	state resilience.State
	since time.Time
	until time.Time                  // when the open state ends, zero if held open
	shown [len(states)]time.Duration // the last values scraped, which must not shrink
}

// follow starts the history of a breaker in its present state.
func follow(b *resilience.Breaker) *history {
	s := b.Snapshot()
	h := &history{state: s.State, since: clockOf(b), until: s.OpenUntil}
	b.Observe(h.note)
	return h
}

func (h *history) note(t resilience.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sum.spent = h.spentLocked(t.At)
	h.sum.moves[t.From][t.To]++
	h.state, h.since, h.until = t.To, t.At, t.OpenUntil
}

// spentLocked includes the present state. A breaker open past its reset time
// counts as half-open, as it does for every reader.
func (h *history) spentLocked(now time.Time) [len(states)]time.Duration {
	spent := h.sum.spent
	end := now
	if h.state == resilience.Open && !h.until.IsZero() && now.After(h.until) {
		end = h.until
		spent[resilience.HalfOpen] += now.Sub(later(h.until, h.since))
	}
	spent[h.state] += max(0, end.Sub(h.since))
	return spent
}

// read returns the record as of now. An event may not have reached note yet
// when the breaker is read; the seconds already shown are kept, since a counter
// that shrinks looks like a restart.
func (h *history) read(s resilience.Snapshot, now time.Time) record {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == resilience.Open && s.State == resilience.Open {
		h.until = s.OpenUntil // a throttling upstream can move it
	}
	r := h.sum
	r.spent = h.spentLocked(now)
	for state, spent := range r.spent {
		h.shown[state] = max(h.shown[state], spent)
	}
	r.spent = h.shown
	return r
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func clockOf(b *resilience.Breaker) time.Time {
	if clock := b.Config().Clock; clock != nil {
		return clock.Now()
	}
	return time.Now()
}

// histories holds the history of each breaker.
type histories struct {
	mu sync.Mutex
	by map[*resilience.Breaker]*history
}

// of returns the histories of these breakers, starts missing ones and drops the
// others: a family of keyed breakers drops idle ones.
func (hs *histories) of(breakers []*resilience.Breaker) map[*resilience.Breaker]*history {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	next := make(map[*resilience.Breaker]*history, len(breakers))
	for _, b := range breakers {
		h := hs.by[b]
		if h == nil {
			h = follow(b)
		}
		next[b] = h
	}
	hs.by = next
	return next
}
