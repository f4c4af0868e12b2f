package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
)

// gate stands before a server and holds requests back while it is shut, so that
// a probe lasts as long as a test wants.
type gate struct {
	*httptest.Server

	mu   sync.Mutex
	open chan struct{} // closed while requests may pass
}

func newGate(t *testing.T, target string) *gate {
	t.Helper()
	address, err := url.Parse(target)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(address)
			r.Out.Host = r.In.Host // the signature covers it
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	g := &gate{open: make(chan struct{})}
	close(g.open)
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// observer is a Prometheus that scrapes the service four times a second, with
// the alert rules of deploy/ on short windows.
type observer struct {
	t    *testing.T
	base string
}

const observerConfig = `
global: {scrape_interval: 250ms, evaluation_interval: 250ms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: ingest
    static_configs: [{targets: [%q]}]
`

func observe(t *testing.T, target string) *observer {
	t.Helper()
	binary := upstreams.Program(t, "prometheus")
	rules, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "circuit_breaker.rules.yml"))
	require.NoError(t, err)
	short := strings.NewReplacer("circuit_breaker_state[2m]", "circuit_breaker_state[2s]", "for: 2m", "for: 1s").Replace(string(rules))
	require.NotEqual(t, string(rules), short)
	config := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(config, "rules.yml"), []byte(short), 0o600))
	text := fmt.Sprintf(observerConfig, strings.TrimPrefix(target, "http://"))
	require.NoError(t, os.WriteFile(filepath.Join(config, "prometheus.yml"), []byte(text), 0o600))
	process := upstreams.Start(t, upstreams.Spec{
		Name: "prometheus", Ports: 1,
		Command: func(dir string, ports []int) *exec.Cmd {
			return exec.Command(binary, "--config.file="+filepath.Join(config, "prometheus.yml"),
				"--storage.tsdb.path="+dir, fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0]))
		},
		Ready: func(ctx context.Context, addr string) error {
			_, err := query(ctx, "http://"+addr, "up")
			return err
		},
	})
	return &observer{t: t, base: "http://" + process.Addr}
}

// series is one series of an answer: the value of an instant query, or the
// values of a range.
type series struct {
	Value  [2]any
	Values [][2]any
}

func query(ctx context.Context, base, expr string) ([]series, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	var answer struct{ Data struct{ Result []series } }
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	return answer.Data.Result, err
}

func (o *observer) await(expr, want string) {
	o.t.Helper()
	require.Eventually(o.t, func() bool {
		found, err := query(o.t.Context(), o.base, expr)
		require.NoError(o.t, err)
		var values []string
		for _, s := range found {
			values = append(values, fmt.Sprint(s.Value[1]))
		}
		return strings.Join(values, " ") == want
	}, time.Minute, 100*time.Millisecond, "%s never became %q", expr, want)
}

func (o *observer) awaitState(state string) {
	o.t.Helper()
	o.await(`circuit_breaker_state{upstream="s3"}`, state)
}

const firing = `ALERTS{alertname="CircuitBreakerOpen",alertstate="firing",upstream="s3"}`

// seen is the states that were scraped, repetitions left out.
func (o *observer) seen() string {
	o.t.Helper()
	found, err := query(o.t.Context(), o.base, `circuit_breaker_state{upstream="s3"}[10m]`)
	require.NoError(o.t, err)
	require.Len(o.t, found, 1)
	var states []string
	for _, v := range found[0].Values {
		states = append(states, fmt.Sprint(v[1]))
	}
	return strings.Join(slices.Compact(states), " ")
}

// TestServeThroughAnOutage takes a real object store away from a service and
// gives it back, while a real Prometheus looks on.
func TestServeThroughAnOutage(t *testing.T) {
	store, s3 := upstreams.StartSeaweedFS(t)
	way := newGate(t, s3.Endpoint)
	c := newCommand(t, "PENSTOCK_S3_ENDPOINT="+way.URL, "AWS_REGION="+s3.Region, "PENSTOCK_S3_BUCKET="+s3.Bucket,
		"AWS_ACCESS_KEY_ID="+s3.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3.SecretKey)
	c.write(t, "docs/before.md", "# Before\n\nThe valve was closed before the flood.\n")
	s := c.serve(t, "--interval=200ms", "--breaker-reset=5s", "--audit-log=audit.jsonl", "docs")
	prometheus := observe(t, s.base)
	s.await(t, "/", "<dt>documents complete</dt><dd>1</dd>")
	prometheus.awaitState("0")

	store.Kill(t)
	c.write(t, "docs/during.md", "# During\n\nThe pump ran during the flood.\n")
	prometheus.awaitState("2")
	s.await(t, "/readyz", "not ready: open circuit breakers: s3")
	_, page := s.get(t, "/")
	for _, want := range []string{`data-upstream="s3" data-state="open"`, "5 of 5", "<bdi>docs/during.md</bdi>", "Last error"} {
		assert.Contains(t, page, want)
	}
	status, found := s.get(t, "/search?q=valve")
	assert.Equal(t, http.StatusOK, status, "a search needs no object store")
	assert.Contains(t, found, "before the flood")
	prometheus.await(firing, "1")

	way.shut()
	store.Start(t)
	prometheus.awaitState("1")
	s.await(t, "/", `data-upstream="s3" data-state="half_open"`)
	way.release()
	prometheus.awaitState("0")
	prometheus.await(firing, "")
	s.await(t, "/", "<dt>documents complete</dt><dd>2</dd>")
	s.await(t, "/readyz", "ready\n")

	assert.Regexp(t, regexp.MustCompile(`^0 2 (1 2 )*1 0$`), prometheus.seen())
	records := c.audit(t)
	require.GreaterOrEqual(t, len(records), 3)
	assert.Equal(t, "closed open", records[0].From+" "+records[0].To)
	assert.Equal(t, "half_open closed", records[len(records)-1].From+" "+records[len(records)-1].To)
}
