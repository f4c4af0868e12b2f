package testutil

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-go/penstock/resilience"
)

// Recorder records the transitions of one breaker. It is safe for concurrent
// use.
type Recorder struct {
	t      testing.TB
	mu     sync.Mutex
	events []resilience.Transition
}

// Record records the transitions of b until the test ends.
func Record(t testing.TB, b *resilience.Breaker) *Recorder {
	r := &Recorder{t: t}
	t.Cleanup(b.Observe(r.keep))
	return r
}

func (r *Recorder) keep(e resilience.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Transitions returns the transitions recorded so far, earliest first.
func (r *Recorder) Transitions() []resilience.Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Moves returns Transitions in the format that Want accepts.
func (r *Recorder) Moves() []string {
	var moves []string
	for _, e := range r.Transitions() {
		moves = append(moves, move(e))
	}
	return moves
}

func move(e resilience.Transition) string { return fmt.Sprintf("%v → %v", e.From, e.To) }

// Want fails the test unless exactly these transitions were recorded, in this
// order, each written like "closed → open".
func (r *Recorder) Want(moves ...string) {
	r.t.Helper()
	if got := r.Moves(); !slices.Equal(got, moves) {
		r.t.Errorf("transitions are\n%swant\n\t%s", r, strings.Join(moves, "\n\t"))
	}
}

// Forget empties the recorder, so that Want applies to later transitions only.
func (r *Recorder) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// String returns one line for each transition, with its time, reason and
// counts.
func (r *Recorder) String() string {
	var s strings.Builder
	for _, e := range r.Transitions() {
		fmt.Fprintf(&s, "\t%s %s (%s, %d of %d failed, after %v)\n",
			e.At.Format("15:04:05.000"), move(e), e.Reason, e.Failures, e.Eligible, e.InState)
	}
	return s.String()
}
