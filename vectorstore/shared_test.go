package vectorstore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
	"github.com/penstock-go/penstock/vectorstore"
)

// A fleet tells the breaker of one server from that of another by the address
// that the client is made with.
func TestSharedBreakerHasTheAddress(t *testing.T) {
	store := &storetest.Memory{}
	fleet := resilience.NewFleet(store, resilience.FleetConfig{})
	defer fleet.Close()
	b, err := resilience.New("milvus", resilience.Config{Shared: fleet})
	require.NoError(t, err)
	client, err := vectorstore.NewClient(t.Context(), vectorstore.Config{
		Address: "127.0.0.1:1", Username: "root", Password: "hunter2", Breaker: b,
	})
	require.NoError(t, err)
	defer client.Close()
	b.ForceOpen("drill")
	assert.Contains(t, store.Records(), "1/milvus@127.0.0.1:1")
	assert.Len(t, store.Records(), 1)
}
