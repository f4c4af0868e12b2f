package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// text is a text to embed, known by its hash.
type text struct {
	hash, text string
	tokens     int
}

// answer is what became of a text.
type answer struct {
	vector []float32
	sent   bool // this caller's request had it embedded
	err    error
}

// embedder turns texts into vectors for all groups of a run. A text is sent
// once, however many groups ask for it at the same time.
type embedder struct {
	run   *run
	space string // names model and dimensions in the journal

	mu      sync.Mutex
	waiting map[string]*waiter // texts on their way, by hash
	limits  BatchLimits        // shrinks when the server refuses a batch for its size

	successes atomic.Int64
	pace      pacer
}

// waiter is a text that is on its way.
type waiter struct {
	done   chan struct{}
	answer answer // set before done is closed
}

func newEmbedder(r *run) *embedder {
	return &embedder{
		run: r, space: fmt.Sprintf("%s/%d", r.Model, r.Dimensions),
		waiting: map[string]*waiter{}, limits: r.Batch,
		pace: pacer{rate: r.Rate},
	}
}

// vectors answers for each of the texts. It returns when the last answer is
// there; the run's end makes the rest deferrals.
func (e *embedder) vectors(texts map[string]text) map[string]answer {
	answers := make(map[string]answer, len(texts))
	mine, waiters := e.claim(texts)
	unpaid := e.recall(mine, answers)
	var calls sync.WaitGroup
	for batch := range e.batches(unpaid) {
		calls.Go(func() { e.send(batch) })
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
		a.sent = a.err == nil
		answers[t.hash] = a
	}
	return answers
}

// claim makes this caller responsible for the texts that nobody has on the way.
// The second result has a waiter for each of the texts.
func (e *embedder) claim(texts map[string]text) (mine []text, all map[string]*waiter) {
	all = make(map[string]*waiter, len(texts))
	e.mu.Lock()
	defer e.mu.Unlock()
	for hash, t := range texts {
		w := e.waiting[hash]
		if w == nil {
			w = &waiter{done: make(chan struct{})}
			e.waiting[hash] = w
			mine = append(mine, t)
		}
		all[hash] = w
	}
	return mine, all
}

// finish gives a text its answer and takes it off the way.
func (e *embedder) finish(hash string, a answer) {
	e.mu.Lock()
	w := e.waiting[hash]
	delete(e.waiting, hash)
	e.mu.Unlock()
	w.answer = a
	close(w.done)
}

// recall answers from the journal what was paid for before, and returns the
// rest. A cache that cannot be read ends the run: going on would pay again.
func (e *embedder) recall(texts []text, answers map[string]answer) (rest []text) {
	if !e.run.KeepVectors {
		return texts
	}
	hashes := make([]string, len(texts))
	for i, t := range texts {
		hashes[i] = t.hash
	}
	known, err := e.run.Journal.Vectors(e.run.ctx, e.space, hashes)
	if err != nil {
		e.run.fault(err)
	}
	for _, t := range texts {
		vector, ok := known[t.hash]
		if !ok {
			rest = append(rest, t)
			continue
		}
		answers[t.hash] = answer{vector: vector}
		e.finish(t.hash, answers[t.hash])
	}
	e.run.Metrics.Cache(len(texts)-len(rest), len(rest))
	return rest
}

// batches cuts texts into batches within the limits; a text that is larger than
// a limit goes alone.
func (e *embedder) batches(texts []text) func(yield func([]text) bool) {
	return func(yield func([]text) bool) {
		for len(texts) > 0 {
			n := e.fitting(texts)
			if !yield(texts[:n]) {
				return
			}
			texts = texts[n:]
		}
	}
}

func (e *embedder) fitting(texts []text) int {
	e.mu.Lock()
	limits := e.limits
	e.mu.Unlock()
	n, tokens, bytes := 0, 0, 0
	for _, t := range texts {
		tokens += t.tokens
		bytes += len(t.text)
		if n > 0 && (n >= limits.Items || tokens > limits.Tokens || bytes > limits.Bytes) {
			break
		}
		n++
	}
	return n
}

// send has a batch embedded and finishes each of its texts.
func (e *embedder) send(batch []text) {
	before := e.successes.Load()
	vectors, err := e.request(batch)
	switch verdict := classify(e.run.ctx, err); {
	case err == nil:
		for i, t := range batch {
			e.finish(t.hash, answer{vector: vectors[i]})
		}
	case errors.Is(err, errStopped) || e.run.ctx.Err() != nil:
		e.give(batch, deferral("embed", "stopped", errStopped))
	case isTooLarge(err) && len(batch) > 1:
		e.shrink(batch)
		e.split(batch)
	case e.waitedOut(err):
		e.send(batch)
	case e.run.stopFor(upstreamLLM, verdict, err) != nil:
		e.give(batch, e.run.blame(upstreamLLM, "embed", err))
	default:
		e.setAside(batch, before, err)
	}
}

func (e *embedder) request(batch []text) (vectors [][]float32, err error) {
	texts, tokens := make([]string, len(batch)), 0
	for i, t := range batch {
		texts[i] = t.text
		tokens += t.tokens
	}
	if !e.wait(e.pace.next(time.Now())) {
		return nil, errStopped
	}
	var response openai.EmbeddingResponse
	err = e.run.llm.do(e.run.ctx, "create_embeddings", func() (err error) {
		e.run.Metrics.Batch(len(texts), tokens)
		response, err = e.run.LLMGuard.CreateEmbeddings(e.run.ctx, e.run.Embeddings, e.run.embeddingRequest(texts...))
		if err == nil {
			vectors, err = e.accept(batch, response)
		}
		return err
	})
	if err != nil {
		return nil, withWait(err, response.Header())
	}
	return vectors, nil
}

// accept takes the vectors of a batch that was answered and remembers them,
// before another request may be sent in its place: a process that is killed
// loses no more than the batches in flight.
func (e *embedder) accept(batch []text, response openai.EmbeddingResponse) (vectors [][]float32, err error) {
	e.successes.Add(1)
	for _, d := range response.Data {
		if dims := e.run.check.dims; dims != 0 && len(d.Embedding) != dims {
			return nil, &StopError{Kind: StopConfiguration, Upstream: upstreamLLM.name, Err: fmt.Errorf(
				"model %q gave a vector of %d dimensions after %d", e.run.Model, len(d.Embedding), dims)}
		}
		vectors = append(vectors, d.Embedding)
	}
	e.keep(batch, vectors)
	return vectors, nil
}

// waitError is an error whose answer named a time to wait.
type waitError struct {
	error
	after time.Duration
}

func (e *waitError) Unwrap() error { return e.error }

func withWait(err error, header http.Header) error {
	if after, told := llm.RetryAfter(header, time.Now()); told {
		return &waitError{error: err, after: after}
	}
	return err
}

// classify is llm.Classify, which does not see the headers of an answer, with
// the time that they name.
func classify(ctx context.Context, err error) resilience.Verdict {
	verdict := llm.Classify(ctx, err)
	if wait, ok := errors.AsType[*waitError](err); ok && verdict.Outcome == resilience.Throttled {
		verdict.RetryAfter = wait.after
	}
	return verdict
}

// canary has one harmless text embedded.
func (e *embedder) canary() ([]float32, error) {
	vectors, err := e.request([]text{{text: canaryText}})
	if err != nil {
		return nil, err
	}
	return vectors[0], nil
}

// keep remembers vectors that were paid for. The canary has no hash and is not
// kept.
func (e *embedder) keep(batch []text, vectors [][]float32) {
	if !e.run.KeepVectors || batch[0].hash == "" {
		return
	}
	paid := make(map[string][]float32, len(batch))
	for i, t := range batch {
		paid[t.hash] = vectors[i]
	}
	if err := e.run.Journal.KeepVectors(context.WithoutCancel(e.run.ctx), e.space, paid); err != nil {
		e.run.fault(err)
	}
}

func (e *embedder) give(batch []text, err error) {
	for _, t := range batch {
		e.finish(t.hash, answer{err: err})
	}
}

// split sends the halves of a batch one after the other.
func (e *embedder) split(batch []text) {
	half := len(batch) / 2
	e.send(batch[:half:half])
	e.send(batch[half:])
}

// isTooLarge recognises the ways in which servers say that a batch is too
// large. Only the text of the message tells some of them from other refusals.
func isTooLarge(err error) bool {
	switch statusOfLLM(err) {
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return true
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		message := strings.ToLower(err.Error())
		for _, sign := range []string{"too many tokens", "too many inputs", "batch size", "maximum context length", "max_tokens_per_request", "too large"} {
			if strings.Contains(message, sign) {
				return true
			}
		}
	}
	return false
}

// shrink remembers that a batch of this size was too large.
func (e *embedder) shrink(batch []text) {
	tokens, bytes := 0, 0
	for _, t := range batch {
		tokens += t.tokens
		bytes += len(t.text)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limits.Items = max(1, min(e.limits.Items, len(batch)/2))
	e.limits.Tokens = max(1, min(e.limits.Tokens, tokens/2))
	e.limits.Bytes = max(1, min(e.limits.Bytes, bytes/2))
	e.run.Logger.Info("smaller batches for embeddings", "items", e.limits.Items, "tokens", e.limits.Tokens, "bytes", e.limits.Bytes)
}

// waitedOut reports whether an error was a rate limit that is over now.
func (e *embedder) waitedOut(err error) bool {
	verdict := classify(e.run.ctx, err)
	return verdict.Outcome == resilience.Throttled && e.pause(verdict.RetryAfter)
}

// pause waits out a rate limit that says how long it lasts. This is pacing: the
// server said when the request is welcome.
func (e *embedder) pause(after time.Duration) bool {
	return after > 0 && after <= e.run.MaxPause && e.wait(after)
}

// wait lets time pass; false means that the run ended first.
func (e *embedder) wait(after time.Duration) bool {
	if after <= 0 {
		return true
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.run.end.done:
		return false
	case <-e.run.ctx.Done():
		return false
	}
}

// pacer spreads requests evenly over time.
type pacer struct {
	rate float64 // in a second; zero is no limit

	mu   sync.Mutex
	free time.Time // when the next request may be sent
}

// next reserves the next place and says how long it is until then.
func (p *pacer) next(now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free.Before(now) {
		p.free = now
	}
	wait := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(float64(time.Second) / p.rate))
	return wait
}

// setAside handles a batch that failed on its own. Nothing is concluded until
// another request has succeeded after it: only then is the fault in the batch,
// and it is halved until the one text is found that the server cannot stand. A
// text that only took too long is deferred.
func (e *embedder) setAside(batch []text, before int64, cause error) {
	for e.successes.Load() == before {
		if err := e.probe(cause); err != nil {
			e.give(batch, err)
			return
		}
	}
	switch {
	case len(batch) > 1:
		if isTimeout(cause) { // it may well be the size
			e.shrink(batch)
		}
		e.split(batch)
	case isTimeout(cause): // a slow server is no verdict on a document
		e.give(batch, deferral("embed", "upstream failed", cause))
	case classify(e.run.ctx, cause).Outcome == resilience.Failure:
		e.convict(batch, cause)
	default:
		e.give(batch, unembeddable(cause))
	}
}

func unembeddable(cause error) error {
	return deadLetter("embed", "refused by upstream", fmt.Errorf("the model cannot embed a chunk of it: %w", cause))
}

// A text is convicted after so many failures, with so many canaries in a row
// that are well before each.
const (
	convictions = 3
	witnesses   = 4
)

// convict finds out whether one text that the server failed on is to blame: it
// is when it fails each time, and the canary never does. A server that comes
// and goes must not make dead letters.
func (e *embedder) convict(one []text, cause error) {
	for range convictions {
		for range witnesses {
			if _, err := e.canary(); err != nil {
				e.acquit(one, err)
				return
			}
		}
		vectors, err := e.request(one)
		switch {
		case err == nil:
			e.finish(one[0].hash, answer{vector: vectors[0]})
			return
		case classify(e.run.ctx, err).Outcome != resilience.Failure:
			e.acquit(one, err)
			return
		}
	}
	e.give(one, unembeddable(cause))
}

// acquit defers a text: whatever is wrong, it is not known to be the text.
func (e *embedder) acquit(one []text, err error) {
	if e.run.stopFor(upstreamLLM, classify(e.run.ctx, err), err) != nil {
		e.give(one, e.run.blame(upstreamLLM, "embed", err))
		return
	}
	e.give(one, deferral("embed", "upstream failed", err))
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}

// probe sends the canary of the embedding model.
func (e *embedder) probe(cause error) error {
	return e.run.probe("embed", cause, func() error { _, err := e.canary(); return err })
}
