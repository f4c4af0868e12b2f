package pipeline_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// counted counts the calls to an object store and fails those that a hook
// refuses.
type counted struct {
	pipeline.ObjectStore

	puts, lists, gets, copies atomic.Int64

	refuse func(op, key string) error // nil refuses nothing
}

func (w *world) counted(refuse func(op, key string) error) *counted {
	return &counted{ObjectStore: w.objects, refuse: refuse}
}

func (o *counted) through(n *atomic.Int64, op string, key *string) error {
	n.Add(1)
	if o.refuse == nil {
		return nil
	}
	return o.refuse(op, aws.ToString(key))
}

func (o *counted) PutObject(
	ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	if err := o.through(&o.puts, "put", in.Key); err != nil {
		return nil, err
	}
	return o.ObjectStore.PutObject(ctx, in, opts...)
}

func (o *counted) GetObject(
	ctx context.Context, in *s3.GetObjectInput, opts ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	if err := o.through(&o.gets, "get", in.Key); err != nil {
		return nil, err
	}
	return o.ObjectStore.GetObject(ctx, in, opts...)
}

func (o *counted) CopyObject(
	ctx context.Context, in *s3.CopyObjectInput, opts ...func(*s3.Options),
) (*s3.CopyObjectOutput, error) {
	if err := o.through(&o.copies, "copy", in.Key); err != nil {
		return nil, err
	}
	return o.ObjectStore.CopyObject(ctx, in, opts...)
}

func (o *counted) ListObjectsV2(
	ctx context.Context, in *s3.ListObjectsV2Input, opts ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	if err := o.through(&o.lists, "list", in.Prefix); err != nil {
		return nil, err
	}
	return o.ObjectStore.ListObjectsV2(ctx, in, opts...)
}

// of has a pipeline call this object store.
func (o *counted) of(c *pipeline.Config) { c.Objects = o }

// collection is a destination of the world beside its own.
func collection(name string) func(*pipeline.Config) {
	return func(c *pipeline.Config) { c.Collection, c.Destination = name, "test "+name }
}

// age moves the originals to the keys of the earlier layout, as an earlier
// version left them.
func (w *world) age() {
	w.t.Helper()
	for _, key := range w.originals() {
		w.ageOne(key)
	}
}

func (w *world) ageOne(key string) {
	w.t.Helper()
	parts := strings.Split(key, "/")
	require.Len(w.t, parts, 4)
	w.copyObject(key, strings.Join([]string{parts[0], parts[2], parts[3]}, "/"))
	w.removeObject(key)
}

func (w *world) copyObject(from, to string) {
	w.t.Helper()
	_, err := w.objects.CopyObject(w.t.Context(), &s3.CopyObjectInput{
		Bucket: aws.String("originals"), Key: aws.String(to), CopySource: aws.String("originals/" + from),
	})
	require.NoError(w.t, err)
}

func (w *world) removeObject(key string) {
	w.t.Helper()
	in := &s3.DeleteObjectInput{Bucket: aws.String("originals"), Key: aws.String(key)}
	_, err := w.objects.DeleteObject(w.t.Context(), in)
	require.NoError(w.t, err)
}

// originalsOf are the keys of a document's originals in any layout.
func (w *world) originalsOf(id string) (keys []string) {
	w.t.Helper()
	for _, key := range w.originals() {
		if strings.Contains(key, "/"+rows.DocumentHash(id)+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// The deletion of a document from one collection took the original that
// another one in the bucket still needs.
func TestDeleteTookSharedOriginals(t *testing.T) {
	w := newStillWorld(t)
	w.write("heron.txt", "One document about herons.")
	_, err := w.run(collection("a"))
	require.NoError(t, err)
	_, err = w.run(collection("b"))
	require.NoError(t, err)
	require.Len(t, w.originalsOf("docs/heron.txt"), 2)

	summary, err := w.pipeline(collection("a")).Delete(t.Context(), "docs/heron.txt")
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Deleted)
	assert.Len(t, w.originalsOf("docs/heron.txt"), 1)
	again, err := w.run(collection("b"))
	require.NoError(t, err)
	assert.Equal(t, 1, again.Unchanged)
	v, err := w.pipeline(collection("b")).Verify(t.Context(), pipeline.VerifyOptions{}, func(pipeline.Fault) {})
	require.NoError(t, err)
	assert.True(t, v.Consistent())
}

// Two machines with embedded vectors name their destinations alike; so does a
// collection that was made again. A copy of a collection has its ID and another
// destination.
func TestOriginalsOfTwoMachines(t *testing.T) {
	w := newStillWorld(t)
	w.write("heron.txt", "One document about herons.")
	_, err := w.run()
	require.NoError(t, err)
	other, err := sqlitestore.Open(filepath.Join(t.TempDir(), "vectors.db"))
	require.NoError(t, err)
	defer other.Close()
	second := w.openJournal("second")
	defer second.Close()
	elsewhere := func(c *pipeline.Config) { c.Vectors, c.Journal = other, second }
	_, err = w.run(elsewhere)
	require.NoError(t, err)
	require.Len(t, w.originalsOf("docs/heron.txt"), 2)
	_, err = w.pipeline(elsewhere).Delete(t.Context(), "docs/heron.txt")
	require.NoError(t, err)
	require.Len(t, w.originalsOf("docs/heron.txt"), 1)

	_, err = w.run(func(c *pipeline.Config) { c.Destination = "a copy" })
	require.NoError(t, err)
	require.Len(t, w.originalsOf("docs/heron.txt"), 2)
	_, err = w.pipeline(func(c *pipeline.Config) { c.Destination = "a copy" }).Delete(t.Context(), "docs/heron.txt")
	require.NoError(t, err)
	require.Len(t, w.originalsOf("docs/heron.txt"), 1)
}

// A deletion knows the originals of a collection that was dropped.
func TestDeleteFromADroppedCollection(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(2)
	_, err := w.run()
	require.NoError(t, err)
	require.NoError(t, w.store.DropCollection(t.Context(), "docs"))
	summary, err := w.pipeline().Delete(t.Context(), "docs/note000.txt")
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Deleted)
	assert.Empty(t, w.originalsOf("docs/note000.txt"))
	assert.Len(t, w.originals(), 1)
}

// A name that is too long for metadata has an object of its own, which goes
// with the document.
func TestOriginalsOfLongNames(t *testing.T) {
	w := newStillWorld(t)
	long := "docs/" + strings.Repeat("ü", 400) + ".txt"
	item := opened(long, memory{bytes.NewReader([]byte("A document with a long name."))})
	_, err := w.pipeline().Run(t.Context(), one(item))
	require.NoError(t, err)
	keys := w.originalsOf(long)
	require.Len(t, keys, 2)
	assert.Equal(t, "source.txt", filepath.Base(keys[1]))
	_, err = w.pipeline().Delete(t.Context(), long)
	require.NoError(t, err)
	assert.Empty(t, w.originals())
}

// Keys that do not name the destination belong to nobody: a deletion leaves
// them and counts them.
func TestDeleteLeavesOriginalsOfNobody(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.write("note001.txt", "Another version of note one.")
	_, err = w.run()
	require.NoError(t, err)
	w.age()
	w.write("note002.txt", "Another version of note two.")
	_, err = w.run()
	require.NoError(t, err)
	objects := w.counted(nil)
	summary, err := w.pipeline(objects.of).Delete(t.Context(), "docs/note001.txt", "docs/note002.txt", "docs/none.txt")
	require.NoError(t, err)
	assert.Equal(t, 2, summary.Deleted)
	assert.Equal(t, 3, summary.OriginalsLeft)
	assert.Equal(t, 2, w.reports["docs/note001.txt"].OriginalsLeft)
	assert.Len(t, w.originalsOf("docs/note001.txt"), 2)
	assert.Len(t, w.originalsOf("docs/note002.txt"), 1)
	assert.Equal(t, int64(7), objects.lists.Load(), "two a document, and one to find out whether any is left")
}

func TestDeleteWithoutOldOriginalsListsOnce(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(10)
	_, err := w.run()
	require.NoError(t, err)
	objects := w.counted(nil)
	p := w.pipeline(objects.of)
	_, err = p.Delete(t.Context(), "docs/note001.txt", "docs/note002.txt", "docs/note003.txt")
	require.NoError(t, err)
	assert.Equal(t, int64(4), objects.lists.Load())
}

// What is there is not sent again: with a journal no call is made, and without
// one the store is asked. New content costs its put and nothing more.
func TestOriginalsAreNotSentAgain(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(40)
	fresh := w.counted(nil)
	_, err := w.run(fresh.of)
	require.NoError(t, err)
	assert.Equal(t, int64(40), fresh.puts.Load())
	assert.Zero(t, fresh.lists.Load())

	unchanged := w.counted(nil)
	_, err = w.run(unchanged.of)
	require.NoError(t, err)
	assert.Zero(t, unchanged.puts.Load()+unchanged.lists.Load())

	w.write("note000.txt", "Another version of note zero.")
	changed := w.counted(nil)
	_, err = w.run(changed.of)
	require.NoError(t, err)
	assert.Equal(t, int64(1), changed.puts.Load())
	assert.Zero(t, changed.lists.Load(), "its content is new")

	policy := w.counted(nil)
	again, err := w.run(policy.of, func(c *pipeline.Config) { c.Meta = map[string]string{"team": "search"} })
	require.NoError(t, err)
	assert.Equal(t, 40, again.Ingested)
	assert.Equal(t, int64(40), policy.lists.Load())
	assert.Zero(t, policy.puts.Load(), "the content is that of the journal")

	w.loseJournal()
	w.write("new.txt", "A new document.")
	lost := w.counted(nil)
	again, err = w.run(lost.of, func(c *pipeline.Config) { c.Meta = map[string]string{"team": "search"} })
	require.NoError(t, err)
	assert.Equal(t, 41, again.Ingested)
	assert.Equal(t, int64(41), lost.lists.Load())
	assert.Equal(t, int64(1), lost.puts.Load())
	w.requireComplete(41)
}

// An original that lost bytes is replaced by the run that finds it so.
func TestRunReplacesTruncatedOriginal(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(1)
	_, err := w.run()
	require.NoError(t, err)
	key := w.originals()[0]
	w.removeObject(key)
	bucket.Put(t, w.objects, "originals", key, "Note")
	w.loseJournal()
	_, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, "Note 0 says that valve 0 was opened.", w.object(key))
}

// object is the content of an object.
func (w *world) object(key string) string {
	w.t.Helper()
	found, err := w.objects.GetObject(w.t.Context(), &s3.GetObjectInput{
		Bucket: aws.String("originals"), Key: aws.String(key),
	})
	require.NoError(w.t, err)
	defer found.Body.Close()
	content, err := io.ReadAll(found.Body)
	require.NoError(w.t, err)
	return string(content)
}
