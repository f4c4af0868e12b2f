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
// # How a document goes
//
// read and hash (source) → unchanged? (journal) → keep the original
// (objectstore) → parse (pipeline/parse) → cut (pipeline/chunk) → list what is
// there (vectorstore) → enrich, if that is asked for (llm) → embed what is new
// (llm) → write the rows, the commit mark last (pipeline/rows) → verify → delete
// stale rows → journal.
//
// Documents are committed in groups, so that listing, verifying and writing
// cost one call for many documents. A document that is larger than a group goes
// through in parts; its commit mark waits for the last.
//
// # What the rules are
//
//   - A document that cannot be ingested is a dead letter, with its stage and
//     reason; the rest goes on. It is tried again when its content or the policy
//     changes.
//   - An open breaker ends the run: nothing more is sent to any upstream, answers
//     in flight are kept, and Run returns a [*StopError] that says when to come
//     again. No call is ever retried in a run.
//   - No more calls are in flight to an upstream than its breaker still
//     tolerates failures, so an outage costs at most FailMax doomed calls.
//   - A process that is killed at any instant leaves each document as it was or
//     complete. The next run finds out which from the stores.
//   - Nothing is embedded twice: vectors are found again by the hash of their
//     text, in the rows of the document's version before, in the journal, and
//     among the calls in flight.
//
// A Pipeline is safe for concurrent use, but one Run at a time makes sense for
// one journal.
package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// ObjectStore is what the pipeline needs of an object store: *s3.Client has
// it, and so has the embedded filestore.
type ObjectStore interface {
	objectstore.Reader
	objectstore.Writer
}

// Config says what a Pipeline is made of. Fields without a default are
// required; Objects, Bucket and Journal only by Run.
type Config struct {
	// Objects keeps the originals in Bucket, under Prefix + "originals/".
	Objects ObjectStore
	Bucket  string
	Prefix  string
	// CreateBucket makes the bucket when it is missing. Otherwise a missing
	// bucket is a configuration fault.
	CreateBucket bool

	// Vectors keeps the chunks in Collection, which is made when it is missing.
	Vectors    vectorstore.Store
	Collection string

	// Embeddings turns texts into vectors with Model. Dimensions is what they
	// must have; zero takes what the model gives.
	Embeddings llm.EmbeddingClient
	Model      string
	Dimensions int
	// KeepVectors remembers embeddings in the journal, so that what was paid
	// for is not paid for again. Leave it off for a model that costs nothing.
	KeepVectors bool

	// Enrich has a chat model add titles, summaries and contexts. Default: none.
	Enrich Enrichment

	// Guards of the three upstreams. Their zero values go through the
	// singletons resilience.S3, Milvus and LLM.
	ObjectGuard objectstore.Guard
	VectorGuard vectorstore.Guard
	LLMGuard    llm.Guard

	// Journal remembers what is done, under Destination: a name of the object
	// store, bucket and prefix, vector store and collection together. Package
	// pipeline/state keeps one in an object store. A journal that is revoked ends
	// the run with a deferral.
	Journal     *journal.Journal
	Destination string

	// Parsers reads the documents. Default: parse.New(parse.Limits{}).
	Parsers *parse.Registry
	// Chunks cuts them. Tokenizer names Chunks.Count, which is a function and
	// cannot be part of the policy itself. Default: "estimate".
	Chunks    chunk.Config
	Tokenizer string

	// Meta is kept on each row. Keys are letters, digits and underscores; those
	// of the pipeline's own metadata are refused.
	Meta map[string]string

	// Concurrency is the number of calls in flight to one upstream. Default and
	// maximum under the default policy: 5, the breaker's FailMax.
	Concurrency int
	// Batch bounds one request for embeddings.
	Batch BatchLimits
	// Rate is how many requests are sent to the models in a second, spread
	// evenly. Zero: as many as the server takes.
	Rate float64
	// MaxPause is how long a rate limit is waited out; a longer one ends the
	// run. Default: 30 s. Negative: none is waited out.
	MaxPause time.Duration
	// Grace is how long calls in flight may go on after the run's context has
	// ended. Default: 5 s.
	Grace time.Duration

	// RetryDeadLetters tries again what is a dead letter and has not changed.
	RetryDeadLetters bool

	// DryRun makes Run call no upstream and write nothing: it says what it would
	// do, and needs no upstream for that.
	DryRun bool

	// Report is called for each document when it is settled, one at a time.
	Report func(Document)
	// Metrics counts what is done. Default: metrics.Ingest, which is on the
	// default Prometheus registry.
	Metrics *metrics.Pipeline
	// Logger is told what a person should know. Default: slog.Default().
	Logger *slog.Logger
}

// BatchLimits closes a batch of texts when one of them is reached. Zero fields
// mean the defaults: 64 texts, 32,768 tokens, 256 KiB. A server that takes less
// says so once, and the batches shrink.
type BatchLimits struct {
	Items, Tokens, Bytes int
}

const (
	defaultConcurrency = 5
	defaultMaxPause    = 30 * time.Second
	defaultGrace       = 5 * time.Second
)

// ConfigError says which field of a Config cannot be used and why.
type ConfigError struct {
	Field string
	Err   error
}

func (e *ConfigError) Error() string { return "pipeline: " + e.Field + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// Pipeline ingests documents into one destination and searches there.
type Pipeline struct {
	Config
	chunker *chunk.Chunker
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
	return &Pipeline{Config: config, chunker: chunker}, nil
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Batch.Items = cmp.Or(c.Batch.Items, 64)
	c.Batch.Tokens = cmp.Or(c.Batch.Tokens, 32_768)
	c.Batch.Bytes = cmp.Or(c.Batch.Bytes, 256<<10)
	c.MaxPause = cmp.Or(c.MaxPause, defaultMaxPause)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.Tokenizer = cmp.Or(c.Tokenizer, "estimate")
	if c.Parsers == nil {
		c.Parsers = parse.New(parse.Limits{})
	}
	if c.Report == nil {
		c.Report = func(Document) {}
	}
	if c.Metrics == nil {
		c.Metrics = metrics.Ingest
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

var errMissing = errors.New("is required")

// required is a field and whether it is missing.
type required struct {
	name    string
	missing bool
}

func firstMissing(fields ...required) error {
	for _, field := range fields {
		if field.missing {
			return &ConfigError{Field: field.name, Err: errMissing}
		}
	}
	return nil
}

// checkRun finds what only Run needs.
func (c Config) checkRun() error {
	if c.DryRun {
		return nil
	}
	return firstMissing(
		required{"Objects", c.Objects == nil},
		required{"Bucket", c.Bucket == ""},
		required{"Journal", c.Journal == nil},
	)
}

func (c Config) check() error {
	err := firstMissing(
		required{"Vectors", c.Vectors == nil && !c.DryRun},
		required{"Collection", c.Collection == ""},
		required{"Embeddings", c.Embeddings == nil},
		required{"Model", c.Model == ""},
		required{"Destination", c.Destination == ""},
	)
	if err != nil {
		return err
	}
	for name, n := range map[string]int{
		"Concurrency": c.Concurrency, "Batch.Items": c.Batch.Items, "Batch.Tokens": c.Batch.Tokens,
		"Batch.Bytes": c.Batch.Bytes, "Dimensions": c.Dimensions + 1,
	} {
		if n < 1 {
			return &ConfigError{Field: name, Err: errors.New("is negative")}
		}
	}
	if !(c.Rate >= 0) {
		return &ConfigError{Field: "Rate", Err: errors.New("is negative")}
	}
	if err := c.checkEnrichment(); err != nil {
		return err
	}
	return checkMeta(c.Meta, c.Enrich.on())
}

var metaKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func checkMeta(meta map[string]string, enriched bool) error {
	for key := range meta {
		switch {
		case !metaKey.MatchString(key):
			return &ConfigError{Field: "Meta", Err: fmt.Errorf("key %q is not made of letters, digits and underscores", key)}
		case reservedMeta[key], enriched && enrichmentMeta[key]:
			return &ConfigError{Field: "Meta", Err: fmt.Errorf("key %q is the pipeline's own", key)}
		}
	}
	return nil
}

// policy is the hash of everything that decides what rows a content becomes.
// more is what enrichment adds.
func (p *Pipeline) policy(format parse.Format, more ...string) string {
	parts := []string{
		"parse", format.Parser, strconv.Itoa(format.Version), "chunk", p.chunker.Policy(),
		"tokenizer", p.Tokenizer, "model", p.Model, strconv.Itoa(p.Dimensions),
	}
	for _, key := range slices.Sorted(maps.Keys(p.Meta)) {
		parts = append(parts, "meta", key, p.Meta[key])
	}
	return rows.PolicyHash(append(parts, more...)...)
}

// originalKey is where the content of a document is kept.
func (p *Pipeline) originalKey(document, sha string) string {
	return strings.Join([]string{p.Prefix + "originals", rows.DocumentHash(document), sha}, "/")
}
