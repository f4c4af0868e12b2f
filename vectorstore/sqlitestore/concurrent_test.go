package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// assertCode checks the gRPC code of an error.
func assertCode(t *testing.T, want codes.Code, err error, about ...any) {
	t.Helper()
	if !assert.Equal(t, want, status.Code(err), about...) {
		t.Log(err)
	}
}

// TestTwoStoresOnOneFileTakeTurns is two processes' worth of writers and
// readers: nobody gets "database is locked", readers see whole calls.
func TestTwoStoresOnOneFileTakeTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.db")
	var stores []*sqlitestore.Store
	for range 2 {
		st, err := sqlitestore.Open(path)
		require.NoError(t, err)
		defer st.Close()
		stores = append(stores, st)
	}
	ctx := t.Context()
	require.NoError(t, stores[0].CreateCollection(ctx, rowSchema(2), 1))
	require.NoError(t, stores[0].CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(t, stores[0].LoadCollection(ctx, coll, false))
	var wg sync.WaitGroup
	for w, st := range stores {
		wg.Go(func() {
			for i := range 20 {
				rows := make([]row, 10)
				for j := range rows {
					rows[j] = row{
						id: fmt.Sprintf("%d-%d-%d", w, i, j), doc: fmt.Sprintf("%d-%d", w, i),
						text: "word", vector: []float32{1, 1},
					}
				}
				_, err := st.Upsert(ctx, coll, "", columns(2, rows...)...)
				assert.NoError(t, err)
			}
		})
		wg.Go(func() {
			for range 40 {
				set, err := st.Query(ctx, coll, nil, "", []string{"count(*)"})
				if assert.NoError(t, err) {
					n, _ := set.GetColumn("count(*)").GetAsInt64(0)
					assert.Zero(t, n%10, "a reader saw half of a call")
				}
				_, err = st.Search(ctx, coll, nil, "", nil, []entity.Vector{entity.FloatVector{1, 0}},
					"vector", entity.COSINE, 5, nil)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	set, err := stores[1].Query(ctx, coll, nil, "", []string{"count(*)"})
	require.NoError(t, err)
	n, err := set.GetColumn("count(*)").GetAsInt64(0)
	require.NoError(t, err)
	assert.EqualValues(t, 400, n)
}

func TestCancelledCallWritesNothing(t *testing.T) {
	st := ready(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := st.Upsert(ctx, coll, "", columns(2, row{id: "a", vector: []float32{1, 0}})...)
	assertCode(t, codes.Canceled, err)
	require.ErrorIs(t, err, context.Canceled)
	set, err := st.Query(t.Context(), coll, nil, "", []string{"id"})
	require.NoError(t, err)
	assert.Empty(t, ids(t, set))
}
