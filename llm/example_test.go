package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// server stands for the one that you have.
func server(rules ...llmtest.Rule) (url string, end func()) {
	h := llmtest.NewHandler(llmtest.Options{})
	h.Script(rules...)
	s := httptest.NewServer(h)
	return s.URL + "/v1", s.Close
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func ExampleCreateEmbeddings() {
	url, end := server()
	defer end()
	client, err := llm.NewClient(llm.Config{BaseURL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := llm.CreateEmbeddings(context.Background(), client, openai.EmbeddingRequestStrings{
		Model: staticmodel.Name,
		Input: []string{"when does the breaker open?", "after five failures"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(resp.Data), "vectors of", len(resp.Data[0].Embedding))
	// Output: 2 vectors of 256
}

func ExampleCreateChatCompletionStream() {
	url, end := server()
	defer end()
	client, _ := llm.NewClient(llm.Config{BaseURL: url})
	stream, err := llm.CreateChatCompletionStream(context.Background(), client, openai.ChatCompletionRequest{
		Model:    "small",
		Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "hello"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(chunk.Choices[0].Delta.Content)
	}
	// Output: echo: hello
}

func ExampleGuard() {
	url, end := server(llmtest.All(llmtest.Status(500)))
	defer end()
	client, _ := llm.NewClient(llm.Config{BaseURL: url})
	guard := llm.Guard{
		Breaker: resilience.NewRegistry(resilience.Config{}).
			MustRegister("llm-small", resilience.Config{FailMax: 2, Logger: quiet()}),
	}
	request := openai.ChatCompletionRequest{
		Model:    "small",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hello"}},
	}
	for range 3 {
		_, err := guard.CreateChatCompletion(context.Background(), client, request)
		fmt.Println(err)
	}
	// Output:
	// error, status code: 500, status: 500 Internal Server Error, message: scripted 500
	// error, status code: 500, status: 500 Internal Server Error, message: scripted 500
	// circuit breaker open for "llm-small", failing fast; next probe in 1m0s; last failure: error, status code: 500, status: 500 Internal Server Error, message: scripted 500
}

func ExampleFallback_CreateChatCompletion() {
	broken, end := server(llmtest.All(llmtest.Status(503)))
	defer end()
	healthy, end2 := server()
	defer end2()
	bigClient, _ := llm.NewClient(llm.Config{BaseURL: broken})
	smallClient, _ := llm.NewClient(llm.Config{BaseURL: healthy})
	guard := func(name string) llm.Guard {
		return llm.Guard{
			Breaker: resilience.NewRegistry(resilience.Config{}).MustRegister(name, resilience.Config{Logger: quiet()}),
		}
	}
	providers := llm.Fallback{
		{Name: "big", Guard: guard("llm-big"), Client: bigClient},
		{Name: "small", Guard: guard("llm-small"), Client: smallClient, Model: "small-1"},
	}

	answer, err := providers.CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
		Model:    "big-1",
		Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "hello"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Choices[0].Message.Content, "by", answer.Provider)
	fmt.Println("passed:", answer.Passed[0])
	// Output:
	// echo: hello by small
	// passed: llm: provider "big": error, status code: 503, status: 503 Service Unavailable, message: scripted 503
}
