package vectorstore

import (
	"context"
	"errors"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// failing is a client whose calls fail with err.
type failing struct {
	Server
	err error
}

func (f failing) GetVersion(context.Context) (string, error) { return "", f.err }

func (f failing) QueryIterator(context.Context, *client.QueryIteratorOption) (*client.QueryIterator, error) {
	return nil, f.err
}

func TestAnswerIsReadOnce(t *testing.T) {
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(trace.NewTracerProvider()) // so that spans ask for names
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	for _, code := range []codes.Code{codes.Unauthenticated, codes.Internal, codes.ResourceExhausted} {
		looks, err := testutil.Looked(status.Error(code, "no"))
		Classify(t.Context(), err)
		errors.As(err, new(*resilience.OpenError)) // the breaker looks for another breaker's refusal
		errorType(err)                             // the span's
		once := looks()
		require.Positive(t, once)

		g := Guard{Breaker: testutil.NewBreaker(t, "once", resilience.Config{})}
		_, got := g.GetVersion(t.Context(), failing{err: err})
		require.Equal(t, err, got)
		assert.Equal(t, 2*once, looks(), "a call, %v", code)
		_, got = g.QueryIterator(t.Context(), failing{err: err}, client.NewQueryIteratorOption("docs"))
		require.Equal(t, err, got)
		assert.Equal(t, 3*once, looks(), "an iteration, %v", code)
	}
}
