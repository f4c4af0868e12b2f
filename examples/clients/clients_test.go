package clients

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// service answers as it is told and counts its requests.
type service struct {
	*httptest.Server
	breaker *resilience.Breaker
	status  atomic.Int64
	seen    atomic.Int64
}

func serve(t *testing.T, body string) *service {
	b, err := resilience.New("service", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s := &service{breaker: b}
	s.status.Store(http.StatusOK)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.seen.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(s.status.Load()))
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

// drill calls until the breaker is open: a healthy call, five that fail with
// one request each, and one that is refused with none.
func (s *service) drill(t *testing.T, call func(context.Context) error) {
	require.NoError(t, call(t.Context()))
	assert.EqualValues(t, 1, s.breaker.Snapshot().Successes)
	s.status.Store(http.StatusServiceUnavailable)
	for range 5 {
		err := call(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, resilience.ErrOpen)
	}
	require.EqualValues(t, 6, s.seen.Load(), "one request a call")
	require.ErrorIs(t, call(t.Context()), resilience.ErrOpen)
	assert.EqualValues(t, 6, s.seen.Load(), "none while the breaker is open")
}

func TestOpenAIHasABreakerBelow(t *testing.T) {
	s := serve(t, `{"id":"c","object":"chat.completion","choices":[
		{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`)
	client := OpenAI(s.URL, "key", s.breaker)
	s.drill(t, func(ctx context.Context) error {
		_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
		})
		return err
	})
	_, err := client.Models.List(t.Context())
	require.ErrorIs(t, err, resilience.ErrOpen, "every operation is behind it")
}

func TestMeilisearchHasABreakerBelow(t *testing.T) {
	s := serve(t, `{"status":"available"}`)
	client := Meilisearch(s.URL, "key", s.breaker)
	s.drill(t, func(ctx context.Context) error {
		_, err := client.Health(ctx)
		return err
	})
}
