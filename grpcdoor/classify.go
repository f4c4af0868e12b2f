package grpcdoor

import (
	"context"
	"slices"
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
	if door.Refused(err) {
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

// unsent are the beginnings of what google.golang.org/grpc 1.85 says of a call
// that it does not send, or that its own limits end: encode, compress,
// getCodec, SendMsg and checkSendMsgSize in package grpc, and Validate in its
// internal/metadata. The text about sizes is a server's too, of a message that
// is too large for it.
var unsent = map[codes.Code][]string{
	codes.ResourceExhausted: {
		"grpc: trying to send message larger than max", "trying to send message larger than max",
		"grpc: received message larger than max",
	},
	codes.Canceled: {"grpc: the client connection is closing"},
	codes.Internal: {
		"grpc: error while marshaling", "string field contains invalid UTF-8", "grpc: Compressor is not installed",
		"grpc: error while compressing", "grpc: no codec registered", "no codec registered",
		"SendMsg called after CloseSend", `header key "`, "there is an empty key in the header",
	},
	codes.Unauthenticated: {"transport: cannot send secure credentials on an insecure connection"},
}

// Unsent reports whether a status is gRPC's own refusal to send a call, or of
// an answer beyond the caller's limit. It has no code for those, so the
// beginning of its words decides.
func Unsent(st *status.Status) bool {
	return slices.ContainsFunc(unsent[st.Code()], func(words string) bool {
		return strings.HasPrefix(st.Message(), words)
	})
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
