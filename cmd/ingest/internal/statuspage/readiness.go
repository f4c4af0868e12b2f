package statuspage

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/resilience"
)

// Readiness says whether the service does its work now and, if it does not,
// since when and why. Its texts are clean: one line each, with secrets masked.
type Readiness struct {
	Ready bool
	Since time.Time      // since when it is not; zero if it is
	Open  []string       // the upstreams whose breakers refuse calls, in the order of Config.Breakers
	Early *pipeline.Stop // how the last pass ended early, without a kind if inputs were missing; nil if it worked
	Next  time.Time      // when the next pass begins; zero while one runs
}

// Readiness is that of the service now. It is not ready while a breaker is
// open, and from the end of a pass that did not work until a pass works: one
// has ingested a document, or ended without trouble.
func (p *Page) Readiness() Readiness {
	r := p.readiness.now()
	for _, b := range p.config.Breakers {
		// In shadow mode a breaker refuses nothing.
		if b.State() != resilience.Open || b.Config().Shadow {
			continue
		}
		r.Open = append(r.Open, b.Name())
		if since := p.readiness.openSince(b); r.Since.IsZero() || since.Before(r.Since) {
			r.Since = since
		}
	}
	r.Ready = r.Early == nil && len(r.Open) == 0
	return r
}

// String is the answer of /readyz, one line.
func (r Readiness) String() string {
	if r.Ready {
		return "ready"
	}
	var why []string
	if len(r.Open) > 0 {
		why = append(why, "open circuit breakers: "+strings.Join(r.Open, ", "))
	}
	if r.Early != nil {
		why = append(why, r.early())
	}
	why = append(why, "since "+r.Since.UTC().Format(time.RFC3339))
	if !r.Next.IsZero() {
		why = append(why, "next pass at "+r.Next.UTC().Format(time.RFC3339))
	}
	return "not ready: " + strings.Join(why, "; ")
}

func (r Readiness) early() string {
	if r.Early.Kind == "" {
		return "the last pass went without some of its inputs: " + r.Early.Reason
	}
	kind := string(r.Early.Kind)
	if r.Early.Upstream != "" {
		kind += ", " + r.Early.Upstream
	}
	if r.Early.Address != "" {
		kind += " at " + r.Early.Address
	}
	return fmt.Sprintf("the last pass ended early (%s): %s", kind, cmp.Or(r.Early.Cause, r.Early.Reason))
}

// worked reports whether a pass did its work, with all its inputs. fault is the
// error of the pass.
func worked(summary pipeline.Summary, fault error) bool {
	return len(summary.Unlisted) == 0 && summary.Worked(fault)
}

// readiness remembers what makes a service not ready.
type readiness struct {
	mu    sync.Mutex
	left  map[string]time.Time // when a breaker left closed, while it is not closed
	early *pipeline.Stop       // of the last pass; nil if it worked
	since time.Time            // since when passes have ended early
	next  time.Time            // zero while a pass runs
}

func (r *readiness) now() Readiness {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := Readiness{Early: r.early, Next: r.next}
	if r.early != nil {
		ready.Since = r.since
	}
	return ready
}

// openSince is when an open breaker left closed.
func (r *readiness) openSince(b *resilience.Breaker) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.left[b.Name()]; ok {
		return at
	}
	return b.Snapshot().LastOpened // before the page watched it
}

func (r *readiness) transition(t resilience.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case t.To == resilience.Closed:
		delete(r.left, t.Upstream)
	case t.From == resilience.Closed:
		if r.left == nil {
			r.left = map[string]time.Time{}
		}
		r.left[t.Upstream] = t.At
	}
}

func (r *readiness) passBegins() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = time.Time{}
}

// worked notes that the present pass does its work. Whether an input is there
// again shows at its end.
func (r *readiness) worked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early != nil && r.early.Kind != "" {
		r.early = nil
	}
}

// passEnds notes how a pass ended. One that was interrupted shows nothing about
// the upstreams.
func (r *readiness) passEnds(summary pipeline.Summary, fault error, at, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = next
	why := reasonOf(summary, fault)
	switch {
	case worked(summary, fault):
		r.early = nil
	case why.Kind != pipeline.StopInterrupted:
		if r.early == nil {
			r.since = at
		}
		r.early = why
	}
}

// reasonOf is why a pass ended early, clean; a fault of its inputs is one of
// this side.
func reasonOf(summary pipeline.Summary, fault error) *pipeline.Stop {
	why := pipeline.Stop{Kind: pipeline.StopFault}
	switch {
	case summary.Stopped != nil:
		why = *summary.Stopped
	case fault != nil:
		why.Reason = fault.Error()
	}
	if summary.Stopped == nil && len(summary.Unlisted) > 0 {
		why.Kind = ""
	}
	for _, text := range []*string{&why.Reason, &why.Cause, &why.Address, &why.Model} {
		*text = clean(*text)
	}
	return &why
}
