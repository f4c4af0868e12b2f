package vectorstore

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

func TestCallsAreTimed(t *testing.T) {
	store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "vectors.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	g := Guard{Breaker: testutil.NewBreaker(t, "timed", resilience.Config{})}
	_, err = g.HasCollection(t.Context(), store, "c")
	require.NoError(t, err)
	g.Breaker.ForceOpen("test")
	_, err = g.ListCollections(t.Context(), store)
	require.ErrorIs(t, err, resilience.ErrOpen)

	page := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, page.Body.String(), `_count{operation="has_collection",upstream="timed"} 1`)
	assert.NotContains(t, page.Body.String(), `operation="list_collections",upstream="timed"`, "a refusal is no call")
}
