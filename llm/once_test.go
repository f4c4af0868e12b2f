package llm

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// failing is a client whose calls fail with err.
type failing struct{ err error }

func (f failing) CreateChatCompletion(
	context.Context, openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	return openai.ChatCompletionResponse{}, f.err
}

func (f failing) CreateChatCompletionStream(
	context.Context, openai.ChatCompletionRequest,
) (*openai.ChatCompletionStream, error) {
	return nil, f.err
}

func TestAnswerIsReadOnce(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusInternalServerError, http.StatusTooManyRequests} {
		looks, err := testutil.Looked(&openai.APIError{HTTPStatusCode: status})
		Classify(t.Context(), err)
		errors.As(err, new(*resilience.OpenError)) // the breaker looks for another breaker's refusal
		new(wait).errorType(err)                   // the span's
		once := looks()
		require.Positive(t, once)

		g := Guard{Breaker: testutil.NewBreaker(t, "once", resilience.Config{Logger: slog.New(slog.DiscardHandler)})}
		_, got := g.CreateChatCompletion(t.Context(), failing{err}, openai.ChatCompletionRequest{})
		require.Equal(t, err, got)
		assert.Equal(t, 2*once, looks(), "a call, %d", status)
		_, got = g.CreateChatCompletionStream(t.Context(), failing{err}, openai.ChatCompletionRequest{})
		require.Equal(t, err, got)
		assert.Equal(t, 3*once, looks(), "a stream, %d", status)
	}
}
