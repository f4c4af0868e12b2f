package enrich

import (
	"context"
	"fmt"

	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm"
)

// named names the model in each error of its client. The embedding model may
// share the breaker, and be on another server: what made the breaker open must
// say which of them failed.
type named struct {
	client llm.ChatClient
	model  string
}

// CreateChatCompletion is the client's.
func (n named) CreateChatCompletion(
	ctx context.Context, request openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	response, err := n.client.CreateChatCompletion(ctx, request)
	if err != nil {
		err = &namedError{n.model, err}
	}
	return response, err
}

type namedError struct {
	model string
	err   error
}

func (e *namedError) Error() string { return fmt.Sprintf("chat model %q: %v", e.model, e.err) }
func (e *namedError) Unwrap() error { return e.err }
