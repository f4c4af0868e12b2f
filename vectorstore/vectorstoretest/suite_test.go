package vectorstoretest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
	"github.com/penstock-go/penstock/vectorstore/vectorstoretest"
)

func TestEmbeddedStore(t *testing.T) {
	vectorstoretest.Run(t, func(t *testing.T) vectorstore.Store {
		st, err := sqlitestore.Open(filepath.Join(t.TempDir(), "rows.db"))
		require.NoError(t, err)
		return st
	})
}

func TestMilvus(t *testing.T) {
	addr := upstreams.Milvus(t)
	vectorstoretest.Run(t, func(t *testing.T) vectorstore.Store {
		c, err := vectorstore.NewClient(t.Context(), vectorstore.Config{Address: addr})
		require.NoError(t, err)
		return c
	})
}
