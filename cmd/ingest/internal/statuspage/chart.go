package statuspage

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline"
)

const (
	// slotLength is the time that one bar of the chart stands for.
	slotLength = 5 * time.Minute
	// tallest is the height of the chart.
	tallest = 40.0
	// lowest is the least height of a bar that is not empty.
	lowest = 2.0
)

// slot is what the passes did in one slotLength.
type slot struct {
	at             time.Time
	ingested, dead int
	passes, early  int // that ended, and those of them that ended early
}

// slots are the work of the time shown, oldest first. They are bounded by it.
type slots struct {
	mu  sync.Mutex
	all []slot
}

// atLocked is the slot of a time, which must not be before the last one.
func (s *slots) atLocked(now time.Time) *slot {
	at := now.UTC().Truncate(slotLength)
	if n := len(s.all); n > 0 && !at.After(s.all[n-1].at) {
		return &s.all[n-1]
	}
	s.all = append(s.all, slot{at: at})
	s.all = s.all[max(0, len(s.all)-int(shown/slotLength)-1):]
	return &s.all[len(s.all)-1]
}

// document counts one that needed work.
func (s *slots) document(now time.Time, result pipeline.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch result {
	case pipeline.Ingested:
		s.atLocked(now).ingested++
	case pipeline.DeadLetter:
		s.atLocked(now).dead++
	default: // no work, or work that is counted when it succeeds
	}
}

// pass counts one that has ended.
func (s *slots) pass(now time.Time, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.atLocked(now)
	one.passes++
	if early {
		one.early++
	}
}

// chartView is documents over time, with the passes that ended early.
type chartView struct {
	Bars  []blockView
	Most  int    // documents of the highest bar
	Label string // for readers who cannot see it
}

// Tall is the height of the chart, without the marks below it.
func (chartView) Tall() float64 { return tallest }

func (s *slots) view(w window) chartView {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v chartView
	var sum slot
	for _, one := range s.all {
		if one.at.Add(slotLength).After(w.from) {
			v.Most = max(v.Most, one.ingested+one.dead)
			sum = sum.plus(one)
		}
	}
	for _, one := range s.all {
		if one.at.Add(slotLength).After(w.from) {
			v.Bars = append(v.Bars, w.bars(one, v.Most)...)
		}
	}
	v.Label = w.Name() + ": " + sum.inWords()
	return v
}

func (s slot) plus(other slot) slot {
	s.ingested += other.ingested
	s.dead += other.dead
	s.passes += other.passes
	s.early += other.early
	return s
}

func (s slot) inWords() string {
	parts := []string{plural(s.ingested, "document", "documents") + " ingested"}
	if s.dead > 0 {
		parts = append(parts, plural(s.dead, "new dead letter", "new dead letters"))
	}
	last := plural(s.passes, "pass", "passes")
	if s.early > 0 {
		last += fmt.Sprintf(", %d of them ended early", s.early)
	}
	return strings.Join(append(parts, last), ", ")
}

// bars are the blocks of one slot: what was ingested, dead letters on top of
// it, and a mark below the line if a pass ended early.
func (w window) bars(s slot, most int) (all []blockView) {
	from, to := w.clip(s.at), w.clip(s.at.Add(slotLength))
	title := fmt.Sprintf("%s to %s UTC: %s", s.at.Format("15:04"), s.at.Add(slotLength).Format("15:04"), s.inWords())
	add := func(class string, y, height float64) {
		b := blockView{X: from, Y: y, Width: max(0, to-from-w.Wide()/720), Height: height, Class: class, Title: title}
		all = append(all, b)
	}
	height := func(n int) float64 {
		if n == 0 {
			return 0
		}
		return max(lowest, tallest*float64(n)/float64(most))
	}
	good := height(s.ingested)
	dead := min(height(s.dead), tallest-lowest)
	good = min(good, tallest-dead)
	if good > 0 {
		add("ingested", tallest-good, good)
	}
	if dead > 0 {
		add("dead", tallest-good-dead, dead)
	}
	if s.early > 0 {
		add("early", tallest+2, 6)
	}
	return all
}
