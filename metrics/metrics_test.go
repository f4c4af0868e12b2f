package metrics_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

var errDown = errors.New("upstream is down")

func registry(clock interface{ Now() time.Time }) *resilience.Registry {
	return resilience.NewRegistry(resilience.Config{Clock: clock, Logger: slog.New(slog.DiscardHandler)})
}

func succeed(t *testing.T, b *resilience.Breaker) {
	t.Helper()
	require.NoError(t, b.Do(t.Context(), func(context.Context) error { return nil }))
}

func refused(t *testing.T, ctx context.Context, b *resilience.Breaker) {
	t.Helper()
	require.ErrorIs(t, b.Do(ctx, func(context.Context) error { return nil }), resilience.ErrOpen)
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
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 2, ResetTimeout: time.Minute})

	for _, step := range []struct {
		name string
		do   func()
		want float64
	}{
		{"before any call", func() {}, 0},
		{"one failure", func() { fail(t, b, 1) }, 0},
		{"the failure that trips it", func() { fail(t, b, 1) }, 2},
		{"just before the reset time", func() { clock.Advance(time.Minute - 1) }, 2},
		{"at the reset time, with no traffic", func() { clock.Advance(1) }, 1},
		{"long after, with no traffic", func() { clock.Advance(time.Hour) }, 1},
		{"a good probe", func() { succeed(t, b) }, 0},
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
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body)
	return recorder.Body.String()
}

func TestCollectorShowsBreakersThatComeLater(t *testing.T) {
	reg := registry(nil)
	collector := metrics.NewCollector(reg)
	assert.Equal(t, 0, promtest.CollectAndCount(collector, "circuit_breaker_state"))
	reg.MustRegister("partner", resilience.Config{})
	assert.Equal(t, 1, promtest.CollectAndCount(collector, "circuit_breaker_state"))
}

func TestMetricNamesPassTheLinter(t *testing.T) {
	problems, err := promtest.GatherAndLint(prometheus.DefaultGatherer, ours(t)...)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// ours are the names of this package's metrics on the default registry.
func ours(t *testing.T) []string {
	t.Helper()
	metrics.DeclareOperations(resilience.LLM, "create_embeddings")
	tellAll(metrics.Ingest) // what is missing until it is known
	families, err := prometheus.Gatherers{prometheus.DefaultGatherer, sharedBreaker(t)}.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "circuit_breaker_") || strings.HasPrefix(f.GetName(), "ingest_") {
			names = append(names, f.GetName())
		}
	}
	require.Greater(t, len(names), 15)
	return names
}

var update = flag.Bool("update", false, "write what is in testdata")

func golden(t *testing.T, name string, reg *prometheus.Registry) {
	t.Helper()
	got := scrape(t, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "if the change is meant: go test ./metrics -update")
}

// TestGoldenExposition holds the whole text after an outage: llm has seen
// nothing, milvus is in the middle of one, s3 waits for a probe.
func TestGoldenExposition(t *testing.T) {
	clock := testutil.NewClock()
	clock.Set(time.Unix(1_700_000_000, 0))
	breakers := registry(clock)
	breakers.MustRegister("llm", resilience.Config{})
	milvus := breakers.MustRegister("milvus", resilience.Config{FailMax: 2})
	s3 := breakers.MustRegister("s3", resilience.Config{
		Trip: trip.CountWindow{Size: 4, MinCalls: 1, FailureRate: 0.5}, ResetTimeout: time.Second,
	})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewCollector(breakers))

	clock.Advance(10 * time.Second)
	succeed(t, milvus)
	fail(t, milvus, 2)
	refused(t, t.Context(), milvus)
	fail(t, s3, 1)
	clock.Advance(5 * time.Second)
	golden(t, "breakers.txt", reg)
}

// tellAll tells a pipeline's metrics of everything.
func tellAll(p *metrics.Pipeline) {
	p.Document("ingested")
	p.Document("dead_letter")
	p.Document("a name from outside")
	p.Chunks(12)
	p.Batch(12, 3400)
	p.Chat(250)
	p.Cache(3, 9)
	p.Queue("embed", 4)
	p.Queue("embed", -1)
	p.Stage("embed", 250*time.Millisecond)
	p.RunEnded(time.Unix(1_700_000_000, 500_000_000), "deferred")
	p.Succeeded(time.Unix(1_690_000_000, 0))
	p.Waiting(52, time.Unix(1_695_000_000, 0))
	p.Upstream("llm", false, false)
	p.Upstream("milvus", true, false)
	p.Upstream("s3", true, true)
}

func TestGoldenExpositionOfAPipeline(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	p, err := metrics.NewPipeline(reg)
	require.NoError(t, err)
	tellAll(p)
	golden(t, "pipeline.txt", reg)
}

func TestPipelineThatIsNotThereCountsNothing(t *testing.T) {
	assert.NotPanics(t, func() { tellAll(nil) })
}
