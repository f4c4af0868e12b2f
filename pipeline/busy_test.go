package pipeline_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// inProcess sends requests to a handler without a network.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	p.handler.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// plainClient is a client of the SDK's own making, with nothing of package llm.
func plainClient(baseURL string, transport http.RoundTripper) *openai.Client {
	config := openai.DefaultConfig("key")
	config.BaseURL, config.HTTPClient = baseURL, &http.Client{Transport: transport}
	return openai.NewClientWithConfig(config)
}

// newBusyWorld is a world whose model server is in the same process, for time
// that passes at once, and is called through a plain client.
func newBusyWorld(t *testing.T) (*world, *llmtest.Handler) {
	t.Helper()
	w, model := newStillWorld(t), llmtest.NewHandler(llmtest.Options{})
	w.config.Embeddings = plainClient("http://model.test/v1", inProcess{model})
	return w, model
}

// busyFor is an answer that says for how long the server has no time.
func busyFor(status int, wait time.Duration, asDate bool) llmtest.Fault {
	header := http.Header{"Retry-After": {fmt.Sprint(wait.Seconds())}}
	if asDate {
		now := time.Now().UTC()
		header = http.Header{
			"Date": {now.Format(http.TimeFormat)}, "Retry-After": {now.Add(wait).Format(http.TimeFormat)},
		}
	}
	return llmtest.Fault{Status: status, Header: header}
}

// busy are the ways of a server to say that it has no time now.
func busy(yield func(name string, fault func(wait time.Duration) llmtest.Fault) bool) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, 529} {
		for _, asDate := range []bool{false, true} {
			fault := func(wait time.Duration) llmtest.Fault { return busyFor(status, wait, asDate) }
			if !yield(fmt.Sprintf("%d, as a date %t", status, asDate), fault) {
				return
			}
		}
	}
}

// requireWaitedOut runs a pipeline over a corpus that it ingests to the last
// document.
func requireWaitedOut(t *testing.T, w *world, change ...func(*pipeline.Config)) {
	t.Helper()
	const documents = 10
	w.corpus(documents)
	summary, err := w.run(change...)
	require.NoError(t, err)
	assert.Equal(t, documents, summary.Ingested)
	breaker := w.config.LLMGuard.Breaker.Snapshot()
	assert.Equal(t, resilience.Closed, breaker.State)
	assert.Zero(t, breaker.Opened, "it was busy, not down")
	w.requireComplete(documents)
}

// A model server that is busy for a moment and says so is waited for. Fewer
// answers in a row than open the breaker cost nothing but the wait.
func TestBusyServerIsWaitedOut(t *testing.T) {
	for name, fault := range busy {
		for batch, items := range map[string]int{"one batch": 0, "a batch a text": 1} {
			t.Run(name+", "+batch, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, model := newBusyWorld(t)
					model.Script(llmtest.Rule{First: 2, Last: 5, Fault: fault(time.Second)})
					requireWaitedOut(t, w, func(c *pipeline.Config) { c.Batch.Items = items })
				})
			})
		}
	}
}

// The same over a network and through the client of package llm. The batches
// wait side by side.
func TestBusyServerIsWaitedOutByOurClient(t *testing.T) {
	for name, fault := range busy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, llmtest.Options{})
			w.model.Script(llmtest.Rule{First: 2, Last: 5, Fault: fault(time.Second)})
			requireWaitedOut(t, w, func(c *pipeline.Config) { c.Batch.Items = 1 })
		})
	}
}

// Rate limits never open a breaker, however many come in a row.
func TestManyRateLimitsAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, model := newBusyWorld(t)
		fault := busyFor(http.StatusTooManyRequests, time.Second, false)
		model.Script(llmtest.Rule{First: 2, Last: 9, Fault: fault})
		requireWaitedOut(t, w)
	})
}

// A server that always asks for a second is down: FailMax requests show that.
func TestServerThatIsBusyForEver(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, 529} {
		for batch, items := range map[string]int{"one batch": 0, "a batch a text": 1} {
			t.Run(fmt.Sprint(status, ", ", batch), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, model := newBusyWorld(t)
					w.corpus(10)
					model.Script(llmtest.From(2, busyFor(status, time.Second, false)))
					began := time.Now()
					summary, err := w.run(func(c *pipeline.Config) { c.Batch.Items = items })
					stop := stopOf(t, err)
					policy := w.config.LLMGuard.Breaker.Config()
					assert.Equal(t, pipeline.StopDeferred, stop.Kind)
					assert.Equal(t, "llm", stop.Upstream)
					assert.Equal(t, 1+policy.FailMax, model.Stats().Requests)
					assert.Equal(t, resilience.Open, w.config.LLMGuard.Breaker.State())
					assert.Equal(t, "open", summary.Breakers["llm"])
					assert.False(t, stop.RetryAt.Before(began.Add(policy.ResetTimeout)), stop.RetryAt)
					assert.Zero(t, summary.DeadLetters)
					assert.Equal(t, 10, summary.Ingested+summary.Deferred)
				})
			})
		}
	}
}
