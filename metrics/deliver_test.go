package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
)

func TestPush(t *testing.T) {
	type request struct{ method, path, user, password string }
	got := make(chan request, 1)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		got <- request{r.Method, r.URL.Path, user, password}
	}))
	defer gateway.Close()
	address := strings.Replace(gateway.URL, "//", "//job:secret@", 1)
	require.NoError(t, metrics.Push(t.Context(), address, "nightly"))
	assert.Equal(t, request{http.MethodPost, "/metrics/job/nightly", "job", "secret"}, <-got)
}

func TestPushFailureNamesNoPassword(t *testing.T) {
	for _, address := range []string{
		"http://job:secret@127.0.0.1:1", "http://job:secret@host\x7f",
		"http://127.0.0.1:1/?key=secret", "http://127.0.0.1:1/#secret",
	} {
		err := metrics.Push(t.Context(), address, "nightly")
		var failed *metrics.DeliveryError
		require.ErrorAs(t, err, &failed, address)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestWriteTextfile(t *testing.T) {
	path := t.TempDir() + "/ingest.prom"
	require.NoError(t, metrics.WriteTextfile(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), `circuit_breaker_state{upstream="milvus"} 0`)
	var failed *metrics.DeliveryError
	require.ErrorAs(t, metrics.WriteTextfile(path+"/x.prom"), &failed)
}
