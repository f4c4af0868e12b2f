package pipeline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/vectorstore"
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

// BenchmarkSearch searches 10,000 chunks: without a note, with one of a version
// that the question does not find, and with one whose rows answer it best.
func BenchmarkSearch(b *testing.B) {
	for _, bench := range []struct{ name, unfinished string }{
		{"no notes", ""}, {"an open note", manyValves(0)}, {"a flood", flood(2000, "first")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := newStillWorld(b)
			w.corpus(10_000)
			_, err := w.run()
			require.NoError(b, err)
			if bench.unfinished != "" {
				w.write("z.md", bench.unfinished)
				_, err = w.run(w.diesBefore(isMark))
				require.Error(b, err)
			}
			p := w.pipeline()
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				_, err := p.Search(b.Context(), flooded, pipeline.SearchOptions{})
				require.NoError(b, err)
				took = append(took, time.Since(start))
			}
			b.ReportMetric(median(took), "p50-ms/search")
			b.ReportMetric(median(w.noteReads(b)), "p50-ms/notes")
		})
	}
}

// noteReads is how long reading the notes takes, 100 times.
func (w *world) noteReads(b *testing.B) (took []time.Duration) {
	place := rows.Field.Doc + " == " + vectorstore.Quote(version.Place)
	for range 100 {
		start := time.Now()
		_, err := w.store.Query(b.Context(), "docs", nil, place, []string{rows.Field.ID, rows.Field.Meta})
		require.NoError(b, err)
		took = append(took, time.Since(start))
	}
	return took
}

// median is in milliseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000
}
