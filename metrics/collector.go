package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/resilience"
)

var stateDesc = prometheus.NewDesc(
	"circuit_breaker_state",
	"State of the circuit breaker: 0 closed, 1 half-open, 2 open.",
	[]string{"upstream"}, nil,
)

// Collector reads every breaker of one registry at the time of a scrape. It
// holds no values of its own and is safe for concurrent use.
type Collector struct {
	breakers *resilience.Registry
}

// NewCollector returns a collector for the breakers of reg, including those that
// are registered later. Register it once with each Prometheus registerer that
// should have them; the collector for resilience.Default is already on the
// default one.
func NewCollector(reg *resilience.Registry) *Collector {
	return &Collector{breakers: reg}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { ch <- stateDesc }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, b := range c.breakers.All() {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(b.State()), b.Name())
	}
}
