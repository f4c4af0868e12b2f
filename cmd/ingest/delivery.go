package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// Delivery holds the flags for monitoring: where to deliver metrics that are
// not scraped, where to write state changes of the circuit breakers, and how
// long a breaker stays open.
type Delivery struct {
	Pushgateway     string        `group:"monitoring" env:"PENSTOCK_PUSHGATEWAY" placeholder:"URL" help:"Push the metrics to this Pushgateway when a run ends; a failed push does not fail the run."`
	PushgatewayJob  string        `group:"monitoring" default:"ingest" env:"PENSTOCK_PUSHGATEWAY_JOB" placeholder:"NAME" help:"Job name for the Pushgateway (${default})."`
	MetricsTextfile string        `group:"monitoring" env:"PENSTOCK_METRICS_TEXTFILE" placeholder:"FILE" help:"Write the metrics to this .prom file, for the node exporter, when a run ends; a failed write does not fail the run."`
	AuditLog        string        `group:"monitoring" env:"PENSTOCK_AUDIT_LOG" placeholder:"FILE" help:"Append a JSON line to this file for each state change of a circuit breaker, and for each run that an upstream stopped without one."`
	BreakerReset    time.Duration `group:"monitoring" default:"60s" env:"PENSTOCK_BREAKER_RESET" help:"How long a circuit breaker stays open before it admits a probe (${default})."`
}

// startDelivery configures the breakers and the audit log.
func (a *app) startDelivery() error {
	if err := a.setBreakers(); err != nil {
		return err
	}
	return a.startAudit()
}

// ended records how a run ended, whether it had begun or not, and delivers the
// metrics. Only the verbs that ingest do: any other would replace counters by
// zeros. A service delivers after each pass.
func (a *app) ended(ctx context.Context, verb string, err error) {
	if a.dry || verb != "run" && verb != "retry" && verb != "delete" {
		return
	}
	if result := failedResult(ctx, err); result != "" && verb != "delete" {
		metrics.Ingest.RunEnded(time.Now(), result)
	}
	a.deliver(context.WithoutCancel(ctx))
}

// failedResult is how a command ended that did not go through, in the words of
// the metrics: the run in it may not have begun, or something after it failed.
// It is empty for one that went through: there the pipeline has recorded how
// the run ended. Exit code 65 does not say whether the run met dead letters.
func failedResult(ctx context.Context, err error) string {
	switch code := exitCode(ctx, err); {
	case code == exitOK || code == exitData || isSkip(err):
		return ""
	case code == exitTemporary:
		return string(stop.Deferred)
	case code == exitDenied:
		return string(stop.Denied)
	case code == exitUsage || code == exitConfiguration:
		return string(stop.Configuration)
	case code > exitSignal:
		return string(stop.Interrupted)
	}
	return string(stop.Fault)
}

// unreached records the upstream that kept a run from its beginning.
func unreached(ended *stop.Error) {
	if ended.Upstream != "" {
		down := ended.Kind == stop.Deferred && !stop.Throttled(ended)
		metrics.Ingest.Upstream(ended.Upstream, !down, ended.Kind == stop.Denied)
	}
}

// jitterPart is the part of --breaker-reset by which a wait is longer, at most:
// the tasks that an outage has stopped do not all come back at once.
const jitterPart = 10

// setBreakers configures the three breakers before they are used.
func (a *app) setBreakers() error {
	reset := a.settings.BreakerReset
	if reset <= 0 {
		return usage(fmt.Errorf("--breaker-reset: %v is not positive", reset))
	}
	for _, b := range []**resilience.Breaker{&resilience.Milvus, &resilience.S3, &resilience.LLM} {
		config := (*b).Config()
		config.ResetTimeout, config.ProbeTimeout, config.Jitter = reset, 0, reset/jitterPart
		replaced, err := resilience.Default.Replace((*b).Name(), config)
		if err != nil {
			return usage(fmt.Errorf("--breaker-reset: %w", err))
		}
		*b = replaced
	}
	return nil
}

// deliverLimit bounds how long a run waits for the Pushgateway at its end.
const deliverLimit = 5 * time.Second

// deliver sends the metrics to the configured places, and logs failures.
func (a *app) deliver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deliverLimit)
	defer cancel()
	s := a.settings
	if s.Pushgateway != "" {
		a.delivered(metrics.Push(ctx, s.Pushgateway, s.PushgatewayJob))
	}
	if s.MetricsTextfile != "" {
		a.delivered(metrics.WriteTextfile(s.MetricsTextfile))
	}
}

func (a *app) delivered(err error) {
	if err != nil {
		a.log.Warn("metrics not delivered; the run is not affected", "error", err)
	}
}

// startAudit writes state changes of the breakers to the audit log.
func (a *app) startAudit() error {
	if a.settings.AuditLog == "" {
		return nil
	}
	file, err := os.OpenFile(a.settings.AuditLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return configuration(fmt.Errorf("--audit-log: %w", err))
	}
	a.later(file.Close)
	a.audit = &auditLog{to: file, log: a.log, places: a.places()}
	for _, b := range resilience.Default.All() {
		remove := b.Observe(a.audit.write)
		a.later(func() error { remove(); return nil })
	}
	return nil
}

// auditRecord is a line of the audit log. A hold that begins or ends without a
// change of state has an event of its own.
type auditRecord struct {
	Time          time.Time        `json:"time"`
	Event         string           `json:"event"`
	Process       int              `json:"process"`
	Upstream      string           `json:"upstream"`
	Address       string           `json:"address,omitempty"`
	Model         string           `json:"model,omitempty"`
	From          resilience.State `json:"from"`
	To            resilience.State `json:"to"`
	Generation    uint64           `json:"generation"`
	Reason        string           `json:"reason"`
	Cause         string           `json:"cause,omitempty"`
	Held          string           `json:"held,omitempty"`
	Shadow        bool             `json:"shadow,omitempty"`
	Eligible      int              `json:"eligible"`
	Failures      int              `json:"failures"`
	OpenUntil     *time.Time       `json:"open_until"`
	ProbeID       uint64           `json:"probe_id"`
	PolicyVersion string           `json:"policy_version"`
	InState       float64          `json:"in_state_seconds"`
	SinceOpened   float64          `json:"since_opened_seconds"`
	Refused       uint64           `json:"refused"`
	Dropped       uint64           `json:"dropped,omitempty"`
}

func newAuditRecord(t resilience.Transition, at stop.Place) auditRecord {
	r := auditRecord{
		Time: t.At.UTC(), Event: "circuit_breaker_transition", Process: os.Getpid(), Upstream: t.Upstream,
		Address: at.Where(), Model: at.Models(),
		From: t.From, To: t.To, Generation: t.Generation, Reason: t.Reason,
		Cause: t.CauseText(), Held: t.Held, Shadow: t.Shadow,
		Eligible: t.Eligible, Failures: t.Failures, ProbeID: t.ProbeID,
		PolicyVersion: t.PolicyVersion, InState: t.InState.Seconds(), SinceOpened: t.SinceOpened.Seconds(),
		Refused: t.Refused, Dropped: t.Dropped,
	}
	if t.From == t.To {
		r.Event = "circuit_breaker_hold"
	}
	if !t.OpenUntil.IsZero() {
		until := t.OpenUntil.UTC()
		r.OpenUntil = &until
	}
	return r
}

// stopRecord is the line of a run that an upstream stopped although no breaker
// changed its state.
type stopRecord struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"` // run_stopped
	Process     int       `json:"process"`
	Destination string    `json:"destination"`
	*pipeline.Stop
}

// auditLog writes each record with one call, so that several processes can
// share a file. A nil one writes nothing.
type auditLog struct {
	log    *slog.Logger
	places map[string]stop.Place

	mu      sync.Mutex
	to      *os.File
	changed map[string]bool // breakers with a record since the last run: it says why they are open
}

// write writes a change that this process has made: the others are in the log
// of the process that made them.
func (l *auditLog) write(t resilience.Transition) {
	if t.Origin != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = map[string]bool{}
	}
	l.changed[t.Upstream] = t.To == resilience.Open
	l.addLocked(t.Upstream, newAuditRecord(t, l.places[t.Upstream]))
}

// stopped writes why a run ended, unless the record of the upstream's breaker
// says so.
func (l *auditLog) stopped(s pipeline.Summary) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.changed
	l.changed = nil
	if s.Stopped == nil || s.Stopped.Upstream == "" || changed[s.Stopped.Upstream] {
		return
	}
	l.addLocked(s.Stopped.Upstream, stopRecord{
		Time: time.Now().UTC(), Event: "run_stopped", Process: os.Getpid(), Destination: s.Destination, Stop: s.Stopped,
	})
}

func (l *auditLog) addLocked(upstream string, record any) {
	line, err := json.Marshal(record)
	if err == nil {
		_, err = l.to.Write(append(line, '\n'))
	}
	if err != nil {
		l.log.Error("a record is missing from the audit log", "upstream", upstream, "error", err)
	}
}
