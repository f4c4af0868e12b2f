package statuspage

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

const (
	// grain is the resolution of the timeline. It moves at this pace, so that a
	// page on which nothing else changes is not sent again.
	grain = time.Minute
	// spansKept bounds the spans of one breaker; the oldest are forgotten.
	spansKept = 100
)

// span is a time that a breaker spent in one state. The probes that fail during
// an outage do not divide it.
type span struct {
	State    resilience.State
	Held     string // forced_open, forced_closed, denied, or nothing
	Shadow   bool
	From, To time.Time // To is zero while it lasts
	probeAt  time.Time // when time ends an open state

	By                 string // the process that made the change, in words; empty if it is this one
	Why, Because       string // the reason for the state, and the error behind it
	Failures, Eligible int    // of the state before
	Probes             int    // that failed in it
	Refused            uint64 // calls, once it is over
	Dropped            uint64 // changes before it that are missing
}

// timelines keeps the spans of each breaker, oldest first.
type timelines struct {
	mu    sync.Mutex
	spans map[string][]span
}

// add records a change of state.
func (l *timelines) add(t resilience.Transition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spans == nil {
		l.spans = map[string][]span{}
	}
	all := l.spans[t.Upstream]
	if len(all) == 0 {
		all = append(all, span{State: t.From, Shadow: t.Shadow, From: t.At.Add(-t.InState)})
	}
	all = absorbed(ended(all, t), t.At)
	if last := &all[len(all)-1]; probeFailed(*last, t) {
		last.To, last.probeAt, last.Because = time.Time{}, t.OpenUntil, clean(t.CauseText())
		last.Probes++
	} else {
		all = append(all, newSpan(t, all[len(all)-1].To))
	}
	l.spans[t.Upstream] = all[max(0, len(all)-spansKept):]
}

func newSpan(t resilience.Transition, from time.Time) span {
	s := span{
		State: t.To, Held: t.Held, Shadow: t.Shadow, From: from, probeAt: t.OpenUntil,
		Why: clean(t.Reason), Because: clean(t.CauseText()), Failures: t.Failures, Eligible: t.Eligible,
		Dropped: t.Dropped,
	}
	if t.Origin != "" {
		s.By, s.Because = opener(t.Origin), ""
	}
	return s
}

// ended sets the end of the last span. An open state ends when the probe may
// go out, which can be long before one does.
func ended(all []span, t resilience.Transition) []span {
	last := &all[len(all)-1]
	last.To = t.At
	if t.To == resilience.HalfOpen && !last.probeAt.IsZero() && last.probeAt.Before(t.At) {
		last.To = last.probeAt
	}
	if t.To == resilience.Closed {
		last.Refused = t.Refused
	}
	return all
}

// absorbed leaves out a probe that did not take long: the open state before it
// lasts until the probe ends.
func absorbed(all []span, at time.Time) []span {
	n := len(all)
	if n < 2 || all[n-1].State != resilience.HalfOpen || at.Sub(all[n-1].From) >= grain {
		return all
	}
	if before := &all[n-2]; before.State == resilience.Open && before.Held == "" {
		before.To, before.Refused = at, all[n-1].Refused
		return all[:n-1]
	}
	return all
}

// probeFailed reports whether t only continues an open state.
func probeFailed(last span, t resilience.Transition) bool {
	return last.State == resilience.Open && last.Held == "" && t.Held == "" &&
		t.From == resilience.HalfOpen && t.To == resilience.Open
}

// of returns the spans of a breaker as of now. Without a change since the page
// watches, it is the state that the breaker has.
func (l *timelines) of(s resilience.Snapshot, began, now time.Time) []span {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.spans[s.Name])
	if len(all) == 0 {
		return []span{{State: s.State, Held: s.Held, Shadow: s.Shadow, From: began, probeAt: s.OpenUntil}}
	}
	last := &all[len(all)-1]
	if s.State == resilience.HalfOpen && last.State == resilience.Open && last.probeAt.Before(now) {
		last.To = last.probeAt
		all = append(all, span{State: resilience.HalfOpen, Shadow: s.Shadow, From: last.To, Why: "the probe is due"})
	}
	return all
}

// brokenSince is when a breaker that is not closed left that state for good.
func brokenSince(all []span) (since time.Time) {
	for _, one := range slices.Backward(all) {
		if one.State == resilience.Closed {
			break
		}
		since = one.From
	}
	return since
}
