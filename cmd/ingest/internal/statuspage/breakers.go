package statuspage

import (
	"math"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// breakerView is a breaker as the page shows it.
type breakerView struct {
	resilience.Snapshot
	upstreamView
	Means  string        // the state in words
	Hold   string        // the hold in words
	Why    string        // the reason of the hold
	Since  time.Time     // when it left closed; zero if it is closed
	Left   time.Duration // until the probe may go out
	Share  int           // RampShare in percent
	Broken string        // the last error
	Blamed bool          // it is closed, and the last pass ended because of it
	Opener string        // the process that opened it, in words; empty if it is this one
	spans  []span
}

var (
	meanings = map[resilience.State]string{
		resilience.Closed:   "Calls are admitted.",
		resilience.HalfOpen: "The reset time has passed: the next call is the probe.",
		resilience.Open:     "Calls are refused at once; work is deferred.",
	}
	// embeddedStates are those of a breaker around something embedded.
	embeddedStates = map[resilience.State]string{
		resilience.Closed: "works", resilience.HalfOpen: "is tried again", resilience.Open: "fails",
	}
	// holds are in the words of Snapshot.Held and Transition.Held.
	holds = map[string]string{
		"forced_open":   "Held open: only a reset closes it.",
		"forced_closed": "Held closed: failures do not open it, until a reset.",
		"denied":        "Held open: the credential or the quota was denied. Fix that and reset it.",
	}
)

func newBreakerView(s resilience.Snapshot, now time.Time) breakerView {
	v := breakerView{
		Snapshot: s, Means: meanings[s.State], Hold: holds[s.Held], Why: clean(s.HeldReason),
		Share:  int(math.Round(100 * s.RampShare)),
		Broken: clean(resilience.Transition{Cause: s.LastFailure}.CauseText()),
	}
	if s.Elsewhere {
		v.Opener, v.Broken = opener(s.Origin), "" // the error is in the log of that process
	}
	switch {
	case s.Shadow && s.State != resilience.Closed:
		v.Means = "Shadow mode: calls are admitted, and counted where they would be refused."
	case s.RampShare < 1:
		v.Means = "A growing share of calls is admitted; the others are turned away."
	}
	if !s.OpenUntil.IsZero() {
		v.Left = max(0, s.OpenUntil.Sub(now))
	}
	return v
}

// opener is another process of a fleet. An earlier run on this machine is one.
func opener(origin string) string { return "another process on " + clean(origin) }

// Apart reports whether the breaker is open in this process while those of the
// others are closed.
func (v breakerView) Apart() bool { return v.Alone && v.StoreUp && v.State != resilience.Closed }

// Name is the label of the upstream in metrics and logs.
func (v breakerView) Name() string { return v.Snapshot.Name }

// Is is the state in a word.
func (v breakerView) Is() string {
	if v.Embedded && v.Held == "" {
		return embeddedStates[v.State]
	}
	return say(v.State)
}

// Due says when the probe is due.
func (v breakerView) Due() string { return due(v.Left) }

// Flawless reports whether no call had a bad end.
func (v breakerView) Flawless() bool { return v.Failures+v.Throttled+v.Denied+v.Panics == 0 }

// Recovered reports whether the last error is past.
func (v breakerView) Recovered() bool { return v.State == resilience.Closed && v.Streak == 0 }

func (p *Page) breakers(now time.Time) (views []breakerView) {
	for _, b := range p.config.Breakers {
		v := newBreakerView(b.Snapshot(), now)
		v.upstreamView = p.config.upstream(v.Snapshot.Name)
		if v.Embedded && v.Is() == embeddedStates[resilience.Closed] {
			v.Means = ""
		}
		v.spans = p.timelines.of(v.Snapshot, p.began, now)
		v.Since = brokenSince(v.spans)
		views = append(views, v)
	}
	return views
}

// markBlamed marks the upstream that ended the last pass, whose breaker may
// have no reason to open: that of refused credentials or of a rate limit has
// not.
func (v *view) markBlamed() {
	e := v.Progress.Failed
	if e == nil || v.Ready.Early == nil {
		return
	}
	for i := range v.Breakers {
		b := &v.Breakers[i]
		if b.Name() == e.upstream && b.State == resilience.Closed {
			b.Blamed, b.Means = true, "Calls are admitted, but the last pass ended here."
		}
	}
}
