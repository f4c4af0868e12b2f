package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/rows"
)

// canaryText is embedded to see whether a model answers at all, and with how
// many dimensions.
const canaryText = "penstock: does the model answer?"

// patience is how many rate limits the check of the model waits out.
const patience = 5

// check looks at the upstreams once, just before the first of them is used: no
// work, no check. Every reader waits for it.
type check struct {
	run  *run
	once sync.Once
	err  error

	dims  int  // of the model's vectors
	empty bool // the collection was made by this run

	loading sync.WaitGroup // the collection is on its way into memory
	loadErr error          // set before loading is done

	described   sync.Once
	found       *entity.Collection // nil when there is none
	describeErr error
}

func (c *check) upstreams() error {
	c.once.Do(func() { c.err = c.look() })
	return c.err
}

// dimensions of the vectors; set once upstreams has returned nil.
func (c *check) dimensions() int { return c.dims }

// emptyCollection holds when nothing can have been there before this run.
func (c *check) emptyCollection() bool { return c.empty }

// look goes from the cheapest question to the dearest.
func (c *check) look() error {
	if err := c.bucket(); err != nil {
		return err
	}
	found, err := c.collection()
	if err != nil {
		return err
	}
	if c.dims, err = c.model(); err != nil {
		return err
	}
	want := rows.NewRecord(c.run.Model, c.dims)
	if found == nil {
		want.ID = taskID()
		c.empty = true
		return cmp.Or(c.makeCollection(want), c.remember(want.ID))
	}
	return cmp.Or(c.fits(found, want), c.index(found), c.remember(idOf(found)))
}

// load brings the collection into memory, which takes Milvus seconds: meanwhile
// originals are kept and rows written. What reads rows waits for it, in loaded.
func (c *check) load() {
	r := c.run
	ctx, cancel := context.WithCancelCause(r.ctx)
	go func() {
		select {
		case <-r.end.done:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	c.loading.Go(func() {
		defer cancel(nil)
		err := r.vectors.do(ctx, "load_collection", func() error {
			return r.VectorGuard.LoadCollection(ctx, r.Vectors, r.Collection, false)
		})
		if err != nil && context.Cause(ctx) != nil {
			c.loadErr = deferral("check", "stopped", errStopped)
			return
		}
		c.loadErr = r.beforeFirst(upstreamMilvus, err)
	})
}

// loaded waits until rows can be read.
func (c *check) loaded() error {
	c.loading.Wait()
	return c.loadErr
}

// idOf is what tells a collection from another of that name; empty for one that
// is not there.
func idOf(found *entity.Collection) string {
	if found == nil {
		return ""
	}
	record, _ := rows.ReadRecord(found.Schema.Description)
	return record.ID
}

// remember has the journal forget what went into another collection.
func (c *check) remember(collection string) error {
	forgotten, err := c.run.Journal.SetCollection(c.run.ctx, c.run.Destination, collection)
	if err != nil {
		return c.run.journalFault(err)
	}
	if forgotten > 0 {
		c.run.Logger.Warn("the collection is not the one that the journal knows: its documents are ingested again",
			"collection", c.run.Collection, "documents", forgotten)
	}
	return nil
}

// journal holds the journal against the vector store before it is believed: the
// documents that it knows went into a collection that may be gone. A store that
// does not answer now is met again by whoever has work for it.
func (c *check) journal() {
	r := c.run
	totals, err := r.Journal.Totals(r.ctx, r.Destination)
	if err != nil {
		r.fault(err)
	}
	if err != nil || totals.Documents == 0 {
		return
	}
	known, err := r.Journal.Collection(r.ctx, r.Destination)
	if err != nil {
		r.fault(err)
		return
	}
	found, err := c.describe()
	if err == nil && idOf(found) != known && (found != nil || known != "") {
		_ = c.remember(idOf(found)) // a fault of the journal has ended the run
	}
}

// fits ends the run where a collection cannot hold rows of the wanted record.
func (c *check) fits(found *entity.Collection, want rows.Record) error {
	err := want.Misfit(found)
	if err == nil {
		return nil
	}
	return c.misfit(upstreamMilvus, fmt.Errorf("collection %q: %w; choose another collection", c.run.Collection, err))
}

// sameModel is fits for one who does not know the dimensions of the model.
func (c *check) sameModel(found *entity.Collection) error {
	record, ok := rows.ReadRecord(found.Schema.Description)
	if ok && record.Model != c.run.Model {
		return c.misfit(upstreamMilvus, fmt.Errorf("collection %q holds vectors of model %q, not of %q; choose another collection",
			c.run.Collection, record.Model, c.run.Model))
	}
	return c.fits(found, rows.NewRecord(c.run.Model, record.Dimensions))
}

// misfit ends the run: upstreams that work do not fit together.
func (c *check) misfit(up upstream, err error) error {
	c.run.end.with(&StopError{Kind: StopConfiguration, Upstream: up.name, Err: err})
	return deferral("check", string(StopConfiguration), err)
}

func (c *check) bucket() error {
	r := c.run
	there, err := c.hasBucket()
	switch {
	case err != nil || there:
		return err
	case !r.CreateBucket:
		return c.noBucket()
	}
	err = r.objects.do(r.ctx, "create_bucket", func() error {
		_, err := r.ObjectGuard.CreateBucket(r.ctx, r.Objects, &s3.CreateBucketInput{Bucket: aws.String(r.Bucket)})
		return err
	})
	return r.beforeFirst(upstreamS3, err)
}

func (c *check) noBucket() error {
	return c.misfit(upstreamS3, fmt.Errorf("bucket %q does not exist; make it, or have it made with --create-bucket", c.run.Bucket))
}

func (c *check) hasBucket() (bool, error) {
	r := c.run
	err := r.objects.do(r.ctx, "head_bucket", func() error {
		_, err := r.ObjectGuard.HeadBucket(r.ctx, r.Objects, &s3.HeadBucketInput{Bucket: aws.String(r.Bucket)})
		return err
	})
	if objectstore.StatusCode(err) == http.StatusNotFound {
		return false, nil
	}
	err = r.beforeFirst(upstreamS3, err)
	return err == nil, err
}

// collection describes the collection; nil means that there is none.
func (c *check) collection() (*entity.Collection, error) {
	found, err := c.describe()
	return found, c.run.beforeFirst(upstreamMilvus, err)
}

// describe asks for the collection, once a run.
func (c *check) describe() (*entity.Collection, error) {
	c.described.Do(func() {
		r := c.run
		var there bool
		c.describeErr = r.vectors.do(r.ctx, "has_collection", func() (err error) {
			there, err = r.VectorGuard.HasCollection(r.ctx, r.Vectors, r.Collection)
			return err
		})
		if c.describeErr != nil || !there {
			return
		}
		c.describeErr = r.vectors.do(r.ctx, "describe_collection", func() (err error) {
			c.found, err = r.VectorGuard.DescribeCollection(r.ctx, r.Vectors, r.Collection)
			return err
		})
	})
	return c.found, c.describeErr
}

// model asks for one embedding and gives its dimensions.
func (c *check) model() (int, error) {
	r := c.run
	vector, err := r.embed.canary()
	for tries := 0; err != nil && tries < patience && r.embed.waitedOut(err); tries++ {
		vector, err = r.embed.canary()
	}
	if err != nil {
		return 0, r.beforeFirst(upstreamLLM, err)
	}
	if r.Dimensions != 0 && len(vector) != r.Dimensions {
		return 0, c.misfit(upstreamLLM, fmt.Errorf("model %q gives %d dimensions, not %d", r.Model, len(vector), r.Dimensions))
	}
	return len(vector), nil
}

func (c *check) makeCollection(want rows.Record) error {
	r := c.run
	schema, err := want.Schema(r.Collection)
	if err != nil {
		return err
	}
	index, err := entity.NewIndexAUTOINDEX(entity.COSINE)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error {
			return r.VectorGuard.CreateCollection(r.ctx, r.Vectors, schema, entity.DefaultShardNumber)
		},
		func() error {
			return r.VectorGuard.CreateIndex(r.ctx, r.Vectors, r.Collection, rows.Field.Vector, index, false)
		},
	} {
		if err := r.beforeFirst(upstreamMilvus, r.vectors.do(r.ctx, "create_collection", step)); err != nil {
			return err
		}
	}
	c.load()
	return nil
}

// index makes sure that a collection that exists will answer queries. One that
// an earlier run made and had no time to index is mended.
func (c *check) index(found *entity.Collection) error {
	r := c.run
	if found.Loaded {
		return nil
	}
	var indexes []entity.Index
	err := r.vectors.do(r.ctx, "describe_index", func() (err error) {
		indexes, err = r.VectorGuard.DescribeIndex(r.ctx, r.Vectors, r.Collection, rows.Field.Vector)
		return err
	})
	if err != nil && !errors.Is(err, errStopped) {
		indexes = nil // it says "index not found" as an error
	}
	if len(indexes) == 0 {
		index, err := entity.NewIndexAUTOINDEX(entity.COSINE)
		if err != nil {
			return err
		}
		err = r.vectors.do(r.ctx, "create_index", func() error {
			return r.VectorGuard.CreateIndex(r.ctx, r.Vectors, r.Collection, rows.Field.Vector, index, false)
		})
		if err := r.beforeFirst(upstreamMilvus, err); err != nil {
			return err
		}
	}
	c.load()
	return nil
}

// embeddingRequest asks for the vectors of texts. Strings and floats are what
// every server takes.
func (p *Pipeline) embeddingRequest(texts ...string) openai.EmbeddingRequestStrings {
	return openai.EmbeddingRequestStrings{
		Input: texts, Model: openai.EmbeddingModel(p.Model),
		EncodingFormat: openai.EmbeddingEncodingFormatFloat, Dimensions: p.Dimensions,
	}
}
