package embed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// errOutgrown is what a batch gets that was found too large while it waited for
// its turn. It was not sent.
var errOutgrown = errors.New("the batch is larger than the server takes")

// send has texts embedded in batches and finishes each of them.
func (e *Embedder) send(ctx context.Context, texts []item) {
	for len(texts) > 0 {
		batch, alone, leave := e.sizes.next(texts)
		request := e.request(batch)
		failed := e.model.Send(ctx, func(ctx context.Context, told func(resilience.Verdict)) error {
			if e.sizes.outgrown(batch, alone) {
				return errOutgrown
			}
			return request(ctx, told)
		})
		if failed == nil || !failed.Refused() { // only a refusal may be for the size
			leave()
		}
		if failed == nil || !errors.Is(failed.Err, errOutgrown) {
			e.settle(ctx, batch, failed)
			texts = texts[len(batch):]
		}
		leave()
	}
}

// settle finishes the texts of a batch that was sent, and reports whether all
// were embedded.
func (e *Embedder) settle(ctx context.Context, batch []item, failed *modelserver.Setback) bool {
	switch {
	case failed == nil:
		e.sizes.took(batch)
		return true
	case len(batch) == 1:
		return e.judge(ctx, batch, failed)
	case isTooLarge(failed.Err):
		e.shrink(batch)
		return e.split(ctx, batch)
	}
	return e.setAside(ctx, batch, failed)
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
// to find the one text that the model does not take. If it takes every text of
// a batch that it refused, it refused the size, in whatever words.
func (e *Embedder) setAside(ctx context.Context, batch []item, failed *modelserver.Setback) bool {
	if err := e.model.SetAside(ctx, failed); err != nil {
		e.fail(batch, err)
		return false
	}
	refused := failed.Refused()
	if refused {
		e.sizes.doubt(batch)
	}
	if failed.TimedOut() { // it may well be the size
		e.shrink(batch)
	}
	all := e.split(ctx, batch)
	if all && refused {
		e.shrink(batch)
	}
	return all
}

// split sends the halves of a batch one after the other, in smaller batches
// where the first half has shown that the server takes no larger ones.
func (e *Embedder) split(ctx context.Context, batch []item) (all bool) {
	all = true
	half := len(batch) / 2
	for _, texts := range [][]item{batch[:half:half], batch[half:]} {
		for len(texts) > 0 {
			part := e.sizes.cut(texts)
			all = e.settle(ctx, part, e.model.Send(ctx, e.request(part))) && all
			texts = texts[len(part):]
		}
	}
	return all
}

// judge decides what becomes of one text whose request failed, and reports
// whether it was embedded after all.
func (e *Embedder) judge(ctx context.Context, one []item, failed *modelserver.Setback) bool {
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
	return judgment == modelserver.Answered
}

// shrink remembers that a batch of this size was too large.
func (e *Embedder) shrink(batch []item) {
	limits := e.sizes.shrink(batch)
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
