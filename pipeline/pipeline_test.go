package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// world is a pipeline over embedded stores and a model server that fails on
// command, with breakers of its own.
type world struct {
	t       *testing.T
	dir     string
	model   *llmtest.Server
	store   *sqlitestore.Store
	config  Config
	mu      sync.Mutex
	reports map[string]Document // of the last run
}

func newWorld(t *testing.T, options llmtest.Options) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), model: llmtest.NewServer(t, options)}
	objects, err := filestore.Open(filepath.Join(w.dir, "objects"))
	require.NoError(t, err)
	w.store, err = sqlitestore.Open(filepath.Join(w.dir, "vectors.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.store.Close()); assert.NoError(t, objects.Close()) })
	j, err := journal.Open(t.Context(), filepath.Join(w.dir, "journal"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.config.Journal.Close()) })
	embeddings, err := llm.NewClient(llm.Config{BaseURL: w.model.URL})
	require.NoError(t, err)
	quiet := resilience.Config{Logger: slog.New(slog.DiscardHandler)}
	w.config = Config{
		Objects: objects, Bucket: "originals", CreateBucket: true, Vectors: w.store, Collection: "docs",
		Embeddings: embeddings, Model: staticmodel.Name, KeepVectors: true,
		ObjectGuard: objectstore.Guard{Breaker: resilience.MustNew("s3", quiet)},
		VectorGuard: vectorstore.Guard{Breaker: resilience.MustNew("milvus", quiet)},
		LLMGuard:    llm.Guard{Breaker: resilience.MustNew("llm", quiet)},
		Journal:     j, Destination: "test", Logger: slog.New(slog.DiscardHandler),
	}
	w.config.Report = func(d Document) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reports[d.ID] = d
	}
	return w
}

// write lays a document; its id is docs/ and the name.
func (w *world) write(name, content string) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(filepath.Join(w.dir, "docs"), 0o755))
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, "docs", name), []byte(content), 0o644))
}

// corpus lays n documents of one chunk.
func (w *world) corpus(n int) {
	for i := range n {
		w.write(fmt.Sprintf("note%03d.txt", i), fmt.Sprintf("Note %d says that valve %d was opened.", i, i*13))
	}
}

func (w *world) documents() iter.Seq2[source.Item, error] {
	in, err := source.Files([]string{filepath.Join(w.dir, "docs")}, source.Options{})
	require.NoError(w.t, err)
	return in.All(w.t.Context())
}

// run is one run of a fresh pipeline, as of another process: with fresh
// breakers.
func (w *world) run(change ...func(*Config)) (Summary, error) {
	w.t.Helper()
	config := w.config
	for _, c := range change {
		c(&config)
	}
	for _, b := range []*resilience.Breaker{config.ObjectGuard.Breaker, config.VectorGuard.Breaker, config.LLMGuard.Breaker} {
		b.Reset()
	}
	p, err := New(config)
	require.NoError(w.t, err)
	w.reports = map[string]Document{}
	return p.Run(w.t.Context(), w.documents())
}

// rows reads what is stored.
func (w *world) rows() []rows.Row {
	w.t.Helper()
	answer, err := w.store.Query(w.t.Context(), "docs", nil, `id != ""`,
		[]string{rows.Field.ID, rows.Field.Source, rows.Field.Ordinal, rows.Field.Chunks, rows.Field.SHA, rows.Field.Text, rows.Field.Meta},
		client.WithSearchQueryConsistencyLevel(entity.ClStrong))
	require.NoError(w.t, err)
	list, err := rows.Read(answer)
	require.NoError(w.t, err)
	return list
}

// requireComplete checks that each stored document is whole and there once.
func (w *world) requireComplete(documents int) []string {
	w.t.Helper()
	count, marks, ids := map[string]int{}, map[string]int{}, []string{}
	for _, row := range w.rows() {
		ids = append(ids, row.ID)
		count[row.Source]++
		if row.IsMark() {
			require.NotContains(w.t, marks, row.Source)
			marks[row.Source] = row.Chunks
		}
	}
	require.Equal(w.t, marks, count)
	require.Len(w.t, count, documents)
	slices.Sort(ids)
	return ids
}

func stopOf(t *testing.T, err error) *StopError {
	t.Helper()
	var stop *StopError
	require.ErrorAs(t, err, &stop)
	return stop
}

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
	w.write("empty.txt", "")
	registry := prometheus.NewRegistry()
	counted, err := metrics.NewPipeline(registry)
	require.NoError(t, err)
	_, err = w.run(func(c *Config) { c.Metrics = counted })
	require.NoError(t, err)
	_, err = w.run(func(c *Config) { c.Metrics = counted })
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
			values[strings.Join(name, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"ingest_documents_total ingested": 30, "ingest_documents_total unchanged": 30, "ingest_documents_total dead_letter": 1,
		"ingest_documents_total known_dead_letter": 1, "ingest_chunks_total": 30,
		"ingest_embedding_cache_lookups_total miss": 30, "ingest_queue_depth read": 0, "ingest_queue_depth upsert": 0,
		"ingest_stage_duration_seconds read": 62, "ingest_stage_duration_seconds original": 30, "ingest_stage_duration_seconds parse": 30,
	} {
		assert.InDelta(t, want, values[name], 0, name)
	}
	for _, positive := range []string{
		"ingest_tokens_total", "ingest_embedding_batch_texts", "ingest_last_run_timestamp_seconds", "ingest_stage_duration_seconds discover",
		"ingest_stage_duration_seconds embed", "ingest_stage_duration_seconds upsert", "ingest_stage_duration_seconds verify", "ingest_stage_duration_seconds commit",
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

func (w *world) loseJournal() {
	w.t.Helper()
	require.NoError(w.t, w.config.Journal.Close())
	folder := filepath.Join(w.dir, "journal")
	require.NoError(w.t, os.RemoveAll(folder))
	j, err := journal.Open(w.t.Context(), folder)
	require.NoError(w.t, err)
	w.config.Journal = j
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
	w.write("empty.txt", "")
	plan, err := w.run(func(c *Config) { c.DryRun = true })
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
	_, err := w.run(func(c *Config) { c.Meta = map[string]string{"team": "search"} })
	require.NoError(t, err)
	list := w.rows()
	require.Len(t, list, 1)
	assert.JSONEq(t, `{"team":"search","title":"Title","start":6,"end":13}`, string(list[0].Meta))
}

func TestInterrupt(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(500)
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := New(w.config)
	require.NoError(t, err)
	w.reports = map[string]Document{}
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
	assert.Equal(t, StopInterrupted, stop.Kind)
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
	for field, spoil := range map[string]func(*Config){
		"Vectors":     func(c *Config) { c.Vectors = nil },
		"Collection":  func(c *Config) { c.Collection = "" },
		"Embeddings":  func(c *Config) { c.Embeddings = nil },
		"Model":       func(c *Config) { c.Model = "" },
		"Destination": func(c *Config) { c.Destination = "" },
		"Dimensions":  func(c *Config) { c.Dimensions = -1 },
		"Concurrency": func(c *Config) { c.Concurrency = -1 },
		"Batch.Items": func(c *Config) { c.Batch.Items = -1 },
		"Meta":        func(c *Config) { c.Meta = map[string]string{"page": "1"} },
		"Chunks":      func(c *Config) { c.Chunks.Tokens = 10; c.Chunks.Overlap = 10 },
	} {
		config := good
		spoil(&config)
		_, err := New(config)
		var wrong *ConfigError
		require.ErrorAs(t, err, &wrong, field)
		assert.Equal(t, field, wrong.Field)
	}
	config := good
	config.Meta = map[string]string{"bad key": "1"}
	_, err := New(config)
	require.ErrorContains(t, err, "bad key")
	for field, spoil := range map[string]func(*Config){
		"Objects": func(c *Config) { c.Objects = nil },
		"Bucket":  func(c *Config) { c.Bucket = "" },
		"Journal": func(c *Config) { c.Journal = nil },
	} {
		config := good
		spoil(&config)
		p, err := New(config)
		require.NoError(t, err)
		_, err = p.Run(t.Context(), func(func(source.Item, error) bool) {})
		var wrong *ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
	}
}

func TestSearch(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("breaker.md", "# Breaker\n\n## Opening\n\nFive consecutive failures open the breaker.\n\n## Closing\n\nA good probe closes it.\n")
	w.write("pumps.md", "# Pumps\n\nPump seven is loud in winter.\n")
	_, err := w.run()
	require.NoError(t, err)
	p, err := New(w.config)
	require.NoError(t, err)
	hits, err := p.Search(t.Context(), "when does the breaker open?", SearchOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, hits)
	assert.Equal(t, "docs/breaker.md", hits[0].Source)
	assert.Equal(t, "Breaker > Opening", hits[0].Heading)
	assert.Contains(t, hits[0].Text, "Five consecutive failures")

	one, err := p.Search(t.Context(), "winter?", SearchOptions{Limit: 1})
	require.NoError(t, err)
	require.Len(t, one, 1)
	assert.Equal(t, "docs/pumps.md", one[0].Source)

	_, err = p.Search(t.Context(), "", SearchOptions{})
	require.Error(t, err)
	_, err = p.Search(t.Context(), "x", SearchOptions{Limit: -1})
	require.Error(t, err)
	_, err = p.Search(t.Context(), "x", SearchOptions{Where: "no such ((filter"})
	require.Error(t, err)

	other := w.config
	other.Model = "another"
	p, err = New(other)
	require.NoError(t, err)
	_, err = p.Search(t.Context(), "x", SearchOptions{})
	assert.Equal(t, StopConfiguration, stopOf(t, err).Kind)
	other.Collection = "nowhere"
	p, err = New(other)
	require.NoError(t, err)
	_, err = p.Search(t.Context(), "x", SearchOptions{})
	assert.ErrorContains(t, err, "ingest something first")
}

func TestFuse(t *testing.T) {
	hits := func(ids ...string) []Hit {
		var list []Hit
		for _, id := range ids {
			list = append(list, Hit{ID: id, Score: 0.5, Similarity: 0.5})
		}
		return list
	}
	var order []string
	fused := fuse(hits("a", "b"), hits("b", "c"))
	for _, hit := range fused {
		order = append(order, hit.ID)
	}
	assert.Equal(t, []string{"b", "c", "a"}, order)
	assert.InDelta(t, 2.0/3+1.0/4, fused[0].Score, 1e-9)
	assert.Empty(t, fuse(nil, nil))
}

// The stores are the truth: a journal that speaks of a collection that is gone
// is not believed.
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
	_, err = w.run(func(c *Config) { c.Destination = "another journal's" })
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
	away := &awayStore{Store: w.store}
	summary, err := w.run(func(c *Config) { c.Vectors = away })
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Unchanged)
	w.write("new.txt", "A new text.")
	_, err = w.run(func(c *Config) { c.Vectors = away })
	assert.Equal(t, StopDeferred, stopOf(t, err).Kind)
	assert.Equal(t, 2, away.asked, "once a run")
}

type awayStore struct {
	vectorstore.Store
	asked int
}

func (s *awayStore) HasCollection(context.Context, string) (bool, error) {
	s.asked++
	return false, errors.New("connection refused")
}

// What is kept on each row is part of what a document becomes.
func TestMetaChanges(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	summary, err := w.run(func(c *Config) { c.Meta = map[string]string{"team": "search"} })
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
	p, err := New(w.config)
	require.NoError(t, err)
	for status, kind := range map[int]StopKind{500: StopDeferred, 401: StopDenied, 429: StopDeferred} {
		w.model.Script(llmtest.All(llmtest.Status(status)))
		_, err = p.Search(t.Context(), "valve", SearchOptions{})
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
	locked := func(yield func(source.Item, error) bool) {
		yield(source.Item{ID: "docs/locked.txt", Open: func(context.Context) (source.Content, error) { return nil, os.ErrPermission }}, nil)
	}
	p, err := New(w.config)
	require.NoError(t, err)
	w.reports = map[string]Document{}
	first, err := p.Run(t.Context(), locked)
	require.NoError(t, err)
	assert.Equal(t, 1, first.DeadLetters)
	second, err := p.Run(t.Context(), locked)
	require.NoError(t, err)
	assert.Equal(t, 1, second.KnownDeadLetters)
}

// The end of the run does not wait for the hash of a huge file.
func TestHashEndsWithTheRun(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	p, err := New(w.config)
	require.NoError(t, err)
	r := newRun(t.Context(), p)
	r.end.with(&StopError{Kind: StopInterrupted, Err: errStopped})
	_, err = r.hashOf(parse.FromBytes("huge.txt", []byte("text")))
	require.ErrorIs(t, err, errStopped)
}
