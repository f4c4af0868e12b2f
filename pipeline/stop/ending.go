package stop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/resilience"
)

// Ending is how a run ends early: once. It is safe for concurrent use; make
// one with NewEnding.
type Ending struct {
	ctx  context.Context // what the run calls upstreams with
	done chan struct{}   // closed by the first reason

	mu     sync.Mutex
	stop   *Error
	then   []func()
	notice *atomic.Pointer[Error] // of WithEnd; nil without
}

// NewEnding makes the ending of a run that calls its upstreams with ctx.
func NewEnding(ctx context.Context) *Ending {
	notice, _ := ctx.Value(noticeKey{}).(*atomic.Pointer[Error])
	return &Ending{ctx: ctx, done: make(chan struct{}), notice: notice}
}

type noticeKey struct{}

// WithEnd is a context that tells whether the run that is given it has ended.
// Give it to what feeds the run as well, a listing of its inputs: by EndOf that
// learns which upstream not to call any more. It serves one run.
func WithEnd(ctx context.Context) context.Context {
	return context.WithValue(ctx, noticeKey{}, &atomic.Pointer[Error]{})
}

// EndOf is why the run of a context of WithEnd has ended; nil while it has not,
// and for any other context.
func EndOf(ctx context.Context) *Error {
	if notice, ok := ctx.Value(noticeKey{}).(*atomic.Pointer[Error]); ok {
		return notice.Load()
	}
	return nil
}

// Then has fn called when the run ends, before With returns, or at once if it
// has ended. fn must not call the Ending.
func (e *Ending) Then(fn func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		fn()
		return
	}
	e.then = append(e.then, fn)
}

// With ends the run. Of several reasons the most severe stays, and among
// deferrals the longest.
func (e *Ending) With(stop *Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop == nil {
		close(e.done)
		for _, fn := range e.then {
			fn()
		}
	}
	if e.stop == nil || severity[stop.Kind] > severity[e.stop.Kind] ||
		stop.Kind == e.stop.Kind && stop.RetryAt.After(e.stop.RetryAt) {
		e.stop = stop
		if e.notice != nil {
			e.notice.Store(stop)
		}
	}
}

// Fault ends the run because something on this side failed, and returns
// ErrEnded for the step that noticed. An error that only says that the context
// of the run has ended is no news.
func (e *Ending) Fault(err error) error {
	if e.ctx.Err() != nil && (errors.Is(err, e.ctx.Err()) || errors.Is(err, context.Cause(e.ctx))) {
		return ErrEnded
	}
	e.With(&Error{Kind: Fault, Err: err})
	return ErrEnded
}

// Done is closed when the run has ended.
func (e *Ending) Done() <-chan struct{} { return e.done }

// Reason is why the run ended; nil while it has not.
func (e *Ending) Reason() *Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stop
}

// Over reports whether the run has ended.
func (e *Ending) Over() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// Stopped reports whether an error only says that the run is over.
func (e *Ending) Stopped(err error) bool {
	return errors.Is(err, ErrEnded) || e.ctx.Err() != nil
}

// Blame decides what the error of a call means. It ends the run where
// continuing makes no sense, and returns what the error means for the document
// that the call was for: a [*Failure], or nil for nil.
func (e *Ending) Blame(stage string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if e.Stopped(err) {
		return Defer(stage, "stopped", err)
	}
	if stop := Of(err); stop != nil {
		e.With(stop)
		return Defer(stage, string(stop.Kind), err)
	}
	if VerdictOf(err).Outcome == resilience.Failure {
		return Defer(stage, "upstream failed", err)
	}
	return DeadLetter(stage, "refused by upstream", err)
}

// BlameBefore is Blame for the calls that check the upstreams before their
// first use: any error ends the run, since nothing has been paid for yet.
func (e *Ending) BlameBefore(err error) error {
	if err == nil {
		return nil
	}
	blamed := e.Blame("check", err)
	if e.Over() {
		return blamed
	}
	stop := Before(err)
	if stop == nil {
		stop = &Error{Kind: Configuration, Err: err}
		if call, ok := errors.AsType[*CallError](err); ok {
			stop.Upstream = call.Upstream
		}
	}
	e.With(stop)
	return Defer("check", "stopped", err)
}
