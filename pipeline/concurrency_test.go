package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// While committers are busy a group grows, so that the next one does more with
// a call; while they are idle it goes as soon as it has waited. It takes 128
// documents at most.
func TestGroupsGrowWhileCommittersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStillWorld(t)
		feed, groups, release := make(chan int), make(chan int), make(chan struct{})
		documents := func(yield func(source.Item, error) bool) {
			for n := range feed {
				text := memory{bytes.NewReader(fmt.Appendf(nil, "Note %d.", n))}
				yield(opened(fmt.Sprintf("note%d.txt", n), text), nil)
			}
		}
		p := w.pipeline(w.hooked(on("Upsert", func(_ context.Context, c call) error {
			groups <- c.rows
			<-release
			return nil
		}), nil))
		ended := make(chan pipeline.Summary)
		go func() {
			summary, err := p.Run(t.Context(), documents)
			assert.NoError(t, err)
			ended <- summary
		}()
		fed := 0
		put := func(n int) {
			for range n {
				feed <- fed
				fed++
			}
		}
		busy := false
		for !busy { // until a group of one is left
			began := time.Now()
			put(1)
			select {
			case n := <-groups:
				assert.Equal(t, 1, n)
				assert.Less(t, time.Since(began), time.Second)
			case <-time.After(time.Hour):
				busy = true
			}
		}
		put(2)
		synctest.Wait()
		release <- struct{}{}
		assert.Equal(t, 3, <-groups)

		go func() { put(130); close(feed) }()
		synctest.Wait()
		release <- struct{}{}
		assert.Equal(t, 128, <-groups)
		release <- struct{}{}
		assert.Equal(t, 2, <-groups)
		close(release)
		assert.Equal(t, fed, (<-ended).Ingested)
	})
}

func tellUpserts(upserted chan<- struct{}) hook {
	return on("Upsert", func(context.Context, call) error {
		upserted <- struct{}{}
		return nil
	})
}

// A new collection takes Milvus seconds to load; rows are embedded and written
// meanwhile.
func TestRowsAreWrittenWhileTheCollectionLoads(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	upserted := make(chan struct{}, 100)
	summary, err := w.run(w.hooked(on("LoadCollection", func(ctx context.Context, _ call) error {
		select {
		case <-upserted:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), tellUpserts(upserted)))
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Ingested)
	w.requireComplete(3)
}

// A collection that cannot be loaded ends the run. What was embedded is not
// embedded again.
func TestCollectionThatDoesNotLoad(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	upserted := make(chan struct{}, 100)
	summary, err := w.run(w.hooked(on("LoadCollection", func(context.Context, call) error {
		<-upserted
		return errors.New("out of memory")
	}), tellUpserts(upserted)))
	assert.Equal(t, "milvus", stopOf(t, err).Upstream)
	assert.Equal(t, 3, summary.Deferred)
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Ingested)
	w.requireComplete(3)
	assert.LessOrEqual(t, w.model.Stats().Repeated, 1, "the check of the model alone")
}

// Somebody releases the collection in the middle of a run: no document is to
// blame, and the next run loads it again.
func TestCollectionReleasedInTheMiddle(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.write("note001.txt", "Note 1 says that valve 14 was opened.")
	var release sync.Once
	summary, err := w.run(w.hooked(nil, on("Upsert", func(ctx context.Context, _ call) (err error) {
		release.Do(func() { err = w.store.ReleaseCollection(ctx, "docs") })
		return err
	})))
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
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
	p := w.pipeline(func(c *pipeline.Config) { c.Grace = time.Hour }, w.hooked(
		on("LoadCollection", func(ctx context.Context, _ call) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}), nil))
	_, err := p.Run(ctx, w.documents())
	assert.Equal(t, pipeline.StopInterrupted, stopOf(t, err).Kind)
}
