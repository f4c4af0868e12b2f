package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
)

// While committers are busy a group grows, so that the next one does more with
// a call; while they are idle it goes as soon as it has waited.
func TestGroupsGrowWhileCommittersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parts, groups := make(chan *part), make(chan []*part)
		go func() { assemble(parts, groups); close(groups) }()
		parts <- &part{}
		start := time.Now()
		assert.Len(t, <-groups, 1)
		assert.Equal(t, groupWait, time.Since(start))

		for range 3 { // nobody takes a group for a long time
			parts <- &part{}
			time.Sleep(10 * groupWait)
		}
		assert.Len(t, <-groups, 3)

		for range groupDocuments {
			parts <- &part{}
		}
		select {
		case parts <- &part{}:
			t.Error("a full group has taken one more")
		case <-time.After(time.Hour):
		}
		assert.Len(t, <-groups, groupDocuments)

		parts <- &part{}
		close(parts)
		assert.Len(t, <-groups, 1)
		_, more := <-groups
		assert.False(t, more)
	})
}

// loadingStore takes its time to load a collection.
type loadingStore struct {
	vectorstore.Store
	upserted chan struct{} // one for each upsert
	load     func(ctx context.Context) error
}

func (s *loadingStore) LoadCollection(ctx context.Context, collection string, async bool, opts ...client.LoadCollectionOption) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	return s.Store.LoadCollection(ctx, collection, async, opts...)
}

func (s *loadingStore) Upsert(ctx context.Context, collection, partition string, columns ...entity.Column) (entity.Column, error) {
	ids, err := s.Store.Upsert(ctx, collection, partition, columns...)
	s.upserted <- struct{}{}
	return ids, err
}

func newLoadingStore(w *world, load func(s *loadingStore, ctx context.Context) error) func(*Config) {
	s := &loadingStore{Store: w.store, upserted: make(chan struct{}, 100)}
	s.load = func(ctx context.Context) error { return load(s, ctx) }
	return func(c *Config) { c.Vectors = s }
}

// A new collection takes Milvus seconds to load; rows are embedded and written
// meanwhile.
func TestRowsAreWrittenWhileTheCollectionLoads(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	summary, err := w.run(newLoadingStore(w, func(s *loadingStore, ctx context.Context) error {
		select {
		case <-s.upserted:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Ingested)
	w.requireComplete(3)
}

// A collection that cannot be loaded ends the run. What was embedded is not
// embedded again.
func TestCollectionThatDoesNotLoad(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	summary, err := w.run(newLoadingStore(w, func(s *loadingStore, _ context.Context) error {
		<-s.upserted
		return errors.New("out of memory")
	}))
	assert.Equal(t, upstreamMilvus.name, stopOf(t, err).Upstream)
	assert.Equal(t, 3, summary.Deferred)
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Ingested)
	w.requireComplete(3)
	assert.LessOrEqual(t, w.model.Stats().Repeated, 1, "the check of the model alone")
}

// releasingStore releases the collection after the first upsert.
type releasingStore struct {
	vectorstore.Store
	released atomic.Bool
}

func (s *releasingStore) Upsert(ctx context.Context, collection, partition string, columns ...entity.Column) (entity.Column, error) {
	ids, err := s.Store.Upsert(ctx, collection, partition, columns...)
	if s.released.CompareAndSwap(false, true) {
		err = errors.Join(err, s.Store.ReleaseCollection(ctx, collection))
	}
	return ids, err
}

// Somebody releases the collection in the middle of a run: no document is to
// blame, and the next run loads it again.
func TestCollectionReleasedInTheMiddle(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.write("note001.txt", "Note 1 says that valve 14 was opened.")
	summary, err := w.run(func(c *Config) { c.Vectors = &releasingStore{Store: w.store} })
	assert.Equal(t, StopDeferred, stopOf(t, err).Kind)
	assert.Equal(t, 1, summary.Deferred)
	assert.Zero(t, summary.DeadLetters)
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Ingested)
	w.requireComplete(3)
}

// The end of a run does not wait for a collection to load.
func TestLoadingEndsWithTheRun(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	ctx, cancel := context.WithCancel(t.Context())
	load := newLoadingStore(w, func(_ *loadingStore, ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	config := w.config
	load(&config)
	config.Grace = time.Hour
	w.reports = map[string]Document{}
	p, err := New(config)
	require.NoError(t, err)
	_, err = p.Run(ctx, w.documents())
	assert.Equal(t, StopInterrupted, stopOf(t, err).Kind)
}
