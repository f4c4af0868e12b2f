package llm

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sashabaranov/go-openai"
	"go.opentelemetry.io/otel/attribute"

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

// operation is one kind of call: its name, and that and the attributes of its span.
type operation struct {
	name, span string
	attrs      []attribute.KeyValue
}

func (g Guard) breaker() *resilience.Breaker {
	if g.Breaker == nil {
		return resilience.LLM
	}
	return g.Breaker
}

// call is the way of every operation that ends when it returns: span, breaker, classifier. fn returns the headers of
// the answer beside it, which may be nil; describe, which may be nil too, gives the span what a good answer says.
func call[T any](ctx context.Context, g Guard, op operation, fn func(context.Context) (T, http.Header, error), describe func(T) []attribute.KeyValue) (T, error) {
	b := g.breaker()
	ctx, span := trace.Start(ctx, b, op.span, op.attrs...)
	var (
		told     *wait
		settled  resilience.Verdict
		admitted bool
	)
	classify := func(callerCtx context.Context, err error) resilience.Verdict {
		settled = verdict(callerCtx, err, told)
		return settled
	}
	returned := false
	defer func() {
		if !returned {
			span.End(errPanicked, ignore, errorType)
		}
	}()
	v, err := resilience.CallOp(ctx, b, resilience.Op[T]{Name: op.name, Classify: classify}, func(ctx context.Context) (T, error) {
		admitted = true
		ctx, told = withWait(ctx, op.name)
		defer observe(b, op.name, time.Now())
		v, headers, err := fn(ctx)
		if err != nil && told.told.Load() == nil {
			told.read(headers) // a client of another make, without our transport
		}
		return v, err
	})
	returned = true
	if admitted && g.Settled != nil {
		g.Settled(settled)
	}
	if err == nil && describe != nil {
		span.Set(describe(v)...)
	}
	span.End(err, classify, errorType)
	return v, err
}

// observe records how long a call took that was sent.
func observe(b *resilience.Breaker, operation string, started time.Time) {
	metrics.ObserveCall(b.Name(), operation, time.Since(started))
}

// errPanicked is what the span of a call says whose client panicked; the panic itself goes on.
var errPanicked = errors.New("llm: the client panicked")

func ignore(context.Context, error) resilience.Verdict {
	return resilience.Verdict{Outcome: resilience.Ignored}
}

func chatOperation(r *openai.ChatCompletionRequest) operation {
	op := operation{name: opChat, span: "chat " + r.Model, attrs: []attribute.KeyValue{
		genAIOperation.String("chat"), genAIModel.String(r.Model),
	}}
	//lint:ignore SA1019 servers other than OpenAI's know no other name
	if n := max(r.MaxCompletionTokens, r.MaxTokens); n > 0 { //nolint:staticcheck // as above
		op.attrs = append(op.attrs, genAIMaxTokens.Int(n))
	}
	return op
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

func embeddingsOperation(r *openai.EmbeddingRequest) operation {
	op := operation{name: opEmbeddings, span: "embeddings " + string(r.Model), attrs: []attribute.KeyValue{
		genAIOperation.String("embeddings"), genAIModel.String(string(r.Model)),
	}}
	if r.Dimensions > 0 {
		op.attrs = append(op.attrs, genAIDimensions.Int(r.Dimensions))
	}
	return op
}

func embeddingsAnswer(r openai.EmbeddingResponse) []attribute.KeyValue {
	attrs := []attribute.KeyValue{genAIAnswerModel.String(string(r.Model)), genAIInputTokens.Int(r.Usage.PromptTokens)}
	if len(r.Data) > 0 {
		attrs = append(attrs, genAIDimensions.Int(len(r.Data[0].Embedding)))
	}
	return attrs
}
