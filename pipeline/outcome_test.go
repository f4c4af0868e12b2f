package pipeline_test

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// gauges are the metrics of a process about runs, without those at 0.
type gauges map[string]float64

// process runs the pipeline of a world with metrics of its own, as the next
// process would.
func (w *world) process(change ...func(*pipeline.Config)) (pipeline.Summary, gauges) {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	counted, err := metrics.NewPipeline(registry)
	require.NoError(w.t, err)
	summary, err := w.run(append(change, func(c *pipeline.Config) { c.Metrics = counted })...)
	if summary.Stopped == nil {
		require.NoError(w.t, err)
	}
	return summary, readGauges(w.t, registry)
}

func readGauges(t testing.TB, registry *prometheus.Registry) gauges {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	found := gauges{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := []string{strings.TrimPrefix(family.GetName(), "ingest_")}
			for _, label := range m.GetLabel() {
				name = append(name, label.GetValue())
			}
			if m.GetGauge().GetValue() != 0 {
				found[strings.Join(name, " ")] = m.GetGauge().GetValue()
			}
		}
	}
	return found
}

// requireDates checks the dates that survive a process, and takes them out, so
// that the others can be compared.
func (g gauges) requireDates(t *testing.T, s pipeline.Summary) gauges {
	t.Helper()
	for name, at := range map[string]*time.Time{
		"last_success_timestamp_seconds": s.LastSuccess, "documents_waiting_since_timestamp_seconds": s.WaitingSince,
	} {
		if at == nil {
			require.NotContains(t, g, name)
			continue
		}
		require.InDelta(t, float64(at.UnixMilli())/1000, g[name], 0.001, name)
		delete(g, name)
	}
	require.Positive(t, g["last_run_timestamp_seconds"])
	delete(g, "last_run_timestamp_seconds")
	return g
}

func up(all ...string) gauges {
	g := gauges{}
	for _, one := range all {
		g["upstream_up "+one] = 1
	}
	return g
}

func (g gauges) with(name string, value float64) gauges { g[name] = value; return g }

// What a run found was lost with its process, so that no alert could fire for
// runs from cron.
func TestGaugesSurviveTheProcess(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	done, got := w.process()
	require.NotNil(t, done.LastSuccess)
	assert.Equal(t, up("llm", "milvus", "s3").with("last_run_result done", 1), got.requireDates(t, done))

	w.corpus(9)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	down, got := w.process()
	assert.Equal(t, done.LastSuccess, down.LastSuccess)
	require.NotNil(t, down.WaitingSince)
	assert.Equal(t, map[string]string{"llm": "down", "milvus": "up", "s3": "up"}, down.Upstreams)
	assert.Equal(t, up("milvus", "s3").with("last_run_result deferred", 1).
		with("documents_waiting", float64(down.Waiting)), got.requireDates(t, down))

	w.model.Script(llmtest.All(llmtest.Status(http.StatusUnauthorized)))
	denied, got := w.process()
	assert.Equal(t, down.WaitingSince, denied.WaitingSince, "since the first of them")
	assert.Equal(t, up("llm", "milvus", "s3").with("credentials_refused llm", 1).with("last_run_result denied", 1).
		with("documents_waiting", float64(denied.Waiting)), got.requireDates(t, denied))

	w.model.Script(llmtest.All(llmtest.RateLimit("3600")))
	throttled, got := w.process()
	assert.Equal(t, up("llm", "milvus", "s3").with("last_run_result deferred", 1).
		with("documents_waiting", float64(throttled.Waiting)), got.requireDates(t, throttled),
		"an upstream that asks for patience is not down, and no longer refuses the key")

	w.model.Script()
	w.write("empty.html", "<title>Nothing</title>")
	again, got := w.process()
	assert.NotEqual(t, done.LastSuccess, again.LastSuccess)
	assert.Equal(t, up("llm", "milvus", "s3").with("last_run_result dead_letters", 1), got.requireDates(t, again))
}

// The gauges are there while a run is under way, too, and a dry run is none.
func TestGaugesBeforeARunEnds(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusUnauthorized)))
	before, _ := w.process()

	registry := prometheus.NewRegistry()
	counted, err := metrics.NewPipeline(registry)
	require.NoError(t, err)
	var during []gauges
	w.model.Script()
	report := w.config.Report
	_, err = w.run(func(c *pipeline.Config) {
		c.Metrics = counted
		c.Report = func(d pipeline.Document) { during = append(during, readGauges(t, registry)); report(d) }
	})
	require.NoError(t, err)
	require.NotEmpty(t, during)
	assert.Positive(t, during[0]["documents_waiting"])
	assert.InDelta(t, 1, during[0]["last_run_result denied"], 0)
	assert.NotContains(t, during[0], "credentials_refused llm", "a document was ingested")
	assert.InDelta(t, float64(before.WaitingSince.UnixMilli())/1000,
		during[0]["documents_waiting_since_timestamp_seconds"], 0.001)

	_, dry := w.process(func(c *pipeline.Config) { c.DryRun = true })
	assert.Empty(t, dry)
}

// A run that the vector store stopped shows nothing about the model server.
func TestWhatARunDoesNotShowStays(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusUnauthorized)))
	w.process()
	s, got := w.process(w.hooked(crash(func(call) bool { return true }), nil))
	assert.Equal(t, map[string]string{"llm": "refused", "milvus": "down", "s3": "up"}, s.Upstreams)
	assert.InDelta(t, 1, got["credentials_refused llm"], 0)
	assert.NotContains(t, got, "upstream_up milvus")
}

// A run with nothing to ingest showed the model server up and its key accepted,
// although it had not called it.
func TestARunShowsOnlyTheUpstreamsThatItCalled(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.txt", "Text.")
	idle := func(change ...func(*pipeline.Config)) (pipeline.Summary, gauges) {
		t.Helper()
		require.NoError(t, os.Rename(filepath.Join(w.dir, "docs"), filepath.Join(w.dir, "elsewhere")))
		require.NoError(t, os.Mkdir(filepath.Join(w.dir, "docs"), 0o755))
		s, got := w.process(change...)
		require.NoError(t, os.Remove(filepath.Join(w.dir, "docs")))
		require.NoError(t, os.Rename(filepath.Join(w.dir, "elsewhere"), filepath.Join(w.dir, "docs")))
		return s, got
	}
	first, got := idle()
	assert.Empty(t, first.Upstreams)
	assert.NotContains(t, got, "upstream_up llm", "no run has called it yet")

	w.model.Script(llmtest.All(llmtest.Status(http.StatusUnauthorized)))
	denied, _ := w.process()
	want := map[string]string{"llm": pipeline.UpstreamRefused, "milvus": pipeline.UpstreamUp, "s3": pipeline.UpstreamUp}
	assert.Equal(t, want, denied.Upstreams)

	w.model.Script()
	s, got := idle()
	assert.Equal(t, want, s.Upstreams)
	assert.Equal(t, 1, s.Waiting)
	assert.InDelta(t, 1, got["credentials_refused llm"], 0)

	dry, _ := w.process(func(c *pipeline.Config) { c.DryRun = true })
	assert.Nil(t, dry.Upstreams, "it calls none")
	deleted, err := w.pipeline().Delete(t.Context(), "docs/b.txt")
	require.NoError(t, err)
	assert.Nil(t, deleted.Upstreams)

	s, got = w.process()
	assert.Equal(t, map[string]string{"llm": "up", "milvus": "up", "s3": "up"}, s.Upstreams)
	assert.NotContains(t, got, "credentials_refused llm")
}

// A summary that cannot be read stopped each run from then on, for the sake of
// the metrics.
func TestRunWithoutTheSummaryOfTheLastOne(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(2)
	require.NoError(t, w.config.Journal.EndRun(t.Context(), "test", time.Now(), []string{"of another version"}))
	s, got := w.process()
	assert.Equal(t, 2, s.Ingested)
	assert.InDelta(t, 1, got["last_run_result done"], 0)
}

// A run whose end could not be written had set the metrics to a success.
func TestNoSuccessWithoutItsRecord(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(2)
	first, _ := w.process()
	w.write("new.txt", "A new note.")
	other, err := sql.Open("sqlite", filepath.Join(w.dir, "journal", "journal.db"))
	require.NoError(t, err)
	defer other.Close()
	_, err = other.ExecContext(t.Context(),
		"CREATE TRIGGER full BEFORE INSERT ON run BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
	require.NoError(t, err)
	s, got := w.process()
	require.NotNil(t, s.Stopped)
	assert.Equal(t, pipeline.StopFault, s.Stopped.Kind)
	assert.Contains(t, s.Stopped.Reason, "the disk is full")
	assert.Equal(t, first.LastSuccess, s.LastSuccess)
	assert.InDelta(t, float64(first.LastSuccess.UnixMilli())/1000, got["last_success_timestamp_seconds"], 0.001)
	assert.InDelta(t, 1, got["last_run_result fault"], 0)
}

// A run that went through and left documents behind found an upstream down only
// if it ingested nothing and an upstream is to blame.
func TestUpstreamsOfARunThatLeftDocuments(t *testing.T) {
	down := map[string]string{"llm": "up", "milvus": "down", "s3": "up"}
	well := map[string]string{"llm": "up", "milvus": "up", "s3": "up"}
	writes := func(c call) bool { return c.method == "Upsert" }
	for name, row := range map[string]struct {
		prepare func(*world)
		change  func(*world) func(*pipeline.Config)
		want    map[string]string
	}{
		"nothing is written": {func(w *world) {}, func(w *world) func(*pipeline.Config) {
			return w.hooked(crash(writes), nil)
		}, down},
		"nothing to do": {func(w *world) { w.process() }, func(w *world) func(*pipeline.Config) {
			return w.hooked(crash(writes), nil)
		}, well},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStillWorld(t)
			w.corpus(2)
			row.prepare(w)
			s, _ := w.process(row.change(w))
			assert.Equal(t, row.want, s.Upstreams)
		})
	}
}

// The last success of a journal of an earlier version is the end of its last
// run, and what it deferred has been waiting since then.
func TestSummaryOfAnEarlierVersion(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	at := time.UnixMilli(1_700_000_000_000).UTC()
	for _, row := range []struct {
		summary         map[string]any
		success, waited *time.Time
	}{
		{map[string]any{"documents": 3}, &at, nil},
		{map[string]any{"deferred": 2, "stopped": map[string]string{"kind": "deferred"}}, nil, &at},
	} {
		require.NoError(t, w.config.Journal.EndRun(t.Context(), "test", at, row.summary))
		w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
		s, _ := w.process()
		assert.Equal(t, row.success, s.LastSuccess)
		if row.waited != nil {
			assert.Equal(t, row.waited, s.WaitingSince)
		}
	}
}
