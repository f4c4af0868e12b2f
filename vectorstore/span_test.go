package vectorstore_test

import (
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/vectorstore"
)

func TestEachCallLeavesASpanRefusalsIncluded(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	call := func() { _, _ = g.HasCollection(t.Context(), c, "docs") }

	s.reply("HasCollection", &milvuspb.BoolResponse{Status: ok()})
	call()
	s.fail("HasCollection", status.Error(codes.Unavailable, "down"))
	call()
	b.Trip("test")
	call()
	_ = g.Delete(t.Context(), c, "docs", "", "")

	got := spans.GetSpans()
	require.Len(t, got, 4)
	for i, want := range []map[string]string{
		{
			"penstock.outcome": "success", "db.operation.name": "has_collection", "db.collection.name": "docs",
			"db.system.name": "milvus",
		},
		{"penstock.outcome": "failure", "error.type": "Unavailable"},
		{"penstock.outcome": "rejected", "error.type": "circuit_open", "penstock.breaker.state": "open"},
		{"penstock.outcome": "ignored", "error.type": "InvalidArgument", "db.operation.name": "delete"},
	} {
		attrs := attribute.NewSet(got[i].Attributes...)
		for k, v := range want {
			have, _ := attrs.Value(attribute.Key(k))
			assert.Equal(t, v, have.AsString(), "span %d, %s", i, k)
		}
	}
	assert.Equal(t, "has_collection docs", got[0].Name)
}
