package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

// drill is a breaker that a real Prometheus scrapes four times a second.
type drill struct {
	t          *testing.T
	clock      *hands
	breaker    *resilience.Breaker
	prometheus string
}

const (
	drillConfig = `
global: {scrape_interval: 250ms, evaluation_interval: 250ms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: drill
    static_configs: [{targets: [%q]}]
`
	drillRules = `
groups:
  - name: drill
    rules:
      - alert: Open
        expr: max_over_time(circuit_breaker_state[1s]) == 2 and circuit_breaker_state > 0
        for: 500ms
`
)

func startDrill(t *testing.T) *drill {
	t.Helper()
	binary := upstreams.Program(t, "prometheus")
	d := &drill{t: t, clock: &hands{}}
	breakers := registry(d.clock)
	d.breaker = breakers.MustRegister("s3", resilience.Config{ResetTimeout: time.Minute})
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(breakers))
	exporter := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(exporter.Close)

	config := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(config, "rules.yml"), []byte(drillRules), 0o600))
	text := fmt.Sprintf(drillConfig, strings.TrimPrefix(exporter.URL, "http://"))
	require.NoError(t, os.WriteFile(filepath.Join(config, "prometheus.yml"), []byte(text), 0o600))
	d.prometheus = "http://" + upstreams.Start(t, upstreams.Spec{
		Name: "prometheus", Ports: 1,
		Command: func(dir string, ports []int) *exec.Cmd {
			return exec.Command(binary, "--config.file="+filepath.Join(config, "prometheus.yml"),
				"--storage.tsdb.path="+dir, fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0]))
		},
		Ready: func(ctx context.Context, addr string) error {
			return getJSON(ctx, "http://"+addr+"/api/v1/query?query=up", &struct{}{})
		},
	}).Addr
	return d
}

func getJSON(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

// query returns the values of an instant query.
func (d *drill) query(expr string) []string {
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	require.NoError(d.t, getJSON(d.t.Context(), d.prometheus+"/api/v1/query?query="+url.QueryEscape(expr), &answer))
	var values []string
	for _, r := range answer.Data.Result {
		values = append(values, r.Value[1].(string))
	}
	return values
}

func (d *drill) await(expr, want string) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return strings.Join(d.query(expr), " ") == want },
		30*time.Second, 100*time.Millisecond, "%s never became %q", expr, want)
}

func (d *drill) awaitState(state int) {
	d.t.Helper()
	d.await(`circuit_breaker_state{upstream="s3"}`, strconv.Itoa(state))
}

func (d *drill) awaitAlert(firing bool) {
	d.t.Helper()
	want := ""
	if firing {
		want = "1"
	}
	d.await(`ALERTS{alertname="Open",alertstate="firing"}`, want)
}
