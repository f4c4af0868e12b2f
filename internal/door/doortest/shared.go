package doortest

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// Locates checks that a door's NewClient tells a fleet the address of its
// server: the record of the breaker that it is given has the key, and no other
// is written.
func Locates(t *testing.T, name, key string, newClient func(*resilience.Breaker)) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store := &storetest.Memory{}
	fleet := resilience.NewFleet(store, resilience.FleetConfig{Logger: quiet})
	defer func() { _ = fleet.Close() }() // it has no error
	b, err := resilience.New(name, resilience.Config{Shared: fleet, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	newClient(b)
	b.ForceOpen("drill")
	if keys := slices.Collect(maps.Keys(store.Records())); !slices.Equal(keys, []string{key}) {
		t.Errorf("the records are %q, not that of %q alone", keys, key)
	}
}
