package pipeline

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// unwritable is a vector store that takes no rows.
type unwritable struct{ *sqlitestore.Store }

func (unwritable) Upsert(context.Context, string, string, ...entity.Column) (entity.Column, error) {
	return nil, status.Error(codes.Unavailable, "away")
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

// What was paid for goes along with a journal that is carried elsewhere, for as
// long as the vector store lacks it.
func TestVectorsThatAreNotStoredAreCarried(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	require.NoError(t, w.config.Journal.Track(t.Context()))
	w.corpus(30)
	_, err := w.run(func(c *Config) { c.Vectors = unwritable{w.store} })
	var stop *StopError
	require.ErrorAs(t, err, &stop)
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
	run := func() (Summary, error) {
		return w.run(func(c *Config) {
			c.Report = func(Document) { once.Do(func() { c.Journal.Revoke(revoked) }) }
		})
	}
	for range 2 {
		summary, err := run()
		var stop *StopError
		require.ErrorAs(t, err, &stop)
		assert.Equal(t, StopDeferred, stop.Kind)
		assert.Equal(t, revoked.at, stop.RetryAt)
		require.ErrorIs(t, err, revoked)
		assert.Less(t, summary.Ingested, 400)
	}
	w.config.Journal.Restore()
	_, err := run()
	require.NoError(t, err)
	assert.Equal(t, StopDeferred, revocation(errors.New("no time")).Kind)
	assert.True(t, revocation(errors.New("no time")).RetryAt.IsZero())
}
