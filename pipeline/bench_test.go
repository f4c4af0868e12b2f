package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
)

// BenchmarkUnchanged passes over documents that are complete.
func BenchmarkUnchanged(b *testing.B) {
	const documents = 1000
	w := newStillWorld(b)
	w.corpus(documents)
	p := w.pipeline()
	run := func() pipeline.Summary {
		summary, err := p.Run(b.Context(), w.documents())
		require.NoError(b, err)
		return summary
	}
	run()
	for b.Loop() {
		require.Equal(b, documents, run().Unchanged)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*documents), "µs/document")
}
