package llm

import (
	"context"
	"net/http"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// ChatClient is the part of the SDK's client that CreateChatCompletion needs.
type ChatClient interface {
	CreateChatCompletion(context.Context, openai.ChatCompletionRequest) (openai.ChatCompletionResponse, error)
}

// ChatStreamClient is the part of the SDK's client that
// CreateChatCompletionStream needs.
type ChatStreamClient interface {
	CreateChatCompletionStream(context.Context, openai.ChatCompletionRequest) (*openai.ChatCompletionStream, error)
}

// EmbeddingClient is the part of the SDK's client that CreateEmbeddings needs.
type EmbeddingClient interface {
	CreateEmbeddings(context.Context, openai.EmbeddingRequestConverter) (openai.EmbeddingResponse, error)
}

// ModelClient is the part of the SDK's client that ListModels needs.
type ModelClient interface {
	ListModels(context.Context) (openai.ModelsList, error)
}

// The real client fits all of them.
var _ interface {
	ChatClient
	ChatStreamClient
	EmbeddingClient
	ModelClient
} = (*openai.Client)(nil)

// Guard is the door with a breaker of its own, for one model, provider or
// tenant. The zero value goes through [resilience.LLM], as the package
// functions do. A Guard is safe for concurrent use. It is a value: with
// breakers from [resilience.Registry.Keyed], make one for each call.
type Guard struct {
	// Breaker is shared by all operations; nil means resilience.LLM.
	Breaker *resilience.Breaker
	// Settled, where set, is told the verdict of each call that was admitted, a
	// success included: once, in the goroutine that ends the call, after the
	// breaker has counted it and before the call returns; for a stream, when
	// its outcome is decided. It is not told of a refused call, nor of one that
	// panicked.
	Settled func(resilience.Verdict)
	// InFlight, where set, is entered by each call first, so that no more calls
	// are in flight than its breaker still tolerates failures; a call waits
	// there for its turn. Its breaker is then the guard's: with another one in
	// Breaker each call returns an error that says so, and nothing is sent.
	InFlight *inflight.Limiter
}

// CreateChatCompletion is client.CreateChatCompletion through [resilience.LLM].
func CreateChatCompletion(
	ctx context.Context, client ChatClient, request openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	return Guard{}.CreateChatCompletion(ctx, client, request)
}

// CreateChatCompletionStream is client.CreateChatCompletionStream through
// [resilience.LLM]. The stream must be read to its end or closed.
func CreateChatCompletionStream(
	ctx context.Context, client ChatStreamClient, request openai.ChatCompletionRequest,
) (*ChatCompletionStream, error) {
	return Guard{}.CreateChatCompletionStream(ctx, client, request)
}

// CreateEmbeddings is client.CreateEmbeddings through [resilience.LLM].
func CreateEmbeddings(
	ctx context.Context, client EmbeddingClient, request openai.EmbeddingRequestConverter,
) (openai.EmbeddingResponse, error) {
	return Guard{}.CreateEmbeddings(ctx, client, request)
}

// ListModels is client.ListModels through [resilience.LLM].
func ListModels(ctx context.Context, client ModelClient) (openai.ModelsList, error) {
	return Guard{}.ListModels(ctx, client)
}

// CreateChatCompletion returns what client.CreateChatCompletion returns, its
// error unwrapped. An answer without choices, such as an error body under
// status 200, is a *[ContractError], and so is one with an error beside its
// choices or in one of them, or one of several choices, as N asks for, of which
// some have a finish reason and others none. A refused call returns
// *[resilience.OpenError] or *[resilience.DeniedError]. With a client of
// [NewClient] a probe may take as long as Config.ChatTimeout lets it.
func (g Guard) CreateChatCompletion(
	ctx context.Context, client ChatClient, request openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	w := &wait{operation: opChat}
	ask := func(ctx context.Context) (r openai.ChatCompletionResponse, h http.Header, err error) {
		if r, err = client.CreateChatCompletion(ctx, request); err == nil {
			err = checkChat(request.N, &r, w.keys())
		}
		return r, r.Header(), err
	}
	return call(ctx, g, w, chatSpan(w, &request), ask, chatAnswer)
}

// CreateEmbeddings returns what client.CreateEmbeddings returns, its error
// unwrapped, with the vectors in the order of the texts. It is a
// *[ContractError] if there is not one vector for each text, all of the same
// length (the one asked for, where request has Dimensions), finite and not all
// zero; or if their index fields are no permutation. Index fields that are all
// zero were left out by the server: then the order of the answer counts, and
// Index is filled in.
//
// Send strings and the float encoding: many servers refuse token lists and
// base64.
func (g Guard) CreateEmbeddings(
	ctx context.Context, client EmbeddingClient, request openai.EmbeddingRequestConverter,
) (openai.EmbeddingResponse, error) {
	converted, w := request.Convert(), &wait{operation: opEmbeddings}
	ask := func(ctx context.Context) (r openai.EmbeddingResponse, h http.Header, err error) {
		if r, err = client.CreateEmbeddings(ctx, request); err == nil {
			err = checkEmbeddings(&converted, &r)
		}
		return r, r.Header(), err
	}
	return call(ctx, g, w, embeddingsSpan(w, &converted), ask, embeddingsAnswer)
}

// ListModels returns what client.ListModels returns, its error unwrapped. An
// answer without a list, such as an error body under status 200, is a
// *[ContractError]; an empty list is fine. It is a cheap designated probe, see
// resilience.Config.Probe.
func (g Guard) ListModels(ctx context.Context, client ModelClient) (openai.ModelsList, error) {
	w := &wait{operation: opModels}
	span := trace.New(opModels, w.errorType, genAIOperation.String(opModels))
	return call(ctx, g, w, span, func(ctx context.Context) (r openai.ModelsList, h http.Header, err error) {
		if r, err = client.ListModels(ctx); err == nil {
			err = checkModels(&r)
		}
		return r, r.Header(), err
	}, nil)
}
