package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// nowhere is an address that nothing is scraped from.
const nowhere = "127.0.0.1:1"

// watch starts a Prometheus with the configuration and the rules of deploy/,
// which scrapes a service and a Pushgateway. change holds pairs of texts, what
// the files have and what stands in its place.
func watch(t *testing.T, service, gateway string, change ...string) *upstreams.Prometheus {
	t.Helper()
	addresses := strings.NewReplacer(
		"127.0.0.1:8091", strings.TrimPrefix(service, "http://"),
		"127.0.0.1:9091", strings.TrimPrefix(gateway, "http://"))
	deploy, config := filepath.Join("..", "..", "deploy", "prometheus"), t.TempDir()
	for _, name := range []string{"prometheus.yml", "circuit_breaker.rules.yml", "ingest.rules.yml"} {
		text, err := os.ReadFile(filepath.Join(deploy, name))
		require.NoError(t, err)
		changed := strings.NewReplacer(change...).Replace(addresses.Replace(string(text)))
		require.NoError(t, os.WriteFile(filepath.Join(config, name), []byte(changed), 0o600))
	}
	return upstreams.StartPrometheusWith(t, filepath.Join(config, "prometheus.yml"))
}

// shortened are the times of the rules in a test that does not wait for them.
var shortened = []string{
	"interval: 15s", "interval: 250ms", "for: 15s", "for: 1s",
	"for: 2m", "for: 1s", "circuit_breaker_state[2m]", "circuit_breaker_state[2s]",
	"> 2 * 3600", "> 1", "> 26 * 3600", "> 1",
}

func firingAlert(name string) string {
	return `count by (alertname) (ALERTS{alertname="` + name + `",alertstate="firing",job="nightly"})`
}

// Six runs with exit code 75 and four with 77, pushed to a Pushgateway, fired
// no alert: each replaced its counters by the same numbers, and its breakers by
// closed ones.
func TestAlertsFireForRunsThatPush(t *testing.T) {
	gateway := upstreams.StartPushgateway(t)
	prometheus := watch(t, nowhere, gateway, shortened...)
	c, model := withModel(t, llmtest.Options{})
	c.env = append(c.env, "PENSTOCK_PUSHGATEWAY="+gateway, "PENSTOCK_PUSHGATEWAY_JOB=nightly")
	firing := func(alert string) { t.Helper(); prometheus.Await(firingAlert(alert), "1") }
	quiet := func(alert string) { t.Helper(); prometheus.Await(firingAlert(alert), "") }
	runs := func(times, code int) {
		t.Helper()
		for range times {
			o := c.run(t, "docs")
			require.Equal(t, code, o.code, o.stdout+o.stderr)
			require.NotContains(t, o.stderr, "not delivered")
		}
	}
	const succeeded = `ingest_last_success_timestamp_seconds{job="nightly"}`
	c.write(t, "docs/before.md", "A valve.")
	runs(1, 0)
	prometheus.Await(`ingest_last_run_result{job="nightly",result="done"}`, "1")
	success := prometheus.Query(succeeded)[0].Value[1].(string)
	quiet("IngestUpstreamDown")

	c.write(t, "docs/during.md", "A pump.")
	model.Script(llmtest.All(inOwnWords(http.StatusInternalServerError)))
	runs(1, exitTemporary)
	firing("IngestUpstreamDown") // after the first
	runs(3, exitTemporary)
	firing("IngestUpstreamDown")
	firing("IngestBacklog")
	firing("IngestNoSuccess")
	prometheus.Await(succeeded, success)
	prometheus.Await(`circuit_breaker_state{job="nightly",upstream="llm"}`, "0")
	runs(2, exitTemporary) // the breaker opens, and refuses
	prometheus.Await(`circuit_breaker_state{job="nightly",upstream="llm"}`, "2")
	firing("IngestUpstreamDown")
	require.NoError(t, os.Remove(c.path(".penstock", breakersFile)))

	model.Script(llmtest.All(inOwnWords(http.StatusUnauthorized)))
	runs(4, exitDenied)
	firing("IngestCredentialsRefused")
	quiet("IngestUpstreamDown")
	firing("IngestBacklog")
	const denied = `circuit_breaker_calls_total{job="nightly",outcome="denied",upstream="llm"}`
	prometheus.Await(denied, "1")
	prometheus.Await(`increase(`+denied+`[10m]) < bool 2`, "1") // four refusals look like one

	c.rename(t, "docs", "unmounted")
	runs(1, exitUsage)
	firing("IngestRunFailed")
	firing("IngestCredentialsRefused")
	prometheus.Await(succeeded, success)

	c.rename(t, "unmounted", "docs")
	model.Script()
	runs(1, 0)
	quiet("IngestUpstreamDown")
	quiet("IngestCredentialsRefused")
	quiet("IngestRunFailed")
	quiet("IngestBacklog")
	prometheus.Await(succeeded+" > bool "+success, "1")
}
