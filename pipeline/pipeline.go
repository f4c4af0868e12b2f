// Package pipeline ingests documents: it reads, parses, cuts and embeds them,
// keeps the originals in an object store and the chunks in a vector store, and
// calls each upstream through its door and no other way.
//
// Most programs need [New], [Pipeline.Run] and [Pipeline.Search]:
//
//	p, err := pipeline.New(pipeline.Config{Objects: …, Vectors: …, Embeddings: …, Journal: …})
//	summary, err := p.Run(ctx, inputs.All(ctx))
//	hits, err := p.Search(ctx, "when does the breaker open?", pipeline.SearchOptions{})
//
// # The way of a document
//
// read and hash (source) → unchanged? (journal) → keep the original
// (objectstore) → parse (pipeline/parse) → cut (pipeline/chunk) → list the rows
// that exist (vectorstore) → enrich, if configured (pipeline/enrich) → embed
// what is new (pipeline/embed) → write the rows, the commit mark last
// (pipeline/rows) → verify → delete stale rows → journal.
//
// Documents are committed in groups, so that listing, verifying and writing
// cost one call for many documents. A document that is larger than a group goes
// through in parts; its commit mark waits for the last.
//
// # Rules
//
//   - A document that cannot be ingested becomes a dead letter, with its stage
//     and reason; the others proceed. It is tried again when its content or the
//     policy changes.
//   - An open breaker ends the run: nothing more is sent to any upstream,
//     answers in flight are kept, and Run returns a [*StopError] that says when
//     to run again. No call is ever retried in a run.
//   - No more calls are in flight to an upstream than its breaker still
//     tolerates failures, so an outage costs at most FailMax doomed calls.
//   - A process that is killed at any instant leaves each document as it was or
//     complete. The next run finds out which from the stores.
//   - Nothing is embedded twice: vectors are found by the hash of their text,
//     in the rows of the document's previous version, in the journal, and among
//     the calls in flight.
//
// # Packages
//
// Run wires the stages together and owns the channels between them. How a model
// is used is in pipeline/embed and pipeline/enrich, and what both share about
// its server in pipeline/modelserver. Every upstream is called through
// pipeline/service; what an error ends, and when to come back, is decided in
// pipeline/stop by the verdict of the door.
//
// A Pipeline is safe for concurrent use, but only one Run at a time makes sense
// for a journal.
package pipeline

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/source"
)

// Pipeline ingests documents into one destination and searches there.
type Pipeline struct {
	config  Config
	chunker *chunk.Chunker
	empty   heard // inputs
}

// New checks the configuration and fills in the defaults. It calls no upstream.
// The error is a [*ConfigError].
func New(config Config) (*Pipeline, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	chunker, err := chunk.New(config.Chunks)
	if err != nil {
		return nil, &ConfigError{Field: "Chunks", Err: err}
	}
	return &Pipeline{config: config, chunker: chunker}, nil
}

// Run ingests the documents that are not complete yet. An error that the
// sequence yields becomes a dead letter of stage "list".
//
// A run that an upstream stops continues to list the sequence for up to ten
// seconds, without reading any content, to learn how many documents wait
// (Summary.Waiting). Make ctx and that of the sequence by [stop.WithEnd], so
// that a listing does not call an upstream that is down.
//
// The error is nil when every document was looked at, dead letters or not, and
// a [*StopError] when the run ended early: by an open breaker, a refused
// credential, a configuration that does not fit, or the end of ctx. Everything
// that was done until then is kept. A [*ConfigError] says that a field which
// Run needs is missing.
func (p *Pipeline) Run(ctx context.Context, documents iter.Seq2[source.Item, error]) (Summary, error) {
	if err := p.config.checkRun(); err != nil {
		return Summary{}, err
	}
	start := time.Now()
	r, err := newRun(ctx, p.config, p.chunker)
	if err != nil {
		return Summary{}, err
	}
	r.empty = &p.empty
	if !p.config.DryRun {
		r.recall()
	}
	r.reporting(func() { r.execute(documents) })
	summary, err := r.finish(start)
	if p.config.DryRun {
		return summary, err
	}
	return r.keepSummary(ctx, time.Now(), err)
}
