package vectorstore

import (
	"context"
	"errors"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/grpcdoor"
	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// Classify is what the breaker makes of an error of this package's calls. "No
// such collection" and "there is one already" are answers, and prove that the
// server works. The caller's cancellation, a wrong argument and a collection
// that is not loaded leave the breaker as it is; a timeout of any origin, a
// broken connection, a server that is not ready or out of resources and an
// answer that makes no sense are failures; queue, rate and quota limits are
// throttles; a bad credential is a denial. An error that says nothing of itself
// is a failure.
func Classify(caller context.Context, err error) resilience.Verdict {
	if server, ok := errors.AsType[*ServerError](err); ok {
		return door.For(caller, resilience.Verdict{Outcome: meaning(server).outcome})
	}
	switch {
	case errors.Is(err, client.ErrClientNotReady):
		return resilience.Verdict{Outcome: resilience.Ignored}
	case status.Code(err) == codes.Aborted: // a proxy of Milvus that is shutting down
		return door.For(caller, resilience.Verdict{Outcome: resilience.Failure})
	}
	return grpcdoor.Classify(caller, err)
}

// errorType names an error for a span.
func errorType(err error) string {
	if st, ok := status.FromError(err); ok {
		return st.Code().String()
	}
	return ""
}
