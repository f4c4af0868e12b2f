package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// scope is what the stages of one run share: its configuration, its context and
// its end. A run is one task for the breakers.
type scope struct {
	Config
	// ctx is what upstreams are called with. It outlives the caller's context
	// by the grace period, so that answers in flight are kept.
	ctx    context.Context
	cancel context.CancelCauseFunc
	end    *stop.Ending
}

func newScope(ctx context.Context, config Config) *scope {
	s := &scope{Config: config}
	s.ctx, s.cancel = context.WithCancelCause(resilience.WithTask(context.WithoutCancel(ctx), taskID()))
	s.end = stop.NewEnding(s.ctx)
	over := func() { s.interrupt(&StopError{Kind: StopInterrupted, Err: context.Cause(ctx)}) }
	if ctx.Err() != nil {
		over() // AfterFunc would let the work begin meanwhile
	} else {
		context.AfterFunc(ctx, over)
	}
	s.watchJournal()
	return s
}

func taskID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return "ingest-" + hex.EncodeToString(id[:])
}

// close releases what the scope holds, once the work is done.
func (s *scope) close() { s.cancel(stop.ErrEnded) }

// interrupt ends the run for a reason outside it. Calls in flight have the
// grace period to return.
func (s *scope) interrupt(stop *StopError) {
	s.end.With(stop)
	timer := time.AfterFunc(max(s.Grace, 0), func() { s.cancel(stop.Err) })
	context.AfterFunc(s.ctx, func() { timer.Stop() })
}

// watchJournal ends the run when the journal is revoked: another run may have
// it by now.
func (s *scope) watchJournal() {
	if s.Journal == nil {
		return
	}
	revoked, why := s.Journal.Revoked()
	go func() {
		select {
		case <-s.ctx.Done():
		case <-revoked:
			s.interrupt(revocation(why()))
		}
	}()
}

// revocation is the stop of a run whose journal was revoked: that of the
// reason's Stop method, or a deferral until the time of its RetryAt method.
func revocation(reason error) *StopError {
	if known, ok := errors.AsType[*StopError](reason); ok {
		return known
	}
	if ended, ok := errors.AsType[interface {
		error
		Stop() *StopError
	}](reason); ok {
		return ended.Stop()
	}
	var at time.Time
	if timed, ok := errors.AsType[interface {
		error
		RetryAt() time.Time
	}](reason); ok {
		at = timed.RetryAt()
	}
	return stop.Later("", at, reason)
}

// lasting is the context for what must be written down although the run may be
// over, since it has been paid for.
func (s *scope) lasting() context.Context { return context.WithoutCancel(s.ctx) }

// tried is the policy that a document failed by, for the journal. The limits
// are a part of it where they were too low for the document: with others it is
// tried again.
func (s *scope) tried(d *document, kind string) string {
	switch kind {
	case parse.TooLarge, parse.TimedOut:
		return policyWithin(d.plain, s.Parsers.Limits())
	}
	return d.plain
}

// timed begins a stage; what it returns ends it.
func (s *scope) timed(stage string) (end func()) {
	start := time.Now()
	return func() { s.Metrics.Stage(stage, time.Since(start)) }
}

// dismiss drops what the journal says has kept a document from being ingested.
func (s *scope) dismiss(id string) error {
	if s.DryRun || s.Journal == nil {
		return nil
	}
	_, known, err := s.Journal.Problem(s.ctx, s.Destination, id)
	if err == nil && known {
		err = s.Journal.Dismiss(s.lasting(), s.Destination, id)
	}
	if err != nil {
		return s.end.Fault(err)
	}
	return nil
}
