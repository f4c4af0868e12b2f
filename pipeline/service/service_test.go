package service_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// models is a model server that answers with a status, and the guard of its
// door. The client is not one of this kit's.
func models(t *testing.T, status int, header http.Header) (*openai.Client, llm.Guard, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"object":"list","data":[{"embedding":[1,2],"index":0}],"error":{"message":"no"}}`))
	}))
	t.Cleanup(server.Close)
	config := openai.DefaultConfig("key")
	config.BaseURL = server.URL
	breaker, err := resilience.New("llm", resilience.Config{})
	require.NoError(t, err)
	return openai.NewClientWithConfig(config), llm.Guard{Breaker: breaker}, &requests
}

func embed(s *service.Service, guard llm.Guard, client *openai.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.Call(ctx, "create_embeddings", func(told func(resilience.Verdict)) error {
			guard.Settled = told
			_, err := guard.CreateEmbeddings(
				ctx,
				client,
				openai.EmbeddingRequestStrings{Model: "m", Input: []string{"text"}},
			)
			return err
		})
	}
}

// The error of a call carries what the door made of it, headers included.
func TestCallCarriesTheVerdict(t *testing.T) {
	wait := http.Header{"Retry-After": {"7"}}
	date := http.Header{
		"Retry-After": {"Wed, 21 Oct 2026 07:28:07 GMT"}, "Date": {"Wed, 21 Oct 2026 07:28:00 GMT"},
	}
	after := func(unavailable bool) resilience.Verdict {
		return resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 7 * time.Second, Unavailable: unavailable}
	}
	failed := resilience.Verdict{Outcome: resilience.Failure}
	for name, row := range map[string]struct {
		status int
		header http.Header
		want   resilience.Verdict
		misfit bool
	}{
		"401":               {http.StatusUnauthorized, nil, resilience.Verdict{Outcome: resilience.Denied}, false},
		"404":               {http.StatusNotFound, nil, resilience.Verdict{Outcome: resilience.Ignored}, true},
		"429":               {http.StatusTooManyRequests, wait, after(false), false},
		"500":               {http.StatusInternalServerError, nil, failed, false},
		"503":               {http.StatusServiceUnavailable, nil, failed, false},
		"503 until a date":  {http.StatusServiceUnavailable, date, after(true), false},
		"529 for some time": {529, wait, after(true), false},
		"503 for no time":   {http.StatusServiceUnavailable, http.Header{"Retry-After": {"0"}}, failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, guard, _ := models(t, row.status, row.header)
			var users []resilience.Verdict
			guard.Settled = func(v resilience.Verdict) { users = append(users, v) }
			s := service.Models(guard)
			err := embed(s, guard, client)(t.Context())
			var call *stop.CallError
			require.ErrorAs(t, err, &call)
			assert.Equal(t, row.want, call.Verdict)
			assert.Equal(t, row.misfit, call.Misfit)
			assert.Equal(t, service.Model, call.Upstream)
			assert.Same(t, guard.Breaker, call.Breaker)
			assert.Equal(t, row.status, service.StatusOf(err))
			assert.Equal(t, []resilience.Verdict{row.want}, users, "the user's own Settled, once")
		})
	}
}

func TestGoodCallHasNoError(t *testing.T) {
	client, guard, _ := models(t, http.StatusOK, nil)
	require.NoError(t, embed(service.Models(guard), guard, client)(t.Context()))
}

// What was never sent is told of to nobody and counts as ignored.
func TestRefusedCallIsIgnored(t *testing.T) {
	client, guard, requests := models(t, http.StatusOK, nil)
	guard.Breaker.Trip("test")
	err := embed(service.Models(guard), guard, client)(t.Context())
	require.ErrorIs(t, err, resilience.ErrOpen)
	assert.Equal(t, resilience.Ignored, stop.VerdictOf(err).Outcome)
	assert.Equal(t, stop.Deferred, stop.Of(err).Kind)
	assert.Zero(t, requests.Load())
}

func TestClosedServiceSendsNothing(t *testing.T) {
	client, guard, requests := models(t, http.StatusOK, nil)
	s, err := service.Models(guard).Limited(3)
	require.NoError(t, err)
	require.NoError(t, embed(s, guard, client)(t.Context()))
	s.Close(stop.ErrEnded)
	require.Equal(t, stop.ErrEnded, embed(s, guard, client)(t.Context()))
	assert.EqualValues(t, 1, requests.Load())
}

func TestLimitOfAWindow(t *testing.T) {
	breaker, err := resilience.New("llm", resilience.Config{Trip: trip.CountWindow{}})
	require.NoError(t, err)
	_, err = service.Models(llm.Guard{Breaker: breaker}).Limited(0)
	require.Error(t, err, "a window has no FailMax to take the limit from")
}

func TestLimiterOfAnotherBreaker(t *testing.T) {
	limiter, err := inflight.New(testutil.NewBreaker(t, "other", resilience.Config{}), 0)
	require.NoError(t, err)
	guard := llm.Guard{Breaker: testutil.NewBreaker(t, "own", resilience.Config{}), InFlight: limiter}
	_, err = service.Models(guard).Limited(1)
	require.ErrorContains(t, err, `the breaker "own" and a limiter for another one, "other"`)
}

func TestBreakerIsThatOfTheDoor(t *testing.T) {
	own := testutil.NewBreaker(t, "own", resilience.Config{})
	limiter, err := inflight.New(own, 0)
	require.NoError(t, err)
	assert.Same(t, resilience.LLM, service.Models(llm.Guard{}).Breaker())
	assert.Same(t, own, service.Models(llm.Guard{Breaker: own}).Breaker())
	assert.Same(t, own, service.Models(llm.Guard{InFlight: limiter}).Breaker())
}

func TestCallOfNoAnswer(t *testing.T) {
	_, guard, _ := models(t, http.StatusOK, nil)
	err := service.Models(guard).
		Call(t.Context(), "x", func(func(resilience.Verdict)) error { return errors.New("not sent") })
	assert.Equal(t, resilience.Ignored, stop.VerdictOf(err).Outcome)
	assert.Zero(t, service.StatusOf(err))
}
