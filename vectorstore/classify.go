package vectorstore

import (
	"context"
	"errors"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// grpcCodes are the statuses of the transport and of the embedded store.
var grpcCodes = map[codes.Code]resilience.Outcome{
	codes.Unavailable:        resilience.Failure,
	codes.Aborted:            resilience.Failure,
	codes.Unknown:            resilience.Failure,
	codes.Internal:           resilience.Failure,
	codes.DataLoss:           resilience.Failure,
	codes.DeadlineExceeded:   resilience.Failure,
	codes.ResourceExhausted:  resilience.Throttled,
	codes.Canceled:           resilience.Ignored, // by the caller, by a caller who shared the request, or by Close
	codes.InvalidArgument:    resilience.Ignored,
	codes.NotFound:           resilience.Success,
	codes.AlreadyExists:      resilience.Success,
	codes.FailedPrecondition: resilience.Ignored,
	codes.OutOfRange:         resilience.Ignored,
	codes.Unimplemented:      resilience.Ignored,
	codes.Unauthenticated:    resilience.Denied,
	codes.PermissionDenied:   resilience.Denied,
}

// Classify is what the breaker makes of an error of this package's calls. "No
// such collection" and "there is one already" are answers, and prove that the
// server works. The caller's cancellation, a wrong argument and a collection
// that is not loaded leave the breaker as it is; a timeout of any origin, a
// broken connection, a server that is not ready or out of resources and an
// answer that makes no sense are failures; queue, rate and quota limits are
// throttles; a bad credential is a denial. An error that says nothing of itself
// is a failure.
func Classify(caller context.Context, err error) resilience.Verdict {
	return door.For(caller, resilience.Verdict{Outcome: outcome(err)})
}

func outcome(err error) resilience.Outcome {
	if err == nil {
		return resilience.Success
	}
	if server, ok := errors.AsType[*ServerError](err); ok {
		return meaning(server).outcome
	}
	if st, ok := status.FromError(err); ok {
		return transport(st)
	}
	if errors.Is(err, client.ErrClientNotReady) {
		return resilience.Ignored
	}
	return resilience.Failure
}

// transport reads a gRPC status. Some tell the caller's mistakes from the
// upstream's by their text alone, since gRPC has no code for those.
func transport(st *status.Status) resilience.Outcome {
	switch {
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max"),
		st.Code() == codes.Internal && strings.Contains(st.Message(), "invalid UTF-8"),
		st.Code() == codes.Internal && strings.HasPrefix(st.Message(), `header key "`): // metadata, which was not sent
		return resilience.Ignored
	}
	if o, ok := grpcCodes[st.Code()]; ok {
		return o
	}
	return resilience.Failure
}

// errorType names an error for a span.
func errorType(err error) string {
	if st, ok := status.FromError(err); ok {
		return st.Code().String()
	}
	return ""
}
