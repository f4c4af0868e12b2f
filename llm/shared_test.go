package llm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// A fleet tells the breaker of one server from that of another by the address
// that the client is made with.
func TestSharedBreakerHasTheAddress(t *testing.T) {
	doortest.Locates(t, "llm", "1/llm@http://gpu.internal:8000/v1", func(b *resilience.Breaker) {
		_, err := llm.NewClient(llm.Config{APIKey: "sk-hunter2", BaseURL: "http://gpu.internal:8000/v1/", Breaker: b})
		require.NoError(t, err)
	})
}
