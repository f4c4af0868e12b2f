package metrics_test

import (
	"context"
	"crypto/rand"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// family is a family with a prefix of its own, since all tests share the
// durations, which are rid of it when the test ends.
func family(t *testing.T, cfg resilience.Config) (*resilience.Registry, *resilience.Keyed) {
	t.Helper()
	reg := registry(nil)
	keyed, err := reg.Keyed(rand.Text(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		for key := range keyed.All() {
			keyed.Delete(key)
		}
	})
	return reg, keyed
}

// timed calls through b, and records how long that took as the doors do.
func timed(t *testing.T, b *resilience.Breaker, operation string) {
	t.Helper()
	require.NoError(t, b.Do(t.Context(), func(context.Context) error {
		metrics.ObserveCall(b, operation, 30*time.Millisecond)
		return nil
	}))
}

// counts are the calls that the durations have of each breaker and operation,
// "breaker operation", of those whose name begins with the prefix.
func counts(t *testing.T, prefix string) map[string]uint64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(metrics.Durations()))
	families, err := reg.Gather()
	require.NoError(t, err)
	all := make(map[string]uint64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			operation, upstream := m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue()
			if strings.HasPrefix(upstream, prefix) {
				all[upstream+" "+operation] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return all
}

func TestObserveCall(t *testing.T) {
	b := registry(nil).MustRegister(rand.Text(), resilience.Config{})
	metrics.DeclareOperations(b, "put_object", "get_object")
	metrics.ObserveCall(b, "put_object", 30*time.Millisecond)
	text := scrape(t, metrics.Handler())
	for _, line := range []string{
		`_bucket{operation="put_object",upstream="` + b.Name() + `",le="0.025"} 0`,
		`_bucket{operation="put_object",upstream="` + b.Name() + `",le="0.05"} 1`,
		`_count{operation="get_object",upstream="` + b.Name() + `"} 0`,
	} {
		assert.True(t, strings.Contains(text, "\ncircuit_breaker_call_duration_seconds"+line+"\n"), line)
	}
}

func TestDurationsOfKeyedBreakersAreOffByDefault(t *testing.T) {
	_, keyed := family(t, resilience.Config{MaxKeys: 1})
	b := keyed.Get("a")
	metrics.DeclareOperations(b, "embed")
	timed(t, b, "embed")
	permit, err := b.Allow(t.Context())
	require.NoError(t, err)
	timed(t, keyed.Get("b"), "embed") // no room
	permit.Done(nil)
	assert.Empty(t, counts(t, b.Family()))
}

func TestDurationsGoWithTheirBreaker(t *testing.T) {
	_, keyed := family(t, resilience.Config{MaxKeys: 10, Durations: true})
	prefix := keyed.Get("0").Family()
	for i := range 5000 {
		b := keyed.Get(strconv.Itoa(i))
		metrics.DeclareOperations(b, "embed", "chat")
		timed(t, b, "embed")
		if i%1000 == 999 {
			assert.Len(t, counts(t, prefix), 20)
		}
	}
	got := counts(t, prefix)
	assert.Equal(t, uint64(1), got[prefix+"/4999 embed"])
	assert.NotContains(t, got, prefix+"/0 embed")
	assert.True(t, keyed.Delete("4999"))
	assert.NotContains(t, counts(t, prefix), prefix+"/4999 embed")
}

func TestDurationsOfAKeyThatComesBack(t *testing.T) {
	for name, scrapes := range map[string]bool{"with a scrape between": true, "without": false} {
		_, keyed := family(t, resilience.Config{MaxKeys: 1, Durations: true})
		held := keyed.Get("held")
		prefix := held.Family()
		timed(t, held, "embed")
		timed(t, keyed.Get("other"), "embed")
		if scrapes {
			assert.Equal(t, map[string]uint64{prefix + "/other embed": 1}, counts(t, prefix), name)
		}
		timed(t, held, "embed") // takes its place again
		got := counts(t, prefix)
		assert.Len(t, got, 1, name)
		assert.Positive(t, got[prefix+"/held embed"], name)
	}
}

// TestALateCallBringsNoSeriesBack records a call after the family has forgotten
// its breaker.
func TestALateCallBringsNoSeriesBack(t *testing.T) {
	_, keyed := family(t, resilience.Config{MaxKeys: 1, Durations: true})
	late := keyed.Get("a")
	keyed.Get("b")
	require.True(t, late.Forgotten())
	for range 3 {
		metrics.ObserveCall(late, "embed", time.Millisecond)
	}
	prefix := late.Family()
	assert.Equal(t, map[string]uint64{prefix + "/(overflow) embed": 3}, counts(t, prefix))
}

// TestDurationsOfKeysWithoutRoom has a call go through the breaker that they
// share, by whichever name it was asked for.
func TestDurationsOfKeysWithoutRoom(t *testing.T) {
	_, keyed := family(t, resilience.Config{MaxKeys: 1, Durations: true})
	early := keyed.Get("early")
	permit, err := keyed.Allow(t.Context(), "busy")
	require.NoError(t, err)
	defer permit.Done(nil)
	timed(t, early, "embed")
	timed(t, keyed.Get("late"), "embed")
	prefix := early.Family()
	assert.Equal(t, map[string]uint64{prefix + "/(overflow) embed": 2}, counts(t, prefix))
}

// TestDurationsOfOneNameInTwoRegistries are one series, and no duplicate that
// would fail the scrape.
func TestDurationsOfOneNameInTwoRegistries(t *testing.T) {
	_, keyed := family(t, resilience.Config{MaxKeys: 1, Durations: true})
	b := keyed.Get("a")
	prefix := b.Family()
	twin, err := registry(nil).Keyed(prefix, resilience.Config{Durations: true})
	require.NoError(t, err)
	timed(t, b, "embed")
	timed(t, twin.Get("a"), "embed")
	assert.Equal(t, map[string]uint64{prefix + "/a embed": 2}, counts(t, prefix))
	keyed.Get("b")
	timed(t, twin.Get("a"), "embed")
	assert.Positive(t, counts(t, prefix)[prefix+"/a embed"], "the twin has it now")
	timed(t, registry(nil).MustRegister(prefix+"/a", resilience.Config{}), "embed")
	twin.Delete("a")
	assert.Positive(t, counts(t, prefix)[prefix+"/a embed"], "it stays with a single breaker")
}

// TestNothingKeepsAForgottenBreaker holds for the durations and for a collector
// that is not scraped again.
func TestNothingKeepsAForgottenBreaker(t *testing.T) {
	reg, keyed := family(t, resilience.Config{MaxKeys: 1, Durations: true})
	timed(t, keyed.Get("a"), "embed")
	gone := weak.Make(keyed.Get("a"))
	c := metrics.NewCollector(reg)
	assert.NotEmpty(t, values(t, c, keyed.Get("a").Name()))
	timed(t, keyed.Get("b"), "embed")
	for range 5 {
		runtime.GC()
	}
	assert.Nil(t, gone.Value())
	runtime.KeepAlive(c)
	runtime.KeepAlive(keyed)
}

func TestDurationsAreBoundedUnderLoad(t *testing.T) {
	_, keyed := family(t, resilience.Config{MaxKeys: 8, Durations: true})
	prefix := keyed.Get("0").Family()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 2000 {
				b := keyed.Get(strconv.Itoa(i % 50))
				_ = b.Do(t.Context(), func(context.Context) error {
					metrics.ObserveCall(b, "embed", time.Millisecond)
					return nil
				})
				metrics.ObserveCall(b, "embed", time.Millisecond) // perhaps too late
			}
		})
	}
	for range 50 {
		assert.LessOrEqual(t, len(counts(t, prefix)), 9)
	}
	callers.Wait()
	assert.LessOrEqual(t, len(counts(t, prefix)), 9)
}

// documented are the numbers that docs/metrics.md gives in bold for a kind of
// series.
func documented(t *testing.T, what string) int {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`\*\*([0-9,]+)\*\*\s+` + strings.ReplaceAll(what, " ", `\s+`)).FindSubmatch(text)
	require.NotNil(t, found, "docs/metrics.md has no number of %s", what)
	n, err := strconv.Atoi(strings.ReplaceAll(string(found[1]), ",", ""))
	require.NoError(t, err)
	return n
}

// lines is how many lines of a scrape belong to breakers of a family.
func lines(t *testing.T, c prometheus.Collector, prefix string) (n int) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if hasPrefix(m, prefix) {
				n++
				if h := m.GetHistogram(); h != nil {
					n += len(h.GetBucket()) + 2 // +Inf, the sum, the count
				}
			}
		}
	}
	return n
}

func hasPrefix(m *dto.Metric, prefix string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == "upstream" && strings.HasPrefix(l.GetValue(), prefix) {
			return true
		}
	}
	return false
}

// TestSeriesOfAFullFamilyAreAsDocumented fills a family of the default size, so
// that a further key has no room.
func TestSeriesOfAFullFamilyAreAsDocumented(t *testing.T) {
	reg, keyed := family(t, resilience.Config{Durations: true})
	prefix := keyed.Get("0").Family()
	const size = 1024 // the default MaxKeys
	c := metrics.NewCollector(reg)
	for i := range size + 10 {
		b := keyed.Get(strconv.Itoa(i))
		metrics.DeclareOperations(b, "embed", "chat")
		permit, err := b.Allow(t.Context())
		require.NoError(t, err)
		defer permit.Done(nil)
	}
	require.Len(t, reg.All(), size)
	keyed.Get("no room").Trip("shown once it has something to show")
	require.ErrorIs(t, keyed.Get("no room").Do(t.Context(), func(context.Context) error { return nil }),
		resilience.ErrOpen)

	each, hist := documented(t, "series for each breaker"), documented(t, "series for each operation")
	assert.Equal(t, each*(size+1), lines(t, c, prefix))
	assert.Equal(t, documented(t, "series of a full family"), lines(t, c, prefix))
	assert.Equal(t, 2*hist*(size+1), lines(t, metrics.Durations(), prefix))
	assert.Equal(t, documented(t, "more with two operations"), lines(t, metrics.Durations(), prefix))
	assert.Equal(t, each, lines(t, single(t), "single"))
}

func single(t *testing.T) prometheus.Collector {
	t.Helper()
	reg := registry(testutil.NewClock())
	reg.MustRegister("single", resilience.Config{})
	return metrics.NewCollector(reg)
}
