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
	UpstreamUp      = "up"
	UpstreamDown    = "down"
	UpstreamRefused = "refused"
)

// setUpstreams sets how the run found its upstreams. services are those of
// run.services, and before is the summary of the last run.
func (s *Summary) setUpstreams(before Summary, ended error, services []*service.Service) {
	s.Upstreams = map[string]string{}
	for i, name := range [...]string{service.ObjectStore, service.VectorStore, service.Model} {
		found := cmp.Or(s.condition(name, services[i], ended), before.Upstreams[name])
		if found != "" {
			s.Upstreams[name] = found
		}
	}
}

// condition is that of one upstream; empty where the run does not show it.
func (s *Summary) condition(name string, called *service.Service, ended error) string {
	stopped, _ := errors.AsType[*StopError](ended)
	blamed := !s.Worked(ended) && stopped != nil && stopped.Upstream == name
	b := called.Breaker().Snapshot()
	switch {
	case !b.Shadow && b.Held == "" && b.State != resilience.Closed:
		return UpstreamDown
	case !blamed && called.Worked():
		return UpstreamUp
	case !blamed || b.Held == "forced_open":
		return ""
	case stopped.Kind == StopDenied:
		return UpstreamRefused
	case stop.Throttled(stopped):
		return UpstreamUp // it counts the calls of the key, and so takes it
	case stopped.Kind == StopDeferred:
		return UpstreamDown
	}
	return ""
}

// Worked reports whether no upstream kept a run from its work: nothing ended it
// early, and if it left documents behind, then not for an upstream that let
// none through. err is the error that came with the summary.
func (s *Summary) Worked(err error) bool {
	if left, through := errors.AsType[*stop.LeftError](err); through {
		return s.Ingested > 0 || stop.Upstream(left.Cause) == ""
	}
	return s.Stopped == nil && err == nil
}

// LastSummary reads from a journal the summary of a destination's last run and
// when that ended, the zero time if the journal knows no run. What the summary
// of an earlier version lacks is set as far as it is known. A summary that
// cannot be decoded is an error that comes with the time.
func LastSummary(ctx context.Context, j *journal.Journal, destination string) (s Summary, at time.Time, err error) {
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
	if s.complete() && s.LastSuccess == nil {
		s.LastSuccess = &at
	}
	if s.Waiting = max(s.Waiting, s.Deferred); s.Waiting > 0 && s.WaitingSince == nil {
		s.WaitingSince = &at
	}
}

// setDates sets since when documents wait and when a run last succeeded. before
// is the summary of the last run, zero before the first.
func (s *Summary) setDates(before Summary, now time.Time) {
	now = now.UTC().Round(0)
	if s.WaitingSince = nil; s.Waiting > 0 {
		s.WaitingSince = cmp.Or(before.WaitingSince, &now)
	}
	if s.LastSuccess = before.LastSuccess; s.complete() {
		s.LastSuccess = &now
	}
}

// Recall sets what an upstream said to the run before, where a breaker that an
// earlier process opened refused the calls of this one. ended is the error that
// Stopped reports.
func (s *Summary) Recall(before Summary, ended error) {
	open, refused := errors.AsType[*resilience.OpenError](ended)
	if !refused || open.Origin() == "" || before.Stopped == nil || before.Stopped.Upstream != s.Stopped.Upstream {
		return
	}
	s.Stopped.Cause = cmp.Or(before.Stopped.Cause, s.Stopped.Cause)
}

// complete reports whether the run went through all of its inputs.
func (s *Summary) complete() bool { return s.Stopped == nil && len(s.Unlisted) == 0 }

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
		m.Upstream(name, condition != UpstreamDown, condition == UpstreamRefused)
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
