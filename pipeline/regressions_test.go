package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/lease"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// A store that answers well and did not delete everything defers the document:
// its journal entry is gone, and a later deletion must find the rest.
type undeleted struct{ pipeline.ObjectStore }

func (undeleted) DeleteObjects(
	context.Context, *s3.DeleteObjectsInput, ...func(*s3.Options),
) (*s3.DeleteObjectsOutput, error) {
	return &s3.DeleteObjectsOutput{Errors: []types.Error{{
		Key: aws.String("k"), Code: aws.String("InternalError"), Message: aws.String("Please try again."),
	}}}, nil
}

func TestPartialDeletionIsDeferred(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(1)
	_, err := w.run()
	require.NoError(t, err)
	p := w.pipeline(func(c *pipeline.Config) { c.Objects = undeleted{w.objects} })
	summary, err := p.Delete(t.Context(), "docs/note000.txt")
	assert.Equal(t, 1, summary.Deferred)
	assert.Zero(t, summary.DeadLetters)
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
}

// A journal may be revoked with the lease's own error, or with a stop. Its time
// is kept, in whole seconds.
func TestRevocationNamesItsTime(t *testing.T) {
	at := time.Date(2030, 1, 1, 12, 0, 0, 500, time.FixedZone("", 3600))
	for name, reason := range map[string]error{
		"lease": &lease.LostError{Place: "s3://b/p", Holder: "another", At: at},
		"stop":  &pipeline.StopError{Kind: pipeline.StopDeferred, RetryAt: at, Err: errors.New("gone")},
	} {
		w := newStillWorld(t)
		w.corpus(1)
		w.config.Journal.Revoke(reason)
		summary, err := w.run()
		assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind, name)
		require.NotNil(t, summary.Stopped.RetryAt, name)
		assert.Equal(t, "2030-01-01T11:00:01Z", summary.Stopped.RetryAt.Format(time.RFC3339Nano), name)
	}
}

// The Settled of the user's guard is told each call once, also where the
// documents come from the object store.
func TestSettledOnceForS3Source(t *testing.T) {
	w := newStillWorld(t)
	_, err := w.objects.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("inbox")})
	require.NoError(t, err)
	for i := range 3 {
		_, err = objectstore.PutObject(t.Context(), w.objects, &s3.PutObjectInput{
			Bucket: aws.String(
				"inbox",
			), Key: aws.String(fmt.Sprintf("d%d.txt", i)), Body: strings.NewReader("some text"),
		})
		require.NoError(t, err)
	}
	var told atomic.Int64
	guard := w.config.ObjectGuard
	guard.Settled = func(resilience.Verdict) { told.Add(1) }
	in, err := source.Find([]string{"s3://inbox/"}, source.Options{
		ObjectGuard: guard, Objects: func(context.Context) (source.ObjectReader, error) { return w.objects, nil },
	})
	require.NoError(t, err)
	guard.Breaker.Reset()
	p := w.pipeline(func(c *pipeline.Config) { c.ObjectGuard = guard })
	before := guard.Breaker.Snapshot().Calls
	summary, err := p.Run(t.Context(), in.All(t.Context()))
	require.NoError(t, err)
	require.Equal(t, 3, summary.Ingested)
	assert.Equal(t, int64(guard.Breaker.Snapshot().Calls-before), told.Load())
}

// A limiter that the user has closed sends nothing, so no document is to blame.
func TestClosedLimiterDefers(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	limiter, err := inflight.New(w.config.VectorGuard.Breaker, 0)
	require.NoError(t, err)
	w.config.VectorGuard.InFlight = limiter
	shut := on("LoadCollection", func(context.Context, call) error {
		limiter.Close(errors.New("the program is shutting down"))
		return nil
	})
	summary, err := w.run(w.hooked(shut, nil))
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
	assert.Zero(t, summary.DeadLetters)
	assert.Equal(t, 3, summary.Deferred)
}

// A journal that is read after the grace period has not failed.
func TestRevocationStaysADeferral(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(20)
	_, err := w.run()
	require.NoError(t, err)
	w.write("note003.txt", "changed")
	revoke := on("Query", func(ctx context.Context, _ call) error {
		w.config.Journal.Revoke(errors.New("another run has it"))
		<-ctx.Done()
		return ctx.Err()
	})
	_, err = w.run(func(c *pipeline.Config) { c.Grace = -1 }, w.hooked(revoke, nil))
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
}

// A question that the chat model refuses costs one request.
func TestRefusedQuestionsCostOneRequest(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(40)
	w.model.Script(llmtest.Rule{Path: chatPath, Text: "<chunk>", Fault: llmtest.Status(400)})
	_, err := w.run(func(c *pipeline.Config) {
		c.Enrich = pipeline.Enrichment{Client: w.client(llm.Config{}), Model: "chat", Context: true}
		c.Concurrency = 1
	})
	require.NoError(t, err)
	assert.LessOrEqual(t, w.model.Stats().ByPath[chatPath], 40+2, "the chunks, and the checks")
}
