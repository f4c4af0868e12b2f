package llm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// A fleet tells the breaker of one server from that of another by the address
// that the client is made with.
func TestSharedBreakerHasTheAddress(t *testing.T) {
	store := &storetest.Memory{}
	fleet := resilience.NewFleet(store, resilience.FleetConfig{})
	defer fleet.Close()
	b, err := resilience.New("llm", resilience.Config{Shared: fleet})
	require.NoError(t, err)
	_, err = llm.NewClient(llm.Config{APIKey: "sk-hunter2", BaseURL: "http://gpu.internal:8000/v1/", Breaker: b})
	require.NoError(t, err)
	b.ForceOpen("drill")
	assert.Contains(t, store.Records(), "1/llm@http://gpu.internal:8000/v1")
	assert.Len(t, store.Records(), 1)
}
