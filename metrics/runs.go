package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// endings are how a run can end.
var endings = []string{
	"done", "dead_letters", "deferred", "denied", "configuration", "interrupted", "fault",
}

// runs are gauges that survive a process, so that alerts fire for jobs that end
// before they are scraped. Each is missing until it is known: a push of a
// process that failed before it knew must not erase what the gateway has.
type runs struct {
	last, success, waiting, since *prometheus.GaugeVec // without labels
	ended, up, refused            *prometheus.GaugeVec

	names      []string
	collectors []prometheus.Collector

	mu        sync.Mutex
	upstreams []string // with a condition
}

func newRuns() *runs {
	r := &runs{}
	r.last = r.gauge("last_run_timestamp_seconds", "When the last run ended, as Unix time.")
	r.success = r.gauge("last_success_timestamp_seconds",
		"When a run last ended with nothing left to do, as Unix time.")
	r.waiting = r.gauge("documents_waiting",
		"Documents of the inputs that are known to be not ingested yet in their present version.")
	r.since = r.gauge("documents_waiting_since_timestamp_seconds",
		"Since when at least one document has been waiting, as Unix time. 0 if none is.")
	r.ended = r.gauge("last_run_result", "1 for the way in which the last run ended, 0 for the others.", "result")
	r.up = r.gauge("upstream_up",
		"0 from the end of a run that failed because of the upstream, or that left its breaker open, until one works.",
		"upstream")
	r.refused = r.gauge("credentials_refused",
		"1 from the end of a run whose credentials or quota the upstream refused, until one works.", "upstream")
	return r
}

func (r *runs) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	name = "ingest_" + name
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.names, r.collectors = append(r.names, name), append(r.collectors, g)
	return g
}

// RunEnded records when and how a run ended: done, dead_letters, deferred,
// denied, configuration, interrupted or fault. Any other result is a fault.
func (p *Pipeline) RunEnded(at time.Time, result string) {
	if p == nil {
		return
	}
	if !slices.Contains(endings, result) {
		result = "fault"
	}
	p.runs.last.WithLabelValues().Set(unix(at))
	for _, ending := range endings {
		value := 0.0
		if ending == result {
			value = 1
		}
		p.runs.ended.WithLabelValues(ending).Set(value)
	}
}

// Succeeded records when a run last ended with nothing left to do.
func (p *Pipeline) Succeeded(at time.Time) {
	if p != nil {
		p.runs.success.WithLabelValues().Set(unix(at))
	}
}

// Waiting records how many documents are known to be not ingested yet, and
// since when there have been any; the zero time for none.
func (p *Pipeline) Waiting(documents int, since time.Time) {
	if p == nil {
		return
	}
	p.runs.waiting.WithLabelValues().Set(float64(documents))
	p.runs.since.WithLabelValues().Set(unix(since))
}

// Upstream records how a run found an upstream, by the name of its breaker:
// whether it answers, and whether it refuses the credentials or the quota. A
// document that is ingested later shows that each upstream works again.
func (p *Pipeline) Upstream(name string, up, refused bool) {
	if p == nil {
		return
	}
	p.runs.mu.Lock()
	defer p.runs.mu.Unlock()
	if !slices.Contains(p.runs.upstreams, name) {
		p.runs.upstreams = append(p.runs.upstreams, name)
	}
	p.runs.set(name, up, refused)
}

func (r *runs) set(upstream string, up, refused bool) {
	value := map[bool]float64{true: 1}
	r.up.WithLabelValues(upstream).Set(value[up])
	r.refused.WithLabelValues(upstream).Set(value[refused])
}

// working records that each upstream works.
func (r *runs) working() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.upstreams {
		r.set(name, true, false)
	}
}
