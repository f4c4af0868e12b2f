package metrics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// values are the series of one scrape: name{label="value",…} without the
// upstream.
func values(t *testing.T, c prometheus.Collector, upstream string) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if key, mine := series(f.GetName(), m, upstream); mine {
				all[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return all
}

func series(name string, m *dto.Metric, upstream string) (key string, mine bool) {
	var labels []string
	for _, l := range m.GetLabel() {
		if l.GetName() == "upstream" {
			mine = l.GetValue() == upstream
			continue
		}
		labels = append(labels, l.GetValue())
	}
	return strings.TrimPrefix(name, "circuit_breaker_") + " " + strings.Join(labels, " "), mine
}

func TestAnOutageAddsUp(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 2, ResetTimeout: 20 * time.Second})
	c := metrics.NewCollector(reg)

	clock.Advance(10 * time.Second)
	succeed(t, b)
	fail(t, b, 2) // open at 10
	task := resilience.WithTask(t.Context(), "t1")
	refused(t, task, b)
	refused(t, task, b)
	clock.Advance(25 * time.Second) // waits for a call since 30
	fail(t, b, 1)                   // bad probe, open again at 35
	clock.Advance(20 * time.Second)
	succeed(t, b) // good probe, closed at 55
	clock.Advance(5 * time.Second)

	got := values(t, c, "s3")
	for key, want := range map[string]float64{
		"state ":                           0,
		"calls_total success":              2,
		"calls_total failure":              3,
		"calls_total ignored":              0,
		"calls_total rejected":             1,
		"calls_total retried_in_task":      1,
		"opened_total ":                    2,
		"probes_total ":                    2,
		"probe_results_total closed":       1,
		"probe_results_total reopened":     1,
		"transitions_total closed open":    1,
		"transitions_total open half_open": 2,
		"transitions_total half_open open": 1,
		"state_seconds_total closed":       15,
		"state_seconds_total open":         40,
		"state_seconds_total half_open":    5,
		"consecutive_failures_limit ":      2,
		"open_until_timestamp_seconds ":    0,
		"consecutive_failures ":            0,
		"transitions_total closed closed":  0,
		"transitions_total half_open half": 0,
	} {
		assert.InDelta(t, want, got[key], 1e-9, key)
	}
}

func TestSecondsNeverShrink(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Second})
	c := metrics.NewCollector(reg)
	before := values(t, c, "s3")
	for step := range 50 {
		clock.Advance(700 * time.Millisecond)
		_ = b.Do(t.Context(), func(context.Context) error { return []error{nil, errDown}[step%2] })
		now := values(t, c, "s3")
		for _, state := range []string{"closed", "half_open", "open"} {
			key := "state_seconds_total " + state
			assert.GreaterOrEqual(t, now[key], before[key], "%s at step %d", key, step)
		}
		before = now
	}
	total := before["state_seconds_total closed"] + before["state_seconds_total half_open"] +
		before["state_seconds_total open"]
	assert.InDelta(t, 35, total, 1e-6, "no second is counted twice")
}

func TestCountsBeforeTheCollectorAreKept(t *testing.T) {
	reg := registry(testutil.NewClock())
	fail(t, reg.MustRegister("s3", resilience.Config{FailMax: 2}), 2)
	got := values(t, metrics.NewCollector(reg), "s3")
	assert.InDelta(t, 2, got["calls_total failure"], 0)
	assert.InDelta(t, 1, got["opened_total "], 0)
	assert.InDelta(t, 2, got["state "], 0)
}

func TestKeyedBreakersComeAndGo(t *testing.T) {
	reg := registry(testutil.NewClock())
	family, err := reg.Keyed("partner", resilience.Config{MaxKeys: 2})
	require.NoError(t, err)
	c := metrics.NewCollector(reg)
	for _, key := range []string{"a", "b", "c", "d"} {
		succeed(t, family.Get(key))
		assert.LessOrEqual(t, promtest.CollectAndCount(c, "circuit_breaker_state"), 2)
	}
	assert.InDelta(t, 1, values(t, c, "partner/d")["calls_total success"], 0)
}

func TestScrapesAndCallsAtOnce(t *testing.T) {
	reg := registry(nil)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Nanosecond})
	c := metrics.NewCollector(reg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for step := range 2000 {
			_ = b.Do(context.Background(), func(context.Context) error { return []error{nil, errDown}[step%2] })
		}
	}()
	for range 50 {
		promtest.CollectAndCount(c)
	}
	<-done
	got := values(t, c, "s3")
	assert.InDelta(t, got["opened_total "],
		got["transitions_total closed open"]+got["transitions_total half_open open"], 0)
}

// The cost of being watched: a call on a breaker that no collector knows, on
// one that a collector follows, and on one whose calls are timed too.
func BenchmarkCall(b *testing.B) {
	work := func(context.Context) error { return nil }
	ctx := context.Background()
	b.Run("unwatched", func(b *testing.B) {
		breaker := resilience.NewRegistry(resilience.Config{}).MustRegister("bench", resilience.Config{})
		for b.Loop() {
			_ = breaker.Do(ctx, work)
		}
	})
	reg := registry(nil)
	breaker := reg.MustRegister("bench", resilience.Config{})
	promtest.CollectAndCount(metrics.NewCollector(reg))
	b.Run("collected", func(b *testing.B) {
		for b.Loop() {
			_ = breaker.Do(ctx, work)
		}
	})
	b.Run("timed", func(b *testing.B) {
		for b.Loop() {
			start := time.Now()
			_ = breaker.Do(ctx, work)
			metrics.ObserveCall(breaker, "work", time.Since(start))
		}
	})
}

func BenchmarkScrape(b *testing.B) {
	c := metrics.NewCollector(resilience.Default)
	for b.Loop() {
		promtest.CollectAndCount(c)
	}
}
