package sqlitestore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

const (
	benchDim   = 256
	benchBatch = 1000
)

// prose makes n words with a distribution of frequencies like a language's.
func prose(z *rand.Zipf, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "w%d ", z.Uint64())
	}
	return b.String()
}

func benchRows(r *rand.Rand, at, n int) []entity.Column {
	z := rand.NewZipf(r, 1.1, 8, 50_000)
	rows := make([]row, n)
	for i := range rows {
		v := make([]float32, benchDim)
		for j := range v {
			v[j] = float32(r.NormFloat64())
		}
		rows[i] = row{
			id: fmt.Sprintf("%064x", at+i), doc: fmt.Sprintf("%032x", (at+i)/20), ordinal: int64(i),
			heading: "Guide > " + prose(z, 3),
			text:    prose(z, 120), meta: `{"lang":"en","title":"A title"}`, vector: v,
		}
	}
	return columns(benchDim, rows...)
}

// BenchmarkInsert writes rows of the full scheme with 120 words each, 1,000 a
// call, and reports rows a second.
func BenchmarkInsert(b *testing.B) {
	st, r := ready(b, benchDim), rand.New(rand.NewPCG(1, 2))
	n := 0
	for b.Loop() {
		b.StopTimer()
		cols := benchRows(r, n, benchBatch)
		b.StartTimer()
		_, err := st.Insert(b.Context(), coll, "", cols...)
		require.NoError(b, err)
		n += benchBatch
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkReplace is a corpus that changes: it writes 1,000 rows a call and
// deletes 1,000 of those that are there, and reports rows a second.
func BenchmarkReplace(b *testing.B) {
	st, r := ready(b, benchDim), rand.New(rand.NewPCG(1, 2))
	n := 0
	write := func() []entity.Column {
		cols := benchRows(r, n, benchBatch)
		n += benchBatch
		return cols
	}
	var old []entity.Column
	for range 20 {
		cols := write()
		_, err := st.Insert(b.Context(), coll, "", cols...)
		require.NoError(b, err)
		old = append(old, cols[1])
	}
	for b.Loop() {
		b.StopTimer()
		cols := write()
		b.StartTimer()
		_, err := st.Upsert(b.Context(), coll, "", cols...)
		require.NoError(b, err)
		require.NoError(b, st.DeleteByPks(b.Context(), coll, "", old[0]))
		old = append(old[1:], cols[1])
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkPurge removes what 1,000 deleted rows have left among 20,000.
func BenchmarkPurge(b *testing.B) {
	st, r := fill(b, filepath.Join(b.TempDir(), "rows.db"), 20_000)
	n := 20_000
	for b.Loop() {
		b.StopTimer()
		cols := benchRows(r, n, benchBatch)
		n += benchBatch
		_, err := st.Insert(b.Context(), coll, "", cols...)
		require.NoError(b, err)
		require.NoError(b, st.DeleteByPks(b.Context(), coll, "", cols[1]))
		b.StartTimer()
		require.NoError(b, st.Purge(b.Context(), coll))
	}
}

// BenchmarkSearch asks a store of 100,000 rows of 256 dimensions (20,000 with
// -short), which it makes first.
func BenchmarkSearch(b *testing.B) {
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	path := filepath.Join(b.TempDir(), "rows.db")
	st, r := fill(b, path, n)
	q := make([]float32, benchDim)
	for i := range q {
		q[i] = float32(r.NormFloat64())
	}
	vector := []entity.Vector{entity.FloatVector(q)}
	fields := []string{"doc", "heading", "text"}
	find := func(ctx context.Context, expr string) {
		_, err := st.Search(ctx, coll, nil, expr, fields, vector, "vector", entity.COSINE, 20, nil)
		require.NoError(b, err)
	}
	text := func(ctx context.Context) {
		_, err := st.SearchText(ctx, coll, "", fields, "what does w12 and w340 w2711 mean?", 20)
		require.NoError(b, err)
	}
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.Logf("%d rows, %d MB", n, info.Size()>>20)
	b.Run("vector", func(b *testing.B) {
		for b.Loop() {
			find(b.Context(), "")
		}
	})
	b.Run("filtered", func(b *testing.B) {
		for b.Loop() {
			find(b.Context(), fmt.Sprintf("doc in [%q, %q]", fmt.Sprintf("%032x", 1), fmt.Sprintf("%032x", 2)))
		}
	})
	b.Run("text", func(b *testing.B) {
		for b.Loop() {
			text(b.Context())
		}
	})
	b.Run("hybrid", func(b *testing.B) {
		for b.Loop() {
			find(b.Context(), "")
			text(b.Context())
		}
	})
}

func fill(b *testing.B, path string, n int) (*sqlitestore.Store, *rand.Rand) {
	st, err := sqlitestore.Open(path)
	require.NoError(b, err)
	b.Cleanup(func() { _ = st.Close() })
	ctx, r := b.Context(), rand.New(rand.NewPCG(1, 2))
	require.NoError(b, st.CreateCollection(ctx, rowSchema(benchDim), 1))
	require.NoError(b, st.CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(b, st.LoadCollection(ctx, coll, false))
	for at := 0; at < n; at += benchBatch {
		_, err := st.Insert(ctx, coll, "", benchRows(r, at, benchBatch)...)
		require.NoError(b, err)
	}
	require.NoError(b, st.Flush(ctx, coll, false))
	return st, r
}
