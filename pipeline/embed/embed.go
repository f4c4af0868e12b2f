// Package embed turns texts into vectors: each text is sent once, in batches of
// the size that the server takes, and a vector that was paid for is kept.
//
//	e := embed.New(embed.Config{Client: client, Model: "m", Server: server, …})
//	dimensions, err := e.Check(ctx)
//	answers := e.Vectors(ctx, map[string]embed.Text{hash: {Text: "…"}})
//
// A text on which the model fails is found by halving its batch and judged by
// [modelserver.Model.Judge]; the other texts get their vectors.
package embed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

const (
	stage     = "embed" // where documents fail, in errors
	operation = "create_embeddings"
)

// Cache keeps vectors from one run to the next. *journal.Journal is one.
type Cache interface {
	// Vectors gives the known ones of the vectors of these texts, by the hash
	// of the text. space names the model and its dimensions.
	Vectors(ctx context.Context, space string, hashes []string) (map[string][]float32, error)
	// KeepVectors keeps vectors by the hash of their text.
	KeepVectors(ctx context.Context, space string, vectors map[string][]float32) error
}

// Config says what an Embedder is made of. Fields without a default are
// required.
type Config struct {
	Client llm.EmbeddingClient
	// Guard is the door; its breaker is that of the Server's service.
	Guard llm.Guard
	Model string
	// Dimensions is what the model is asked for; zero leaves it to the model.
	Dimensions int
	// Limits bound a batch. They shrink when the server refuses one for its
	// size.
	Limits Limits
	// Cache has vectors that were paid for. Default: none, vectors are not
	// kept. When it fails, the run ends: to continue would pay again.
	Cache  Cache
	Server *modelserver.Server
	// Metrics counts batches and cache lookups. Default: none.
	Metrics *metrics.Pipeline
	// Logger is told when batches shrink. Default: slog.Default().
	Logger *slog.Logger
}

// Text is a text to embed.
type Text struct {
	Text   string
	Tokens int // by the caller's count
}

// Answer is what became of a text.
type Answer struct {
	Vector []float32
	Sent   bool  // a request of this caller embedded it
	Err    error // a [*stop.Failure]
}

// Embedder turns texts into vectors. It is safe for concurrent use.
type Embedder struct {
	config Config
	model  *modelserver.Model
	ending *stop.Ending
	dims   atomic.Int64 // of the first vector; zero before that
	sizes  sizes

	mu      sync.Mutex
	waiting map[string]*waiter // texts on their way, by hash
}

// waiter is a text that is on its way.
type waiter struct {
	done   chan struct{}
	answer Answer // set before done is closed
}

// New makes an Embedder. It calls nothing.
func New(config Config) *Embedder {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	e := &Embedder{
		config: config, ending: config.Server.Ending(), waiting: map[string]*waiter{},
		sizes: sizes{limits: config.Limits},
	}
	e.model = config.Server.Model(modelserver.Use{
		Stage: stage, Operation: operation, Canary: e.canary, Failures: 4, Doubts: 1,
	})
	return e
}

// Space names the model and its dimensions in the cache.
func (e *Embedder) Space() string { return fmt.Sprintf("%s/%d", e.config.Model, e.config.Dimensions) }

// Check has one harmless text embedded before the first use of the model and
// returns the dimensions of its vector. A failure ends the run; the error is a
// [*stop.Failure].
func (e *Embedder) Check(ctx context.Context) (dimensions int, err error) {
	if err := e.model.Check(ctx); err != nil {
		return 0, err
	}
	return int(e.dims.Load()), nil
}

// Vectors answers for each of the texts, which are keyed by their hash. A text
// that another call has sent already is not sent again. It returns when the
// last answer is there; the end of the run defers the rest.
//
// A text is sent with the context of the call that brought it first, so calls
// at the same time need contexts that end together.
func (e *Embedder) Vectors(ctx context.Context, texts map[string]Text) map[string]Answer {
	answers := make(map[string]Answer, len(texts))
	mine, waiters := e.claim(texts)
	unpaid := e.recall(ctx, mine, answers)
	var calls sync.WaitGroup
	for rest := unpaid; len(rest) > 0; {
		texts := e.sizes.cut(rest)
		rest = rest[len(texts):]
		calls.Go(func() { e.send(ctx, texts) })
	}
	calls.Wait()
	for hash, w := range waiters {
		if _, have := answers[hash]; !have {
			<-w.done
			answers[hash] = w.answer
		}
	}
	for _, t := range unpaid {
		a := answers[t.hash]
		a.Sent = a.Err == nil
		answers[t.hash] = a
	}
	return answers
}

// claim makes this caller responsible for the texts that are not on their way.
// The second result has a waiter for each of the texts.
func (e *Embedder) claim(texts map[string]Text) (mine []item, all map[string]*waiter) {
	all = make(map[string]*waiter, len(texts))
	e.mu.Lock()
	defer e.mu.Unlock()
	for hash, t := range texts {
		w := e.waiting[hash]
		if w == nil {
			w = &waiter{done: make(chan struct{})}
			e.waiting[hash] = w
			mine = append(mine, item{hash: hash, text: t.Text, tokens: t.Tokens})
		}
		all[hash] = w
	}
	return mine, all
}

// finish gives a text its answer and takes it off the way.
func (e *Embedder) finish(hash string, a Answer) {
	e.mu.Lock()
	w := e.waiting[hash]
	delete(e.waiting, hash)
	e.mu.Unlock()
	w.answer = a
	close(w.done)
}

// fail gives each text of a batch the same failure.
func (e *Embedder) fail(batch []item, err error) {
	for _, t := range batch {
		e.finish(t.hash, Answer{Err: err})
	}
}

// recall answers from the cache what was paid for before, and returns the rest.
func (e *Embedder) recall(ctx context.Context, texts []item, answers map[string]Answer) (rest []item) {
	if e.config.Cache == nil {
		return texts
	}
	hashes := make([]string, len(texts))
	for i, t := range texts {
		hashes[i] = t.hash
	}
	known, err := e.config.Cache.Vectors(ctx, e.Space(), hashes)
	if err != nil {
		_ = e.ending.Fault(err) // so nothing more is sent
	}
	for _, t := range texts {
		vector, ok := known[t.hash]
		if !ok {
			rest = append(rest, t)
			continue
		}
		answers[t.hash] = Answer{Vector: vector}
		e.finish(t.hash, answers[t.hash])
	}
	e.config.Metrics.Cache(len(texts)-len(rest), len(rest))
	return rest
}

// keep remembers vectors that were paid for.
func (e *Embedder) keep(ctx context.Context, batch []item, vectors [][]float32) {
	if e.config.Cache == nil {
		return
	}
	paid := make(map[string][]float32, len(batch))
	for i, t := range batch {
		paid[t.hash] = vectors[i]
	}
	if err := e.config.Cache.KeepVectors(context.WithoutCancel(ctx), e.Space(), paid); err != nil {
		_ = e.ending.Fault(err)
	}
}

// call sends texts through the door. All vectors have the dimensions of the
// first that the model gave.
func (e *Embedder) call(
	ctx context.Context, told func(resilience.Verdict), tokens int, texts ...string,
) ([][]float32, error) {
	e.config.Metrics.Batch(len(texts), tokens)
	guard := e.config.Guard
	guard.Settled = told
	request := Request(e.config.Model, e.config.Dimensions, texts...)
	response, err := guard.CreateEmbeddings(ctx, e.config.Client, request)
	if err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(response.Data))
	for i, d := range response.Data {
		n := int64(len(d.Embedding))
		e.dims.CompareAndSwap(0, n)
		if first := e.dims.Load(); n != first {
			misfit := &stop.Error{Kind: stop.Configuration, Upstream: service.Model, Err: fmt.Errorf(
				"model %q returned a vector of %d dimensions after vectors of %d", e.config.Model, n, first)}
			e.ending.With(misfit) // before another request takes its place
			return nil, misfit
		}
		vectors[i] = d.Embedding
	}
	return vectors, nil
}

func (e *Embedder) canary(ctx context.Context, told func(resilience.Verdict)) error {
	_, err := e.call(ctx, told, 0, modelserver.CanaryText)
	return err
}

// Request asks a model for the vectors of texts, of so many dimensions; zero
// leaves them to the model. Strings and floats are what every server takes.
func Request(model string, dimensions int, texts ...string) openai.EmbeddingRequestStrings {
	return openai.EmbeddingRequestStrings{
		Input: texts, Model: openai.EmbeddingModel(model),
		EncodingFormat: openai.EmbeddingEncodingFormatFloat, Dimensions: dimensions,
	}
}
