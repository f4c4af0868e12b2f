package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/stop"
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
	// Objects keeps the originals in Bucket, under Prefix + "originals/" and a
	// folder for each Destination and collection.
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

	// Enrich has a chat model add titles, summaries and contexts. Default:
	// none.
	Enrich Enrichment

	// Guards of the three upstreams. Their zero values go through the
	// singletons resilience.S3, Milvus and LLM.
	ObjectGuard objectstore.Guard
	VectorGuard vectorstore.Guard
	LLMGuard    llm.Guard

	// Places says where the upstreams are, by the names "llm", "milvus" and
	// "s3", for the reports to people. Default: nothing is said.
	Places map[string]stop.Place

	// Journal remembers what is done, under Destination: a name of the object
	// store, bucket and prefix, vector store and collection together. Package
	// pipeline/state keeps one in an object store. A journal that is revoked
	// ends the run with a deferral.
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
	// Grace is how long calls in flight may continue after the run's context
	// has ended. Default: 5 s.
	Grace time.Duration
	// DoctorWait is how long Findings waits for each upstream. Default: 30 s.
	DoctorWait time.Duration

	// RetryDeadLetters tries again what is a dead letter and has not changed.
	RetryDeadLetters bool

	// Gone says whether a document that an earlier run has deferred, by ID and
	// location, is known to have left the inputs; it then waits no longer.
	// It is called when all inputs have been listed. Default: every document
	// waits until it is ingested, deleted or pruned.
	Gone func(id, location string) bool
	// Emptied returns the input in which a document was found by an earlier
	// run, by ID and location, and in which nothing is found now; empty for
	// other documents. A run with such an input has not gone through all of its
	// inputs (Summary.Unlisted). It is called when all inputs have been listed.
	// Default: an input may become empty.
	Emptied func(id, location string) (input string)

	// DryRun makes Run call no upstream and write nothing: it says what it
	// would do, and needs no upstream for that.
	DryRun bool

	// Report is called for each document when it is settled, one at a time.
	Report func(Document)
	// Metrics counts what is done. Default: metrics.Ingest, which is on the
	// default Prometheus registry.
	Metrics *metrics.Pipeline
	// ShowsSummary says that the Summary goes where the log goes, to one
	// reader. What a Summary says is then logged at level Info only.
	ShowsSummary bool
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
	defaultDoctorWait  = 30 * time.Second
)

// ConfigError says which field of a Config cannot be used and why.
type ConfigError struct {
	Field string
	Err   error
}

func (e *ConfigError) Error() string { return "pipeline: " + e.Field + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Batch.Items = cmp.Or(c.Batch.Items, 64)
	c.Batch.Tokens = cmp.Or(c.Batch.Tokens, 32_768)
	c.Batch.Bytes = cmp.Or(c.Batch.Bytes, 256<<10)
	c.MaxPause = cmp.Or(c.MaxPause, defaultMaxPause)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.DoctorWait = cmp.Or(c.DoctorWait, defaultDoctorWait)
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

// reservedMeta are the keys that the pipeline itself keeps on a row.
var reservedMeta = map[string]bool{
	"title": true, "page": true, "section": true, "row": true, "lang": true, "start": true, "end": true,
}

var metaKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func checkMeta(meta map[string]string, enriched bool) error {
	for key := range meta {
		switch {
		case !metaKey.MatchString(key):
			return &ConfigError{
				Field: "Meta",
				Err:   fmt.Errorf("key %q is not made of letters, digits and underscores", key),
			}
		case reservedMeta[key], enriched && enrich.OwnsKey(key):
			return &ConfigError{Field: "Meta", Err: fmt.Errorf("key %q is the pipeline's own", key)}
		}
	}
	return nil
}

// Enrichment has a chat model add to what documents say. The zero value asks
// for nothing.
//
// What the model answers is kept in the metadata of the rows: "title" where a
// document has none, "summary" and "context". A context is also put before the
// embedded text, never into the stored one. A useless answer leaves its field
// out, and so does a text that the model refuses; neither fails a document.
//
// An answer is asked for once: it is found again, by model and prompt, in the
// journal and in the stored rows.
type Enrichment struct {
	// Client is asked through the pipeline's LLMGuard, so that it shares the
	// breaker, and Model is the chat model it is asked for. Both are required
	// when something is to be asked.
	Client llm.ChatClient
	Model  string
	// Title asks for a title of each document that has none, Summary for two or
	// three sentences about each document, both from its first 6,000 bytes and
	// in one request. Context asks for a sentence about each of its first 4,096
	// chunks that says where in the document it stands.
	Title, Summary, Context bool
	// Budget is how many tokens, prompts and answers together, one run may
	// spend on this, as the server counts them. Zero means unlimited. Documents
	// that come when it is spent are ingested without, and a run that has a
	// budget again completes them.
	Budget int
}

// on reports whether anything is asked for.
func (e Enrichment) on() bool { return e.wanted().Any() }

func (e Enrichment) wanted() enrich.Wanted {
	return enrich.Wanted{Title: e.Title, Summary: e.Summary, Context: e.Context}
}

func (c Config) checkEnrichment() error {
	if !c.Enrich.on() {
		return nil
	}
	if c.Enrich.Budget < 0 {
		return &ConfigError{Field: "Enrich.Budget", Err: errors.New("is negative")}
	}
	return firstMissing(
		required{"Enrich.Client", c.Enrich.Client == nil && !c.DryRun},
		required{"Enrich.Model", c.Enrich.Model == ""},
	)
}

// embedding is how the model is used by a run. The server's service has taken
// the rest of the guard.
func (s *Config) embedding(server *modelserver.Server) embed.Config {
	config := embed.Config{
		Client: s.Embeddings, Guard: llm.Guard{Breaker: server.Breaker()}, Model: s.Model, Dimensions: s.Dimensions,
		Limits: embed.Limits(s.Batch), Server: server, Metrics: s.Metrics, Logger: s.Logger,
	}
	if s.Enrich.wanted().Any() {
		config.Client = namedEmbeddings{s.Embeddings, s.Model}
	}
	if s.KeepVectors {
		config.Cache = s.Journal
	}
	return config
}

// enriching is how the chat model is used by a run.
func (s *Config) enriching(server *modelserver.Server) enrich.Config {
	return enrich.Config{
		Client: s.Enrich.Client, Guard: llm.Guard{Breaker: server.Breaker()},
		Model: s.Enrich.Model, Wanted: s.Enrich.wanted(),
		Budget: s.Enrich.Budget, Concurrency: s.Concurrency, Answers: s.Journal, Server: server, Metrics: s.Metrics,
	}
}
