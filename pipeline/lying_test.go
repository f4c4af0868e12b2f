package pipeline_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
)

// lyingStore is a vector store that takes rows and loses some of them, or does
// not show them.
type lyingStore struct {
	vectorstore.Store

	loses   bool // the last row of each upsert
	partial bool // answers of a query lack their last row
}

func (s *lyingStore) Upsert(
	ctx context.Context, collection, partition string, columns ...entity.Column,
) (entity.Column, error) {
	ids, err := s.Store.Upsert(ctx, collection, partition, columns...)
	if err == nil && s.loses {
		key, _ := ids.GetAsString(ids.Len() - 1)
		err = s.DeleteByPks(ctx, collection, partition, entity.NewColumnVarChar(rows.Field.ID, []string{key}))
	}
	return ids, err
}

func (s *lyingStore) Query(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	answer, err := s.Store.Query(ctx, collection, partitions, expr, fields, opts...)
	if err != nil || !s.partial || answer.Len() == 0 {
		return answer, err
	}
	short := make(client.ResultSet, len(answer))
	for i, column := range answer {
		short[i] = column.Slice(0, column.Len()-1)
	}
	return short, nil
}

// What the vector store loses, or does not show, is noticed: the document is
// deferred and the next run completes it.
func TestVectorStoreLies(t *testing.T) {
	for name, lie := range map[string]*lyingStore{"loses rows": {loses: true}, "shows a part": {partial: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, llmtest.Options{})
			w.corpus(200)
			lie.Store = w.store
			summary, err := w.run(func(c *pipeline.Config) { c.Vectors = lie })
			stop := stopOf(t, err)
			assert.Equal(t, pipeline.StopDeferred, stop.Kind)
			assert.False(t, stop.RetryAt.IsZero())
			assert.Positive(t, summary.Deferred)
			assert.Zero(t, summary.DeadLetters)
			assert.Equal(t, 200, summary.Deferred+summary.Ingested)

			texts := w.model.Stats().Texts
			_, err = w.run()
			require.NoError(t, err)
			w.requireComplete(200)
			assert.LessOrEqual(t, w.model.Stats().Texts, texts+1, "the check of the model alone")
		})
	}
}

func TestVectorStoreFailsInTheMiddle(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1500)
	var upserts, doomed atomic.Int64
	_, err := w.run(w.hooked(func(_ context.Context, c call) error {
		if c.method == "Upsert" {
			upserts.Add(1)
		}
		if upserts.Load() > 4 {
			doomed.Add(1)
			return status.Error(codes.Unavailable, "gone")
		}
		return nil
	}, nil))
	stop := stopOf(t, err)
	assert.Equal(t, pipeline.StopDeferred, stop.Kind)
	assert.Equal(t, "milvus", stop.Upstream)
	assert.LessOrEqual(t, doomed.Load(), int64(5))
	_, err = w.run()
	require.NoError(t, err)
	w.requireComplete(1500)
}

// failingObjects fails from a certain put on.
type failingObjects struct {
	pipeline.ObjectStore

	good int64
	puts atomic.Int64

	mu              sync.Mutex
	streak, longest int // failures in a row, in the order in which calls end
}

func (o *failingObjects) ended(failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.streak++; !failed {
		o.streak = 0
	}
	o.longest = max(o.longest, o.streak)
}

func (o *failingObjects) PutObject(
	ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	if o.puts.Add(1) > o.good {
		o.ended(true)
		return nil, answered(http.StatusServiceUnavailable)
	}
	defer o.ended(false)
	return o.ObjectStore.PutObject(ctx, in, opts...)
}

// answered is the error of a call that an object store answers with a status.
func answered(status int) error {
	return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
		Err:      http.ErrServerClosed,
	}}
}

func TestObjectStoreFailsInTheMiddle(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(600)
	objects := &failingObjects{ObjectStore: w.config.Objects, good: 250}
	summary, err := w.run(func(c *pipeline.Config) { c.Objects = objects })
	stop := stopOf(t, err)
	assert.Equal(t, pipeline.StopDeferred, stop.Kind)
	assert.Equal(t, "s3", stop.Upstream)
	assert.LessOrEqual(t, objects.longest, 5)
	assert.Zero(t, summary.DeadLetters)
	_, err = w.run()
	require.NoError(t, err)
	w.requireComplete(600)
}
