package metrics_test

import (
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// drill is a breaker that a real Prometheus scrapes four times a second.
type drill struct {
	*upstreams.Prometheus
	clock   *testutil.FakeClock
	breaker *resilience.Breaker
}

const drillRules = `
groups:
  - name: drill
    rules:
      - alert: Open
        expr: max_over_time(circuit_breaker_state[1s]) == 2 and circuit_breaker_state > 0
        for: 500ms
`

func startDrill(t *testing.T) *drill {
	t.Helper()
	d := &drill{clock: testutil.NewClock()}
	breakers := registry(d.clock)
	d.breaker = breakers.MustRegister("s3", resilience.Config{ResetTimeout: time.Minute})
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(breakers))
	exporter := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(exporter.Close)
	d.Prometheus = upstreams.StartPrometheus(t, exporter.URL, drillRules)
	return d
}

func (d *drill) awaitState(state int) {
	d.Await(`circuit_breaker_state{upstream="s3"}`, strconv.Itoa(state))
}

func (d *drill) awaitAlert(firing bool) {
	want := ""
	if firing {
		want = "1"
	}
	d.Await(`ALERTS{alertname="Open",alertstate="firing"}`, want)
}

// TestPrometheusSeesAnOutage lets a real Prometheus scrape a breaker through an
// outage: 0, 2, 1, 0, with the alert that its rules raise and withdraw.
func TestPrometheusSeesAnOutage(t *testing.T) {
	drill := startDrill(t)
	drill.awaitState(0)
	drill.breaker.Trip("the upstream is down")
	drill.awaitState(2)
	drill.awaitAlert(true)
	drill.clock.Advance(time.Minute)
	drill.awaitState(1)
	succeed(t, drill.breaker)
	drill.awaitState(0)
	drill.awaitAlert(false)
}
