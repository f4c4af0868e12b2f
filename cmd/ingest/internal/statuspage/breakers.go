package statuspage

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// historyLength is how many transitions are kept.
const historyLength = 50

// history is the last transitions, oldest first.
type history struct {
	mu   sync.Mutex
	last []resilience.Transition
}

func (h *history) add(t resilience.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.last) == historyLength {
		h.last = slices.Delete(h.last, 0, 1)
	}
	h.last = append(h.last, t)
}

// newest returns the transitions, newest first.
func (h *history) newest() []resilience.Transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.last)
	slices.Reverse(all)
	return all
}

// breakerView is a breaker as the page shows it.
type breakerView struct {
	resilience.Snapshot
	Means  string        // the state in words
	Left   time.Duration // until the probe may go out
	Held   bool          // held open: only a reset closes it
	Broken string        // the last error
}

var meanings = map[resilience.State]string{
	resilience.Closed:   "Calls are admitted.",
	resilience.HalfOpen: "The reset time has passed: the next call is the probe.",
	resilience.Open:     "Calls are refused at once; work is deferred.",
}

func (p *Page) breakers() (views []breakerView) {
	for _, b := range p.config.Breakers {
		s := b.Snapshot()
		v := breakerView{Snapshot: s, Means: meanings[s.State]}
		if s.State == resilience.Open {
			v.Held = s.OpenUntil.IsZero()
			v.Left = max(0, time.Until(s.OpenUntil))
		}
		if s.LastFailure != nil {
			v.Broken = clean(s.LastFailure.Error())
		}
		views = append(views, v)
	}
	return views
}

// transitionView is a transition as the page shows it.
type transitionView struct {
	resilience.Transition
	Why string
}

func (p *Page) transitions() (views []transitionView) {
	for _, t := range p.history.newest() {
		views = append(views, transitionView{Transition: t, Why: clean(t.Reason)})
	}
	return views
}
