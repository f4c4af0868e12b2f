package metrics_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// fleet joins a registry to a fleet of this process, whose store answers.
func fleet(t *testing.T, reg *resilience.Registry) *storetest.Memory {
	t.Helper()
	store := &storetest.Memory{}
	f := resilience.NewFleet(store, resilience.FleetConfig{Origin: "pod-1", Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	require.Eventually(t, f.Up, time.Minute, time.Millisecond)
	reg.Join(f)
	return store
}

// sharedBreaker has the series of a shared breaker that is open.
func sharedBreaker(t *testing.T) prometheus.Gatherer {
	t.Helper()
	reg := registry(nil)
	fleet(t, reg)
	reg.MustRegister("shared", resilience.Config{}).Trip("drill")
	gatherer := prometheus.NewPedanticRegistry()
	require.NoError(t, gatherer.Register(metrics.NewCollector(reg)))
	return gatherer
}

func TestSharedBreakerShowsItsStoreAndItsOpener(t *testing.T) {
	reg := registry(nil)
	store := fleet(t, reg)
	b := reg.MustRegister("crm", resilience.Config{})
	series := func() (lines map[string]float64) {
		lines = map[string]float64{}
		for _, name := range []string{"shared", "store_up", "opened_by"} {
			lines[name] = value(t, metrics.NewCollector(reg), "circuit_breaker_"+name)
		}
		return lines
	}
	assert.Equal(t, map[string]float64{"shared": 1, "store_up": 1, "opened_by": -1}, series())
	b.Trip("drill")
	assert.Equal(t, map[string]float64{"shared": 1, "store_up": 1, "opened_by": 1}, series())
	store.Down(assert.AnError)
	require.Eventually(t, func() bool { return series()["store_up"] == 0 }, time.Minute, time.Millisecond)
	assert.Equal(t, 1.0, series()["shared"])
}

// value is that of the first series of a gauge, -1 without one.
func value(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	gatherer := prometheus.NewPedanticRegistry()
	require.NoError(t, gatherer.Register(c))
	families, err := gatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}
