package llm_test

import (
	"context"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// provider is a server with a script, behind a guard of its own.
func provider(t *testing.T, name string, cfg resilience.Config, rules ...llmtest.Rule) (llm.Provider, *llmtest.Server) {
	s := llmtest.NewServer(t, llmtest.Options{Reply: "I am " + name})
	s.Script(rules...)
	return llm.Provider{
		Name:   name,
		Guard:  newGuard(cfg),
		Client: newClient(t, llm.Config{BaseURL: s.URL}),
		Model:  "model-of-" + name,
	}, s
}

func TestFallbackGoesOnOnlyWhereTheNextProviderHelps(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault llmtest.Fault
		next  bool
	}{
		{"failure", llmtest.Status(500), true},
		{"dropped", llmtest.Drop(), true},
		{"throttled", llmtest.RateLimit("9"), true},
		{"garbage", llmtest.Answer(200, "{}"), true},
		{"wrong request", llmtest.Status(400), false},
		{"bad key", llmtest.Status(401), false},
		{"quota", llmtest.Answer(429, `{"error":{"message":"pay","code":"insufficient_quota"}}`), false},
	} {
		first, _ := provider(t, "first", resilience.Config{}, llmtest.All(row.fault))
		second, other := provider(t, "second", resilience.Config{})
		answer, err := llm.Fallback{first, second}.CreateChatCompletion(t.Context(), ask("who are you?"))
		if !row.next {
			var failed *llm.ProviderError
			require.ErrorAs(t, err, &failed, row.name)
			assert.Equal(t, "first", failed.Provider, row.name)
			assert.Zero(t, other.Stats().Requests, row.name)
			continue
		}
		require.NoError(t, err, row.name)
		assert.Equal(t, "second", answer.Provider, row.name)
		assert.Equal(t, "I am second", answer.Choices[0].Message.Content, row.name)
		assert.Equal(t, "model-of-second", answer.Model, row.name)
		require.Len(t, answer.Passed, 1, row.name)
		assert.Equal(t, "first", answer.Passed[0].Provider, row.name)
	}
}

func TestFallbackPassesAnOpenProviderWithoutAsking(t *testing.T) {
	first, asked := provider(t, "first", resilience.Config{FailMax: 2}, llmtest.All(llmtest.Status(500)))
	second, _ := provider(t, "second", resilience.Config{})
	for range 5 {
		answer, err := llm.Fallback{first, second}.CreateChatCompletion(t.Context(), ask("x"))
		require.NoError(t, err)
		assert.Equal(t, "second", answer.Provider)
	}
	assert.Equal(t, 2, asked.Stats().Requests)
}

func TestFallbackStopsAtADeniedProvider(t *testing.T) {
	first, _ := provider(t, "first", resilience.Config{StopOnDenied: true}, llmtest.All(llmtest.Status(401)))
	second, other := provider(t, "second", resilience.Config{})
	for range 2 {
		_, err := llm.Fallback{first, second}.CreateChatCompletion(t.Context(), ask("x"))
		require.ErrorContains(t, err, `provider "first"`)
	}
	assert.Zero(t, other.Stats().Requests)
}

func TestFallbackWhereAllFail(t *testing.T) {
	first, _ := provider(t, "first", resilience.Config{}, llmtest.All(llmtest.Status(503)))
	second, _ := provider(t, "second", resilience.Config{}, llmtest.All(llmtest.Status(500)))
	second.Guard.Breaker.ForceOpen("maintenance")
	answer, err := llm.Fallback{first, second}.CreateChatCompletion(t.Context(), ask("x"))
	require.ErrorContains(t, err, `provider "first"`)
	require.ErrorContains(t, err, `provider "second"`)
	require.ErrorIs(t, err, resilience.ErrOpen)
	var api *openai.APIError
	require.ErrorAs(t, err, &api)
	assert.Len(t, answer.Passed, 2)
	_, err = llm.Fallback{}.CreateChatCompletion(t.Context(), ask("x"))
	require.ErrorContains(t, err, "without providers")
}

func TestFallbackStopsWhenTheCallerLeaves(t *testing.T) {
	first, asked := provider(t, "first", resilience.Config{}, llmtest.All(llmtest.Hang()))
	second, other := provider(t, "second", resilience.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := llm.Fallback{first, second}.CreateChatCompletion(ctx, ask("x"))
		done <- err
	}()
	require.Eventually(t, func() bool { return asked.Stats().InFlight == 1 }, waitLong, waitStep)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.Zero(t, other.Stats().Requests)
}
