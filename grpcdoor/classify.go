package grpcdoor

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// outcomes are the statuses of grpc/codes. Codes that are not here are
// failures.
var outcomes = map[codes.Code]resilience.Outcome{
	codes.OK:                 resilience.Success,
	codes.NotFound:           resilience.Success,
	codes.AlreadyExists:      resilience.Success,
	codes.Canceled:           resilience.Failure, // by the server: a caller who has left is not asked
	codes.InvalidArgument:    resilience.Ignored,
	codes.FailedPrecondition: resilience.Ignored,
	codes.Aborted:            resilience.Ignored, // the service has answered: another call was first
	codes.OutOfRange:         resilience.Ignored,
	codes.Unimplemented:      resilience.Ignored,
	codes.ResourceExhausted:  resilience.Throttled,
	codes.Unauthenticated:    resilience.Denied,
	codes.PermissionDenied:   resilience.Denied,
	codes.Unavailable:        resilience.Failure,
	codes.Internal:           resilience.Failure,
	codes.Unknown:            resilience.Failure,
	codes.DataLoss:           resilience.Failure,
	codes.DeadlineExceeded:   resilience.Failure,
}

// Classify says what the error of a call means for the breaker, by its status:
//
//   - NotFound and AlreadyExists: success; the service has answered
//   - ResourceExhausted, and Unavailable with a RetryInfo: throttled, for as long
//     as the RetryInfo says; the latter is unavailable too, which counts towards
//     opening
//   - Unauthenticated and PermissionDenied: denied
//   - InvalidArgument, FailedPrecondition, Aborted, OutOfRange and Unimplemented:
//     ignored; and so is what gRPC could not send: a message beyond its limit,
//     invalid UTF-8, metadata that is not ASCII, a call on a closed connection
//   - Unavailable, Internal, Unknown, DataLoss, DeadlineExceeded, a Canceled of
//     the server's and an error without a status: failure; but if the caller has
//     left, ignored
//   - the refusal of another breaker: ignored
func Classify(caller context.Context, err error) resilience.Verdict {
	if err == nil {
		return resilience.Verdict{Outcome: resilience.Success}
	}
	return door.For(caller, verdict(err))
}

func verdict(err error) resilience.Verdict {
	var denied *resilience.DeniedError
	if errors.Is(err, resilience.ErrOpen) || errors.As(err, &denied) {
		return resilience.Verdict{Outcome: resilience.Ignored}
	}
	st, ok := status.FromError(err)
	switch {
	case !ok:
		return resilience.Verdict{Outcome: resilience.Failure}
	case Unsent(st):
		return resilience.Verdict{Outcome: resilience.Ignored}
	}
	out, known := outcomes[st.Code()]
	if !known {
		out = resilience.Failure
	}
	v := resilience.Verdict{Outcome: out}
	wait := retryInfo(st)
	switch {
	case out == resilience.Throttled:
		v.RetryAfter = wait
	case st.Code() == codes.Unavailable && wait > 0:
		v = resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: wait, Unavailable: true}
	}
	return v
}

// Unsent reports whether a status is gRPC's own refusal to send a call. It has
// no code for those, so their words decide: of encode and Invoke in
// google.golang.org/grpc, and of internal/metadata.
func Unsent(st *status.Status) bool {
	switch st.Code() {
	case codes.ResourceExhausted:
		return strings.Contains(st.Message(), "larger than max")
	case codes.Canceled:
		return strings.Contains(st.Message(), "the client connection is closing")
	case codes.Internal:
		return strings.Contains(st.Message(), "invalid UTF-8") || strings.HasPrefix(st.Message(), `header key "`)
	default:
		return false
	}
}

// retryInfo is the time to wait that a status names, or 0.
func retryInfo(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}
