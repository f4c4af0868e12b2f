package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// durations holds the durations of calls to all upstreams. The breakers do not
// measure them: a closed breaker does not read the clock.
var durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "circuit_breaker_call_duration_seconds",
	Help:    "Duration of calls that were sent, whatever their outcome.",
	Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120},
}, []string{"upstream", "operation"})

// ObserveCall records the duration of one call through a breaker. Use it for
// calls that were sent; a refused call has no duration. The upstream is the
// name of the breaker; the operation is one of a few names that the program
// defines for its calls, such as put_object.
func ObserveCall(upstream, operation string, took time.Duration) {
	durations.WithLabelValues(upstream, operation).Observe(took.Seconds())
}

// DeclareOperations creates the duration series of an upstream at zero, so that
// rates that include the first call of an operation are correct.
func DeclareOperations(upstream string, operations ...string) {
	for _, operation := range operations {
		durations.WithLabelValues(upstream, operation)
	}
}

// Durations returns the collector of the durations that ObserveCall records,
// for registries other than the default one, which already has it.
func Durations() prometheus.Collector { return durations }
