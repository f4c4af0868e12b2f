package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
)

var (
	looks       = pipeline.VerifyOptions{}
	looksDeep   = pipeline.VerifyOptions{Deep: true}
	repairs     = pipeline.VerifyOptions{Repair: true}
	repairsDeep = pipeline.VerifyOptions{Repair: true, Deep: true}
)

// verify is a Verify with the faults in the order of their documents, each as a
// line.
func (w *world) verify(
	options pipeline.VerifyOptions, change ...func(*pipeline.Config),
) (pipeline.Verification, []string) {
	w.t.Helper()
	var faults []string
	v, err := w.pipeline(change...).Verify(w.t.Context(), options, func(f pipeline.Fault) {
		line := f.Kind + " " + f.ID
		if f.Detail != "" {
			line += ": " + f.Detail
		}
		if f.Repaired {
			line += " repaired"
		}
		faults = append(faults, line)
	})
	require.NoError(w.t, err)
	slices.Sort(faults)
	return v, faults
}

// original is the key of a document's only original.
func (w *world) original(id string) string {
	w.t.Helper()
	keys := w.originalsOf(id)
	require.Len(w.t, keys, 1)
	return keys[0]
}

// spoil replaces an object.
func (w *world) spoil(key, content string) {
	w.t.Helper()
	w.removeObject(key)
	bucket.Put(w.t, w.objects, "originals", key, content)
}

func text(i int) string { return fmt.Sprintf("Note %d says that valve %d was opened.", i, i*13) }

// Originals that were removed behind the back of ingest were noticed by no run
// and no verify.
func TestVerifyRestoresLostOriginals(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(300)
	_, err := w.run()
	require.NoError(t, err)
	keys := w.originals()
	for _, key := range keys {
		w.removeObject(key)
	}
	v, faults := w.verify(looks)
	assert.Equal(t, 300, v.OriginalsLost)
	assert.Zero(t, v.Originals)
	assert.False(t, v.Consistent())
	assert.Equal(t, "original lost docs/note000.txt", faults[0])

	v, faults = w.verify(repairs)
	assert.Equal(t, 300, v.OriginalsLost)
	assert.Equal(t, 300, v.Repaired)
	assert.True(t, v.Consistent())
	assert.Equal(t, "original lost docs/note000.txt repaired", faults[0])
	assert.Equal(t, keys, w.originals())
	assert.Equal(t, text(7), w.object(w.original("docs/note007.txt")))
	v, faults = w.verify(looksDeep)
	assert.Empty(t, faults)
	assert.Equal(t, 300, v.Originals)
}

// The bucket is made again where it may be.
func TestVerifyRestoresOriginalsIntoANewBucket(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "objects", "originals")))
	v, _ := w.verify(looks)
	assert.Equal(t, 3, v.OriginalsLost)
	v, _ = w.verify(repairs)
	assert.True(t, v.Consistent())
	assert.Len(t, w.originals(), 3)
}

func TestVerifyOfOriginals(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(8)
	_, err := w.run()
	require.NoError(t, err)
	note := func(i int) string { return fmt.Sprintf("docs/note%03d.txt", i) }
	file := func(i int) string { return filepath.Join(w.dir, filepath.FromSlash(note(i))) }
	w.spoil(w.original(note(0)), "") // its source is there
	w.spoil(w.original(note(1)), "Note 1 says")
	w.spoil(w.original(note(2)), strings.Replace(text(2), "valve", "Valve", 1)) // one bit
	for _, i := range []int{3, 4, 5} {
		w.removeObject(w.original(note(i)))
	}
	require.NoError(t, os.Remove(file(3)))
	w.write("note004.txt", "Another content.")
	require.NoError(t, w.config.Journal.Confirm(t.Context(), "test", journal.Document{ID: note(5)}))

	v, faults := w.verify(looks)
	assert.Equal(t, []string{
		"original damaged docs/note000.txt: it has 0 bytes, the content has 36",
		"original damaged docs/note001.txt: it has 11 bytes, the content has 37",
		"original lost docs/note003.txt",
		"original lost docs/note004.txt",
		"original lost docs/note005.txt",
	}, faults)
	assert.Equal(t, 2, v.OriginalsDamaged)
	assert.Equal(t, 3, v.OriginalsLost)
	assert.Equal(t, 5, v.Originals)

	v, faults = w.verify(looksDeep)
	assert.Contains(t, faults, "original damaged docs/note002.txt: its content has another hash")
	assert.Equal(t, 3, v.OriginalsDamaged)

	v, faults = w.verify(repairsDeep)
	assert.Equal(t, []string{
		"original damaged docs/note000.txt: it has 0 bytes, the content has 36 repaired",
		"original damaged docs/note001.txt: it has 11 bytes, the content has 37 repaired",
		"original damaged docs/note002.txt: its content has another hash repaired",
		"original lost docs/note003.txt: its source cannot be read: stat " + file(3) + ": no such file or directory",
		"original lost docs/note004.txt: its source has changed; the next run stores the new content",
		"original lost docs/note005.txt: the journal does not know its source: run ingest over it, then repair again; " +
			"if it came from standard input, delete it and ingest it again",
	}, faults)
	assert.Equal(t, 3, v.Repaired)
	assert.False(t, v.Consistent())
	for i := range 3 {
		assert.Equal(t, text(i), w.object(w.original(note(i))))
	}

	_, err = w.run() // which takes the change, and notes where the last is
	require.NoError(t, err)
	_, faults = w.verify(repairs)
	assert.Len(t, faults, 2)
	assert.Equal(t, "original lost docs/note005.txt repaired", faults[1])
}

// Originals under keys of the earlier layout are no inconsistency; a repair
// copies them, and the source is not asked.
func TestVerifyCopiesOriginalsOfNobody(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(20)
	long := "docs/" + strings.Repeat("ü", 400) + ".txt"
	_, err := w.run()
	require.NoError(t, err)
	content := memory{bytes.NewReader([]byte("A document with a long name."))}
	_, err = w.pipeline().Run(t.Context(), one(opened(long, content)))
	require.NoError(t, err)
	keys := w.originals()
	w.age()
	old := w.originals()
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "docs")))

	v, faults := w.verify(looks)
	assert.Len(t, faults, 21)
	assert.Equal(t, "original elsewhere docs/note000.txt", faults[0])
	assert.Equal(t, 21, v.OriginalsElsewhere)
	assert.True(t, v.Consistent())
	v, _ = w.verify(repairs)
	assert.Equal(t, 21, v.OriginalsCopied)
	assert.Zero(t, v.Repaired)
	assert.True(t, v.Consistent())
	both := slices.Concat(keys, old)
	slices.Sort(both)
	assert.Equal(t, both, w.originals(), "nobody's are left")
	_, faults = w.verify(looksDeep)
	assert.Empty(t, faults)

	w.spoil(w.original2("docs/note001.txt"), "damaged")
	v, _ = w.verify(repairs)
	assert.Equal(t, 1, v.OriginalsDamaged, "the copy is damaged, its source gone, and the old key has it")
	assert.Equal(t, 1, v.Repaired)
	_, faults = w.verify(looksDeep)
	assert.Empty(t, faults)
}

// original2 is the key of a document's original that names the destination,
// beside one that does not.
func (w *world) original2(id string) string {
	w.t.Helper()
	keys := w.originalsOf(id)
	require.Len(w.t, keys, 2)
	if strings.Count(keys[0], "/") > strings.Count(keys[1], "/") {
		return keys[0]
	}
	return keys[1]
}

// What is damaged under a key of the earlier layout is not copied.
func TestVerifyCopiesNothingDamaged(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(2)
	_, err := w.run()
	require.NoError(t, err)
	w.age()
	w.spoil(w.original("docs/note000.txt"), "short")
	w.spoil(w.original("docs/note001.txt"), strings.Replace(text(1), "valve", "Valve", 1))
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "docs")))
	v, faults := w.verify(repairsDeep)
	assert.Equal(t, 2, v.OriginalsLost)
	assert.Contains(t, faults[0], "original lost docs/note000.txt: its source cannot be read")
	assert.Zero(t, v.OriginalsCopied+v.Repaired)
}

// A journal of an earlier version does not know sizes: an empty original is
// damaged all the same, and so is another content with Deep.
func TestVerifyWithoutSizes(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.loseJournal()
	v, _ := w.verify(repairs)
	require.Equal(t, 3, v.Unknown)
	require.True(t, v.Consistent())
	w.spoil(w.original("docs/note000.txt"), "")
	w.spoil(w.original("docs/note001.txt"), "short")
	_, faults := w.verify(looks)
	assert.Equal(t, []string{"original damaged docs/note000.txt: it is empty"}, faults)
	_, faults = w.verify(looksDeep)
	assert.Len(t, faults, 2)
}

// A document that a lost journal did not know is checked once it is adopted.
func TestVerifyChecksAdoptedDocuments(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.loseJournal()
	w.removeObject(w.original("docs/note001.txt"))
	v, faults := w.verify(repairs)
	assert.Equal(t, 3, v.Unknown)
	assert.Equal(t, 1, v.OriginalsLost)
	assert.Contains(t, faults[0], "the journal does not know its source")
}

// Originals of documents that nobody knows are removed when they are a day old;
// those of dead letters, of other destinations and of earlier versions are
// kept.
func TestVerifyRemovesOrphanedOriginals(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(6)
	w.write("dead.pdf", "%PDF-1.7\nthis is not one")
	_, err := w.run()
	require.NoError(t, err)
	w.write("note001.txt", "Another version of note one.")
	_, err = w.run()
	require.NoError(t, err)
	_, err = w.run(collection("other"))
	require.NoError(t, err)
	require.NoError(t, w.config.Journal.Forget(t.Context(), "test", "docs/note002.txt", "docs/note003.txt"))
	w.dropRow(w.rowsOf("docs/note002.txt")[0].ID)
	before := w.originals()

	_, faults := w.verify(repairs)
	assert.Equal(t, []string{"unknown docs/note003.txt repaired"}, faults,
		"the store knows this one, and the other is young")
	w.yesterday()
	v, faults := w.verify(looks)
	assert.Equal(t, []string{"original orphaned docs/note002.txt"}, faults)
	assert.False(t, v.Consistent())
	v, _ = w.verify(repairs)
	assert.Equal(t, 1, v.OriginalsOrphaned)
	assert.True(t, v.Consistent())
	assert.Len(t, w.originals(), len(before)-1)
	assert.Len(t, w.originalsOf("docs/note002.txt"), 1, "of the other destination")
	assert.Len(t, w.originalsOf("docs/note001.txt"), 3)
	assert.Len(t, w.originalsOf("docs/dead.pdf"), 2)
}

// yesterday makes all originals two days old.
func (w *world) yesterday() {
	w.t.Helper()
	at := time.Now().Add(-48 * time.Hour)
	require.NoError(w.t, filepath.WalkDir(filepath.Join(w.dir, "objects", "originals"),
		func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			return os.Chtimes(name, at, at)
		}))
}

// truncate cuts the files of all originals, as a crash of the machine may.
func (w *world) truncate(bytes int64) {
	w.t.Helper()
	require.NoError(w.t, filepath.WalkDir(filepath.Join(w.dir, "objects", "originals"),
		func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			return os.Truncate(name, bytes)
		}))
}

// A damaged file among the originals ended every verify and every deletion of
// its document with 75, and no message named it.
func TestTruncatedOriginalsAreRepairedAndDeleted(t *testing.T) {
	for _, bytes := range []int64{0, 10} {
		w := newStillWorld(t)
		w.corpus(3)
		_, err := w.run()
		require.NoError(t, err)
		w.truncate(bytes)
		for _, options := range []pipeline.VerifyOptions{looks, looksDeep} {
			v, faults := w.verify(options)
			assert.Equal(t, 3, v.OriginalsDamaged)
			assert.Equal(t, "original damaged docs/note000.txt: it has 0 bytes, the content has 36", faults[0])
		}
		v, _ := w.verify(repairsDeep)
		assert.True(t, v.Consistent())
		_, faults := w.verify(looksDeep)
		assert.Empty(t, faults)

		w.truncate(bytes)
		_, err = w.pipeline().Delete(t.Context(), "docs/note001.txt")
		require.NoError(t, err)
		assert.Empty(t, w.originalsOf("docs/note001.txt"))
		require.NoError(t, w.config.Journal.Forget(t.Context(), "test", "docs/note002.txt"))
		w.dropRow(w.rowsOf("docs/note002.txt")[0].ID)
		w.yesterday()
		v, _ = w.verify(repairs)
		assert.Equal(t, 1, v.OriginalsOrphaned)
		assert.True(t, v.Consistent())
		assert.Len(t, w.originals(), 1)
	}
}

// A long name is read from the object that holds it.
func TestOrphanedOriginalOfLongName(t *testing.T) {
	w := newStillWorld(t)
	long := "docs/" + strings.Repeat("ü", 400) + ".txt"
	content := memory{bytes.NewReader([]byte("A document with a long name."))}
	_, err := w.pipeline().Run(t.Context(), one(opened(long, content)))
	require.NoError(t, err)
	require.NoError(t, w.config.Journal.Forget(t.Context(), "test", long))
	w.dropRow(w.rowsOf(long)[0].ID)
	w.yesterday()
	_, faults := w.verify(repairs)
	assert.Equal(t, []string{"original orphaned " + long + " repaired"}, faults)
	assert.Empty(t, w.originals())
}

// More originals than a page holds, of two destinations and of nobody, take as
// many calls as pages.
func TestVerifyListsOriginalsByThePage(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(1100)
	_, err := w.run()
	require.NoError(t, err)
	_, err = w.run(collection("b"))
	require.NoError(t, err)
	objects := w.counted(nil)
	v, faults := w.verify(looks, objects.of)
	assert.Empty(t, faults)
	assert.Equal(t, 1100, v.Originals)
	assert.Equal(t, int64(2+1), objects.lists.Load(), "two pages, and a look for keys of the earlier layout")

	w.removeObject(w.below(v.Folder, 1001)[0])
	for i := 0; i < 1100; i += 2 {
		w.ageOne(w.below(v.Folder, i)[0])
	}
	objects = w.counted(nil)
	v, faults = w.verify(looks, objects.of)
	assert.Equal(t, 1, v.OriginalsLost)
	assert.Equal(t, 550, v.OriginalsElsewhere)
	assert.Len(t, faults, 551)
	assert.LessOrEqual(t, objects.lists.Load(), int64(5), "one page, and those of nobody beside the other's two")
}

// below are the keys of a note's originals in the folder of a destination.
func (w *world) below(folder string, note int) []string {
	w.t.Helper()
	document := rows.DocumentHash(fmt.Sprintf("docs/note%03d.txt", note))
	keys := bucket.Keys(w.t, w.objects, "originals", strings.TrimPrefix(folder, "originals/")+document)
	require.NotEmpty(w.t, keys)
	return keys
}

// A bucket that lists its keys in another order would have originals look lost.
type unordered struct{ pipeline.ObjectStore }

func (o unordered) ListObjectsV2(
	ctx context.Context, in *s3.ListObjectsV2Input, opts ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	page, err := o.ObjectStore.ListObjectsV2(ctx, in, opts...)
	if err == nil {
		slices.Reverse(page.Contents)
	}
	return page, err
}

func TestVerifyRefusesAnUnorderedListing(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(5)
	_, err := w.run()
	require.NoError(t, err)
	p := w.pipeline(func(c *pipeline.Config) { c.Objects = unordered{w.objects} })
	v, err := p.Verify(t.Context(), repairs, func(pipeline.Fault) {})
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
	require.ErrorContains(t, err, "does not list its keys in order")
	assert.Zero(t, v.OriginalsLost)
}

// A store that fails in the middle ends the verification with a time to come
// back; what was restored stays, and the next one does the rest.
func TestVerifyWithAStoreThatFails(t *testing.T) {
	for _, op := range []string{"list", "put", "get"} {
		t.Run(op, func(t *testing.T) {
			w := newStillWorld(t)
			w.corpus(60)
			_, err := w.run()
			require.NoError(t, err)
			for _, key := range w.originals()[:30] {
				w.removeObject(key)
			}
			var good, doomed atomic.Int64
			objects := w.counted(func(of, _ string) error {
				if of == op && good.Add(1) > 1 {
					doomed.Add(1)
					return answered(http.StatusServiceUnavailable)
				}
				return nil
			})
			_, err = w.pipeline(objects.of).Verify(t.Context(), repairsDeep, func(pipeline.Fault) {})
			stop := stopOf(t, err)
			assert.Equal(t, pipeline.StopDeferred, stop.Kind)
			assert.Equal(t, "s3", stop.Upstream)
			assert.LessOrEqual(t, doomed.Load(), int64(5))
			_, _ = w.verify(repairs)
			_, faults := w.verify(looksDeep)
			assert.Empty(t, faults)
		})
	}
}

// interrupting is an object store whose reads interrupt the work.
type interrupting struct {
	pipeline.ObjectStore

	interrupt func()
	gets      atomic.Int64
}

func (o *interrupting) GetObject(
	ctx context.Context, _ *s3.GetObjectInput, _ ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	o.gets.Add(1)
	o.interrupt()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A verification that is interrupted ends, and says so.
func TestVerifyOfOriginalsIsInterrupted(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(50)
	_, err := w.run()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	objects := &interrupting{ObjectStore: w.objects, interrupt: cancel}
	p := w.pipeline(func(c *pipeline.Config) { c.Objects, c.Grace = objects, -1 })
	v, err := p.Verify(ctx, looksDeep, func(pipeline.Fault) {})
	assert.Equal(t, pipeline.StopInterrupted, stopOf(t, err).Kind)
	assert.LessOrEqual(t, objects.gets.Load(), int64(5), "those in flight")
	assert.Zero(t, v.OriginalsDamaged)
}

// The documents of a bucket are read again from there.
func TestVerifyRestoresFromABucket(t *testing.T) {
	w := newStillWorld(t)
	inbox := bucket.Open(t, "inbox")
	for i := range 3 {
		bucket.Put(t, inbox, "inbox", fmt.Sprintf("docs/note%03d.txt", i), text(i))
	}
	opened := 0
	options := source.Options{
		ObjectGuard: bucket.Guard(t),
		Objects:     func(context.Context) (source.ObjectReader, error) { opened++; return inbox, nil },
	}
	in, err := source.Find([]string{"s3://inbox/docs"}, options)
	require.NoError(t, err)
	_, err = w.pipeline().Run(t.Context(), in.All(t.Context()))
	require.NoError(t, err)
	for _, key := range w.originals() {
		w.removeObject(key)
	}
	require.NoError(t, removeFrom(t, inbox, "docs/note002.txt"))
	opened = 0
	v, faults := w.verify(pipeline.VerifyOptions{Repair: true, Sources: options})
	assert.Equal(t, 2, v.Repaired)
	assert.Equal(t, 3, v.OriginalsLost)
	assert.Contains(t, faults[2], "note002.txt: its source cannot be read: ")
	assert.Equal(t, 1, opened)
}

// Documents that were deferred keep their originals until they are ingested.
func TestOriginalsOfDeferredDocumentsAreKept(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.dropRow(w.rowsOf("docs/note001.txt")[0].ID)
	v, _ := w.verify(repairs)
	require.Equal(t, 1, v.Missing)
	w.yesterday()
	_, faults := w.verify(repairs)
	assert.Empty(t, faults)
	p, ok, err := w.config.Journal.Problem(t.Context(), "test", "docs/note001.txt")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, journal.Deferred, p.Status)
	assert.Len(t, w.originals(), 3)
}

func removeFrom(t *testing.T, store *bucket.Store, key string) error {
	t.Helper()
	in := &s3.DeleteObjectInput{Bucket: aws.String("inbox"), Key: aws.String(key)}
	_, err := store.DeleteObject(t.Context(), in)
	return err
}

// A file that is larger than what is held in memory is hashed again after it
// was put: what changed meanwhile is not kept.
func TestVerifyRestoresLargeOriginals(t *testing.T) {
	w := newStillWorld(t)
	w.config.Chunks.Tokens = 8192
	large := strings.Repeat("Valve seven was opened by operator nine. ", 110_000)
	w.write("large.txt", large)
	_, err := w.run()
	require.NoError(t, err)
	key := w.original("docs/large.txt")
	w.removeObject(key)
	objects := w.counted(func(op, _ string) error {
		if op == "put" {
			w.write("large.txt", strings.Replace(large, "seven", "eight", 1))
		}
		return nil
	})
	_, faults := w.verify(repairs, objects.of)
	assert.Equal(t, []string{
		"original lost docs/large.txt: its source has changed; the next run stores the new content",
	}, faults)
	assert.Empty(t, w.originals())
	w.write("large.txt", large)
	_, faults = w.verify(repairs)
	assert.Equal(t, []string{"original lost docs/large.txt repaired"}, faults)
	assert.Equal(t, []string{key}, w.originals())
	_, faults = w.verify(looksDeep)
	assert.Empty(t, faults)
}

// An original that is removed while it is copied is not repaired, and the rest
// is.
func TestVerifyCopiesWhatIsStillThere(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(5)
	_, err := w.run()
	require.NoError(t, err)
	w.age()
	gone := w.original("docs/note003.txt")
	var once sync.Once
	objects := w.counted(func(op, _ string) error {
		if op == "copy" {
			once.Do(func() { w.removeObject(gone) })
		}
		return nil
	})
	v, faults := w.verify(repairs, objects.of, func(c *pipeline.Config) { c.Concurrency = 1 })
	assert.Equal(t, 5, v.OriginalsElsewhere)
	assert.Equal(t, 4, v.OriginalsCopied)
	assert.Contains(t, faults, "original elsewhere docs/note003.txt: it was removed meanwhile")
}
