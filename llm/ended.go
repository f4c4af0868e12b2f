package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// endError is the end of a call by its caller's context: errors.Is finds the
// end, context.Canceled or context.DeadlineExceeded, and the cause.
type endError struct{ end, cause error }

func (e *endError) Error() string { return fmt.Sprintf("%v: %v", e.end, e.cause) }

// Timeout is that of net.Error.
func (e *endError) Timeout() bool { return errors.Is(e.end, context.DeadlineExceeded) }

// Unwrap leaves a cause out that would look like the end of a whole answer.
func (e *endError) Unwrap() []error {
	if errors.Is(e.cause, io.EOF) {
		return []error{e.end}
	}
	return []error{e.end, e.cause}
}

// ended is err, or the end of ctx where that has come and err does not say so:
// net/http gives the cause alone, and the operating system words of its own.
func ended(ctx context.Context, err error) error {
	end, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil, end == nil:
		return err
	case errors.Is(end, cause):
		if errors.Is(err, end) {
			return err
		}
		return end
	case errors.Is(err, end) && errors.Is(err, cause) && !errors.Is(err, io.EOF):
		return err
	}
	return &endError{end, cause}
}
