// Command etl is a task for an orchestrator: it summarises a text and stores
// the summary in S3 and its vector in Milvus. It imports only the doors.
//
//	etl KEY < TEXT
//
// It exits with 75 if an upstream is unavailable, so that the orchestrator runs
// it again later, and with 1 for any other error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// clients are the upstreams of the task, as the interfaces of the doors: the
// SDKs' clients, embedded backends and test doubles all implement them.
type clients struct {
	chat interface {
		llm.ChatClient
		llm.EmbeddingClient
	}
	objects objectstore.Writer
	vectors vectorstore.Writer
}

// connect creates the SDKs' clients, with hidden retries off, from the
// environment: OPENAI_BASE_URL, OPENAI_API_KEY, AWS_*, MILVUS_ADDRESS.
func connect(ctx context.Context) (clients, error) {
	chat, err := llm.NewClient(llm.Config{})
	if err != nil {
		return clients{}, err
	}
	objects, err := objectstore.NewClient(ctx, objectstore.Config{})
	if err != nil {
		return clients{}, err
	}
	vectors, err := vectorstore.NewClient(ctx, vectorstore.Config{Address: os.Getenv("MILVUS_ADDRESS")})
	if err != nil {
		return clients{}, err
	}
	return clients{chat: chat, objects: objects, vectors: vectors}, nil
}

// load is the task.
func load(ctx context.Context, c clients, key, text string) error {
	ctx = resilience.WithTask(ctx, "load "+key) // no retry below the orchestrator

	chat, err := llm.CreateChatCompletion(ctx, c.chat, openai.ChatCompletionRequest{
		Model:    "gpt-4o-mini",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Summarise:\n" + text}},
	})
	if err != nil {
		return fmt.Errorf("summary of %s: %w", key, err)
	}
	summary := chat.Choices[0].Message.Content

	vectors, err := llm.CreateEmbeddings(ctx, c.chat, openai.EmbeddingRequestStrings{
		Model: openai.SmallEmbedding3, Input: []string{summary},
	})
	if err != nil {
		return fmt.Errorf("vector of %s: %w", key, err)
	}
	vector := vectors.Data[0].Embedding

	if _, err := objectstore.PutObject(ctx, c.objects, &s3.PutObjectInput{
		Bucket: aws.String("summaries"), Key: aws.String(key), Body: strings.NewReader(summary),
	}); err != nil {
		return fmt.Errorf("keeping %s: %w", key, err)
	}
	_, err = vectorstore.Upsert(ctx, c.vectors, "summaries", "",
		entity.NewColumnVarChar("id", []string{key}),
		entity.NewColumnFloatVector("vector", len(vector), [][]float32{vector}))
	if err != nil {
		return fmt.Errorf("indexing %s: %w", key, err)
	}
	return nil
}

// exitCode tells the orchestrator whether to run the task again.
func exitCode(err error) int {
	if open, ok := errors.AsType[*resilience.OpenError](err); ok {
		fmt.Fprintf(os.Stderr, "etl: %s is unavailable, run again in %s\n",
			open.Upstream(), time.Until(open.RetryAt()).Round(time.Second))
		return 75 // EX_TEMPFAIL
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "etl:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context) error {
	if len(os.Args) != 2 {
		return errors.New("usage: etl KEY < TEXT")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	return load(ctx, c, os.Args[1], string(text))
}

func main() { os.Exit(exitCode(run(context.Background()))) }
