package pipeline_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// world is a pipeline over embedded stores, with breakers of its own, and a
// folder of documents.
type world struct {
	t       testing.TB
	dir     string
	model   *llmtest.Server // fails on command; nil in a still world
	objects *filestore.Store
	store   *sqlitestore.Store
	config  pipeline.Config
	mu      sync.Mutex
	reports map[string]pipeline.Document // of the last run, by id
}

// newWorld is a world whose model is a server.
func newWorld(t testing.TB, options llmtest.Options) *world {
	t.Helper()
	w := newStillWorld(t)
	w.model = llmtest.NewServer(t, options)
	w.config.Embeddings, w.config.KeepVectors = w.client(llm.Config{}), true
	return w
}

// newStillWorld is a world without a network, whose model is the embedded one.
func newStillWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	var err error
	w.objects, err = filestore.Open(filepath.Join(w.dir, "objects"))
	require.NoError(t, err)
	w.store, err = sqlitestore.Open(filepath.Join(w.dir, "vectors.db"))
	require.NoError(t, err)
	quiet := resilience.Config{Logger: slog.New(slog.DiscardHandler)}
	w.config = pipeline.Config{
		Objects: w.objects, Bucket: "originals", CreateBucket: true, Vectors: w.store, Collection: "docs",
		Embeddings: staticmodel.New(), Model: staticmodel.Name,
		ObjectGuard: objectstore.Guard{Breaker: testutil.NewBreaker(t, "s3", quiet)},
		VectorGuard: vectorstore.Guard{Breaker: testutil.NewBreaker(t, "milvus", quiet)},
		LLMGuard:    llm.Guard{Breaker: testutil.NewBreaker(t, "llm", quiet)},
		Journal:     w.openJournal("journal"), Destination: "test", Logger: quiet.Logger,
	}
	w.config.Report = func(d pipeline.Document) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reports[d.ID] = d
	}
	t.Cleanup(func() {
		assert.NoError(t, w.config.Journal.Close())
		assert.NoError(t, w.store.Close())
		assert.NoError(t, w.objects.Close())
	})
	return w
}

// client is a client of the model server.
func (w *world) client(c llm.Config) *openai.Client {
	w.t.Helper()
	c.BaseURL = w.model.URL
	made, err := llm.NewClient(c)
	require.NoError(w.t, err)
	return made
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

func (w *world) inputs() *source.Inputs {
	w.t.Helper()
	in, err := source.Files([]string{filepath.Join(w.dir, "docs")}, source.Options{})
	require.NoError(w.t, err)
	return in
}

func (w *world) documents() iter.Seq2[source.Item, error] { return w.inputs().All(w.t.Context()) }

// pipeline is a fresh one, as of another process: its breakers are closed.
func (w *world) pipeline(change ...func(*pipeline.Config)) *pipeline.Pipeline {
	w.t.Helper()
	config := w.config
	for _, c := range change {
		c(&config)
	}
	config.ObjectGuard.Breaker.Reset()
	config.VectorGuard.Breaker.Reset()
	config.LLMGuard.Breaker.Reset()
	p, err := pipeline.New(config)
	require.NoError(w.t, err)
	w.reports = map[string]pipeline.Document{}
	return p
}

// run ingests the documents through a fresh pipeline.
func (w *world) run(change ...func(*pipeline.Config)) (pipeline.Summary, error) {
	w.t.Helper()
	return w.pipeline(change...).Run(w.t.Context(), w.documents())
}

// rows reads what is stored, documents and chunks in order, without notes.
func (w *world) rows() []rows.Row {
	w.t.Helper()
	return slices.DeleteFunc(w.everything(), func(row rows.Row) bool { return row.Doc == version.Place })
}

// notes reads the notes of unfinished documents.
func (w *world) notes() version.Notes {
	w.t.Helper()
	notes, err := version.Read(slices.DeleteFunc(w.everything(), func(row rows.Row) bool {
		return row.Doc != version.Place
	}))
	require.NoError(w.t, err)
	return notes
}

func (w *world) everything() []rows.Row {
	w.t.Helper()
	answer, err := w.store.Query(w.t.Context(), "docs", nil, `id != ""`, []string{
		rows.Field.ID, rows.Field.Doc, rows.Field.Source, rows.Field.Ordinal, rows.Field.Chunks, rows.Field.SHA,
		rows.Field.Policy, rows.Field.TextSHA, rows.Field.Heading, rows.Field.Text, rows.Field.Meta,
		rows.Field.Vector,
	}, client.WithSearchQueryConsistencyLevel(entity.ClStrong))
	require.NoError(w.t, err)
	list, err := rows.Read(answer)
	require.NoError(w.t, err)
	slices.SortFunc(list, func(a, b rows.Row) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func (w *world) rowsOf(id string) []rows.Row {
	return slices.DeleteFunc(w.rows(), func(row rows.Row) bool { return row.Source != id })
}

// requireComplete checks that each stored document is whole and there once, and
// gives the ids of the rows, sorted.
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

func (w *world) dropRow(id string) {
	w.t.Helper()
	key := entity.NewColumnVarChar(rows.Field.ID, []string{id})
	require.NoError(w.t, w.store.DeleteByPks(w.t.Context(), "docs", "", key))
}

// addRow writes a row that no run would write now.
func (w *world) addRow(row rows.Row) {
	w.t.Helper()
	row.Meta, row.Vector = []byte("{}"), make([]float32, 256)
	row.Vector[0] = 1
	row.Seal(row.Text)
	_, err := w.store.Upsert(w.t.Context(), "docs", "", rows.Columns([]*rows.Row{&row}, 256)...)
	require.NoError(w.t, err)
}

// originals lists the keys of all originals.
func (w *world) originals() (keys []string) {
	w.t.Helper()
	in := &s3.ListObjectsV2Input{Bucket: aws.String("originals")}
	for more := true; more; {
		listing, err := w.objects.ListObjectsV2(w.t.Context(), in)
		require.NoError(w.t, err)
		for _, object := range listing.Contents {
			keys = append(keys, aws.ToString(object.Key))
		}
		in.ContinuationToken, more = listing.NextContinuationToken, aws.ToBool(listing.IsTruncated)
	}
	return keys
}

// verified is a Verify, with the faults by document.
func (w *world) verified(repair bool) (pipeline.Verification, map[string]pipeline.Fault) {
	w.t.Helper()
	faults := map[string]pipeline.Fault{}
	options := pipeline.VerifyOptions{Repair: repair}
	v, err := w.pipeline().Verify(w.t.Context(), options, func(f pipeline.Fault) { faults[f.ID] = f })
	require.NoError(w.t, err)
	return v, faults
}

func (w *world) openJournal(folder string) *journal.Journal {
	w.t.Helper()
	j, err := journal.Open(w.t.Context(), filepath.Join(w.dir, folder))
	require.NoError(w.t, err)
	return j
}

// loseJournal begins a new journal.
func (w *world) loseJournal() {
	w.t.Helper()
	require.NoError(w.t, w.config.Journal.Close())
	require.NoError(w.t, os.RemoveAll(filepath.Join(w.dir, "journal")))
	w.config.Journal = w.openJournal("journal")
}

// carry takes what the journal says to another machine.
func (w *world) carry() (copied string) {
	w.t.Helper()
	var all bytes.Buffer
	_, err := w.config.Journal.WriteAll(w.t.Context(), &all)
	require.NoError(w.t, err)
	copied = all.String()
	next, err := journal.Open(w.t.Context(), filepath.Join(w.t.TempDir(), "elsewhere"))
	require.NoError(w.t, err)
	require.NoError(w.t, next.Apply(w.t.Context(), &all))
	require.NoError(w.t, next.Track(w.t.Context()))
	require.NoError(w.t, w.config.Journal.Close())
	w.config.Journal = next
	return copied
}

func stopOf(t *testing.T, err error) *pipeline.StopError {
	t.Helper()
	var stop *pipeline.StopError
	require.ErrorAs(t, err, &stop)
	return stop
}

// memory is a document in memory.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// opened is a document of this content.
func opened(id string, content source.Content) source.Item {
	return source.Item{
		ID: id, Size: content.Size(), Open: func(context.Context) (source.Content, error) { return content, nil },
	}
}

// one is a listing of one document.
func one(item source.Item) iter.Seq2[source.Item, error] {
	return func(yield func(source.Item, error) bool) { yield(item, nil) }
}

// call is a call to the vector store.
type call struct {
	method string
	fields []string // that a Query asks for
	rows   int      // of an Upsert, or an UpsertNotes
}

// hook is told of calls. An error is what the caller gets.
type hook func(context.Context, call) error

// hooked is a vector store that tells of some of its calls before they are
// made, and after they went well.
type hooked struct {
	vectorstore.Store

	before, after hook
}

// hooked puts hooks around the calls to the world's vector store; nil for none.
func (w *world) hooked(before, after hook) func(*pipeline.Config) {
	return func(c *pipeline.Config) { c.Vectors = &hooked{Store: w.store, before: before, after: after} }
}

// on is a hook for one method.
func on(method string, fn hook) hook {
	return func(ctx context.Context, c call) error {
		if c.method != method {
			return nil
		}
		return fn(ctx, c)
	}
}

// isWrite tells of calls that change the rows of documents, and isNote of those
// that change notes.
func isWrite(c call) bool { return c.method == "Upsert" || c.method == "DeleteByPks" }
func isNote(c call) bool  { return c.method == "UpsertNotes" }

func isDeletion(c call) bool { return c.method == "DeleteByPks" }

// after is true of the calls that count, once there were so many.
func after(calls int, counts func(call) bool) func(call) bool {
	var left atomic.Int64
	left.Store(int64(calls))
	return func(c call) bool { return counts(c) && left.Add(-1) < 0 }
}

var errCrashed = errors.New("crashed")

// crash is a hook that fails some calls.
func crash(when func(call) bool) hook {
	return func(_ context.Context, c call) error {
		if when(c) {
			return errCrashed
		}
		return nil
	}
}

func (h hook) tell(ctx context.Context, c call) error {
	if h == nil {
		return nil
	}
	return h(ctx, c)
}

func through[T any](ctx context.Context, h *hooked, c call, fn func() (T, error)) (answer T, err error) {
	if err := h.before.tell(ctx, c); err != nil {
		return answer, err
	}
	if answer, err = fn(); err != nil {
		return answer, err
	}
	return answer, h.after.tell(ctx, c)
}

func (h *hooked) HasCollection(ctx context.Context, collection string) (bool, error) {
	return through(ctx, h, call{method: "HasCollection"}, func() (bool, error) {
		return h.Store.HasCollection(ctx, collection)
	})
}

func (h *hooked) LoadCollection(
	ctx context.Context, collection string, async bool, opts ...client.LoadCollectionOption,
) error {
	_, err := through(ctx, h, call{method: "LoadCollection"}, func() (struct{}, error) {
		return struct{}{}, h.Store.LoadCollection(ctx, collection, async, opts...)
	})
	return err
}

func (h *hooked) Query(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	return through(ctx, h, call{method: "Query", fields: fields}, func() (client.ResultSet, error) {
		return h.Store.Query(ctx, collection, partitions, expr, fields, opts...)
	})
}

func (h *hooked) Upsert(
	ctx context.Context, collection, partition string, columns ...entity.Column,
) (entity.Column, error) {
	c := call{method: "Upsert", rows: columns[0].Len()}
	if noted(columns) {
		c.method = "UpsertNotes"
	}
	return through(ctx, h, c, func() (entity.Column, error) {
		return h.Store.Upsert(ctx, collection, partition, columns...)
	})
}

// noted reports whether rows are notes of unfinished documents.
func noted(columns []entity.Column) bool {
	for _, column := range columns {
		if column.Name() == rows.Field.Doc {
			place, err := column.GetAsString(0)
			return err == nil && place == version.Place
		}
	}
	return false
}

func (h *hooked) DeleteByPks(ctx context.Context, collection, partition string, ids entity.Column) error {
	_, err := through(ctx, h, call{method: "DeleteByPks"}, func() (struct{}, error) {
		return struct{}{}, h.Store.DeleteByPks(ctx, collection, partition, ids)
	})
	return err
}
