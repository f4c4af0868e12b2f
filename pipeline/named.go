package pipeline

import (
	"context"
	"fmt"

	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm"
)

// namedEmbeddings names the model in each error of its client, where a chat
// model shares the breaker.
type namedEmbeddings struct {
	client llm.EmbeddingClient
	model  string
}

// CreateEmbeddings is the client's.
func (n namedEmbeddings) CreateEmbeddings(
	ctx context.Context, request openai.EmbeddingRequestConverter,
) (openai.EmbeddingResponse, error) {
	response, err := n.client.CreateEmbeddings(ctx, request)
	if err != nil {
		err = fmt.Errorf("embedding model %q: %w", n.model, err)
	}
	return response, err
}
