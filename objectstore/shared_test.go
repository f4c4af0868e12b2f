package objectstore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// A fleet tells the breaker of one server from that of another by the address
// that the client is made with, or by the region of AWS itself.
func TestSharedBreakerHasTheAddress(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	for endpoint, key := range map[string]string{
		"http://minio.internal:9000": "1/s3@http://minio.internal:9000", "": "1/s3@https://s3.eu-west-1.amazonaws.com",
	} {
		store := &storetest.Memory{}
		fleet := resilience.NewFleet(store, resilience.FleetConfig{})
		b, err := resilience.New("s3", resilience.Config{Shared: fleet})
		require.NoError(t, err)
		config := objectstore.Config{Endpoint: endpoint, Region: "eu-west-1", Breaker: b}
		_, err = objectstore.NewClient(t.Context(), config)
		require.NoError(t, err)
		b.ForceOpen("drill")
		assert.Contains(t, store.Records(), key)
		assert.Len(t, store.Records(), 1)
		require.NoError(t, fleet.Close())
	}
}
