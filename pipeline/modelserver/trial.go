package modelserver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// Use says how a stage uses one model. All fields are required.
type Use struct {
	// Stage is where documents fail, and Operation the call in logs and limits.
	Stage, Operation string
	// Canary sends [CanaryText].
	Canary Request
	// Failures is how often the model fails on a text until that is guilty.
	// From failure Doubts on, counted from 1, canaries are sent before the next
	// try.
	Failures, Doubts int
}

// Model is one model of a server. It is safe for concurrent use.
type Model struct {
	server    *Server
	use       Use
	successes atomic.Int64
}

// Model makes the model that a stage uses. Its requests have the server's rate
// and limits in common with those of other models, and nothing else: an answer
// of one model says nothing about another.
func (s *Server) Model(use Use) *Model { return &Model{server: s, use: use} }

// Setback is a request that failed. Err is a [*stop.CallError], or the error of
// the wait before the call.
type Setback struct {
	Err    error
	before int64 // requests that had succeeded when it was sent
}

// TimedOut reports whether there was no answer in time.
func (s *Setback) TimedOut() bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](s.Err)
	return ok && timeout.Timeout()
}

// Refused reports whether the model would not take what was sent, and nothing
// else is wrong.
func (s *Setback) Refused() bool {
	return stop.Of(s.Err) == nil && stop.VerdictOf(s.Err).Outcome != resilience.Failure
}

// Send sends a request, again after each rate limit that is waited out. It
// returns nil when the request was answered.
func (m *Model) Send(ctx context.Context, request Request) *Setback {
	for {
		before := m.successes.Load()
		err := m.call(ctx, request)
		if err == nil {
			return nil
		}
		if !m.server.waitedOut(ctx, err) {
			return &Setback{Err: err, before: before}
		}
	}
}

// call sends a request at its place in the server's rate.
func (m *Model) call(ctx context.Context, request Request) error {
	if !m.server.wait(ctx, m.server.pace.next(time.Now())) {
		return stop.ErrEnded
	}
	return m.server.config.Service.Call(ctx, m.use.Operation, func(told func(resilience.Verdict)) error {
		return request(ctx, func(v resilience.Verdict) {
			if v.Outcome == resilience.Success {
				m.successes.Add(1)
			}
			told(v)
		})
	})
}

// Check sends the canary before the first use of the model and waits out a few
// rate limits. Any other failure ends the run, since nothing has been paid for;
// the error is then a [*stop.Failure].
func (m *Model) Check(ctx context.Context) error {
	err := m.call(ctx, m.use.Canary)
	for tries := 0; err != nil && tries < patience && m.server.waitedOut(ctx, err); tries++ {
		err = m.call(ctx, m.use.Canary)
	}
	return m.server.config.Ending.BlameBefore(err)
}

// SetAside waits until the model has answered another request since the
// setback, so that the server is known to work and what was sent is to blame.
// Otherwise the run has ended, and the error is the [*stop.Failure] of what was
// sent.
func (m *Model) SetAside(ctx context.Context, failed *Setback) error {
	if err := m.ended(ctx, failed.Err); err != nil {
		return err
	}
	for m.successes.Load() == failed.before {
		if err := m.probe(ctx, failed.Err); err != nil {
			return err
		}
	}
	return nil
}

// ended is what an error means that comes from the end of the run, or ends it;
// nil for any other.
func (m *Model) ended(ctx context.Context, err error) error {
	ending := m.server.config.Ending
	switch {
	case ending.Stopped(err) || ctx.Err() != nil:
		return stop.Defer(m.use.Stage, "stopped", stop.ErrEnded)
	case stop.Of(err) != nil:
		return ending.Blame(m.use.Stage, err)
	}
	return nil
}

// probe sends the canary once after a failure. If the canary fails as well, the
// text is not at fault: a refusal ends the run as a misfit, for its first
// cause. A failure is left to the breaker, which ends the run after FailMax of
// them.
func (m *Model) probe(ctx context.Context, cause error) error {
	err := m.call(ctx, m.use.Canary)
	if err == nil || m.server.waitedOut(ctx, err) {
		return nil
	}
	if ended := m.ended(ctx, err); ended != nil {
		return ended
	}
	ending := m.server.config.Ending
	if stop.VerdictOf(err).Outcome == resilience.Failure {
		if m.server.config.Service.Breaker().Config().FailMax > 0 {
			return nil
		}
		ending.With(stop.Before(err)) // a window may never open the breaker
		return stop.Defer(m.use.Stage, "upstream failed", err)
	}
	misfit := &stop.Error{Kind: stop.Configuration, Upstream: service.Model, Err: cause}
	ending.With(misfit)
	return stop.Defer(m.use.Stage, string(misfit.Kind), cause)
}

// Judgment is how a trial ends.
type Judgment uint8

// The judgments on a text.
const (
	// Answered: another try succeeded.
	Answered Judgment = iota
	// Guilty: the model refuses this text, or fails each time it is sent.
	Guilty
	// Unproven: the server comes and goes, or is too slow for the text. A later
	// run may try again.
	Unproven
	// Ended: the run has ended before anything was known.
	Ended
)

// Judge finds out whether the one text of a failed request is to blame; request
// sends it again. The error is nil when it was answered, a [*stop.Failure] when
// the run has ended, else the call's that decided.
func (m *Model) Judge(ctx context.Context, failed *Setback, request Request) (Judgment, error) {
	for failures := 1; ; failures++ {
		if err := m.SetAside(ctx, failed); err != nil {
			return Ended, err
		}
		switch {
		case stop.VerdictOf(failed.Err).Outcome != resilience.Failure:
			return Guilty, failed.Err
		case failures < m.use.Doubts:
		case failed.TimedOut():
			return Unproven, failed.Err
		case failures >= m.use.Failures:
			return Guilty, failed.Err
		default:
			if judgment, err := m.hear(ctx); err != nil {
				return judgment, err
			}
		}
		if failed = m.Send(ctx, request); failed == nil {
			return Answered, nil
		}
	}
}

// witnesses is how many canaries in a row must be answered, so that a server
// that comes and goes makes no text guilty.
const witnesses = 4

// hear sends the witnesses. An error is that of the first which failed.
func (m *Model) hear(ctx context.Context) (Judgment, error) {
	for range witnesses {
		failed := m.Send(ctx, m.use.Canary)
		if failed == nil {
			continue
		}
		if err := m.ended(ctx, failed.Err); err != nil {
			return Ended, err
		}
		return Unproven, failed.Err
	}
	return Answered, nil
}
