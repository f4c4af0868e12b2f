package statuspage

import (
	"math"
	"slices"
	"strings"
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
	Hold   string        // the hold in words
	Why    string        // the reason of the hold
	Left   time.Duration // until the probe may go out
	Share  int           // RampShare in percent
	Broken string        // the last error
}

var (
	meanings = map[resilience.State]string{
		resilience.Closed:   "Calls are admitted.",
		resilience.HalfOpen: "The reset time has passed: the next call is the probe.",
		resilience.Open:     "Calls are refused at once; work is deferred.",
	}
	// holds are in the words of Snapshot.Held and Transition.Held.
	holds = map[string]string{
		"forced_open":   "Held open: only a reset closes it.",
		"forced_closed": "Held closed: failures do not open it, until a reset.",
		"denied":        "Held open: the credential or the quota was denied. Fix that and reset it.",
	}
)

func newBreakerView(s resilience.Snapshot) breakerView {
	v := breakerView{
		Snapshot: s, Means: meanings[s.State], Hold: holds[s.Held], Why: clean(s.HeldReason),
		Share:  int(math.Round(100 * s.RampShare)),
		Broken: clean(resilience.Transition{Cause: s.LastFailure}.CauseText()),
	}
	switch {
	case s.Shadow && s.State != resilience.Closed:
		v.Means = "Shadow mode: calls are admitted, and counted where they would be refused."
	case s.RampShare < 1:
		v.Means = "A growing share of calls is admitted; the others are turned away."
	}
	if !s.OpenUntil.IsZero() {
		v.Left = max(0, time.Until(s.OpenUntil))
	}
	return v
}

func (p *Page) breakers() (views []breakerView) {
	for _, b := range p.config.Breakers {
		views = append(views, newBreakerView(b.Snapshot()))
	}
	return views
}

// transitionView is a transition as the page shows it.
type transitionView struct {
	resilience.Transition
	Why, Because string // the reason, and the error behind it
	Moved        bool   // the state has changed; else a hold began or ended
	Hold         string // the hold from now on, as in forced open
}

func newTransitionView(t resilience.Transition) transitionView {
	return transitionView{
		Transition: t, Why: clean(t.Reason), Because: clean(t.CauseText()),
		Moved: t.From != t.To, Hold: strings.ReplaceAll(t.Held, "_", " "),
	}
}

func (p *Page) transitions() (views []transitionView) {
	for _, t := range p.history.newest() {
		views = append(views, newTransitionView(t))
	}
	return views
}
