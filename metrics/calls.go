package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// durations are those of calls to all upstreams. The breakers do not measure
// them: a closed breaker reads no clock.
var durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "circuit_breaker_call_duration_seconds",
	Help:    "How long calls took that were sent, whatever came of them.",
	Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120},
}, []string{"upstream", "operation"})

// ObserveCall records how long one call through a breaker took. It is for calls
// that were sent; a refused one has no duration. The upstream is the name of the
// breaker, the operation one of the few names that the program itself gives to
// its calls, such as put_object.
func ObserveCall(upstream, operation string, took time.Duration) {
	durations.WithLabelValues(upstream, operation).Observe(took.Seconds())
}

// DeclareOperations makes the duration series of an upstream exist at zero, so
// that rates over the first call of an operation are right.
func DeclareOperations(upstream string, operations ...string) {
	for _, operation := range operations {
		durations.WithLabelValues(upstream, operation)
	}
}

// Durations is the collector of what ObserveCall records, for those who register
// collectors themselves. It is on the default registry already.
func Durations() prometheus.Collector { return durations }
