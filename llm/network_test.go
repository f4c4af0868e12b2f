package llm_test

import (
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/internal/upstreams/network"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

func TestImportingTheDoorMakesTheGauge(t *testing.T) {
	page := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	assert.Contains(t, page.Body.String(), `circuit_breaker_state{upstream="llm"} 0`)
}

// embedding is a call that the real server answers at once.
func embedding(t *testing.T, b *resilience.Breaker, client *openai.Client) func() error {
	return func() error {
		request := openai.EmbeddingRequestStrings{Model: "any", Input: []string{"a"}}
		_, err := llm.Guard{Breaker: b}.CreateEmbeddings(t.Context(), client, request)
		return err
	}
}

// What a network does to the real server.
func TestRealServerBehindABadNetwork(t *testing.T) {
	direct, err := url.Parse(upstreams.Llama(t))
	require.NoError(t, err)
	for name, toxic := range map[string]string{
		"latency beyond the timeout":      `{"type":"latency","attributes":{"latency":1000}}`,
		"reset":                           `{"type":"reset_peer","attributes":{"timeout":0}}`,
		"half-open, nothing comes back":   `{"type":"timeout","attributes":{"timeout":0}}`,
		"half-open, nothing arrives":      `{"type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		"cut in the middle of the answer": `{"type":"limit_data","attributes":{"bytes":60}}`,
	} {
		t.Run(name, func(t *testing.T) {
			spoilt, d := network.New(t, direct.Host), doortest.NewDrill(t)
			base := "http://" + spoilt.Addr() + direct.Path
			patient := embedding(t, d.Breaker, newClient(t, llm.Config{BaseURL: base}))
			require.NoError(t, patient())
			spoilt.Set(toxic)
			hasty := embedding(t, d.Breaker, newClient(t, llm.Config{BaseURL: base, Timeout: 300 * time.Millisecond}))
			d.Opens(hasty, nil)
			spoilt.Set("")
			d.Closes(patient, 0)
		})
	}
}
