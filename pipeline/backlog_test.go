package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// ingested is a world of so many documents that are complete.
func ingested(t *testing.T, documents int) *world {
	t.Helper()
	w := newWorld(t, llmtest.Options{})
	w.corpus(documents)
	summary, err := w.run()
	require.NoError(t, err)
	require.Equal(t, documents, summary.Ingested)
	require.Zero(t, summary.Waiting)
	require.NotNil(t, summary.LastSuccess)
	return w
}

// change writes new content into the first n documents.
func (w *world) change(n int) {
	w.t.Helper()
	for i := range n {
		w.write(fmt.Sprintf("note%03d.txt", i), fmt.Sprintf("Note %d says that pump %d leaks.", i, i*17))
	}
}

// deferred are the documents that wait by the journal.
func (w *world) deferred() (ids []string) {
	w.t.Helper()
	for p, err := range w.config.Journal.Problems(w.t.Context(), "test", "") {
		require.NoError(w.t, err)
		if p.Status == journal.Deferred {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// 60 documents changed while the model server was down, and the summary said
// "7 deferred": what happened to be in flight.
func TestWaitingIsTheWholeBacklog(t *testing.T) {
	for name, row := range map[string]struct {
		fault llmtest.Fault
		kind  pipeline.StopKind
	}{
		"down":        {llmtest.Status(http.StatusInternalServerError), pipeline.StopDeferred},
		"refused key": {llmtest.Status(http.StatusUnauthorized), pipeline.StopDenied},
		"no model":    {llmtest.Status(http.StatusNotFound), pipeline.StopConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			w := ingested(t, 100)
			w.change(60)
			w.write("new.txt", "A new note.")
			w.model.Script(llmtest.All(row.fault))
			first, err := w.run()
			require.Equal(t, row.kind, stopOf(t, err).Kind)
			assert.Equal(t, 61, first.Waiting)
			assert.False(t, first.WaitingAtLeast)
			assert.Less(t, first.Deferred, 61)
			assert.Len(t, w.deferred(), 61)
			require.NotNil(t, first.WaitingSince)

			again, err := w.run()
			require.Error(t, err)
			assert.Equal(t, 61, again.Waiting)
			assert.Equal(t, first.WaitingSince, again.WaitingSince, "it is kept from run to run")
			assert.Equal(t, first.LastSuccess, again.LastSuccess)

			w.model.Script()
			done, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 61, done.Ingested)
			assert.Zero(t, done.Waiting)
			assert.Nil(t, done.WaitingSince)
			assert.True(t, done.LastSuccess.After(*first.LastSuccess))
			assert.Empty(t, w.deferred())
		})
	}
}

// A run with another model than that of the collection counted what happened to
// be in flight: 7 of 60 documents.
func TestWaitingForAnotherModel(t *testing.T) {
	w := ingested(t, 60)
	wrong, err := w.run(func(c *pipeline.Config) { c.Model = "another" })
	require.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
	assert.Equal(t, 60, wrong.Waiting)
	assert.False(t, wrong.WaitingAtLeast)

	right, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 60, right.Unchanged, "the setting was the mistake")
	assert.Zero(t, right.Waiting)
	assert.Empty(t, w.deferred())
}

// No run over other inputs loses the count of the rest, and none counts a
// document that its own run has found complete.
func TestWaitingOfOtherInputs(t *testing.T) {
	w := ingested(t, 30)
	w.change(20)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	_, err := w.run()
	require.Error(t, err)
	w.model.Script()

	others, err := source.Find([]string{filepath.Join(w.dir, "docs", "note000.txt")}, source.Options{})
	require.NoError(t, err)
	summary, err := w.pipeline().Run(t.Context(), others.All(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Ingested)
	assert.Equal(t, 19, summary.Waiting)
	assert.NotNil(t, summary.WaitingSince)

	w.corpus(30) // as it was
	w.write("note000.txt", "Note 0 says that pump 0 leaks.")
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 30, summary.Unchanged)
	assert.Zero(t, summary.Waiting, "they are complete as they are")
	assert.Empty(t, w.deferred())
}

// A stopped run finds by the listing alone that documents are as they were.
func TestStoppedRunCountsWhatIsBackAsItWas(t *testing.T) {
	w := ingested(t, 30)
	name := filepath.Join(w.dir, "docs", "note029.txt")
	before, err := os.Stat(name)
	require.NoError(t, err)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	w.change(30)
	summary, err := w.run()
	require.Error(t, err)
	assert.Equal(t, 30, summary.Waiting)

	w.corpus(30)
	require.NoError(t, os.Chtimes(name, time.Time{}, before.ModTime()))
	w.write("note000.txt", "Note 0 says that pump 0 leaks.")
	summary, err = w.run()
	require.Error(t, err)
	assert.NotContains(t, w.deferred(), "docs/note029.txt")
	assert.Equal(t, len(w.deferred()), summary.Waiting)
}

// Documents that were touched count until a run has read them.
func TestTouchedDocumentsWaitUntilTheyAreRead(t *testing.T) {
	w := ingested(t, 40)
	touch := func() {
		for i := range 40 {
			name := filepath.Join(w.dir, "docs", fmt.Sprintf("note%03d.txt", i))
			require.NoError(t, os.Chtimes(name, time.Time{}, time.Now().Add(time.Hour)))
		}
	}
	touch()
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 40, summary.Unchanged)
	w.write("first.txt", "A new note.") // the first of the listing
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	summary, err = w.run()
	require.Error(t, err)
	assert.Equal(t, 1, summary.Waiting)
}

// Dead letters do not wait, unless they were written since.
func TestDeadLettersDoNotWait(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("zz-broken.pdf", "%PDF-1.7\nthis is not the rest of one")
	w.write("zz-changed.pdf", "%PDF-1.7\nthis is not the rest of one, either")
	first, err := w.run()
	require.NoError(t, err)
	require.Equal(t, 2, first.DeadLetters)
	w.corpus(100) // the readers are busy with these when the run is stopped
	w.write("zz-changed.pdf", "%PDF-1.7\nthis may be the rest of one")
	changed := filepath.Join(w.dir, "docs", "zz-changed.pdf")
	require.NoError(t, os.Chtimes(changed, time.Time{}, time.Now().Add(time.Hour)))
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	summary, err := w.run()
	require.Error(t, err)
	assert.Equal(t, 101, summary.Waiting)
	assert.Contains(t, w.deferred(), "docs/zz-changed.pdf")
	assert.NotContains(t, w.deferred(), "docs/zz-broken.pdf")
}

// Documents that waited and are gone wait no longer, once the inputs have been
// listed whole.
func TestWhatIsGoneDoesNotWait(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(20)
	run := func() (pipeline.Summary, error) {
		census := w.inputs().Census()
		p := w.pipeline(func(c *pipeline.Config) { c.Gone = census.Missing })
		return p.Run(t.Context(), census.All(t.Context()))
	}
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	summary, err := run()
	require.Error(t, err)
	assert.Equal(t, 20, summary.Waiting)

	w.model.Script()
	for i := range 5 {
		require.NoError(t, os.Remove(filepath.Join(w.dir, "docs", fmt.Sprintf("note%03d.txt", i))))
	}
	summary, err = run()
	require.NoError(t, err)
	assert.Equal(t, 15, summary.Ingested)
	assert.Zero(t, summary.Waiting)
	assert.NotNil(t, summary.LastSuccess)
}

// A run that an upstream stopped kept what had been deleted since, although it
// had listed the whole folder.
func TestWhatIsGoneDoesNotWaitAfterAStoppedRun(t *testing.T) {
	w := ingested(t, 20)
	run := func() (pipeline.Summary, error) {
		census := w.inputs().Census()
		p := w.pipeline(func(c *pipeline.Config) { c.Gone = census.Missing })
		return p.Run(t.Context(), census.All(t.Context()))
	}
	w.change(2)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	summary, err := run()
	require.Error(t, err)
	assert.Equal(t, 2, summary.Waiting)
	require.NoError(t, os.Remove(filepath.Join(w.dir, "docs", "note000.txt")))
	summary, err = run()
	require.Error(t, err)
	assert.Equal(t, 1, summary.Waiting)
	assert.Equal(t, []string{"docs/note001.txt"}, w.deferred())
}

// An object that a bucket has no longer does not wait; a file may be on a
// volume that is not mounted.
func TestObjectThatIsGoneDoesNotWait(t *testing.T) {
	for _, row := range []struct {
		upstream string
		waiting  int
	}{{"s3", 0}, {"", 1}} {
		w := newWorld(t, llmtest.Options{})
		w.write("a.md", "A text.")
		w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
		summary, err := w.run()
		require.Error(t, err)
		require.Equal(t, 1, summary.Waiting)
		w.model.Script()
		summary, err = w.pipeline().Run(t.Context(), func(yield func(source.Item, error) bool) {
			open := func(context.Context) (source.Content, error) { return nil, fs.ErrNotExist }
			yield(source.Item{ID: "docs/a.md", Upstream: row.upstream, Open: open}, nil)
		})
		require.NoError(t, err)
		assert.Equal(t, 1, summary.Gone)
		assert.Equal(t, row.waiting, summary.Waiting, row.upstream)
	}
}

// An empty folder and a name that two files share hide no documents; a place
// that cannot be listed may.
func TestWhatAListingHides(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":         {nil, false},
		"empty input":     {&source.EmptyError{Input: "docs"}, false},
		"name collision":  {&source.CollisionError{ID: "docs/a.txt", Alias: "docs/b.txt"}, false},
		"cannot be read":  {&source.Error{Path: "docs/secret", Err: fs.ErrPermission}, true},
		"bucket went bad": {errors.New("cannot list"), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStillWorld(t)
			w.corpus(1)
			all := func(yield func(source.Item, error) bool) {
				for item, err := range w.documents() {
					if !yield(item, err) {
						return
					}
				}
				if row.err != nil {
					yield(source.Item{}, row.err)
				}
			}
			summary, err := w.pipeline().Run(t.Context(), all)
			require.NoError(t, err)
			assert.Equal(t, row.want, summary.WaitingAtLeast)
		})
	}
}

// midway yields documents and acts after the first n.
func midway(documents iter.Seq2[source.Item, error], n int, act func()) iter.Seq2[source.Item, error] {
	return func(yield func(source.Item, error) bool) {
		for item, err := range documents {
			if n--; n == -1 {
				act()
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// A signal ends the listing at once, and the summary says that more may wait.
func TestSignalEndsTheCountOfTheBacklog(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(400)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	ctx, cancel := context.WithCancelCause(t.Context())
	summary, err := w.pipeline().Run(ctx, midway(w.inputs().All(ctx), 300, func() { cancel(errors.New("SIGTERM")) }))
	assert.Equal(t, pipeline.StopInterrupted, stopOf(t, err).Kind)
	assert.True(t, summary.WaitingAtLeast)
	assert.Less(t, summary.Waiting, 400)
	assert.Positive(t, summary.Waiting)
}

// A listing that hangs after the stop is left after a while.
func TestCountOfTheBacklogIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStillWorld(t)
		w.corpus(100)
		release := make(chan struct{})
		defer close(release)
		began := time.Now()
		hung := midway(w.documents(), 80, func() { <-release })
		p := w.pipeline()
		w.config.VectorGuard.Breaker.Trip("drill")
		summary, err := p.Run(t.Context(), hung)
		assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
		assert.Equal(t, backlogWait, time.Since(began))
		assert.True(t, summary.WaitingAtLeast)
		assert.Equal(t, 80, summary.Waiting)
	})
}

// slowLog takes a minute for each record.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Minute)
	return nil
}

// A listing that returned after the run had left it wrote what the run read to
// count what waits. The race detector says so.
func TestAbandonedListingThatReturnsRacesWithNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStillWorld(t)
		w.corpus(100)
		returned := make(chan struct{})
		hung := midway(w.documents(), 80, func() { time.Sleep(backlogWait + time.Second) })
		watched := func(yield func(source.Item, error) bool) {
			hung(yield)
			close(returned)
		}
		p := w.pipeline(func(c *pipeline.Config) { c.Logger = slog.New(slowLog{slog.DiscardHandler}) })
		w.config.VectorGuard.Breaker.Trip("drill")
		summary, err := p.Run(t.Context(), watched)
		assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
		<-returned
		assert.True(t, summary.WaitingAtLeast)
		assert.Equal(t, 80, summary.Waiting)
		assert.Len(t, w.deferred(), 80)
	})
}

// backlogWait is how long a run waits for a listing after it was stopped.
const backlogWait = 10 * time.Second

// pages is a bucket that lists ten keys a page.
type pages struct {
	objectstore.Reader

	listed atomic.Int32
}

func (p *pages) ListObjectsV2(
	ctx context.Context, in *s3.ListObjectsV2Input, options ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	p.listed.Add(1)
	of := *in
	of.MaxKeys = aws.Int32(10)
	return p.Reader.ListObjectsV2(ctx, &of, options...)
}

// bucket lays n documents into a bucket and lists them.
func (w *world) bucket(ctx context.Context, n int) (*pages, iter.Seq2[source.Item, error]) {
	w.t.Helper()
	_, err := w.objects.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("inbox")})
	require.NoError(w.t, err)
	for i := range n {
		_, err := w.objects.PutObject(ctx, &s3.PutObjectInput{
			Bucket: aws.String("inbox"), Key: aws.String(fmt.Sprintf("note%03d.txt", i)),
			Body: strings.NewReader(fmt.Sprintf("Note %d says that valve %d was opened.", i, i*13)),
		})
		require.NoError(w.t, err)
	}
	listing := &pages{Reader: w.objects}
	in, err := source.Find([]string{"s3://inbox"}, source.Options{
		ObjectGuard: w.config.ObjectGuard,
		Objects:     func(context.Context) (source.ObjectReader, error) { return listing, nil },
	})
	require.NoError(w.t, err)
	return listing, in.All(ctx)
}

// A bucket is listed to its end while the model is down, and not once more when
// it is the bucket that is down.
func TestStoppedRunListsABucketThatWorks(t *testing.T) {
	t.Run("model down", func(t *testing.T) {
		w := newWorld(t, llmtest.Options{})
		ctx := stop.WithEnd(t.Context())
		listing, documents := w.bucket(ctx, 95)
		w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
		summary, err := w.pipeline().Run(ctx, documents)
		assert.Equal(t, "llm", stopOf(t, err).Upstream)
		assert.Equal(t, 95, summary.Waiting)
		assert.EqualValues(t, 10, listing.listed.Load())

		w.model.Script()
		w.corpus(1)
		summary, err = w.run()
		require.NoError(t, err)
		assert.Equal(t, 95, summary.Waiting, "a run over other inputs leaves them")
	})
	t.Run("object store down", func(t *testing.T) {
		w := newWorld(t, llmtest.Options{})
		ctx := stop.WithEnd(t.Context())
		listing, documents := w.bucket(ctx, 95)
		var atStop int32
		documents = midway(documents, 50, func() {
			w.config.ObjectGuard.Breaker.Trip("drill")
			atStop = listing.listed.Load()
		})
		summary, err := w.pipeline().Run(ctx, documents)
		assert.Equal(t, "s3", stopOf(t, err).Upstream)
		assert.True(t, summary.WaitingAtLeast)
		assert.Equal(t, atStop, listing.listed.Load())
	})
}

// An unchanged document that was being read when a run ended was deferred.
func TestUnchangedDocumentIsNotDeferredAtTheEndOfARun(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	item := opened("huge.txt", endless{cancel})
	item.Listed = "the version"
	require.NoError(t, w.config.Journal.Complete(t.Context(), "test", journal.Document{
		ID: item.ID, SHA: "its content's", Policy: "a policy", Version: item.Listed,
	}))
	p := w.pipeline(func(c *pipeline.Config) { c.Grace = time.Hour })
	summary, err := p.Run(ctx, one(item))
	assert.Equal(t, pipeline.StopInterrupted, stopOf(t, err).Kind)
	assert.Equal(t, pipeline.Unchanged, w.reports["huge.txt"].Result)
	assert.Zero(t, summary.Waiting)
}
