package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// What was paid for goes along with a journal that is carried elsewhere, for as
// long as the vector store lacks it.
func TestVectorsThatAreNotStoredAreCarried(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	require.NoError(t, w.config.Journal.Track(t.Context()))
	w.corpus(30)
	_, err := w.run(w.hooked(on("Upsert", func(context.Context, call) error {
		return status.Error(codes.Unavailable, "gone")
	}), nil))
	_ = stopOf(t, err)
	paid := w.model.Stats().Texts
	require.Greater(t, paid, 30)
	assert.Equal(t, 30, strings.Count(w.carry(), "\n[\"vector\""))

	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 30, summary.Ingested)
	assert.Equal(t, paid+1, w.model.Stats().Texts, "the check of the model and no more")
	assert.Zero(t, strings.Count(w.carry(), "\n[\"vector\""), "the vector store has them")
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 30, summary.Unchanged)
}

// timedError says when to come again.
type timedError struct{ at time.Time }

func (timedError) Error() string        { return "taken over" }
func (e timedError) RetryAt() time.Time { return e.at }

// A journal that is revoked in the middle ends the run as an open breaker does,
// and the next one begins when it is restored.
func TestRevokedJournalEndsTheRun(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(400)
	revoked := timedError{time.Now().Add(time.Hour)}
	var once sync.Once
	run := func() (pipeline.Summary, error) {
		return w.run(func(c *pipeline.Config) {
			c.Report = func(pipeline.Document) { once.Do(func() { c.Journal.Revoke(revoked) }) }
		})
	}
	for range 2 {
		summary, err := run()
		stop := stopOf(t, err)
		assert.Equal(t, pipeline.StopDeferred, stop.Kind)
		assert.Equal(t, revoked.at.UTC().Add(time.Second-1).Truncate(time.Second), stop.RetryAt)
		require.ErrorIs(t, err, revoked)
		assert.Less(t, summary.Ingested, 400)
	}
	w.config.Journal.Restore()
	_, err := run()
	require.NoError(t, err)

	w.config.Journal.Revoke(errors.New("no time"))
	_, err = run()
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
	assert.True(t, stopOf(t, err).RetryAt.IsZero())
}
