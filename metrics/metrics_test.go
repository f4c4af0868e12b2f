package metrics_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

// hands is a clock that a test moves.
type hands struct{ now atomic.Int64 }

func (h *hands) Now() time.Time           { return time.Unix(1_700_000_000, h.now.Load()) }
func (h *hands) advance(by time.Duration) { h.now.Add(int64(by)) }

var errDown = errors.New("upstream is down")

func registry(clock resilience.Clock) *resilience.Registry {
	return resilience.NewRegistry(resilience.Config{Clock: clock, Logger: slog.New(slog.DiscardHandler)})
}

func fail(t *testing.T, b *resilience.Breaker, times int) {
	t.Helper()
	for range times {
		require.ErrorIs(t, b.Do(t.Context(), func(context.Context) error { return errDown }), errDown)
	}
}

func stateOf(t *testing.T, reg *resilience.Registry, upstream string) float64 {
	t.Helper()
	gatherer := prometheus.NewPedanticRegistry()
	gatherer.MustRegister(metrics.NewCollector(reg))
	families, err := gatherer.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "circuit_breaker_state" && m.GetLabel()[0].GetValue() == upstream {
				return m.GetGauge().GetValue()
			}
		}
	}
	require.Failf(t, "no series", "circuit_breaker_state{upstream=%q}", upstream)
	return 0
}

func TestMetricGaugeReflectsState(t *testing.T) {
	clock := &hands{}
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 2, ResetTimeout: time.Minute})
	ok := func(context.Context) error { return nil }

	for _, step := range []struct {
		name string
		do   func()
		want float64
	}{
		{"before any call", func() {}, 0},
		{"one failure", func() { fail(t, b, 1) }, 0},
		{"the failure that trips it", func() { fail(t, b, 1) }, 2},
		{"just before the reset time", func() { clock.advance(time.Minute - 1) }, 2},
		{"at the reset time, with no traffic", func() { clock.advance(1) }, 1},
		{"long after, with no traffic", func() { clock.advance(time.Hour) }, 1},
		{"a good probe", func() { require.NoError(t, b.Do(t.Context(), ok)) }, 0},
		{"by hand", func() { b.ForceOpen("maintenance") }, 2},
		{"reset", b.Reset, 0},
	} {
		step.do()
		assert.InDelta(t, step.want, stateOf(t, reg, "s3"), 0, step.name)
	}
}

func TestImportRegistersTheThreeUpstreams(t *testing.T) {
	body := scrape(t, metrics.Handler())
	for _, upstream := range []string{"llm", "milvus", "s3"} {
		assert.Contains(t, body, `circuit_breaker_state{upstream="`+upstream+`"} 0`)
	}
	assert.Contains(t, body, "# TYPE circuit_breaker_state gauge")
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	return string(body)
}

func TestCollectorShowsBreakersThatComeLater(t *testing.T) {
	reg := registry(nil)
	collector := metrics.NewCollector(reg)
	assert.Equal(t, 0, testutil.CollectAndCount(collector, "circuit_breaker_state"))
	reg.MustRegister("partner", resilience.Config{})
	assert.Equal(t, 1, testutil.CollectAndCount(collector, "circuit_breaker_state"))
}

func TestMetricNamesPassTheLinter(t *testing.T) {
	reg := registry(nil)
	reg.MustRegister("s3", resilience.Config{})
	problems, err := testutil.CollectAndLint(metrics.NewCollector(reg))
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestGoldenExposition(t *testing.T) {
	clock := &hands{}
	reg := registry(clock)
	reg.MustRegister("llm", resilience.Config{})
	fail(t, reg.MustRegister("milvus", resilience.Config{FailMax: 1}), 1)
	fail(t, reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Second}), 1)
	clock.advance(time.Second)
	want := `# HELP circuit_breaker_state State of the circuit breaker: 0 closed, 1 half-open, 2 open.
# TYPE circuit_breaker_state gauge
circuit_breaker_state{upstream="llm"} 0
circuit_breaker_state{upstream="milvus"} 2
circuit_breaker_state{upstream="s3"} 1
`
	require.NoError(t, testutil.CollectAndCompare(metrics.NewCollector(reg), strings.NewReader(want)))
}
