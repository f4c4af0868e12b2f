// Command etl is a task for an orchestrator: it summarises a text and stores
// the summary in S3 and its vector in Milvus. It imports only the doors.
//
//	etl KEY < TEXT
//
// It is a process of its own, so its exit code tells the orchestrator after the
// first failed call what a breaker tells after five (resilience.ExitCode):
//
//	  0  done
//	  1  a fault of this program or its configuration
//	 65  an upstream refuses what it was sent, or there is no bucket or collection
//	 75  an upstream is unavailable; stderr names it and the time to run again
//	 77  an upstream refuses the credentials, or the quota is spent
//	143  told to stop, by SIGTERM or an interrupt; run again
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
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

// callError is the error of a call to an upstream, with what its door makes of
// errors.
type callError struct {
	breaker  *resilience.Breaker
	classify func(context.Context, error) resilience.Verdict
	err      error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// load is the task.
func load(ctx context.Context, c clients, key, text string) error {
	ctx = resilience.WithTask(ctx, "load "+key) // no retry below the orchestrator

	chat, err := llm.CreateChatCompletion(ctx, c.chat, openai.ChatCompletionRequest{
		Model:    "gpt-4o-mini",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Summarise:\n" + text}},
	})
	if err != nil {
		return failed(ctx, resilience.LLM, llm.Classify, fmt.Errorf("summarising %s: %w", key, err))
	}
	summary := chat.Choices[0].Message.Content

	vectors, err := llm.CreateEmbeddings(ctx, c.chat, openai.EmbeddingRequestStrings{
		Model: openai.SmallEmbedding3, Input: []string{summary},
	})
	if err != nil {
		return failed(ctx, resilience.LLM, llm.Classify, fmt.Errorf("embedding %s: %w", key, err))
	}
	vector := vectors.Data[0].Embedding

	if _, err := objectstore.PutObject(ctx, c.objects, &s3.PutObjectInput{
		Bucket: aws.String("summaries"), Key: aws.String(key), Body: strings.NewReader(summary),
	}); err != nil {
		return failed(ctx, resilience.S3, objectstore.Classify, fmt.Errorf("keeping %s: %w", key, err))
	}

	if _, err := vectorstore.Upsert(ctx, c.vectors, "summaries", "",
		entity.NewColumnVarChar("id", []string{key}),
		entity.NewColumnFloatVector("vector", len(vector), [][]float32{vector})); err != nil {
		return failed(ctx, resilience.Milvus, vectorstore.Classify, fmt.Errorf("indexing %s: %w", key, err))
	}
	return nil
}

// failed is the error of a call. Where the task was told to stop it says so,
// since not every SDK does.
func failed(
	ctx context.Context, b *resilience.Breaker, classify func(context.Context, error) resilience.Verdict, err error,
) error {
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return &callError{b, classify, err}
}

// exitCode tells the orchestrator whether and when to run the task again.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "etl:", err)
	call, ok := errors.AsType[*callError](err)
	if !ok {
		return resilience.ExitCode(err, nil)
	}
	code := resilience.ExitCode(err, call.classify)
	if at := call.breaker.RetryAt(err); code == 75 && !at.IsZero() {
		at = at.Add(time.Second).Truncate(time.Second) // never early
		fmt.Fprintf(os.Stderr, "etl: %s is unavailable, run again at %s\n",
			call.breaker.Name(), at.UTC().Format(time.RFC3339))
	}
	return code
}

func run(ctx context.Context) error {
	if len(os.Args) != 2 {
		return errors.New("usage: etl KEY < TEXT")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	return load(ctx, c, os.Args[1], string(text))
}

func main() { os.Exit(exitCode(run(context.Background()))) }
