package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

func TestIngestAndAgain(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(30)
	first, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 30, first.Ingested)
	assert.Equal(t, 30, first.Embedded)
	assert.Equal(t, map[string]string{"s3": "closed", "milvus": "closed", "llm": "closed"}, first.Breakers)
	ids := w.requireComplete(30)
	requests := w.model.Stats().Requests

	second, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 30, second.Unchanged)
	assert.Equal(t, requests, w.model.Stats().Requests, "no work, no check, no call")

	w.write("note003.txt", "Note 3 has changed.")
	third, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, third.Ingested)
	assert.Equal(t, 29, third.Unchanged)
	assert.Equal(t, 1, third.Removed, "the stale chunk")
	now := w.requireComplete(30)
	assert.NotEqual(t, ids, now)

	w.write("note003.txt", "Note 3 says that valve 39 was opened.")
	_, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, ids, w.requireComplete(30), "the same input gives the same ids")
}

func TestMetricsTellOfARun(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(30)
	w.write("empty.html", "<title>Nothing</title>")
	registry := prometheus.NewRegistry()
	counted, err := metrics.NewPipeline(registry)
	require.NoError(t, err)
	_, err = w.run(func(c *pipeline.Config) { c.Metrics = counted })
	require.NoError(t, err)
	_, err = w.run(func(c *pipeline.Config) { c.Metrics = counted })
	require.NoError(t, err)
	values := map[string]float64{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := []string{family.GetName()}
			for _, label := range m.GetLabel() {
				name = append(name, label.GetValue())
			}
			samples := m.GetHistogram().GetSampleCount()
			values[strings.Join(name, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(samples)
		}
	}
	for name, want := range map[string]float64{
		"ingest_documents_total ingested": 30, "ingest_documents_total unchanged": 30,
		"ingest_documents_total dead_letter":       1,
		"ingest_documents_total known_dead_letter": 1, "ingest_chunks_total": 30,
		"ingest_embedding_cache_lookups_total miss": 30, "ingest_queue_depth read": 0, "ingest_queue_depth upsert": 0,
		"ingest_stage_duration_seconds read": 62, "ingest_stage_duration_seconds original": 31,
		"ingest_stage_duration_seconds parse": 31,
	} {
		assert.InDelta(t, want, values[name], 0, name)
	}
	for _, positive := range []string{
		"ingest_tokens_total", "ingest_embedding_batch_texts", "ingest_last_run_timestamp_seconds",
		"ingest_stage_duration_seconds discover", "ingest_stage_duration_seconds embed",
		"ingest_stage_duration_seconds upsert", "ingest_stage_duration_seconds verify",
		"ingest_stage_duration_seconds commit",
	} {
		assert.Positive(t, values[positive], positive)
	}
}

// The stores are the truth: a lost journal costs reads only.
func TestLostJournal(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(20)
	_, err := w.run()
	require.NoError(t, err)
	ids, texts := w.requireComplete(20), w.model.Stats().Texts
	w.loseJournal()
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 20, again.Ingested)
	assert.Zero(t, again.Embedded)
	assert.Equal(t, texts+1, w.model.Stats().Texts, "the check of the model alone")
	assert.Equal(t, ids, w.requireComplete(20))

	w.loseJournal()
	w.write("note003.txt", "# New heading\n\nA new text.\n")
	changed, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, changed.Embedded)
	w.requireComplete(20)
}

func TestEqualTextsAreEmbeddedOnce(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	for i := range 100 {
		w.write(fmt.Sprintf("copy%02d.txt", i), "The same words in every file.")
	}
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 100, summary.Ingested)
	assert.Equal(t, 2, w.model.Stats().Texts, "the text and the check of the model")
	w.requireComplete(100)
}

// A document that is larger than a group goes through in parts.
func TestLargeDocument(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	var text strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&text, "# Chapter %d\n\nChapter %d tells of pump %d.\n\n", i, i, i*3)
	}
	w.write("book.md", text.String())
	w.corpus(10)
	first, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 11, first.Ingested)
	assert.GreaterOrEqual(t, w.reports["docs/book.md"].Chunks, 1500)
	w.requireComplete(11)

	w.write("book.md", strings.Replace(text.String(), "pump 4497", "no pump", 1))
	second, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, second.Embedded, "one chunk is new, the others' vectors are reused or their rows stay")
	w.requireComplete(11)
}

func TestDryRun(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(5)
	w.write("empty.html", "<title>Nothing</title>")
	plan, err := w.run(func(c *pipeline.Config) { c.DryRun = true })
	require.NoError(t, err)
	assert.Equal(t, 5, plan.WouldIngest)
	assert.Equal(t, 1, plan.DeadLetters)
	assert.Positive(t, plan.Tokens)
	assert.Zero(t, w.model.Stats().Requests)
	there, err := w.store.HasCollection(t.Context(), "docs")
	require.NoError(t, err)
	assert.False(t, there)
	totals, err := w.config.Journal.Totals(t.Context(), "test")
	require.NoError(t, err)
	assert.Zero(t, totals)
}

func TestMetaIsKept(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.md", "# Title\n\nA text.\n")
	_, err := w.run(func(c *pipeline.Config) { c.Meta = map[string]string{"team": "search"} })
	require.NoError(t, err)
	list := w.rows()
	require.Len(t, list, 1)
	assert.JSONEq(t, `{"team":"search","title":"Title","start":6,"end":13}`, string(list[0].Meta))
}

func TestInterrupt(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(500)
	ctx, cancel := context.WithCancelCause(t.Context())
	p := w.pipeline()
	cause := errors.New("enough")
	documents := func(yield func(source.Item, error) bool) {
		n := 0
		for item, err := range w.documents() {
			if n++; n == 200 {
				cancel(cause)
			}
			if !yield(item, err) {
				return
			}
		}
	}
	summary, err := p.Run(ctx, documents)
	stop := stopOf(t, err)
	assert.Equal(t, pipeline.StopInterrupted, stop.Kind)
	require.ErrorIs(t, err, cause)
	assert.Less(t, summary.Documents, 500)
	rest, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 500, summary.Ingested+rest.Ingested+rest.Unchanged-summary.Ingested)
	w.requireComplete(500)
	assert.LessOrEqual(t, w.model.Stats().Repeated, 1, "what was in flight was kept")
}

func TestConfigIsChecked(t *testing.T) {
	good := newWorld(t, llmtest.Options{}).config
	for field, spoil := range map[string]func(*pipeline.Config){
		"Vectors":     func(c *pipeline.Config) { c.Vectors = nil },
		"Collection":  func(c *pipeline.Config) { c.Collection = "" },
		"Embeddings":  func(c *pipeline.Config) { c.Embeddings = nil },
		"Model":       func(c *pipeline.Config) { c.Model = "" },
		"Destination": func(c *pipeline.Config) { c.Destination = "" },
		"Dimensions":  func(c *pipeline.Config) { c.Dimensions = -1 },
		"Concurrency": func(c *pipeline.Config) { c.Concurrency = -1 },
		"Batch.Items": func(c *pipeline.Config) { c.Batch.Items = -1 },
		"Meta":        func(c *pipeline.Config) { c.Meta = map[string]string{"page": "1"} },
		"Chunks":      func(c *pipeline.Config) { c.Chunks.Tokens = 10; c.Chunks.Overlap = 10 },
	} {
		config := good
		spoil(&config)
		_, err := pipeline.New(config)
		var wrong *pipeline.ConfigError
		require.ErrorAs(t, err, &wrong, field)
		assert.Equal(t, field, wrong.Field)
	}
	config := good
	config.Meta = map[string]string{"bad key": "1"}
	_, err := pipeline.New(config)
	require.ErrorContains(t, err, "bad key")
	for field, spoil := range map[string]func(*pipeline.Config){
		"Objects": func(c *pipeline.Config) { c.Objects = nil },
		"Bucket":  func(c *pipeline.Config) { c.Bucket = "" },
		"Journal": func(c *pipeline.Config) { c.Journal = nil },
	} {
		config := good
		spoil(&config)
		p, err := pipeline.New(config)
		require.NoError(t, err)
		_, err = p.Run(t.Context(), func(func(source.Item, error) bool) {})
		var wrong *pipeline.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
	}
}

func TestSearch(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("breaker.md", "# Breaker\n\n## Opening\n\nFive consecutive failures open the breaker.\n\n"+
		"## Closing\n\nA good probe closes it.\n")
	w.write("pumps.md", "# Pumps\n\nPump seven is loud in winter.\n")
	_, err := w.run()
	require.NoError(t, err)
	p := w.pipeline()
	hits, err := p.Search(t.Context(), "when does the breaker open?", pipeline.SearchOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, hits)
	assert.Equal(t, "docs/breaker.md", hits[0].Source)
	assert.Equal(t, "Breaker > Opening", hits[0].Heading)
	assert.Contains(t, hits[0].Text, "Five consecutive failures")

	one, err := p.Search(t.Context(), "winter?", pipeline.SearchOptions{Limit: 1})
	require.NoError(t, err)
	require.Len(t, one, 1)
	assert.Equal(t, "docs/pumps.md", one[0].Source)

	_, err = p.Search(t.Context(), "", pipeline.SearchOptions{})
	require.Error(t, err)
	_, err = p.Search(t.Context(), "x", pipeline.SearchOptions{Limit: -1})
	require.Error(t, err)
	_, err = p.Search(t.Context(), "x", pipeline.SearchOptions{Where: "no such ((filter"})
	require.Error(t, err)

	another := w.pipeline(func(c *pipeline.Config) { c.Model = "another" })
	_, err = another.Search(t.Context(), "x", pipeline.SearchOptions{})
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
	nowhere := w.pipeline(func(c *pipeline.Config) { c.Collection = "nowhere" })
	_, err = nowhere.Search(t.Context(), "x", pipeline.SearchOptions{})
	assert.ErrorContains(t, err, "ingest something first")
}

// ranked is a vector store that finds what it is told, by vectors and by text.
type ranked struct {
	*sqlitestore.Store

	byVector, byText []string // ids of rows, best first
}

func found(ids []string) []client.SearchResult {
	scores := make([]float32, len(ids))
	for i := range scores {
		scores[i] = 0.5
	}
	key := entity.NewColumnVarChar(rows.Field.ID, ids)
	fields := client.ResultSet{key}
	for _, name := range []string{rows.Field.Source, rows.Field.Heading, rows.Field.Text} {
		fields = append(fields, entity.NewColumnVarChar(name, slices.Repeat([]string{"x"}, len(ids))))
	}
	meta := slices.Repeat([][]byte{[]byte("{}")}, len(ids))
	fields = append(fields, entity.NewColumnJSONBytes(rows.Field.Meta, meta))
	return []client.SearchResult{{ResultCount: len(ids), Scores: scores, IDs: key, Fields: fields}}
}

func (r *ranked) Search(
	context.Context, string, []string, string, []string, []entity.Vector, string, entity.MetricType, int,
	entity.SearchParam, ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	return found(r.byVector), nil
}

func (r *ranked) SearchText(context.Context, string, string, []string, string, int) ([]client.SearchResult, error) {
	return found(r.byText), nil
}

// Query finds the rows of both rankings by their ids.
func (r *ranked) Query(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	if !slices.Equal(fields, []string{rows.Field.ID}) {
		return r.Store.Query(ctx, collection, partitions, expr, fields, opts...)
	}
	return client.ResultSet{entity.NewColumnVarChar(rows.Field.ID, slices.Concat(r.byVector, r.byText))}, nil
}

func TestRankingsAreFused(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(1)
	_, err := w.run()
	require.NoError(t, err)
	store := &ranked{Store: w.store, byVector: []string{"a", "b"}, byText: []string{"b", "c"}}
	p := w.pipeline(func(c *pipeline.Config) { c.Vectors = store })
	hits, err := p.Search(t.Context(), "valve", pipeline.SearchOptions{})
	require.NoError(t, err)
	require.Len(t, hits, 3)
	assert.Equal(t, []string{"b", "c", "a"}, []string{hits[0].ID, hits[1].ID, hits[2].ID})
	assert.InDelta(t, 2.0/3+1.0/4, hits[0].Score, 1e-9)
	assert.Equal(t, []float64{0.5, 0, 0.5}, []float64{hits[0].Similarity, hits[1].Similarity, hits[2].Similarity})
	store.byVector, store.byText = nil, nil
	hits, err = p.Search(t.Context(), "valve", pipeline.SearchOptions{})
	require.NoError(t, err)
	assert.Empty(t, hits)
}

// The stores are the truth: a journal that mentions a collection that no longer
// exists is not believed.
func TestLostCollection(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(10)
	_, err := w.run()
	require.NoError(t, err)
	ids := w.requireComplete(10)
	texts := w.model.Stats().Texts
	require.NoError(t, w.store.DropCollection(t.Context(), "docs"))

	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 10, again.Ingested)
	assert.Equal(t, ids, w.requireComplete(10))
	assert.Equal(t, texts+1, w.model.Stats().Texts, "the vectors were paid for: the check of the model alone")

	// Another collection under the same name is another collection.
	require.NoError(t, w.store.DropCollection(t.Context(), "docs"))
	require.NoError(t, os.Rename(filepath.Join(w.dir, "docs", "note000.txt"), filepath.Join(w.dir, "note000.txt")))
	_, err = w.run(func(c *pipeline.Config) { c.Destination = "another journal's" })
	require.NoError(t, err)
	w.requireComplete(9)
	require.NoError(t, os.Rename(filepath.Join(w.dir, "note000.txt"), filepath.Join(w.dir, "docs", "note000.txt")))
	_, err = w.run()
	require.NoError(t, err)
	w.requireComplete(10)
}

// An unchanged corpus needs no upstream, not even to find that out.
func TestUnchangedWhileTheStoreIsAway(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	asked := 0
	away := w.hooked(on("HasCollection", func(context.Context, call) error {
		asked++
		return errors.New("connection refused")
	}), nil)
	summary, err := w.run(away)
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Unchanged)
	w.write("new.txt", "A new text.")
	_, err = w.run(away)
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
	assert.Equal(t, 2, asked, "once a run")
}

// What is kept on each row is part of what a document becomes.
func TestMetaChanges(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	summary, err := w.run(func(c *pipeline.Config) { c.Meta = map[string]string{"team": "search"} })
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Ingested)
	assert.Zero(t, summary.Embedded)
	w.requireComplete(3)
	for _, row := range w.rows() {
		assert.Contains(t, string(row.Meta), `"team":"search"`)
	}
}

func TestSearchWhileAnUpstreamIsAway(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	p := w.pipeline()
	for status, kind := range map[int]pipeline.StopKind{
		500: pipeline.StopDeferred, 401: pipeline.StopDenied, 429: pipeline.StopDeferred,
	} {
		w.model.Script(llmtest.All(llmtest.Status(status)))
		_, err = p.Search(t.Context(), "valve", pipeline.SearchOptions{})
		assert.Equal(t, kind, stopOf(t, err).Kind, status)
	}
}

func TestRateLimitOfTheCheckIsWaitedOut(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	w.model.Script(llmtest.First(1, llmtest.RateLimit("1")))
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Ingested)
}

// A file that still cannot be read is no news.
func TestUnreadableIsReportedOnce(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1)
	locked := one(source.Item{
		ID: "docs/locked.txt", Open: func(context.Context) (source.Content, error) { return nil, os.ErrPermission },
	})
	p := w.pipeline()
	first, err := p.Run(t.Context(), locked)
	require.NoError(t, err)
	assert.Equal(t, 1, first.DeadLetters)
	second, err := p.Run(t.Context(), locked)
	require.NoError(t, err)
	assert.Equal(t, 1, second.KnownDeadLetters)
}

// endless is content that no run lives to see the end of.
type endless struct{ first func() }

func (endless) Size() int64  { return 1 << 50 }
func (endless) Close() error { return nil }

func (e endless) ReadAt(p []byte, off int64) (int, error) {
	if off == 0 {
		e.first()
	}
	clear(p)
	return len(p), nil
}

// The end of the run does not wait for the hash of a huge file.
func TestHashEndsWithTheRun(t *testing.T) {
	w := newStillWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := w.pipeline(func(c *pipeline.Config) { c.Grace = time.Hour })
	_, err := p.Run(ctx, one(opened("huge.txt", endless{cancel})))
	assert.Equal(t, pipeline.StopInterrupted, stopOf(t, err).Kind)
	assert.Equal(t, pipeline.Deferred, w.reports["huge.txt"].Result)
	assert.Equal(t, "read", w.reports["huge.txt"].Stage)
}

// A breaker that an operator holds says so in the summary, in which its state
// alone would look like any other.
func TestSummaryShowsHolds(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	p := w.pipeline()
	summary, err := p.Run(t.Context(), w.documents())
	require.NoError(t, err)
	assert.Nil(t, summary.Holds)

	w.config.LLMGuard.Breaker.ForceClose("migration")
	w.config.ObjectGuard.Breaker.ForceOpen("")
	w.corpus(4)
	summary, err = p.Run(t.Context(), w.documents())
	var stopped *pipeline.StopError
	require.ErrorAs(t, err, &stopped)
	assert.Equal(t, pipeline.StopDeferred, stopped.Kind)
	assert.Zero(t, stopped.RetryAt, "only a reset ends it")
	assert.Equal(t, map[string]string{"s3": "open", "milvus": "closed", "llm": "closed"}, summary.Breakers)
	assert.Equal(t, map[string]string{"s3": "forced_open", "llm": "forced_closed: migration"}, summary.Holds)
	text, err := json.Marshal(summary)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"holds":{"llm":"forced_closed: migration","s3":"forced_open"}`)
}
