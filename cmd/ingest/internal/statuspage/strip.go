package statuspage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

const (
	// shown is the time that the strips and the chart show, and shownAtFirst
	// that of a service that began within it.
	shown        = 6 * time.Hour
	shownAtFirst = time.Hour
	// narrowest is the least width of a block, as a share of the strip: a short
	// outage must be visible.
	narrowest   = 1.0 / 180
	stripHeight = 22.0
	// changesShown is how many state changes the page lists; the others are on
	// a page of their own.
	changesShown = 5
)

// timelineView is what happened in the time shown.
type timelineView struct {
	window
	Strips  []stripView
	Chart   chartView
	Changes []changeView // newest first
}

func newTimelineView(w window, breakers []breakerView, s *slots) timelineView {
	v := timelineView{window: w, Chart: s.view(w)}
	for _, b := range breakers {
		v.Strips = append(v.Strips, w.strip(b))
		for _, one := range slices.Backward(b.spans) {
			if one.State != resilience.Closed || one.Held != "" || one.Dropped > 0 {
				v.Changes = append(v.Changes, changeView{one, b.upstreamView})
			}
		}
	}
	slices.SortStableFunc(v.Changes, func(a, b changeView) int { return b.From.Compare(a.From) })
	return v
}

// omit leaves out an error that is on the page already.
func (v timelineView) omit(said string) {
	for i := range v.Changes {
		if v.Changes[i].Because == said {
			v.Changes[i].Because = ""
		}
	}
}

// Latest are the newest changes.
func (v timelineView) Latest() []changeView { return v.Changes[:min(len(v.Changes), changesShown)] }

// changeView is a span in which something was not as usual.
type changeView struct {
	span
	Upstream upstreamView
}

// Took is how long it lasted.
func (c changeView) Took() string { return spell(c.To.Sub(c.From)) }

// stripView is the states of one breaker.
type stripView struct {
	Upstream upstreamView
	Blocks   []blockView
	Label    string // for readers who cannot see it
}

// blockView is a rectangle of a strip or chart, in grains from the left edge.
type blockView struct {
	X, Y, Width, Height float64
	Class, Title        string
}

// window is the time that the strips and the chart show.
type window struct{ from, to time.Time }

// windowAt is the window of a service that began at a time.
func windowAt(began, now time.Time) window {
	w := window{to: now.UTC().Truncate(grain).Add(grain)}
	if w.from = w.to.Add(-shownAtFirst); began.Before(w.from) {
		w.from = w.to.Add(-shown)
	}
	return w
}

func (w window) length() time.Duration { return w.to.Sub(w.from) }

// Name is its length in words.
func (w window) Name() string {
	if w.length() == shown {
		return "The last six hours"
	}
	return "The last hour"
}

// Wide is the width of a strip, in grains.
func (w window) Wide() float64 { return w.length().Minutes() }

// Ticks are the times below a strip: its left edge and each third of it.
func (w window) Ticks() (all []time.Time) {
	for i := range 3 {
		all = append(all, w.from.Add(w.length()/3*time.Duration(i)))
	}
	return all
}

// clip places a time within the window, in grains from its left edge.
func (w window) clip(at time.Time) float64 {
	return min(max(at.Sub(w.from), 0), w.length()).Minutes()
}

// block places a span; ok is false if it was over before the window.
func (w window) block(s span) (b blockView, ok bool) {
	to := s.To
	if to.IsZero() {
		to = w.to
	}
	if to.Before(w.from) {
		return b, false
	}
	b = blockView{X: w.clip(s.From), Class: s.class(), Title: s.describe(), Height: heights[s.State]}
	b.Width, b.Y = max(0, w.clip(to)-b.X), (stripHeight-b.Height)/2
	if least := narrowest * w.Wide(); s.State != resilience.Closed && b.Width < least {
		b.Width, b.X = least, min(b.X, w.Wide()-least)
	}
	return b, true
}

func (w window) strip(b breakerView) stripView {
	v := stripView{Upstream: b.upstreamView, Label: w.inWords(b.spans)}
	for _, s := range b.spans {
		if block, ok := w.block(s); ok {
			v.Blocks = append(v.Blocks, block)
		}
	}
	// The closed states come first, so that they cover nothing.
	slices.SortStableFunc(v.Blocks, func(a, b blockView) int { return cmp.Compare(a.Height, b.Height) })
	return v
}

// heights are those of the blocks: a state can be told without its color.
var heights = map[resilience.State]float64{resilience.Closed: 6, resilience.HalfOpen: 14, resilience.Open: stripHeight}

// inWords says how long the breaker was in each state.
func (w window) inWords(all []span) string {
	spent, times := map[resilience.State]time.Duration{}, map[resilience.State]int{}
	for _, s := range all {
		to := s.To
		if to.IsZero() {
			to = w.to
		}
		if from := latest(s.From, w.from); from.Before(to) {
			spent[s.State] += to.Sub(from)
			times[s.State]++
		}
	}
	var parts []string
	for _, state := range []resilience.State{resilience.Closed, resilience.HalfOpen, resilience.Open} {
		if times[state] == 0 {
			continue
		}
		part := say(state) + " for " + spell(spent[state])
		if state != resilience.Closed {
			part += ", " + plural(times[state], "time", "times")
		}
		parts = append(parts, part)
	}
	return w.Name() + ": " + strings.Join(parts, "; ")
}

// class names the color of a span.
func (s span) class() string {
	if s.Held != "" {
		return s.State.String() + " held"
	}
	return s.State.String()
}

// State and hold in words.
func (s span) Is() string {
	text := say(s.State)
	if s.Held != "" {
		text += ", " + strings.ReplaceAll(s.Held, "_", " ")
	}
	if s.Shadow {
		text += " (shadow mode)"
	}
	return text
}

// describe is the text of a span on one line.
func (s span) describe() string {
	text := s.Is() + " since " + s.From.UTC().Format(time.DateTime) + " UTC"
	if !s.To.IsZero() {
		text = fmt.Sprintf("%s from %s to %s UTC, %s", s.Is(), s.From.UTC().Format(time.DateTime),
			s.To.UTC().Format(time.TimeOnly), spell(s.To.Sub(s.From)))
	}
	if s.Probes > 0 {
		text += ", " + plural(s.Probes, "probe", "probes") + " failed"
	}
	if why := cmp.Or(s.Because, s.Why); why != "" {
		text += ": " + why
	}
	return text
}
