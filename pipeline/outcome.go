package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// The conditions of an upstream in a Summary.
const (
	upstreamUp      = "up"
	upstreamDown    = "down"
	upstreamRefused = "refused"
)

// serviceNames are those of run.services, in their order.
var serviceNames = [...]string{service.ObjectStore, service.VectorStore, service.Model}

// find sets how the run found its upstreams. breakers are theirs, in the order
// of serviceNames, and before is the summary of the last run.
func (s *Summary) find(before Summary, ended *StopError, breakers []resilience.Snapshot) {
	s.Upstreams = map[string]string{}
	for i, name := range serviceNames {
		now := s.condition(name, breakers[i], ended)
		s.Upstreams[name] = cmp.Or(now, before.Upstreams[name], upstreamUp)
	}
}

// condition is that of one upstream; empty where the run does not show it.
func (s *Summary) condition(name string, b resilience.Snapshot, ended *StopError) string {
	switch {
	case !b.Shadow && b.Held == "" && b.State != resilience.Closed:
		return upstreamDown
	case s.worked(ended):
		return upstreamUp
	case ended.Upstream != name || b.Held == "forced_open":
		return ""
	case ended.Kind == StopDenied:
		return upstreamRefused
	case ended.Kind == StopDeferred && stop.VerdictOf(ended.Err).Outcome != resilience.Throttled:
		return upstreamDown
	}
	return ""
}

// worked reports whether no upstream kept the run from its work: nothing ended
// it early, and if it left documents behind, then not for an upstream that let
// none through.
func (s *Summary) worked(ended *StopError) bool {
	if ended == nil {
		return true
	}
	left, through := errors.AsType[*stop.LeftError](ended.Err)
	return through && (s.Ingested > 0 || stop.Upstream(left.Cause) == "")
}

// lastSummary is that of the last run and when it ended, the zero time if the
// journal knows no run.
func lastSummary(ctx context.Context, j *journal.Journal, destination string) (s Summary, at time.Time, err error) {
	text, at, err := j.LastRun(ctx, destination)
	if err != nil || text == nil {
		return s, time.Time{}, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, at, fmt.Errorf("cannot read the summary of the last run: %w", err)
	}
	s.dateEarlier(at)
	return s, at, nil
}

// dateEarlier sets what the summary of an earlier version lacks.
func (s *Summary) dateEarlier(at time.Time) {
	if s.Stopped == nil && s.LastSuccess == nil {
		s.LastSuccess = &at
	}
	if s.Waiting = max(s.Waiting, s.Deferred); s.Waiting > 0 && s.WaitingSince == nil {
		s.WaitingSince = &at
	}
}

// date sets since when documents wait and when a run last succeeded. before is
// the summary of the last run, zero before the first.
func (s *Summary) date(before Summary, now time.Time) {
	now = now.UTC().Round(0)
	if s.WaitingSince = nil; s.Waiting > 0 {
		s.WaitingSince = cmp.Or(before.WaitingSince, &now)
	}
	if s.LastSuccess = before.LastSuccess; s.Stopped == nil {
		s.LastSuccess = &now
	}
}

// publish has the metrics show how a run ended. What the summary does not know,
// the metrics do not say.
func publish(m *metrics.Pipeline, s Summary, at time.Time) {
	m.RunEnded(at, s.result())
	if s.LastSuccess != nil {
		m.Succeeded(*s.LastSuccess)
	}
	var since time.Time
	if s.WaitingSince != nil {
		since = *s.WaitingSince
	}
	m.Waiting(s.Waiting, since)
	for name, condition := range s.Upstreams {
		m.Upstream(name, condition != upstreamDown, condition == upstreamRefused)
	}
}

// result is how the run ended, in the words of the metrics.
func (s Summary) result() string {
	switch {
	case s.Stopped != nil:
		return string(s.Stopped.Kind)
	case s.DeadLetters > 0:
		return "dead_letters"
	}
	return "done"
}
