// Package stop says how work ends before it is done: a run by an [Error], one
// document by a [Failure].
//
// The verdict of a call comes from its door, once, and travels with the error
// as a [CallError]. [Of] and [Before] read it there; nothing classifies an
// error a second time.
package stop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// Kind says whether to run again.
type Kind string

// The kinds of stops.
const (
	// Deferred: an upstream is unavailable or asks for patience; run again
	// later.
	Deferred Kind = "deferred"
	// Denied: an upstream refuses the credentials, or the quota is spent;
	// running again does not help until that is fixed.
	Denied Kind = "denied"
	// Configuration: bucket, model and collection do not fit together; running
	// again does not help until that is fixed.
	Configuration Kind = "configuration"
	// Interrupted: the context ended.
	Interrupted Kind = "interrupted"
	// Fault: something on this side failed, such as a full disk.
	Fault Kind = "fault"
)

// severity orders kinds by what an operator must know first.
var severity = map[Kind]int{Deferred: 1, Denied: 2, Configuration: 3, Fault: 4, Interrupted: 5}

// Error ends work early. What was done is saved; run again at RetryAt, or once
// the problem that it describes is fixed.
type Error struct {
	Kind     Kind
	Upstream string    // "llm", "milvus" or "s3"; empty where none is to blame
	RetryAt  time.Time // a whole second in UTC; zero where time does not help
	Err      error
}

func (e *Error) Error() string {
	var advice string
	switch e.Kind {
	case Deferred:
		advice = "; run again"
		if !e.RetryAt.IsZero() {
			advice += " after " + e.RetryAt.UTC().Format(time.RFC3339)
		}
	case Denied:
		advice = "; check the credentials and the quota, then run again"
	case Configuration, Interrupted, Fault:
	}
	if e.Upstream == "" {
		return fmt.Sprintf("stopped: %v%s", e.Err, advice)
	}
	return fmt.Sprintf("stopped by %s: %v%s", e.Upstream, e.Err, advice)
}

// Unwrap returns the cause: *resilience.OpenError when a breaker was open, else
// the upstream's own error.
func (e *Error) Unwrap() error { return e.Err }

// Later is a deferral until an instant, which is rounded up to a whole second:
// a program that comes back at RetryAt must not be too early. The zero instant
// is no time.
func Later(upstream string, at time.Time, err error) *Error {
	if !at.IsZero() {
		at = wholeSecond(at)
	}
	return &Error{Kind: Deferred, Upstream: upstream, RetryAt: at, Err: err}
}

// wholeSecond rounds up, in UTC and without a monotonic clock.
func wholeSecond(at time.Time) time.Time {
	at = at.UTC().Round(0)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		return whole.Add(time.Second)
	}
	return at
}

// CallError is the error of a call and what its door made of it. Package
// pipeline/service makes it.
type CallError struct {
	Upstream string // the breaker's name
	// as counted; Ignored where nothing was sent, Failure where a good answer
	// could not be used
	Verdict resilience.Verdict
	Misfit  bool                // the configuration does not fit: no such bucket, collection or model
	Breaker *resilience.Breaker // that counted the call; required
	Err     error
}

// Error is the text of Err on one line of at most 200 bytes, with secrets
// masked, as Transition.CauseText has it. A breaker's refusal reads as it is.
func (e *CallError) Error() string {
	if errors.Is(e.Err, resilience.ErrOpen) || isDenied(e.Err) {
		return e.Err.Error()
	}
	return resilience.Transition{Cause: e.Err}.CauseText()
}

func isDenied(err error) bool {
	_, ok := errors.AsType[*resilience.DeniedError](err)
	return ok
}

// Unwrap returns the door's error.
func (e *CallError) Unwrap() error { return e.Err }

// RetryAfter is how long a throttled call was asked to wait; zero where it was
// not throttled or no time was named.
func RetryAfter(err error) time.Duration {
	if v := VerdictOf(err); v.Outcome == resilience.Throttled {
		return v.RetryAfter
	}
	return 0
}

// VerdictOf is the verdict of the call that an error comes from: Success for
// nil, Ignored for an error that comes from none.
func VerdictOf(err error) resilience.Verdict {
	if err == nil {
		return resilience.Verdict{}
	}
	if call, ok := errors.AsType[*CallError](err); ok {
		return call.Verdict
	}
	return resilience.Verdict{Outcome: resilience.Ignored}
}

// Throttled reports whether an error comes from a call whose upstream asked for
// patience: it is not down.
func Throttled(err error) bool { return VerdictOf(err).Outcome == resilience.Throttled }

// Of is the stop that an error calls for whatever the work was: an open
// breaker, a refused credential, a rate limit, a configuration that does not
// fit. It is nil for an error that concerns one call alone.
func Of(err error) *Error {
	if stop, ok := errors.AsType[*Error](err); ok {
		return stop
	}
	call, ok := errors.AsType[*CallError](err)
	if open, refused := errors.AsType[*resilience.OpenError](err); refused {
		upstream := open.Upstream()
		if ok {
			upstream = call.Upstream
		}
		return Later(upstream, open.RetryAt(), err)
	}
	if denied, refused := errors.AsType[*resilience.DeniedError](err); refused {
		stop := &Error{Kind: Denied, Upstream: denied.Upstream(), Err: err}
		if ok {
			stop.Upstream = call.Upstream
		}
		return stop
	}
	switch {
	case !ok:
		return nil
	case call.Verdict.Outcome == resilience.Denied:
		return &Error{Kind: Denied, Upstream: call.Upstream, Err: err}
	case call.Verdict.Outcome == resilience.Throttled:
		return call.Later(err)
	case call.Misfit:
		return &Error{Kind: Configuration, Upstream: call.Upstream, Err: err}
	}
	return nil
}

// Later defers until the upstream said, or until its breaker would probe. err
// is the error that becomes the stop's, e itself or one that wraps it.
func (e *CallError) Later(err error) *Error {
	if after := e.Verdict.RetryAfter; after > 0 {
		return Later(e.Upstream, time.Now().Add(after), err).Until(e.Breaker.Snapshot())
	}
	return Later(e.Upstream, e.Breaker.RetryAt(e.Err), err)
}

// Until is a deferral that lasts as long as each of the breakers that is open,
// and any other stop as it is. A call that was in flight beside the one that
// stopped the work may have opened one since.
func (e *Error) Until(breakers ...resilience.Snapshot) *Error {
	at := e.RetryAt
	for _, b := range breakers {
		if !b.Shadow && b.OpenUntil.After(at) {
			at = b.OpenUntil
		}
	}
	if e.Kind != Deferred || e.RetryAt.IsZero() || at.Equal(e.RetryAt) {
		return e
	}
	return Later(e.Upstream, at, e.Err)
}

// Before is [Of] for work that cannot proceed without the answer, such as a
// search or the check of an upstream before its first use: a failed call
// defers it as well. It is nil for an error that no upstream is to blame for.
func Before(err error) *Error {
	if stop := Of(err); stop != nil {
		return stop
	}
	if call, ok := errors.AsType[*CallError](err); ok && call.failed() {
		return call.Later(err)
	}
	return nil
}

// failed holds for an upstream that did not answer well, a deadline of the
// caller's own included.
func (e *CallError) failed() bool {
	return e.Verdict.Outcome == resilience.Failure || errors.Is(e.Err, context.DeadlineExceeded)
}

// OrError is the stop that [Before] finds, or the error as it is.
func OrError(err error) error {
	if stop := Before(err); stop != nil {
		return stop
	}
	return err
}
