package llm

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sashabaranov/go-openai"
	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

// Names of operations in errors, metrics and logs.
const (
	opChat       = "create_chat_completion"
	opChatStream = "create_chat_completion_stream"
	opEmbeddings = "create_embeddings"
	opModels     = "list_models"
)

// Attributes of the GenAI semantic conventions.
const (
	genAIOperation    = attribute.Key("gen_ai.operation.name")
	genAIModel        = attribute.Key("gen_ai.request.model")
	genAIMaxTokens    = attribute.Key("gen_ai.request.max_tokens")
	genAIDimensions   = attribute.Key("gen_ai.embeddings.dimension.count")
	genAIAnswerID     = attribute.Key("gen_ai.response.id")
	genAIAnswerModel  = attribute.Key("gen_ai.response.model")
	genAIFinish       = attribute.Key("gen_ai.response.finish_reasons")
	genAIInputTokens  = attribute.Key("gen_ai.usage.input_tokens")
	genAIOutputTokens = attribute.Key("gen_ai.usage.output_tokens")
)

// through is the guard with its breaker.
func (g Guard) through() door.Guard { return door.Guard(g).Or(resilience.LLM) }

// operation describes a call whose verdict takes what w was told into account.
func operation(w *wait, span *trace.Span) door.Op {
	return door.Op{Name: w.operation, Classify: w.verdict, Span: span, Observe: metrics.ObserveCall}
}

// call carries an operation that ends when it returns. fn returns the headers
// of the answer beside it, which may be nil; describe, which may be nil too,
// gives the span what a good answer says.
func call[T any](
	ctx context.Context, g Guard, w *wait, span *trace.Span, fn func(context.Context) (T, http.Header, error),
	describe func(T) []attribute.KeyValue,
) (T, error) {
	admitted := false
	v, err := door.Open(ctx, g.through(), operation(w, span), func(h *door.Handle) (T, error) {
		admitted = true
		if w.operation == opChat { // which may think for longer than a probe has
			w.lease = h
		}
		v, headers, err := fn(withWait(h.Context(), w))
		if err == io.EOF { //nolint:errorlint // the SDK's word for no body at all, and the door's for a good end
			err = broken(w.operation, "an empty answer")
		}
		switch {
		case err != nil && w.told.Load() == nil:
			w.read(headers) // a client of another make, without our transport
		case err == nil && describe != nil:
			span.Set(w.masked(describe(v))...)
		}
		return v, redact(err, w.keys())
	})
	if !admitted {
		err = before(ctx, err)
	}
	return v, err
}

// before is the error of a call that was not admitted, with the cause where its
// context had ended.
func before(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && errors.Is(err, end) {
		return ended(ctx, err)
	}
	return err
}

func chatSpan(w *wait, r *openai.ChatCompletionRequest) *trace.Span {
	attrs := []attribute.KeyValue{genAIOperation.String("chat"), genAIModel.String(r.Model)}
	//lint:ignore SA1019 servers other than OpenAI's know no other name
	if n := max(r.MaxCompletionTokens, r.MaxTokens); n > 0 { //nolint:staticcheck // as above
		attrs = append(attrs, genAIMaxTokens.Int(n))
	}
	return trace.New("chat "+r.Model, w.errorType, attrs...)
}

func chatAnswer(r openai.ChatCompletionResponse) []attribute.KeyValue {
	reasons := make([]string, len(r.Choices))
	for i, c := range r.Choices {
		reasons[i] = string(c.FinishReason)
	}
	return []attribute.KeyValue{
		genAIAnswerID.String(r.ID), genAIAnswerModel.String(r.Model), genAIFinish.StringSlice(reasons),
		genAIInputTokens.Int(r.Usage.PromptTokens), genAIOutputTokens.Int(r.Usage.CompletionTokens),
	}
}

func embeddingsSpan(w *wait, r *openai.EmbeddingRequest) *trace.Span {
	attrs := []attribute.KeyValue{genAIOperation.String("embeddings"), genAIModel.String(string(r.Model))}
	if r.Dimensions > 0 {
		attrs = append(attrs, genAIDimensions.Int(r.Dimensions))
	}
	return trace.New("embeddings "+string(r.Model), w.errorType, attrs...)
}

func embeddingsAnswer(r openai.EmbeddingResponse) []attribute.KeyValue {
	attrs := []attribute.KeyValue{genAIAnswerModel.String(string(r.Model)), genAIInputTokens.Int(r.Usage.PromptTokens)}
	if len(r.Data) > 0 {
		attrs = append(attrs, genAIDimensions.Int(len(r.Data[0].Embedding)))
	}
	return attrs
}
