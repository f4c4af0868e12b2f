package metrics

import (
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/resilience"
)

// Outcomes of a call, as label values. They are disjoint: a call has exactly
// one.
const (
	outcomeRejected      = "rejected"
	outcomeRetriedInTask = "retried_in_task"
	outcomeStale         = "stale"
	outcomePanicked      = "panicked"
	outcomeShed          = "shed"
)

// holds are what can hold a breaker's state until it is reset.
var holds = [...]string{"forced_open", "forced_closed", "denied"}

var (
	stateDesc = desc("state", "State of the circuit breaker: 0 closed, 1 half-open, 2 open.")
	callsDesc = desc("calls_total", "Calls by outcome. Each call has one outcome: rejected, retried_in_task and shed "+
		"ones were never sent, stale ones were answered after their state had ended.", "outcome")
	transitionsDesc = desc("transitions_total", "State changes.", "from", "to")
	openedDesc      = desc("opened_total", "Times the breaker opened, including reopenings after a failed probe.")
	probesDesc      = desc("probes_total", "Probes sent.")
	resultsDesc     = desc("probe_results_total",
		"Results of probes: closed after a success, reopened after a failure.", "result")
	secondsDesc = desc("state_seconds_total",
		"Time spent in each state. Waiting for a probe after the reset time counts as half_open.", "state")
	untilDesc = desc("open_until_timestamp_seconds",
		"When the next probe is admitted, as Unix time. 0 if not open, or if held open.")
	streakDesc  = desc("consecutive_failures", "Counted failures since the last success.")
	failMaxDesc = desc("consecutive_failures_limit",
		"Consecutive failures that open the breaker. 0 for a window breaker.")
	windowDesc = desc("window_failure_ratio",
		"Share of failures among the calls in the window. 0 without a window or calls in it.")
	heldDesc  = desc("held", "1 for what holds the state until the breaker is reset, 0 for what does not.", "hold")
	sinceDesc = desc("held_since_timestamp_seconds", "Since when the state is held, as Unix time. 0 if it is not.")
	rampDesc  = desc("ramp_ratio",
		"Share of calls admitted. Below 1 only while a breaker with a ramp has closed lately.")
	shadowDesc   = desc("shadow", "1 if the breaker is in shadow mode and refuses nothing, 0 if not.")
	shadowedDesc = desc("shadowed_total",
		"Calls that shadow mode let through in place of a refusal. They are in calls_total by their outcome.")

	sharedDesc = desc("shared", "1 if the breaker is shared with other processes, 0 if not.")
	storeDesc  = desc("store_up", "1 if the store of a shared breaker answers, 0 if this process continues alone.")
	openerDesc = desc("opened_by", "1 for the host that opened a shared breaker, while it is not closed.", "origin")

	descs = []*prometheus.Desc{
		stateDesc, callsDesc, transitionsDesc, openedDesc, probesDesc, resultsDesc,
		secondsDesc, untilDesc, streakDesc, failMaxDesc, windowDesc,
		heldDesc, sinceDesc, rampDesc, shadowDesc, shadowedDesc,
		sharedDesc, storeDesc, openerDesc,
	}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("circuit_breaker_"+name, help, append([]string{"upstream"}, labels...), nil)
}

// Collector reads every breaker of one registry at the time of a scrape. It is
// safe for concurrent use.
//
// Counts of calls and openings come from the breakers and are exact, whenever
// the collector was created. Transitions, results of probes and seconds in a
// state are counted from the moment the collector first sees a breaker: at its
// creation, or at the first scrape after the breaker was registered.
type Collector struct {
	breakers *resilience.Registry
	seen     histories
}

// NewCollector returns a collector for the breakers of reg, including breakers
// that are registered later. Register it with a Prometheus registerer; the
// collector for resilience.Default is already on the default one.
func NewCollector(reg *resilience.Registry) *Collector {
	c := &Collector{breakers: reg, seen: histories{by: make(map[weak.Pointer[resilience.Breaker]]*history)}}
	c.seen.of(reg.All())
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	breakers := c.breakers.All()
	for i, h := range c.seen.of(breakers) {
		s, r := h.read(breakers[i])
		emit := emitter{ch, s.Name}
		emit.snapshot(s)
		emit.calls(s)
		emit.history(r)
	}
}

// emitter sends the metrics of one breaker.
type emitter struct {
	to       chan<- prometheus.Metric
	upstream string
}

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{e.upstream}, labels...)...)
}

func (e emitter) counter(d *prometheus.Desc, v float64, labels ...string) {
	e.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{e.upstream}, labels...)...)
}

func (e emitter) snapshot(s resilience.Snapshot) {
	e.gauge(stateDesc, float64(s.State))
	e.gauge(untilDesc, unix(s.OpenUntil))
	e.gauge(streakDesc, float64(s.Streak))
	e.gauge(failMaxDesc, float64(s.FailMax))
	e.gauge(windowDesc, ratio(s.WindowFailures, s.WindowCalls))
	e.counter(openedDesc, float64(s.Opened))
	e.counter(probesDesc, float64(s.Probes))
	for _, hold := range holds {
		e.gauge(heldDesc, flag(s.Held == hold), hold)
	}
	e.gauge(sinceDesc, unix(s.HeldSince))
	e.gauge(rampDesc, s.RampShare)
	e.gauge(shadowDesc, flag(s.Shadow))
	e.counter(shadowedDesc, float64(s.Shadowed))
	e.fleet(s)
}

func (e emitter) fleet(s resilience.Snapshot) {
	e.gauge(sharedDesc, flag(s.Shared))
	if s.Shared {
		e.gauge(storeDesc, flag(s.StoreUp))
	}
	if s.Origin != "" {
		e.gauge(openerDesc, 1, s.Origin)
	}
}

func (e emitter) calls(s resilience.Snapshot) {
	for outcome, n := range map[string]uint64{
		resilience.Success.String():   s.Successes,
		resilience.Failure.String():   s.Failures,
		resilience.Ignored.String():   s.Ignored,
		resilience.Throttled.String(): s.Throttled,
		resilience.Denied.String():    s.Denied,
		outcomePanicked:               s.Panics,
		outcomeStale:                  s.Stale,
		outcomeRejected:               s.Rejected - min(s.Rejected, s.RetriedInTask),
		outcomeRetriedInTask:          s.RetriedInTask,
		outcomeShed:                   s.Shed,
	} {
		e.counter(callsDesc, float64(n), outcome)
	}
}

func (e emitter) history(r record) {
	for _, from := range states {
		for _, to := range states {
			if from != to {
				e.counter(transitionsDesc, float64(r.moves[from][to]), from.String(), to.String())
			}
		}
		e.counter(secondsDesc, r.spent[from].Seconds(), from.String())
	}
	e.counter(resultsDesc, float64(r.closed), "closed")
	e.counter(resultsDesc, float64(r.reopened), "reopened")
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
