package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

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

// observer is a Prometheus that scrapes the service, with the alert rules of
// deploy/ on short windows.
type observer struct {
	*testing.T
	*upstreams.Prometheus
}

func observe(t *testing.T, target string) observer {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "circuit_breaker.rules.yml"))
	require.NoError(t, err)
	short := strings.NewReplacer("circuit_breaker_state[2m]", "circuit_breaker_state[2s]", "for: 2m", "for: 1s").
		Replace(string(rules))
	require.NotEqual(t, string(rules), short)
	return observer{t, upstreams.StartPrometheus(t, target, short)}
}

func (o observer) awaitState(state string) {
	o.Helper()
	o.Await(`circuit_breaker_state{upstream="s3"}`, state)
}

const firing = `ALERTS{alertname="CircuitBreakerOpen",alertstate="firing",upstream="s3"}`

// seen is the states that were scraped, repetitions left out.
func (o observer) seen() string {
	o.Helper()
	found := o.Query(`circuit_breaker_state{upstream="s3"}[10m]`)
	require.Len(o, found, 1)
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
	c := newCommand(t, append(keysOf(s3), "PENSTOCK_S3_ENDPOINT="+way.URL, "PENSTOCK_S3_BUCKET="+s3.Bucket)...)
	c.write(t, "docs/before.md", "# Before\n\nThe valve was closed before the flood.\n")
	s := c.serve(t, "--interval=200ms", "--breaker-reset=5s", "--audit-log=audit.jsonl", "docs")
	prometheus := observe(t, s.base)
	s.await(t, "/", "<dt>document complete</dt><dd>1</dd>")
	prometheus.awaitState("0")

	store.Kill(t)
	c.write(t, "docs/during.md", "# During\n\nThe pump ran during the flood.\n")
	prometheus.awaitState("2")
	s.await(t, "/readyz", "not ready: open circuit breakers: s3")
	_, page := s.get(t, "/")
	for _, want := range []string{
		`data-upstream="s3" data-state="open"`, "5 of 5", "<h1>The object store has been failing since ",
		"<bdi>docs/during.md</bdi>", "Last error",
	} {
		assert.Contains(t, page, want)
	}
	status, found := s.get(t, "/search?q=valve")
	assert.Equal(t, http.StatusOK, status, "a search needs no object store")
	assert.Contains(t, found, "before the flood")
	prometheus.Await(firing, "1")

	way.shut()
	store.Start(t)
	prometheus.awaitState("1")
	s.await(t, "/", `data-upstream="s3" data-state="half_open"`)
	way.release()
	prometheus.awaitState("0")
	prometheus.Await(firing, "")
	s.await(t, "/", "<dt>documents complete</dt><dd>2</dd>")
	s.await(t, "/readyz", "ready\n")

	assert.Regexp(t, regexp.MustCompile(`^0 2 (1 2 )*1 0$`), prometheus.seen())
	records := slices.DeleteFunc(c.audit(t), func(l auditLine) bool { return l.To == "" }) // a stop of a pass
	require.GreaterOrEqual(t, len(records), 3)
	assert.Equal(t, "closed open", records[0].From+" "+records[0].To)
	assert.Equal(t, "half_open closed", records[len(records)-1].From+" "+records[len(records)-1].To)
}
