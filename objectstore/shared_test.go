package objectstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// A fleet tells the breaker of one server from that of another by the address
// that the client is made with, or by the region of AWS itself.
func TestSharedBreakerHasTheAddress(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	for endpoint, key := range map[string]string{
		"http://minio.internal:9000": "1/s3@http://minio.internal:9000",
		"":                           "1/s3@https://s3.eu-west-1.amazonaws.com",
	} {
		doortest.Locates(t, "s3", key, func(b *resilience.Breaker) {
			config := objectstore.Config{Endpoint: endpoint, Region: "eu-west-1", Breaker: b}
			_, err := objectstore.NewClient(t.Context(), config)
			require.NoError(t, err)
		})
	}
}
