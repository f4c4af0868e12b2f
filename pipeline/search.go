package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// defaultHits is SearchOptions.Limit when it is zero.
const defaultHits = 5

// SearchOptions narrow a search.
type SearchOptions struct {
	// Limit is the largest number of hits, at most 100. Default: 5.
	Limit int
	// Where is a filter in the vector store's own language, over the fields of
	// pipeline/rows; the embedded store takes equalities joined by "and".
	Where string
}

// Search finds the chunks that answer a question best, of complete document
// versions only. The collection must hold vectors of the pipeline's model. The
// error is a [*StopError] where the collection does not exist or does not fit
// (StopConfiguration), or an upstream is unavailable, asks for patience or
// refuses; others are those of the doors.
func (p *Pipeline) Search(ctx context.Context, question string, options SearchOptions) ([]Hit, error) {
	if strings.TrimSpace(question) == "" {
		return nil, errors.New("search: the question is empty")
	}
	limit := min(cmp.Or(options.Limit, defaultHits), candidates)
	if limit < 1 {
		return nil, fmt.Errorf("search: a limit of %d finds nothing", options.Limit)
	}
	hits, err := p.search(ctx, question, options.Where)
	if err != nil {
		return nil, stop.OrError(err)
	}
	return hits[:min(limit, len(hits))], nil
}

func (p *Pipeline) search(ctx context.Context, question, where string) ([]Hit, error) {
	record, err := p.checkRecord(ctx)
	if err != nil {
		return nil, err
	}
	s := &visibleSearch{Pipeline: p, where: where}
	reading := make(chan error, 1)
	go func() { reading <- s.look(ctx) }() // beside the embedding
	vector, err := p.embedQuestion(ctx, question)
	if err == nil {
		err = p.checkDimensions(record, len(vector))
	}
	if err := errors.Join(err, <-reading); err != nil {
		return nil, err
	}
	return s.search(ctx, func(where string, k int) (byVector, byText []candidate, err error) {
		byVector, err = p.searchVector(ctx, vector, where, k)
		if err == nil {
			byVector, err = s.exact(ctx, vector, where, k, byVector)
		}
		if texts, ok := p.config.Vectors.(vectorstore.TextSearcher); ok && err == nil {
			byText, err = p.searchText(ctx, texts, question, where, k)
		}
		return byVector, byText, err
	})
}

// CollectionRecord reads what a collection says about itself: the model whose
// vectors it holds. The error is a [*StopError] of kind StopConfiguration where
// there is no such collection, or one that was not made by a pipeline.
func CollectionRecord(
	ctx context.Context, guard vectorstore.Guard, store vectorstore.Store, collection string,
) (rows.Record, error) {
	record, err := readRecord(ctx, guard, store, collection)
	return record, stop.OrError(err)
}

func readRecord(
	ctx context.Context, guard vectorstore.Guard, store vectorstore.Store, collection string,
) (record rows.Record, err error) {
	misfit := func(err error) error {
		return &StopError{
			Kind:     StopConfiguration,
			Upstream: service.VectorStore,
			Err:      fmt.Errorf("collection %q: %w", collection, err),
		}
	}
	found, err := describeCollection(ctx, service.Vectors(guard), store, collection)
	if err != nil {
		return record, err
	}
	if found == nil {
		return record, misfit(errors.New("not found; ingest something first, or set --collection"))
	}
	record, ok := rows.ReadRecord(found.Schema.Description)
	if !ok {
		return record, misfit(errors.New("it was not made by penstock (its description holds no record)"))
	}
	return record, nil
}

func (p *Pipeline) checkRecord(ctx context.Context) (rows.Record, error) {
	record, err := readRecord(ctx, p.config.VectorGuard, p.config.Vectors, p.config.Collection)
	if err != nil {
		return record, err
	}
	if record.Model != p.config.Model {
		return record, &StopError{Kind: StopConfiguration, Upstream: service.VectorStore, Err: fmt.Errorf(
			"collection %q holds vectors of model %q; a question embedded with %q would find nothing in it; %s",
			p.config.Collection, record.Model, p.config.Model, wayOut)}
	}
	return record, nil
}

// checkDimensions compares the vector of a question with those of the
// collection: behind one name there may be another model by now.
func (p *Pipeline) checkDimensions(record rows.Record, got int) error {
	if got == record.Dimensions {
		return nil
	}
	return &StopError{Kind: StopConfiguration, Upstream: service.Model, Err: fmt.Errorf(
		"model %q now has %d dimensions, and collection %q holds its vectors of %d; "+
			"serve the former model again, or choose another collection and ingest into it",
		p.config.Model, got, p.config.Collection, record.Dimensions)}
}

func (p *Pipeline) embedQuestion(ctx context.Context, question string) (vector []float32, err error) {
	models := service.Models(p.config.LLMGuard)
	err = models.Call(ctx, "create_embeddings", func(told func(resilience.Verdict)) error {
		guard := llm.Guard{Breaker: models.Breaker(), Settled: told}
		response, err := guard.CreateEmbeddings(
			ctx,
			p.config.Embeddings,
			embed.Request(p.config.Model, p.config.Dimensions, question),
		)
		if err == nil {
			vector = response.Data[0].Embedding
		}
		return err
	})
	return vector, err
}

func (p *Pipeline) searchVector(
	ctx context.Context, vector []float32, where string, k int,
) (hits []candidate, err error) {
	param, err := entity.NewIndexAUTOINDEXSearchParam(1)
	if err != nil {
		return nil, err
	}
	err = service.Vectors(p.config.VectorGuard).CallVectors(ctx, "search", func(guard vectorstore.Guard) error {
		results, err := guard.Search(ctx, p.config.Vectors, p.config.Collection, nil, where, hitFields,
			[]entity.Vector{entity.FloatVector(vector)}, rows.Field.Vector, entity.COSINE, k, param,
			client.WithSearchQueryConsistencyLevel(entity.ClStrong))
		if err == nil {
			hits, err = readCandidates(results)
		}
		return err
	})
	for i := range hits {
		hits[i].similarity = hits[i].score
	}
	return hits, err
}

func (p *Pipeline) searchText(
	ctx context.Context,
	store vectorstore.TextSearcher,
	question, where string, k int,
) (hits []candidate, err error) {
	err = service.Vectors(p.config.VectorGuard).CallVectors(ctx, "search_text", func(guard vectorstore.Guard) error {
		results, err := guard.SearchText(ctx, store, p.config.Collection, where, hitFields, question, k)
		if err == nil {
			hits, err = readCandidates(results)
		}
		return err
	})
	return hits, err
}
