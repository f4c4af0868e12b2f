package vectorstore_test

import (
	"context"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/penstock-go/penstock/vectorstore"
)

// untraced turns spans off for a benchmark.
func untraced(b *testing.B) {
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(noop.NewTracerProvider())
	b.Cleanup(func() { otel.SetTracerProvider(before) })
}

type instant struct{ vectorstore.Store }

func (instant) Query(context.Context, string, []string, string, []string, ...client.SearchQueryOptionFunc) (client.ResultSet, error) {
	return client.ResultSet{}, nil
}

func BenchmarkCall(b *testing.B) {
	untraced(b)
	g, _ := guard(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Query(b.Context(), instant{}, "docs", nil, `id == "a"`, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	untraced(b)
	g, br := guard(b)
	br.ForceOpen("maintenance")
	b.ReportAllocs()
	for b.Loop() {
		_, err := g.Query(b.Context(), instant{}, "docs", nil, `id == "a"`, nil)
		require.Error(b, err)
	}
}
