package llm_test

import (
	"context"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// newProxy stands between a client and the server at base, and spoils the network on command.
func newProxy(t *testing.T, base string) (proxy *toxiproxy.Proxy, url string) {
	target := parse(t, base)
	proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "llm", "127.0.0.1:0", target.Host)
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return proxy, "http://" + proxy.Listen + target.Path
}

func parse(t *testing.T, base string) *url.URL {
	u, err := url.Parse(base)
	require.NoError(t, err)
	return u
}

// gauge is what Prometheus sees of a breaker.
func gauge(t *testing.T, upstream string) string {
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	_, after, found := strings.Cut(w.Body.String(), `circuit_breaker_state{upstream="`+upstream+`"} `)
	require.True(t, found)
	value, _, _ := strings.Cut(after, "\n")
	return value
}

func TestImportingTheDoorMakesTheGauge(t *testing.T) {
	assert.Equal(t, "0", gauge(t, "llm"))
}

// What a network does to the real server: five failures open, refusals, one probe, and the gauge at each step.
func TestRealServerBehindABadNetwork(t *testing.T) {
	proxy, base := newProxy(t, upstreams.Llama(t))
	// A client for each good call: a connection that has lived through a fault is not what is tested.
	patient := func() *openai.Client { return newClient(t, llm.Config{BaseURL: base}) }
	hasty := newClient(t, llm.Config{BaseURL: base, Timeout: 300 * time.Millisecond})
	for _, toxic := range []struct{ name, json string }{
		{"latency beyond the timeout", `{"type":"latency","attributes":{"latency":1000}}`},
		{"reset", `{"type":"reset_peer","attributes":{"timeout":0}}`},
		{"half-open, nothing comes back", `{"type":"timeout","attributes":{"timeout":0}}`},
		{"half-open, nothing arrives", `{"type":"timeout","stream":"upstream","attributes":{"timeout":0}}`},
		{"cut in the middle of the answer", `{"type":"limit_data","attributes":{"bytes":60}}`},
	} {
		t.Run(toxic.name, func(t *testing.T) {
			clock := testutil.NewClock()
			upstream := "llm drill: " + toxic.name
			guard := llm.Guard{Breaker: resilience.Default.MustRegister(upstream, resilience.Config{Clock: clock})}
			call := func(client *openai.Client) error {
				_, err := guard.CreateEmbeddings(t.Context(), client, openai.EmbeddingRequestStrings{Model: "any", Input: []string{"a"}})
				return err
			}
			require.NoError(t, call(patient()))
			assert.Equal(t, "0", gauge(t, upstream))
			wrapper, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic.json))
			require.NoError(t, err)
			for range 5 {
				require.NotErrorIs(t, call(hasty), resilience.ErrOpen)
			}
			assert.Equal(t, "2", gauge(t, upstream))
			require.ErrorIs(t, call(hasty), resilience.ErrOpen)
			clock.Advance(guard.Breaker.Config().ResetTimeout)
			assert.Equal(t, "1", gauge(t, upstream))
			require.NoError(t, proxy.Toxics.RemoveToxic(context.Background(), wrapper.Name))
			require.NoError(t, call(patient()))
			assert.Equal(t, "0", gauge(t, upstream))
			s := guard.Breaker.Snapshot()
			assert.Equal(t, [4]uint64{5, 2, 1, 1}, [4]uint64{s.Failures, s.Successes, s.Rejected, s.Opened})
		})
	}
}
