package vectorstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// A fleet tells the breaker of one server from that of another by the address
// that the client is made with.
func TestSharedBreakerHasTheAddress(t *testing.T) {
	doortest.Locates(t, "milvus", "1/milvus@127.0.0.1:1", func(b *resilience.Breaker) {
		client, err := vectorstore.NewClient(t.Context(), vectorstore.Config{
			Address: "127.0.0.1:1", Username: "root", Password: "hunter2", Breaker: b,
		})
		require.NoError(t, err)
		require.NoError(t, client.Close())
	})
}
