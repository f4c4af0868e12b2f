package objectstore_test

import (
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/penstock-go/penstock/resilience"
)

var spans = tracetest.NewInMemoryExporter()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(spans)))
	os.Exit(m.Run())
}

// spanOf returns the one span of a call as a map, with its name under "".
func spanOf(t *testing.T, call func()) map[string]string {
	t.Helper()
	spans.Reset()
	call()
	require.Len(t, spans.GetSpans(), 1)
	span := spans.GetSpans()[0]
	attrs := map[string]string{"": span.Name}
	for _, kv := range span.Attributes {
		attrs[string(kv.Key)] = kv.Value.String()
	}
	return attrs
}

func TestSpans(t *testing.T) {
	store := openStore(t)
	g, b := breaker(t, resilience.Config{})
	keep(t, store, "key", "text", nil)
	want := func(outcome, errorType string) map[string]string {
		m := map[string]string{
			"": "S3.GetObject", "rpc.system": "aws-api", "rpc.service": "S3", "rpc.method": "GetObject",
			"aws.s3.bucket": "bucket", "aws.s3.key": "key",
			"penstock.breaker.name": b.Name(), "penstock.breaker.state": b.State().String(),
			"penstock.outcome": outcome,
		}
		if errorType != "" {
			m["error.type"] = errorType
		}
		return m
	}
	assert.Equal(t, want("success", ""), spanOf(t, func() {
		out, err := g.GetObject(t.Context(), store, get("key"))
		require.NoError(t, err)
		assert.Empty(t, spans.GetSpans(), "the span lasts as long as the body")
		_, _ = out.Body.Read(make([]byte, 4))
		require.NoError(t, out.Body.Close())
	}))
	s := serve(t, says(500, "InternalError"))
	assert.Equal(
		t,
		want("failure", "InternalError"),
		spanOf(t, func() { _, _ = g.GetObject(t.Context(), plainClient(s.URL), get("key")) }),
	)
	s.set(says(404, "NoSuchKey"))
	assert.Equal(
		t,
		want("success", "NoSuchKey"),
		spanOf(t, func() { _, _ = g.GetObject(t.Context(), plainClient(s.URL), get("key")) }),
	)
	b.Trip("test")
	assert.Equal(
		t,
		want("rejected", "circuit_open"),
		spanOf(t, func() { _, _ = g.GetObject(t.Context(), store, get("key")) }),
	)
}

func TestSpanOfABucketCallHasNoKey(t *testing.T) {
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	attrs := spanOf(t, func() {
		_, err := g.HeadBucket(t.Context(), store, &s3.HeadBucketInput{Bucket: aws.String("bucket")})
		require.NoError(t, err)
	})
	assert.Equal(t, "S3.HeadBucket", attrs[""])
	assert.NotContains(t, attrs, "aws.s3.key")
}
