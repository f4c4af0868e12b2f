package vectorstore

import (
	"crypto/rand"
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
	name := "timed-" + rand.Text() // since durations are kept by name, also between runs
	g := Guard{Breaker: testutil.NewBreaker(t, name, resilience.Config{})}
	_, err = g.HasCollection(t.Context(), store, "c")
	require.NoError(t, err)
	g.Breaker.ForceOpen("test")
	_, err = g.ListCollections(t.Context(), store)
	require.ErrorIs(t, err, resilience.ErrOpen)

	page := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, page.Body.String(), `_count{operation="has_collection",upstream="`+name+`"} 1`)
	refused := `operation="list_collections",upstream="` + name + `"`
	assert.NotContains(t, page.Body.String(), refused, "a refusal is no call")
}
