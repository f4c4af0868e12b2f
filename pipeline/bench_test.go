package pipeline

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// BenchmarkUnchanged passes over documents that are complete.
func BenchmarkUnchanged(b *testing.B) {
	const documents = 1000
	dir := b.TempDir()
	for i := range documents {
		require.NoError(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("note%d.txt", i)), fmt.Appendf(nil, "Note %d: valve %d was opened.\n", i, i*13), 0o644))
	}
	objects, err := filestore.Open(filepath.Join(b.TempDir(), "objects"))
	require.NoError(b, err)
	store, err := sqlitestore.Open(filepath.Join(b.TempDir(), "vectors.db"))
	require.NoError(b, err)
	j, err := journal.Open(b.Context(), b.TempDir())
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, j.Close())
		require.NoError(b, store.Close())
		require.NoError(b, objects.Close())
	})
	p, err := New(Config{
		Objects: objects, Bucket: "originals", CreateBucket: true, Vectors: store, Collection: "docs",
		Embeddings: staticmodel.New(), Model: staticmodel.Name, Journal: j, Destination: "bench", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	run := func() Summary {
		in, err := source.Files([]string{dir}, source.Options{})
		require.NoError(b, err)
		summary, err := p.Run(b.Context(), in.All(b.Context()))
		require.NoError(b, err)
		return summary
	}
	run()
	for b.Loop() {
		require.Equal(b, documents, run().Unchanged)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*documents), "µs/document")
}
