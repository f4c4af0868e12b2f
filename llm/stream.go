package llm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/resilience"
)

// ChatCompletionStream is the SDK's stream with the same methods, and the breaker at its end. The outcome is decided
// when the stream ends or fails, not when it opens: a stream that dies half-way is a failure, one that its reader
// closes early is ignored. While data flows, a probe's lease is renewed.
//
// As with the SDK's stream, one goroutine reads; Close may be called from any.
type ChatCompletionStream struct {
	inner  *openai.ChatCompletionStream
	permit *resilience.Permit
	tell   func(resilience.Verdict)
	finish func() // observes the duration
	span   *trace.Span
	caller context.Context
	cancel context.CancelFunc
	told   *wait
	busy   atomic.Bool
	stop   func() bool // the watch over caller

	chunks  int
	several bool         // choices were asked for
	ended   map[int]bool // for each choice that was seen, whether it has its finish reason
	end     error        // sticky; what every later Recv returns
	settle  sync.Once
}

// CreateChatCompletionStream opens a stream. Errors of opening it are the SDK's own; a refused call returns
// *[resilience.OpenError] or *[resilience.DeniedError]. The stream must be read to its end or closed; where ctx ends, the
// call's slot comes back even if nobody does.
func (g Guard) CreateChatCompletionStream(ctx context.Context, client ChatStreamClient, request openai.ChatCompletionRequest) (*ChatCompletionStream, error) {
	b := g.breaker()
	s := &ChatCompletionStream{ended: map[int]bool{}, several: request.N > 1}
	s.caller, s.span = trace.Start(ctx, b, "chat "+request.Model, chatOperation(&request).attrs...)
	permit, err := b.Allow(s.caller)
	if err != nil {
		s.span.End(err, Classify, errorType)
		return nil, err
	}
	s.permit = permit
	s.tell = g.Settled
	started := time.Now()
	s.finish = func() { observe(b, opChatStream, started) }
	inner, cancel := context.WithCancel(permit.Context())
	s.cancel = cancel
	err = errPanicked
	defer s.watch(&err)
	inner, s.told = withWait(inner, opChatStream)
	s.inner, err = client.CreateChatCompletionStream(inner, request)
	if err == nil && s.inner == nil {
		err = broken(opChatStream, "the client returned neither a stream nor an error")
	}
	if err != nil {
		s.done(err)
		return nil, err
	}
	s.stop = context.AfterFunc(s.caller, s.forsaken)
	return s, nil
}

// forsaken ends the call when its context ends and nobody reads. A Recv that is under way gets an error and decides
// itself.
func (s *ChatCompletionStream) forsaken() {
	if !s.busy.Load() {
		s.abandon()
	}
}

// rest is the end of a Recv. Where the context ended meanwhile, nobody may come back.
func (s *ChatCompletionStream) rest() {
	s.busy.Store(false)
	if s.caller.Err() != nil {
		s.forsaken()
	}
}

// Recv returns the next chunk, and [io.EOF] at the end of a whole answer. A stream that ends before its finish reason
// (before that of each choice, where N asks for several) is a *[ContractError], although the SDK takes it for a whole
// one, and so is one in which the server says that it has failed; what came before is handed over first. After an error
// every call returns it.
func (s *ChatCompletionStream) Recv() (openai.ChatCompletionStreamResponse, error) {
	_, chunk, err := s.next()
	return chunk, err
}

// RecvRaw is Recv for those who decode the chunk themselves.
func (s *ChatCompletionStream) RecvRaw() ([]byte, error) {
	raw, _, err := s.next()
	return raw, err
}

func (s *ChatCompletionStream) next() (raw []byte, chunk openai.ChatCompletionStreamResponse, err error) {
	if s.end != nil {
		return nil, chunk, s.end
	}
	s.busy.Store(true)
	defer s.rest()
	err = errPanicked
	defer s.watch(&err)
	switch raw, err = s.inner.RecvRaw(); {
	case err == nil && raw == nil:
		err = broken(opChatStream, "an event that the SDK cannot read")
	case err == nil:
		if err = json.Unmarshal(raw, &chunk); err != nil {
			err = first(errorIn(opChatStream, raw), err)
		}
	}
	err = s.step(raw, &chunk, err)
	return raw, chunk, err
}

func (s *ChatCompletionStream) step(raw []byte, chunk *openai.ChatCompletionStreamResponse, err error) error {
	handOver := false
	switch {
	case err == nil:
		s.data(chunk)
		if err = failureIn(raw, chunk); err == nil {
			return nil
		}
		handOver = hasText(chunk)
	case err == io.EOF && !s.whole(): //nolint:errorlint // only io.EOF itself is the end
		err = broken(opChatStream, "the stream ended after %d chunks, in the middle of the answer", s.chunks)
	case err != io.EOF && errors.Is(err, io.EOF): //nolint:errorlint // callers do compare with errors.Is
		err = broken(opChatStream, "the connection broke after %d chunks: %v", s.chunks, err)
	}
	s.end = err
	s.done(err)
	if handOver {
		return nil
	}
	return err
}

// failureIn is what a chunk says of a failure, or nil.
func failureIn(raw []byte, chunk *openai.ChatCompletionStreamResponse) error {
	if err := errorIn(opChatStream, raw); err != nil {
		return err
	}
	for _, c := range chunk.Choices {
		if err := reasonOf(opChatStream, c.FinishReason); err != nil {
			return err
		}
	}
	return nil
}

func hasText(chunk *openai.ChatCompletionStreamResponse) bool {
	for _, c := range chunk.Choices {
		if d := &c.Delta; d.Content != "" || d.ReasoningContent != "" || d.Refusal != "" || len(d.ToolCalls) > 0 || d.FunctionCall != nil {
			return true
		}
	}
	return false
}

// whole is true once the answer has come to its end, or each of several. The index alone does not say that there are
// several: TGI counts tokens in it.
func (s *ChatCompletionStream) whole() bool {
	some, all := false, true
	for _, ended := range s.ended {
		some, all = some || ended, all && ended
	}
	return some && (all || !s.several)
}

func (s *ChatCompletionStream) data(chunk *openai.ChatCompletionStreamResponse) {
	s.permit.Renew()
	s.chunks++
	for _, choice := range chunk.Choices {
		s.ended[choice.Index] = s.ended[choice.Index] || choice.FinishReason != ""
	}
	if chunk.Usage != nil {
		s.span.Set(genAIInputTokens.Int(chunk.Usage.PromptTokens), genAIOutputTokens.Int(chunk.Usage.CompletionTokens))
	}
	if s.chunks == 1 {
		s.span.Set(genAIAnswerID.String(chunk.ID), genAIAnswerModel.String(chunk.Model))
	}
}

// done decides the outcome; the first call counts.
func (s *ChatCompletionStream) done(err error) {
	if s.stop != nil {
		s.stop()
	}
	if err == io.EOF { //nolint:errorlint // see step
		err = nil
	}
	classify := func(caller context.Context, err error) resilience.Verdict { return verdict(caller, err, s.told) }
	s.close(err, classify, func() {
		var v resilience.Verdict
		if err != nil {
			v = classify(s.caller, err)
		}
		s.settled(v, err)
	})
}

// errAbandoned is the end of a stream that its reader closed early.
var errAbandoned = errors.New("llm: stream closed before its end")

// Close ends the stream and gives its connection back. Before the end, it means that the reader does not care, which
// says nothing about the upstream. Close may be called more than once.
func (s *ChatCompletionStream) Close() error {
	s.stop()
	s.abandon()
	return s.inner.Close()
}

func (s *ChatCompletionStream) settled(v resilience.Verdict, err error) {
	s.permit.Settle(v, err)
	if s.tell != nil {
		s.tell(v)
	}
}

func (s *ChatCompletionStream) abandon() {
	s.close(errAbandoned, ignore, func() { s.settled(resilience.Verdict{Outcome: resilience.Ignored}, nil) })
}

// watch ends the stream where the client panics or ends the goroutine, both of which go on: err is errPanicked until
// it has returned.
func (s *ChatCompletionStream) watch(err *error) {
	if *err == errPanicked { //nolint:errorlint // the very value
		s.close(errPanicked, ignore, s.permit.Panicked)
	}
}

func (s *ChatCompletionStream) close(why error, classify resilience.Classifier, settle func()) {
	s.settle.Do(func() {
		settle()
		s.span.End(why, classify, errorType)
		s.finish()
		s.cancel()
	})
}

// Header is the answer's header.
func (s *ChatCompletionStream) Header() http.Header { return s.inner.Header() }

// GetRateLimitHeaders is what the header says about the rate limit.
func (s *ChatCompletionStream) GetRateLimitHeaders() openai.RateLimitHeaders {
	return s.inner.GetRateLimitHeaders()
}
