package fleettest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// Put writes a value in place of what is there, for ever.
func Put(t *testing.T, store resilience.Store, key, value string) resilience.Record {
	t.Helper()
	there, err := store.Load(t.Context(), key)
	require.NoError(t, err)
	r, err := store.Swap(t.Context(), key, there.Version, []byte(value), 0)
	require.NoError(t, err)
	return r
}

// Value is what is there.
func Value(t *testing.T, store resilience.Store, key string) string {
	t.Helper()
	r, err := store.Load(t.Context(), key)
	require.NoError(t, err)
	return string(r.Value)
}
