package embed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// batches cuts texts into batches within the limits.
func (e *Embedder) batches(texts []item) iter.Seq[[]item] {
	return func(yield func([]item) bool) {
		for len(texts) > 0 {
			n := e.fitting(texts)
			if !yield(texts[:n:n]) {
				return
			}
			texts = texts[n:]
		}
	}
}

// fitting is how many of the texts go into one batch, at least one.
func (e *Embedder) fitting(texts []item) int {
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
func (e *Embedder) send(ctx context.Context, batch []item) {
	failed := e.model.Send(ctx, e.request(batch))
	switch {
	case failed == nil:
	case len(batch) == 1:
		e.judge(ctx, batch, failed)
	case isTooLarge(failed.Err):
		e.shrink(batch)
		e.split(ctx, batch)
	default:
		e.setAside(ctx, batch, failed)
	}
}

// request has a batch embedded, keeps its vectors and finishes its texts.
func (e *Embedder) request(batch []item) modelserver.Request {
	texts, tokens := make([]string, len(batch)), 0
	for i, t := range batch {
		texts[i] = t.text
		tokens += t.tokens
	}
	return func(ctx context.Context, told func(resilience.Verdict)) error {
		vectors, err := e.call(ctx, told, tokens, texts...)
		if err != nil {
			return err
		}
		e.keep(ctx, batch, vectors)
		for i, t := range batch {
			e.finish(t.hash, Answer{Vector: vectors[i]})
		}
		return nil
	}
}

// setAside halves a batch that failed once it is known that the fault is in it,
// to find the one text that the model does not take.
func (e *Embedder) setAside(ctx context.Context, batch []item, failed *modelserver.Setback) {
	if err := e.model.SetAside(ctx, failed); err != nil {
		e.fail(batch, err)
		return
	}
	if failed.TimedOut() { // it may well be the size
		e.shrink(batch)
	}
	e.split(ctx, batch)
}

// split sends the halves of a batch one after the other.
func (e *Embedder) split(ctx context.Context, batch []item) {
	half := len(batch) / 2
	e.send(ctx, batch[:half:half])
	e.send(ctx, batch[half:])
}

// judge decides what becomes of one text whose request failed.
func (e *Embedder) judge(ctx context.Context, one []item, failed *modelserver.Setback) {
	judgment, err := e.model.Judge(ctx, failed, e.request(one))
	switch judgment {
	case modelserver.Answered:
	case modelserver.Guilty:
		refusal := fmt.Errorf("the model cannot embed one of its chunks: %w", err)
		e.fail(one, stop.DeadLetter(stage, "refused by upstream", refusal))
	case modelserver.Unproven:
		e.fail(one, stop.Defer(stage, "upstream failed", err))
	case modelserver.Ended:
		e.fail(one, err)
	}
}

// shrink remembers that a batch of this size was too large.
func (e *Embedder) shrink(batch []item) {
	tokens, bytes := 0, 0
	for _, t := range batch {
		tokens += t.tokens
		bytes += len(t.text)
	}
	e.mu.Lock()
	l := &e.limits
	l.Items = max(1, min(l.Items, len(batch)/2))
	l.Tokens = max(1, min(l.Tokens, tokens/2))
	l.Bytes = max(1, min(l.Bytes, bytes/2))
	limits := *l
	e.mu.Unlock()
	e.config.Logger.Info("smaller batches for embeddings",
		"items", limits.Items, "tokens", limits.Tokens, "bytes", limits.Bytes)
}

// tooLarge are the words by which servers say so in a 400 or a 422. No code
// tells these from other refusals.
var tooLarge = []string{
	"too many tokens", "too many inputs", "batch size", "maximum context length", "max_tokens_per_request", "too large",
}

// isTooLarge reports whether the server refused a batch for its size.
func isTooLarge(err error) bool {
	switch service.StatusOf(err) {
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return true
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		if call, ok := errors.AsType[*stop.CallError](err); ok {
			err = call.Err // whose text is whole
		}
		message := strings.ToLower(err.Error())
		for _, words := range tooLarge {
			if strings.Contains(message, words) {
				return true
			}
		}
	}
	return false
}
