package llm_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func TestSettledIsToldEachVerdictOnce(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	// Without the door's transport, as a client of another make has it.
	foreign := openai.DefaultConfig("key")
	foreign.BaseURL, foreign.HTTPClient = s.URL, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	clients := map[string]*openai.Client{
		"our client": newClient(t, llm.Config{BaseURL: s.URL}), "another": openai.NewClientWithConfig(foreign),
	}
	for _, row := range []struct {
		name  string
		fault llmtest.Fault
		want  resilience.Verdict
	}{
		{"success", llmtest.Fault{}, resilience.Verdict{Outcome: resilience.Success}},
		{"failure", llmtest.Status(500), resilience.Verdict{Outcome: resilience.Failure}},
		{"denied", llmtest.Status(401), resilience.Verdict{Outcome: resilience.Denied}},
		{
			"throttled", llmtest.RateLimit("7"),
			resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 7 * time.Second},
		},
	} {
		s.Script(llmtest.All(row.fault))
		for name, client := range clients {
			guard := newGuard(resilience.Config{OpenOnThrottle: true})
			told := doortest.Hear(&guard.Settled)
			for i, call := range operations(guard, client) {
				guard.Breaker.Reset()
				*told = nil
				_ = call.do(t.Context())
				want := row.want
				if i == 1 && client == clients["another"] {
					want.RetryAfter = 0 // the SDK drops the headers of a stream that was refused
				}
				assert.Equal(t, []resilience.Verdict{want}, *told, "%s, %s, %s", row.name, call.name, name)
			}
		}
	}
}

func TestSettledHearsNothingOfRefusals(t *testing.T) {
	guard := newGuard(resilience.Config{})
	told := doortest.Hear(&guard.Settled)
	guard.Breaker.ForceOpen("maintenance")
	for _, call := range operations(guard, newClient(t, llm.Config{})) {
		require.ErrorIs(t, call.do(t.Context()), resilience.ErrOpen)
	}
	assert.Empty(t, *told)
}

type panicking struct{ llm.ChatClient }

func (panicking) CreateChatCompletion(
	context.Context, openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	panic("client")
}

func TestSettledHearsNothingOfPanics(t *testing.T) {
	guard := newGuard(resilience.Config{})
	told := doortest.Hear(&guard.Settled)
	assert.Panics(t, func() { _, _ = guard.CreateChatCompletion(t.Context(), panicking{}, ask("hello")) })
	assert.Empty(t, *told)
}

func TestSettledHearsOfAbandonedStreams(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	guard := newGuard(resilience.Config{})
	told := doortest.Hear(&guard.Settled)
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("hello"))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	assert.Empty(t, *told, "it is not decided yet")
	require.NoError(t, stream.Close())
	require.NoError(t, errors.Join(stream.Close(), stream.Close()))
	assert.Equal(t, []resilience.Verdict{{Outcome: resilience.Ignored}}, *told)
}
