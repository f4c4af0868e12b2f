package staticmodel_test

import (
	"context"
	"fmt"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm/staticmodel"
)

func ExampleModel_CreateEmbeddings() {
	model := staticmodel.New()
	resp, err := model.CreateEmbeddings(context.Background(), openai.EmbeddingRequestStrings{
		Model: staticmodel.Name,
		Input: []string{"When does the breaker open?"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(resp.Data[0].Embedding), "dimensions,", resp.Usage.TotalTokens, "tokens")
	// Output: 256 dimensions, 6 tokens
}
