package main

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
)

// outage is a drill: a service whose model server dies while a Prometheus with
// the rules of deploy/ scrapes it. The steps are logged with the time since the
// last thing that was done to the server.
type outage struct {
	*testing.T
	*served
	prometheus *upstreams.Prometheus
	did        string
	at         time.Time
}

func (o *outage) do(what string, fn func()) {
	o.Helper()
	fn()
	o.did, o.at = what, time.Now()
}

// step waits for something to be seen; the limit is for a machine that is busy.
func (o *outage) step(seen string, look func() bool) {
	o.Helper()
	eventuallyWithin(o.T, 5*time.Minute, 100*time.Millisecond, look, seen)
	o.Logf("%-26s + %5.1f s: %s", o.did, time.Since(o.at).Seconds(), seen)
}

func (o *outage) answers(path string, status int, texts ...string) func() bool {
	return func() bool {
		got, body := o.get(o.T, path)
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return false
			}
		}
		return got == status
	}
}

func (o *outage) alert(name string, want int) func() bool {
	return func() bool {
		return len(o.prometheus.Query(`ALERTS{alertname="`+name+`",alertstate="firing",upstream="llm"}`)) == want
	}
}

// gauge looks for the value of a series of the service.
func (o *outage) gauge(series, value string) func() bool {
	return o.answers("/metrics", http.StatusOK, "\n"+series+" "+value+"\n")
}

// TestDrillTheModelServerDies is the drill of docs/operations.md. With
// PENSTOCK_LONG=1 it takes the times of the defaults, five minutes.
func TestDrillTheModelServerDies(t *testing.T) {
	model := upstreams.StartLlama(t)
	c := newCommand(t, "PENSTOCK_LLM_BASE_URL="+upstreams.LlamaURL(model), "PENSTOCK_EMBEDDING_MODEL=smollm2")
	c.write(t, "docs/before.md", "# Before\n\nThe valve was closed before the flood.\n")
	flags, change := []string{"--interval=200ms", "--breaker-reset=3s"}, shortened
	if os.Getenv("PENSTOCK_LONG") == "1" {
		flags, change = nil, nil
	}
	s := c.serve(t, append(flags, "--audit-log=audit.jsonl", "docs")...)
	o := &outage{T: t, served: s, prometheus: watch(t, s.base, nowhere, change...)}
	o.do("service started", func() {})
	o.step("the first document is complete", o.gauge(`ingest_documents_total{result="ingested"}`, "1"))
	o.step("/readyz 200", o.answers("/readyz", http.StatusOK, "ready\n"))

	o.do("model server killed", func() { model.Kill(t) })
	c.write(t, "docs/during.md", "# During\n\nThe pump ran during the flood.\n")
	o.step("/readyz 503, with the cause", o.answers("/readyz", http.StatusServiceUnavailable, "connection refused"))
	_, ready := o.get(t, "/readyz")
	o.step("the page has the cause", o.answers("/", http.StatusOK, "connection refused", `data-upstream="llm"`))
	o.step("ingest_upstream_up is 0", o.gauge(`ingest_upstream_up{upstream="llm"}`, "0"))
	o.step("a document waits", o.gauge("ingest_documents_waiting", "1"))
	o.step("IngestUpstreamDown fires", o.alert("IngestUpstreamDown", 1))
	o.step("the breaker has opened", o.reached(t, `circuit_breaker_opened_total{upstream="llm"}`, 1))
	o.step("CircuitBreakerOpen fires", o.alert("CircuitBreakerOpen", 1))

	o.do("model server started again", func() { model.Start(t) })
	o.step("/readyz 200", o.answers("/readyz", http.StatusOK, "ready\n"))
	o.step("nothing waits", o.gauge("ingest_documents_waiting", "0"))
	o.step("the second document is complete", o.gauge(`ingest_documents_total{result="ingested"}`, "2"))
	o.step("the alerts are over", func() bool {
		return o.alert("IngestUpstreamDown", 0)() && o.alert("CircuitBreakerOpen", 0)()
	})
	code, _ := s.stop(t, syscall.SIGTERM)
	assert.Zero(t, code)

	o.order(c, ready)
}

// order checks what happened in which order by the dates of the service itself.
func (o *outage) order(c *command, ready string) {
	o.Helper()
	since := regexp.MustCompile(`since ([0-9T:Z-]+)`).FindStringSubmatch(ready)
	require.NotNil(o, since, ready)
	notReady, err := time.Parse(time.RFC3339, since[1])
	require.NoError(o, err)
	var opened time.Time
	var states []string
	for _, line := range c.audit(o.T) {
		if line.all["event"] != "circuit_breaker_transition" {
			continue
		}
		if states = append(states, line.From+" "+line.To); line.From == "closed" {
			opened, err = time.Parse(time.RFC3339Nano, line.all["time"].(string))
			require.NoError(o, err)
			assert.InDelta(o, 5, line.all["failures"], 0, "doomed calls until it opened")
		}
	}
	assert.Regexp(o, `^closed open(,open half_open,half_open open)*,open half_open,half_open closed$`,
		strings.Join(states, ","))
	assert.False(o, opened.Before(notReady), "it was not ready before the breaker opened")
}
