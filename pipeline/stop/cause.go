package stop

import (
	"errors"
	"fmt"

	"github.com/penstock-go/penstock/resilience"
)

// Cause is what an upstream itself said, where err comes from a call of one: on
// one line of at most 200 bytes, with secrets masked. For a breaker's refusal
// it is the failure behind it, or what an operator gave as the reason. It is
// empty for an error that comes from no call.
func Cause(err error) string { return resilience.Transition{Cause: behind(err)}.CauseText() }

// behind is the upstream's own error, nil where no call was made. No breaker
// counts another's refusal, so it is never one itself.
func behind(err error) error {
	open, refused := errors.AsType[*resilience.OpenError](err)
	denied, stopped := errors.AsType[*resilience.DeniedError](err)
	call, called := errors.AsType[*CallError](err)
	left, over := errors.AsType[*LeftError](err)
	switch {
	case refused && open.LastFailure() != nil:
		return open.LastFailure()
	case refused && open.Reason() != "":
		return errors.New(open.Reason())
	case stopped:
		return denied.Cause()
	case called:
		return call.Err
	case over:
		return left.Cause
	}
	return nil
}

// Upstream is the name of the upstream that err comes from a call of, and empty
// for any other error.
func Upstream(err error) string {
	if stop, ok := errors.AsType[*Error](err); ok {
		return stop.Upstream
	}
	if call, ok := errors.AsType[*CallError](err); ok {
		return call.Upstream
	}
	if open, ok := errors.AsType[*resilience.OpenError](err); ok {
		return open.Upstream()
	}
	if denied, ok := errors.AsType[*resilience.DeniedError](err); ok {
		return denied.Upstream()
	}
	return ""
}

// LeftError says that a run went through and left documents behind.
type LeftError struct {
	Documents int
	Cause     error // what one of them was left for; nil if it is not known
}

func (e *LeftError) Error() string {
	if e.Documents == 1 {
		return "1 document was deferred"
	}
	return fmt.Sprintf("%d documents were deferred", e.Documents)
}

// Unwrap returns the cause.
func (e *LeftError) Unwrap() error { return e.Cause }
