package llm_test

import (
	"context"
	"os"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// spans holds what the tests of this package leave behind.
var spans = tracetest.NewInMemoryExporter()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// newClient is a client whose own breaker is no other test's.
func newClient(t testing.TB, cfg llm.Config) *openai.Client {
	if cfg.Breaker == nil {
		cfg.Breaker = newGuard(resilience.Config{}).Breaker
	}
	client, err := llm.NewClient(cfg)
	require.NoError(t, err)
	return client
}

// newGuard is a door with a quiet breaker of its own.
func newGuard(cfg resilience.Config) llm.Guard {
	cfg.Logger = quiet()
	return llm.Guard{Breaker: resilience.NewRegistry(resilience.Config{}).MustRegister("llm", cfg)}
}

func texts(in ...string) openai.EmbeddingRequestStrings {
	return openai.EmbeddingRequestStrings{Model: staticmodel.Name, Input: in}
}

func ask(content string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model: "m", Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: content}},
	}
}

func TestHappyPath(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{Key: "secret"})
	client := newClient(t, llm.Config{BaseURL: s.URL, APIKey: "secret"})

	chat, err := llm.CreateChatCompletion(t.Context(), client, ask("hello"))
	require.NoError(t, err)
	assert.Equal(t, "echo: hello", chat.Choices[0].Message.Content)

	vectors, err := llm.CreateEmbeddings(t.Context(), client, texts("one", "two"))
	require.NoError(t, err)
	want, err := llm.CreateEmbeddings(t.Context(), staticmodel.New(), texts("one", "two"))
	require.NoError(t, err)
	assert.Equal(t, want.Data, vectors.Data, "the server and the embedded model go through the same door")

	models, err := llm.ListModels(t.Context(), client)
	require.NoError(t, err)
	assert.Equal(t, staticmodel.Name, models.Models[0].ID)

	stream, err := llm.CreateChatCompletionStream(t.Context(), client, ask("hello"))
	require.NoError(t, err)
	assert.Equal(t, "echo: hello", readAll(t, stream))
	require.NoError(t, stream.Close())
}

func TestPackageFunctionsUseTheSingleton(t *testing.T) {
	before := resilience.LLM.Snapshot().Successes
	_, err := llm.CreateEmbeddings(t.Context(), staticmodel.New(), texts("one"))
	require.NoError(t, err)
	assert.Equal(t, before+1, resilience.LLM.Snapshot().Successes)
	resilience.LLM.ForceOpen("maintenance")
	defer resilience.LLM.Reset()
	_, err = llm.CreateEmbeddings(t.Context(), staticmodel.New(), texts("one"))
	require.ErrorIs(t, err, resilience.ErrOpen)
}

func TestFiveFailuresOpenAndNothingMoreIsSent(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Status(500)))
	client, guard := newClient(t, llm.Config{BaseURL: s.URL}), newGuard(resilience.Config{})
	for i := range 5 {
		_, err := guard.CreateEmbeddings(t.Context(), client, texts("a"))
		var api *openai.APIError
		require.ErrorAs(t, err, &api)
		assert.Same(t, api, err, "call %d gets the SDK's own error, unwrapped", i+1)
	}
	for _, call := range operations(guard, client) {
		err := call.do(t.Context())
		var open *resilience.OpenError
		require.ErrorAs(t, err, &open, call.name)
		last, ok := open.LastFailure().(*openai.APIError) //nolint:errorlint // the SDK's own error, unwrapped
		require.True(t, ok)
		assert.Equal(t, 500, last.HTTPStatusCode)
	}
	assert.Equal(t, 5, s.Stats().Requests)
}

type operation struct {
	name string
	do   func(context.Context) error
}

// operations are all calls of the door, with requests that the test server
// answers.
func operations(g llm.Guard, c *openai.Client) []operation {
	return []operation{
		{"CreateChatCompletion", func(ctx context.Context) error {
			_, err := g.CreateChatCompletion(ctx, c, ask("hello"))
			return err
		}},
		{"CreateChatCompletionStream", func(ctx context.Context) error {
			stream, err := g.CreateChatCompletionStream(ctx, c, ask("hello"))
			if err != nil {
				return err
			}
			defer stream.Close()
			_, err = drain(stream)
			return err
		}},
		{"CreateEmbeddings", func(ctx context.Context) error {
			_, err := g.CreateEmbeddings(ctx, c, texts("hello", "there"))
			return err
		}},
		{"ListModels", func(ctx context.Context) error {
			_, err := g.ListModels(ctx, c)
			return err
		}},
	}
}
