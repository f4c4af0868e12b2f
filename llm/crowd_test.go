package llm_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func TestThousandCallersShareAClientThroughAnOutage(t *testing.T) {
	upstream, clock := testutil.NewFaultyServer(t, llmtest.NewHandler(llmtest.Options{})), testutil.NewClock()
	client, guard := newClient(
		t,
		llm.Config{BaseURL: upstream.URL() + "/v1"},
	), newGuard(
		resilience.Config{Clock: clock},
	)
	testutil.Crowd{
		N: 1000, Breaker: guard.Breaker, Clock: clock,
		Call: func() error {
			_, err := guard.CreateChatCompletion(t.Context(), client, ask("one two"))
			return err
		},
		Fail: func() { upstream.Always(testutil.Status(500)) },
		Heal: func(release <-chan struct{}) {
			upstream.Always(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				<-release
				next.ServeHTTP(w, r)
			})
		},
		Seen: func() int { return upstream.Count("") },
	}.ThroughAnOutage(t)
}

func TestLimiterSendsFiveDoomedCallsOfAThousand(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Status(500)))
	client, guard := newClient(t, llm.Config{BaseURL: s.URL}), newGuard(resilience.Config{})
	limiter, err := inflight.New(guard.Breaker, 0)
	require.NoError(t, err)
	for i := range operations(guard, client) {
		guard.Breaker.Reset()
		before := s.Stats().Requests
		call := operations(llm.Guard{InFlight: limiter}, client)[i]
		for _, err := range testutil.Stampede(1000, func() error { return call.do(t.Context()) }) {
			require.Error(t, err)
		}
		assert.Equal(t, 5, s.Stats().Requests-before, call.name)
	}
}

func TestThousandCallersWhileTheServerDies(t *testing.T) {
	upstream := testutil.NewFaultyServer(t, llmtest.NewHandler(llmtest.Options{}))
	client := newClient(t, llm.Config{BaseURL: upstream.URL() + "/v1"})
	guard := newGuard(resilience.Config{ResetTimeout: 20 * time.Millisecond, ProbeTimeout: time.Minute})
	calls, next := operations(guard, client), atomic.Int64{}
	testutil.Crowd{
		N: 1000, Breaker: guard.Breaker,
		Call: func() error { return calls[next.Add(1)%4].do(t.Context()) },
		Fail: func() { upstream.Always(testutil.Reset()) },
		Heal: func(<-chan struct{}) { upstream.Recover() },
		Seen: func() int { return upstream.Count("") },
	}.WhileItFlaps(t, 5)
}
