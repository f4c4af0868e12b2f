package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/sashabaranov/go-openai"
	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/internal/trace"
)

// ChatCompletionStream is the SDK's stream with the same methods, and the
// breaker at its end. The outcome is decided when the stream ends or fails, not
// when it opens: a stream that dies half-way is a failure, one that its reader
// closes early is ignored. While data flows, a probe's lease is renewed.
//
// As with the SDK's stream, one goroutine reads; Close may be called from any.
type ChatCompletionStream struct {
	inner *openai.ChatCompletionStream
	call  *door.Handle
	wait  *wait
	span  *trace.Span

	chunks int
	asked  int          // choices
	ended  map[int]bool // for each choice that was seen, whether it has its finish reason
	spoke  map[int]bool // choices that have content
	end    error        // sticky; what every later Recv returns
}

// CreateChatCompletionStream opens a stream. Errors of opening it are the SDK's
// own; a refused call returns *[resilience.OpenError] or
// *[resilience.DeniedError]. The stream must be read to its end or closed;
// where ctx ends, the call's slot comes back even if nobody does.
func (g Guard) CreateChatCompletionStream(
	ctx context.Context, client ChatStreamClient, request openai.ChatCompletionRequest,
) (*ChatCompletionStream, error) {
	w, admitted := &wait{operation: opChatStream}, false
	span := chatSpan(w, &request)
	s, err := door.Open(ctx, g.through(), operation(w, span), func(h *door.Handle) (*ChatCompletionStream, error) {
		w.lease, admitted = h, true
		ctx, cancel := context.WithCancel(withWait(h.Context(), w))
		h.OnEnd = cancel
		inner, err := client.CreateChatCompletionStream(ctx, request)
		if err == nil && inner == nil {
			err = broken(opChatStream, "the client returned neither a stream nor an error")
		}
		if err != nil {
			return nil, redact(err, w.keys())
		}
		h.Keep()
		return &ChatCompletionStream{
			inner: inner, call: h, wait: w, span: span,
			asked: max(request.N, 1), ended: map[int]bool{}, spoke: map[int]bool{},
		}, nil
	})
	if !admitted {
		err = before(ctx, err)
	}
	return s, err
}

// Recv returns the next chunk, and [io.EOF] at the end of a whole answer. A
// stream that ends before its finish reason (before that of each choice, where
// N asks for several) is a *[ContractError], although the SDK takes it for a
// whole one, and so is one in which the server says that it has failed; what
// came before is handed over first. Where no choice names a reason, [DONE]
// after the content of each is the end, with a client of [NewClient]; with
// others it cannot be told from a broken connection. After an error every call
// returns it.
func (s *ChatCompletionStream) Recv() (openai.ChatCompletionStreamResponse, error) {
	_, chunk, err := s.next()
	return chunk, err
}

// RecvRaw is Recv for readers that decode the chunk themselves.
func (s *ChatCompletionStream) RecvRaw() ([]byte, error) {
	raw, _, err := s.next()
	return raw, err
}

func (s *ChatCompletionStream) next() (raw []byte, chunk openai.ChatCompletionStreamResponse, err error) {
	if s.end != nil {
		return nil, chunk, s.end
	}
	s.call.Use(func() {
		raw, err = s.receive(&chunk)
		err = s.step(raw, &chunk, err)
	})
	return raw, chunk, err
}

func (s *ChatCompletionStream) receive(chunk *openai.ChatCompletionStreamResponse) ([]byte, error) {
	raw, err := s.inner.RecvRaw()
	switch {
	case err != nil:
	case raw == nil:
		err = broken(opChatStream, "an event that the SDK cannot read")
	default:
		if err = json.Unmarshal(raw, chunk); err != nil {
			err = cmp.Or(errorIn(opChatStream, raw), err)
		}
	}
	return raw, err
}

func (s *ChatCompletionStream) step(raw []byte, chunk *openai.ChatCompletionStreamResponse, err error) error {
	handOver := false
	switch {
	case err == nil:
		s.data(raw, chunk)
		if err = s.failureIn(raw, chunk); err == nil {
			return nil
		}
		handOver = hasText(chunk)
	case err == io.EOF && !s.whole(): //nolint:errorlint // only io.EOF itself is the end
		err = broken(opChatStream, "the stream ended after %d chunks, in the middle of the answer", s.chunks)
	case err != io.EOF && errors.Is(err, io.EOF): //nolint:errorlint // callers do compare with errors.Is
		err = broken(opChatStream, "the connection broke after %d chunks: %v", s.chunks, err)
	}
	err = redact(err, s.wait.keys())
	s.end = err
	s.call.End(err)
	if handOver {
		return nil
	}
	return err
}

// failureIn is what a chunk says of a failure, or nil.
func (s *ChatCompletionStream) failureIn(raw []byte, chunk *openai.ChatCompletionStreamResponse) error {
	if err := errorIn(opChatStream, raw); err != nil {
		return err
	}
	for _, c := range chunk.Choices {
		if err := reasonOf(opChatStream, c.FinishReason, s.wait.keys()); err != nil {
			return err
		}
	}
	return nil
}

func hasText(chunk *openai.ChatCompletionStreamResponse) bool {
	for _, c := range chunk.Choices {
		d := &c.Delta
		if d.Content+d.ReasoningContent+d.Refusal != "" || len(d.ToolCalls) > 0 || d.FunctionCall != nil {
			return true
		}
	}
	return false
}

// whole is true once the answer has come to its end, or each of several. The
// index alone does not say that there are several: TGI counts tokens in it. The
// last line is an end only where no choice has one of its own.
func (s *ChatCompletionStream) whole() bool {
	some, all := false, true
	for _, ended := range s.ended {
		some, all = some || ended, all && ended
	}
	if some {
		return all || s.asked == 1
	}
	return s.wait.done.Load() && len(s.spoke) >= s.asked
}

func (s *ChatCompletionStream) data(raw []byte, chunk *openai.ChatCompletionStreamResponse) {
	s.call.Renew()
	s.chunks++
	for _, choice := range chunk.Choices {
		s.ended[choice.Index] = s.ended[choice.Index] || ends(choice.FinishReason)
	}
	s.speak(raw, chunk)
	if chunk.Usage != nil {
		s.span.Set(genAIInputTokens.Int(chunk.Usage.PromptTokens), genAIOutputTokens.Int(chunk.Usage.CompletionTokens))
	}
	if s.chunks == 1 {
		s.span.Set(s.wait.masked([]attribute.KeyValue{
			genAIAnswerID.String(chunk.ID), genAIAnswerModel.String(chunk.Model),
		})...)
	}
}

// speak notes which choices have content. What the SDK has no field for is
// looked for until the choice has some.
func (s *ChatCompletionStream) speak(raw []byte, chunk *openai.ChatCompletionStreamResponse) {
	for _, choice := range chunk.Choices {
		if !s.spoke[choice.Index] {
			for _, i := range speaking(raw) {
				s.spoke[i] = true
			}
			return
		}
	}
}

// Close ends the stream and gives its connection back. Before the end, it means
// that the reader does not care, which says nothing about the upstream. Close
// may be called more than once.
func (s *ChatCompletionStream) Close() error {
	s.call.Abandon()
	return s.inner.Close()
}

// Header is the answer's header.
func (s *ChatCompletionStream) Header() http.Header { return s.inner.Header() }

// GetRateLimitHeaders is what the header says about the rate limit.
func (s *ChatCompletionStream) GetRateLimitHeaders() openai.RateLimitHeaders {
	return s.inner.GetRateLimitHeaders()
}
