package llm_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// The real server: llama.cpp with a model of 135 million parameters.

func short(content string) openai.ChatCompletionRequest {
	r := ask(content)
	r.MaxCompletionTokens = 8
	return r
}

func TestRealServerChat(t *testing.T) {
	client, guard := newClient(t, llm.Config{BaseURL: upstreams.Llama(t)}), newGuard(resilience.Config{})
	chat, err := guard.CreateChatCompletion(t.Context(), client, short("Say hello. Grüße, 你好, 🙂"))
	require.NoError(t, err)
	assert.NotEmpty(t, chat.Choices[0].Message.Content)
	assert.Positive(t, chat.Usage.CompletionTokens)

	stream, err := guard.CreateChatCompletionStream(t.Context(), client, short("Count to three."))
	require.NoError(t, err)
	assert.NotEmpty(t, readAll(t, stream))
	require.NoError(t, stream.Close())

	models, err := guard.ListModels(t.Context(), client)
	require.NoError(t, err)
	assert.NotEmpty(t, models.Models)
	assert.Equal(t, uint64(3), guard.Breaker.Snapshot().Successes)
}

func TestRealServerEmbeddings(t *testing.T) {
	client, guard := newClient(t, llm.Config{BaseURL: upstreams.Llama(t)}), newGuard(resilience.Config{})
	request := openai.EmbeddingRequestStrings{Model: "any", Input: []string{"a cat", "eine Katze", "猫", "a cat"}}
	got, err := guard.CreateEmbeddings(t.Context(), client, request)
	require.NoError(t, err)
	require.Len(t, got.Data, 4)
	for i := range got.Data {
		assert.Equal(t, i, got.Data[i].Index)
		assert.Len(t, got.Data[i].Embedding, len(got.Data[0].Embedding))
	}
	assert.InDeltaSlice(t, got.Data[0].Embedding, got.Data[3].Embedding, 1e-2, "the same text")
}

func TestRealServerRefusesWhatIsWrong(t *testing.T) {
	client, guard := newClient(t, llm.Config{BaseURL: upstreams.Llama(t)}), newGuard(resilience.Config{})
	_, err := guard.CreateChatCompletion(t.Context(), client, openai.ChatCompletionRequest{Model: "any"})
	require.Error(t, err)
	assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Ignored, "%v", err)
}

// An outage of the real server.
func TestRealServerOutage(t *testing.T) {
	server := upstreams.StartLlama(t)
	for _, row := range []struct {
		name       string
		down, back func(testing.TB)
	}{
		{"killed", server.Kill, server.Start},
		{"hanging", server.Pause, server.Resume},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := doortest.NewDrill(t)
			require.NoError(t, embedding(t, d.Breaker, newClient(t, llm.Config{BaseURL: upstreams.LlamaURL(server)}))())
			row.down(t)
			d.Opens(
				embedding(
					t,
					d.Breaker,
					newClient(t, llm.Config{BaseURL: upstreams.LlamaURL(server), Timeout: 300 * time.Millisecond}),
				),
				nil,
			)
			row.back(t)
			d.Closes(embedding(t, d.Breaker, newClient(t, llm.Config{BaseURL: upstreams.LlamaURL(server)})), 0)
		})
	}
}

// A restart while a stream flows costs that stream, and nothing after it.
func TestRealServerRestartsInTheMiddle(t *testing.T) {
	server := upstreams.StartLlama(t)
	guard := newGuard(resilience.Config{})
	client := newClient(t, llm.Config{BaseURL: upstreams.LlamaURL(server)})
	request := ask("Write a very long story about a river.")
	request.MaxCompletionTokens = 2000
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, request)
	require.NoError(t, err)
	defer stream.Close()
	_, err = stream.Recv()
	require.NoError(t, err)
	server.Restart(t)
	_, err = drain(stream)
	require.Error(t, err)
	assertOutcome(t, guard, resilience.Failure)
	_, err = guard.CreateChatCompletion(t.Context(), client, short("hello"))
	require.NoError(t, err)
	assert.Equal(t, resilience.Closed, guard.Breaker.State())
}

func TestRealServerCallerLeaves(t *testing.T) {
	guard := newGuard(resilience.Config{})
	client := newClient(t, llm.Config{BaseURL: upstreams.Llama(t)})
	ctx, cancel := context.WithCancelCause(t.Context())
	request := ask("Write a very long story about a river.")
	request.MaxCompletionTokens = 2000
	stream, err := guard.CreateChatCompletionStream(ctx, client, request)
	require.NoError(t, err)
	defer stream.Close()
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel(errors.New("enough"))
	_, err = drain(stream)
	require.Error(t, err)
	assertOutcome(t, guard, resilience.Ignored)
}
