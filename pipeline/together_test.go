package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// meeting is where runs wait until all of them are there, so that each has
// found nothing before any of them makes it.
type meeting struct {
	missing atomic.Int32
	once    sync.Once
	all     chan struct{}
}

func newMeeting(runs int) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(int32(runs))
	return m
}

// wait returns when all runs have come once; later it returns immediately.
func (m *meeting) wait() {
	if m.missing.Add(-1) == 0 {
		m.over()
	}
	<-m.all
}

// over lets everybody through.
func (m *meeting) over() { m.once.Do(func() { close(m.all) }) }

// race is where runs meet before each thing that they might all make.
type race struct{ bucket, collection, index, load *meeting }

func newRace(runs int) *race {
	return &race{newMeeting(runs), newMeeting(runs), newMeeting(runs), newMeeting(runs)}
}

// over is for a run that has ended, so that nobody waits for it.
func (r *race) over() {
	for _, m := range []*meeting{r.bucket, r.collection, r.index, r.load} {
		m.over()
	}
}

// racingObjects is the object store of one run in a race.
type racingObjects struct {
	pipeline.ObjectStore

	race *race
}

func (o *racingObjects) HeadBucket(
	ctx context.Context, in *s3.HeadBucketInput, opts ...func(*s3.Options),
) (*s3.HeadBucketOutput, error) {
	out, err := o.ObjectStore.HeadBucket(ctx, in, opts...)
	o.race.bucket.wait()
	return out, err
}

// racingVectors is the vector store of one run in a race.
type racingVectors struct {
	vectorstore.Store

	race  *race
	index sync.Once
}

func (v *racingVectors) HasCollection(ctx context.Context, name string) (bool, error) {
	there, err := v.Store.HasCollection(ctx, name)
	v.race.collection.wait()
	return there, err
}

func (v *racingVectors) DescribeIndex(
	ctx context.Context, name, field string, opts ...client.IndexOption,
) ([]entity.Index, error) {
	found, err := v.Store.DescribeIndex(ctx, name, field, opts...)
	v.index.Do(v.race.index.wait)
	return found, err
}

func (v *racingVectors) CreateIndex(
	ctx context.Context, name, field string, index entity.Index, async bool, opts ...client.IndexOption,
) error {
	v.index.Do(v.race.index.wait)
	return v.Store.CreateIndex(ctx, name, field, index, async, opts...)
}

func (v *racingVectors) LoadCollection(
	ctx context.Context, name string, async bool, opts ...client.LoadCollectionOption,
) error {
	v.race.load.wait()
	return v.Store.LoadCollection(ctx, name, async, opts...)
}

// racer is the pipeline of another process in a race: it has a journal,
// breakers and a handle of the vectors' file of its own.
func (w *world) racer(name string, r *race, change ...func(*pipeline.Config)) (*pipeline.Pipeline, *journal.Journal) {
	w.t.Helper()
	own := w.openJournal(name)
	vectors, err := sqlitestore.Open(filepath.Join(w.dir, "vectors.db"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		assert.NoError(w.t, own.Close())
		assert.NoError(w.t, vectors.Close())
	})
	quiet := resilience.Config{Logger: w.config.Logger}
	config := w.config
	config.Journal, config.Report = own, nil
	config.Objects = &racingObjects{ObjectStore: w.objects, race: r}
	config.Vectors = &racingVectors{Store: vectors, race: r}
	config.ObjectGuard = objectstore.Guard{Breaker: testutil.NewBreaker(w.t, "s3", quiet)}
	config.VectorGuard = vectorstore.Guard{Breaker: testutil.NewBreaker(w.t, "milvus", quiet)}
	config.LLMGuard = llm.Guard{Breaker: testutil.NewBreaker(w.t, "llm", quiet)}
	for _, c := range change {
		c(&config)
	}
	p, err := pipeline.New(config)
	require.NoError(w.t, err)
	return p, own
}

// collectionID is the ID in the record of the world's collection.
func (w *world) collectionID() string {
	w.t.Helper()
	found, err := w.store.DescribeCollection(w.t.Context(), "docs")
	require.NoError(w.t, err)
	record, ok := rows.ReadRecord(found.Schema.Description)
	require.True(w.t, ok)
	return record.ID
}

// Runs that find neither bucket nor collection all try to make them. One does,
// the others use what it made: each has the same collection in its journal, and
// ingests its documents.
func TestOneRunMakesTheCollectionThatAllUse(t *testing.T) {
	const runs = 8
	w, r := newStillWorld(t), newRace(runs)
	w.write("common.txt", "All of them read that the weir was closed.")
	var all sync.WaitGroup
	journals := make([]*journal.Journal, runs)
	for i := range runs {
		p, own := w.racer(fmt.Sprint("journal", i), r)
		journals[i] = own
		all.Go(func() {
			defer r.over()
			summary, err := p.Run(t.Context(), func(yield func(source.Item, error) bool) {
				for item, err := range w.documents() {
					yield(item, err)
				}
				text := fmt.Sprintf("Only run %d reads this.", i)
				yield(opened(fmt.Sprintf("own%d.txt", i), memory{bytes.NewReader([]byte(text))}), nil)
			})
			assert.NoError(t, err)
			assert.Equal(t, 2, summary.Ingested)
		})
	}
	all.Wait()
	w.requireComplete(runs + 1)
	for _, own := range journals {
		id, err := own.Collection(t.Context(), "test")
		require.NoError(t, err)
		assert.Equal(t, w.collectionID(), id)
	}
	again, _ := w.racer("late", r)
	summary, err := again.Run(t.Context(), w.documents())
	require.NoError(t, err)
	assert.Zero(t, summary.Embedded)
}

// rival makes the collection just before the run does.
type rival struct {
	vectorstore.Store

	record rows.Record
	fails  bool // and the call is refused without a collection being there
}

func (r *rival) CreateCollection(
	ctx context.Context, schema *entity.Schema, shards int32, opts ...client.CreateCollectionOption,
) error {
	if r.fails {
		return status.Error(codes.AlreadyExists, "somebody has it")
	}
	theirs, err := r.record.Schema(schema.CollectionName)
	if err != nil {
		return err
	}
	if err := r.Store.CreateCollection(ctx, theirs, shards); err != nil {
		return err
	}
	return r.Store.CreateCollection(ctx, schema, shards, opts...)
}

// The maker of a collection may be killed before it has an index.
func TestACollectionMadeMeanwhileHasNoIndex(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	theirs := rows.NewRecord(staticmodel.Name, 256)
	theirs.ID = "theirs"
	_, err := w.run(func(c *pipeline.Config) { c.Vectors = &rival{Store: w.store, record: theirs} })
	require.NoError(t, err)
	w.requireComplete(3)
	id, err := w.config.Journal.Collection(t.Context(), "test")
	require.NoError(t, err)
	assert.Equal(t, "theirs", id)
}

// A collection that was made meanwhile and does not fit is left as it is.
func TestACollectionMadeMeanwhileMustFit(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run(func(c *pipeline.Config) {
		c.Vectors = &rival{Store: w.store, record: rows.NewRecord("another", 256)}
	})
	stopped := stopOf(t, err)
	assert.Equal(t, pipeline.StopConfiguration, stopped.Kind)
	require.ErrorContains(t, stopped, `it holds vectors of model "another"`)
	state, err := w.store.GetLoadState(t.Context(), "docs", nil)
	require.NoError(t, err)
	assert.Equal(t, entity.LoadStateNotLoad, state, "nothing was made ready for a run that cannot use it")
	named, err := w.config.Journal.Collection(t.Context(), "test")
	require.NoError(t, err)
	assert.Empty(t, named)
}

func TestARefusalToMakeTheCollectionIsSaid(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run(func(c *pipeline.Config) { c.Vectors = &rival{Store: w.store, fails: true} })
	stopped := stopOf(t, err)
	assert.Equal(t, pipeline.StopConfiguration, stopped.Kind)
	require.ErrorContains(t, stopped, "somebody has it")
	named, err := w.config.Journal.Collection(t.Context(), "test")
	require.NoError(t, err)
	assert.Empty(t, named)
}

// foreignBucket has a bucket that only its owner sees.
type foreignBucket struct{ pipeline.ObjectStore }

func (foreignBucket) HeadBucket(
	context.Context, *s3.HeadBucketInput, ...func(*s3.Options),
) (*s3.HeadBucketOutput, error) {
	return nil, &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusNotFound}},
		Err:      &types.NotFound{},
	}}
}

func TestABucketOfSomebodyElse(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.objects.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("originals")})
	require.NoError(t, err)
	_, err = w.run(func(c *pipeline.Config) { c.Objects = foreignBucket{w.objects} })
	stopped := stopOf(t, err)
	assert.Equal(t, pipeline.StopConfiguration, stopped.Kind)
	require.ErrorContains(t, stopped, "BucketAlreadyOwnedByYou")
}
