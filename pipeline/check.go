package pipeline

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// check looks at the upstreams once, just before the first of them is used: no
// work, no check. Every reader waits for it.
type check struct {
	*scope
	objects *objects
	vectors *vectors
	embed   *embed.Embedder

	once   sync.Once
	err    error
	passed func() // called once all are as they should be

	dims  int  // of the model's vectors; set once upstreams has returned nil
	empty bool // the collection was made by this run, not by another one

	loading sync.WaitGroup // the collection is on its way into memory
	loadErr error          // set before loading is done

	described   sync.Once
	found       *entity.Collection // nil where it does not exist
	describeErr error
}

func (c *check) upstreams() error {
	c.once.Do(func() {
		if c.err = c.look(); c.err == nil {
			c.passed()
		}
	})
	return c.err
}

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
	want := rows.NewRecord(c.Model, c.dims)
	if found == nil {
		want.ID = taskID()
		if found, err = c.makeCollection(want); err != nil {
			return err
		}
	}
	if found == nil {
		c.empty = true
		if err := c.makeIndex(); err != nil {
			return err
		}
		return c.remember(want.ID)
	}
	return c.use(found, want)
}

// use makes ready a collection that somebody else has made.
func (c *check) use(found *entity.Collection, want rows.Record) error {
	if err := c.fits(found, want); err != nil {
		return err
	}
	if err := c.index(found); err != nil {
		return err
	}
	return c.remember(idOf(found))
}

// bucket makes sure that the bucket is there. Another run may make it at the
// same time.
func (c *check) bucket() error {
	there, err := c.hasBucket()
	switch {
	case err != nil || there:
		return err
	case !c.CreateBucket:
		return c.noBucket()
	}
	err = c.objects.createBucket()
	if objectstore.StatusCode(err) == http.StatusConflict && c.objects.headBucket() == nil {
		return nil
	}
	return c.end.BlameBefore(err)
}

func (c *check) noBucket() error {
	return c.misfit(service.ObjectStore,
		fmt.Errorf("bucket %q does not exist; create it, or use --create-bucket", c.Bucket))
}

func (c *check) hasBucket() (bool, error) {
	err := c.objects.headBucket()
	if objectstore.StatusCode(err) == http.StatusNotFound {
		return false, nil
	}
	err = c.end.BlameBefore(err)
	return err == nil, err
}

// collection describes the collection; nil means that it does not exist.
func (c *check) collection() (*entity.Collection, error) {
	found, err := c.describe()
	return found, c.end.BlameBefore(err)
}

// describe asks for the collection, once a run.
func (c *check) describe() (*entity.Collection, error) {
	c.described.Do(func() { c.found, c.describeErr = c.vectors.describe() })
	return c.found, c.describeErr
}

// model asks for one embedding and returns its dimensions.
func (c *check) model() (int, error) {
	dims, err := c.embed.Check(c.ctx)
	if err == nil && c.Dimensions != 0 && dims != c.Dimensions {
		err = c.misfit(service.Model, fmt.Errorf("model %q has %d dimensions, not %d", c.Model, dims, c.Dimensions))
	}
	return dims, err
}

// makeCollection makes the collection, or describes the one that another run
// has made meanwhile: then the store refuses this one, whose ID is different.
func (c *check) makeCollection(want rows.Record) (theirs *entity.Collection, err error) {
	schema, err := want.Schema(c.Collection)
	if err != nil {
		return nil, err
	}
	err = c.vectors.createCollection(schema)
	if status.Code(err) == codes.AlreadyExists {
		theirs, lost := c.vectors.describe()
		if lost != nil || theirs != nil {
			return theirs, c.end.BlameBefore(lost)
		}
	}
	return nil, c.end.BlameBefore(err)
}

func (c *check) makeIndex() error {
	if err := c.end.BlameBefore(c.vectors.createIndex()); err != nil {
		return err
	}
	c.load()
	return nil
}

// index makes sure that a collection that exists will answer queries. One that
// an earlier run made and had no time to index gets its index now.
func (c *check) index(found *entity.Collection) error {
	if found.Loaded {
		return nil
	}
	if !c.vectors.indexed() {
		return c.makeIndex()
	}
	c.load()
	return nil
}

// load brings the collection into memory, which takes Milvus seconds: meanwhile
// originals are kept and rows written. What reads rows waits for it, in loaded.
func (c *check) load() {
	ctx, cancel := context.WithCancelCause(c.ctx)
	go func() {
		select {
		case <-c.end.Done():
			cancel(stop.ErrEnded)
		case <-ctx.Done():
		}
	}()
	c.loading.Go(func() {
		defer cancel(nil)
		err := c.vectors.load(ctx)
		if err != nil && context.Cause(ctx) != nil {
			c.loadErr = stop.Defer("check", "stopped", stop.ErrEnded)
			return
		}
		c.loadErr = c.end.BlameBefore(err)
	})
}

// loaded waits until rows can be read.
func (c *check) loaded() error {
	c.loading.Wait()
	return c.loadErr
}

// prepared makes a collection that exists readable, for a run that had no work
// and so has not looked at the upstreams.
func (c *check) prepared() error {
	found, err := c.collection()
	if err != nil || c.dims > 0 {
		return err
	}
	if found == nil {
		c.empty = true
		return nil
	}
	record, _ := rows.ReadRecord(found.Schema.Description)
	c.dims = record.Dimensions
	return c.index(found)
}

// idOf is what distinguishes a collection from another of that name; empty for
// none.
func idOf(found *entity.Collection) string {
	if found == nil {
		return ""
	}
	record, _ := rows.ReadRecord(found.Schema.Description)
	return record.ID
}

// place finds where the originals of a collection are; those of one that is
// gone are where the journal says.
func (c *check) place(found *entity.Collection) error {
	id, err := idOf(found), error(nil)
	if found == nil {
		id, err = c.Journal.Collection(c.ctx, c.Destination)
	}
	if err != nil {
		return c.end.Fault(err)
	}
	c.objects.use(id)
	return nil
}

// remember has the journal forget what went into another collection. The
// originals go where those of this one are.
func (c *check) remember(collection string) error {
	c.objects.use(collection)
	forgotten, err := c.Journal.SetCollection(c.ctx, c.Destination, collection)
	if err != nil {
		return c.end.Fault(err)
	}
	if forgotten > 0 {
		c.Logger.Warn("the collection is not the one in the journal; its documents will be ingested again",
			"collection", c.Collection, "documents", forgotten)
	}
	return nil
}

// journal compares the journal with the vector store before it is believed: the
// documents that it knows went into a collection that may be gone. The first
// document that needs a store which does not answer now meets its error.
func (c *check) journal() {
	totals, err := c.Journal.Totals(c.ctx, c.Destination)
	if err != nil || totals.Documents == 0 {
		c.faulty(err)
		return
	}
	known, err := c.Journal.Collection(c.ctx, c.Destination)
	if err != nil {
		c.faulty(err)
		return
	}
	found, err := c.describe()
	if err == nil && idOf(found) != known && (found != nil || known != "") {
		_ = c.remember(idOf(found)) // a fault of the journal has ended the run
	}
}

func (c *check) faulty(err error) {
	if err != nil {
		_ = c.end.Fault(err) // no step waits for the error
	}
}

// wayOut is what to do where a collection holds the vectors of another model.
const wayOut = "choose another collection for this model (--collection), or run with the model of the collection " +
	"(--embedding-model; the built-in one without --llm-base-url and OPENAI_BASE_URL)"

// fits ends the run where a collection cannot hold rows of the wanted record.
func (c *check) fits(found *entity.Collection, want rows.Record) error {
	err := want.Misfit(found)
	if err == nil {
		return nil
	}
	advice := "choose another collection"
	if record, _ := rows.ReadRecord(found.Schema.Description); record.Model != want.Model {
		advice = wayOut
	}
	return c.misfit(service.VectorStore, fmt.Errorf("collection %q: %w; %s", c.Collection, err, advice))
}

// sameModel is fits where the dimensions of the model are not known.
func (c *check) sameModel(found *entity.Collection) error {
	record, ok := rows.ReadRecord(found.Schema.Description)
	if ok && record.Model != c.Model {
		return c.misfit(service.VectorStore, fmt.Errorf(
			"collection %q holds vectors of model %q, not of %q; %s", c.Collection, record.Model, c.Model, wayOut))
	}
	return c.fits(found, rows.NewRecord(c.Model, record.Dimensions))
}

// misfit ends the run: upstreams that work do not fit together.
func (c *check) misfit(upstream string, err error) error {
	c.end.With(&StopError{Kind: StopConfiguration, Upstream: upstream, Err: err})
	return stop.Defer("check", string(StopConfiguration), err)
}
