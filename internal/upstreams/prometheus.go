package upstreams

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Prometheus is a server that scrapes its targets and evaluates its rules.
type Prometheus struct {
	t    testing.TB
	base string
}

// Series is one series of an answer: the value of an instant query, or the
// values of a range. Each is a time and a number written as text.
type Series struct {
	Value  [2]any
	Values [][2]any
}

// A target that is a Pushgateway keeps the names of its jobs.
const prometheusConfig = `
global: {scrape_interval: 250ms, evaluation_interval: 250ms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: test
    honor_labels: true
    static_configs: [{targets: [%q]}]
`

// StartPrometheus starts a Prometheus for this test alone, which scrapes and
// evaluates four times a second. target is the http://host:port that serves
// /metrics, rules the text of its file of rules.
func StartPrometheus(t testing.TB, target, rules string) *Prometheus {
	t.Helper()
	config := t.TempDir()
	for name, text := range map[string]string{
		"rules.yml":      rules,
		"prometheus.yml": fmt.Sprintf(prometheusConfig, strings.TrimPrefix(target, "http://")),
	} {
		check(t, os.WriteFile(filepath.Join(config, name), []byte(text), 0o600))
	}
	return StartPrometheusWith(t, filepath.Join(config, "prometheus.yml"))
}

// StartPrometheusWith starts a Prometheus for this test alone with a
// configuration of its own, by the path of the file.
func StartPrometheusWith(t testing.TB, config string) *Prometheus {
	t.Helper()
	binary := Program(t, "prometheus")
	process := Start(t, Spec{
		Name: "prometheus", Ports: 1,
		Command: func(dir string, ports []int) *exec.Cmd {
			return exec.Command(binary, "--config.file="+config,
				"--storage.tsdb.path="+dir, fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0]))
		},
		Ready: func(ctx context.Context, addr string) error {
			_, err := query(ctx, "http://"+addr, "up")
			return err
		},
	})
	return &Prometheus{t: t, base: "http://" + process.Addr}
}

// StartPushgateway starts a Pushgateway for this test alone and returns its
// address.
func StartPushgateway(t testing.TB) string {
	t.Helper()
	binary := Program(t, "prometheus-pushgateway", "pushgateway")
	process := Start(t, Spec{
		Name: "pushgateway", Ports: 1,
		Command: func(_ string, ports []int) *exec.Cmd {
			return exec.Command(binary, fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0]))
		},
		Ready: func(ctx context.Context, addr string) error {
			return ask(ctx, http.MethodGet, "http://"+addr+"/-/ready", "")
		},
	})
	return "http://" + process.Addr
}

// Query evaluates an expression now.
func (p *Prometheus) Query(expr string) []Series {
	p.t.Helper()
	found, err := query(p.t.Context(), p.base, expr)
	if err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	return found
}

// awaitLimit is how long Await waits, for alerts that take minutes too.
const awaitLimit = 5 * time.Minute

// Await waits for at most five minutes until the values of an expression are
// those that want lists, with spaces in between.
func (p *Prometheus) Await(expr, want string) {
	p.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.After(awaitLimit)
	for {
		var values []string
		for _, s := range p.Query(expr) {
			values = append(values, fmt.Sprint(s.Value[1]))
		}
		got := strings.Join(values, " ")
		if got == want {
			return
		}
		select {
		case <-late:
			p.t.Fatalf("%s is %q and never became %q", expr, got, want)
		case <-tick.C:
		}
	}
}

func query(ctx context.Context, base, expr string) ([]Series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	var answer struct{ Data struct{ Result []Series } }
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	return answer.Data.Result, err
}
