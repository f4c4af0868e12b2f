package metrics

import (
	"maps"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/resilience"
)

// durations holds the durations of calls to all upstreams. The breakers do not
// measure them: a closed breaker does not read the clock.
var durations = &timings{by: make(map[string]*timing)}

// ObserveCall records the duration of one call through a breaker. Use it for
// calls that were sent; a refused call has no duration. The operation is one of
// a few names that the program defines for its calls, such as put_object.
//
// For a keyed breaker it does so only under Config.Durations, and the series go
// when the family forgets the breaker. What is recorded for a forgotten one
// counts under PREFIX/(overflow), the breaker that its calls share with others.
func ObserveCall(b *resilience.Breaker, operation string, took time.Duration) {
	if t := durations.of(b); t != nil {
		t.calls.WithLabelValues(t.upstream, operation).Observe(took.Seconds())
	}
}

// DeclareOperations creates the duration series of a breaker at zero, so that
// rates that include the first call of an operation are correct. A keyed
// breaker has them as ObserveCall says.
func DeclareOperations(b *resilience.Breaker, operations ...string) {
	if t := durations.of(b); t != nil {
		for _, operation := range operations {
			t.calls.WithLabelValues(t.upstream, operation)
		}
	}
}

// Durations returns the collector of the durations that ObserveCall records,
// for registries other than the default one, which already has it.
func Durations() prometheus.Collector { return durations }

// timings are the durations of calls, by the names of the breakers.
type timings struct {
	mu   sync.RWMutex
	by   map[string]*timing
	full int // how many there may be before they are swept
}

// sweepFrom is how many breakers are never swept between scrapes.
const sweepFrom = 64

// timing is the durations of the calls through one breaker.
type timing struct {
	upstream string
	calls    *prometheus.HistogramVec
	owner    weak.Pointer[resilience.Breaker] // the keyed breaker that it goes with
	stays    bool                             // it belongs to a single breaker
}

func newTiming(upstream string) *timing {
	return &timing{upstream: upstream, calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "circuit_breaker_call_duration_seconds",
		Help:    "Duration of calls that were sent, whatever their outcome.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"upstream", "operation"})}
}

// belongs reports whether t is the timing of owner, nil for a single breaker.
func (t *timing) belongs(owner *resilience.Breaker) bool {
	return t.stays || owner != nil && t.owner.Value() == owner
}

func (t *timing) gone() bool {
	if t.stays {
		return false
	}
	b := t.owner.Value()
	return b == nil || b.Forgotten()
}

// overflow ends the name of the breaker that the keys without room share.
const overflow = "/(overflow)"

// timed says under which name the calls through b are timed, if they are, and
// which breaker the series go with, nil for those that stay.
func timed(b *resilience.Breaker) (upstream string, owner *resilience.Breaker, ok bool) {
	switch family := b.Family(); {
	case family == "":
		return b.Name(), nil, true
	case !b.Config().Durations:
		return "", nil, false
	case b.Forgotten():
		return family + overflow, nil, true
	}
	return b.Name(), b, true
}

// of returns the timing of b, nil if its calls are not timed. What is recorded
// in a timing that is swept meanwhile is lost with it.
func (d *timings) of(b *resilience.Breaker) *timing {
	upstream, owner, ok := timed(b)
	if !ok {
		return nil
	}
	d.mu.RLock()
	t := d.by[upstream]
	known := t != nil && t.belongs(owner)
	d.mu.RUnlock()
	if known {
		return t
	}
	return d.make(upstream, owner)
}

// make starts the timing of a breaker. Breakers of the same name, in different
// registries, share one while the first of them lives.
func (d *timings) make(upstream string, owner *resilience.Breaker) *timing {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.by[upstream]
	if t == nil || t.gone() {
		if len(d.by) >= max(d.full, sweepFrom) {
			d.sweepLocked()
		}
		t = newTiming(upstream)
		t.owner = weak.Make(owner)
		d.by[upstream] = t
	}
	t.stays = t.stays || owner == nil
	return t
}

// sweepLocked drops what has gone with its breaker. Between scrapes it runs
// each time their number has doubled, which costs little for each new one.
func (d *timings) sweepLocked() {
	maps.DeleteFunc(d.by, func(_ string, t *timing) bool { return t.gone() })
	d.full = 2 * len(d.by)
}

// Describe implements prometheus.Collector.
func (d *timings) Describe(ch chan<- *prometheus.Desc) { newTiming("").calls.Describe(ch) }

// Collect implements prometheus.Collector.
func (d *timings) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	d.sweepLocked()
	d.sweepLocked() // during the first, a forgotten breaker may have taken the place of one seen before it
	all := slices.Collect(maps.Values(d.by))
	d.mu.Unlock()
	for _, t := range all {
		t.calls.Collect(ch)
	}
}
