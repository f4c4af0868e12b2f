package llm_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

// Each call failed before anything was sent, which counts as nothing: nobody
// heard of it.
func TestAddressThatCannotBeReachedIsAnErrorOfTheConfiguration(t *testing.T) {
	for base, ok := range map[string]bool{
		"http://host:99999/v1": false, "http://host:65536/v1": false, "http://host:0/v1": false,
		"https://host:00099999/v1": false, "http://[::1]:99999/v1": false, "http://:8080/v1": false,
		"http://:/v1": false, "http://host:-1/v1": false, "http://host:http/v1": false,
		"http://ho<st/v1": false, "http://ho\"st/v1": false, "http://xn--\u00fc/v1": false,
		"http://host:65535/v1": true, "http://host:1": true, "http://host:/v1": true, "http://[::1]:8080/v1": true,
		"http://[fe80::1%25eth0]:8080/v1": true, "http://b\u00fccher.example/v1": true, "http://my_host:80/v1": true,
		"https://10.0.0.1/v1": true,
	} {
		_, err := llm.NewClient(llm.Config{BaseURL: base})
		assert.Equal(t, ok, err == nil, "%q: %v", base, err)
		t.Run(base, func(t *testing.T) {
			t.Setenv("OPENAI_BASE_URL", base)
			_, err := llm.NewClient(llm.Config{})
			assert.Equal(t, ok, err == nil, "%q: %v", base, err)
		})
	}
}

// A key that was copied with its scheme was sent as "Bearer Bearer sk-…".
func TestKeyIsTakenWithoutItsScheme(t *testing.T) {
	var sent string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	for key, want := range map[string]string{
		"sk-of-this-test": "Bearer sk-of-this-test", "Bearer sk-of-this-test": "Bearer sk-of-this-test",
		"bearer sk-of-this-test\n": "Bearer sk-of-this-test", "BEARER   sk-of-this-test": "Bearer sk-of-this-test",
		"Bearer Bearer sk-of-this-test":         "Bearer sk-of-this-test",
		"Authorization: Bearer sk-of-this-test": "Bearer sk-of-this-test",
		"authorization:bearer sk-of-this-test":  "Bearer sk-of-this-test",
		"bearer-of-this-test":                   "Bearer bearer-of-this-test",
		"Bearer \u00a0sk-of-this-test":          "Bearer sk-of-this-test",
	} {
		_, err := newClient(t, llm.Config{BaseURL: s.URL, APIKey: key}).ListModels(t.Context())
		require.Error(t, err)
		assert.Equal(t, want, sent, "%q", key)
	}
	for _, key := range []string{"Bearer", " bearer \n", "Authorization: Bearer", "Bearer Bearer"} {
		_, err := llm.NewClient(llm.Config{BaseURL: s.URL, APIKey: key})
		require.ErrorContains(t, err, "APIKey", "%q", key)
		t.Run(key, func(t *testing.T) {
			t.Setenv("OPENAI_API_KEY", key)
			_, err := llm.NewClient(llm.Config{BaseURL: s.URL})
			require.ErrorContains(t, err, "OPENAI_API_KEY", "%q", key)
		})
	}
}

// A server says back the key without the scheme that was sent before it.
func TestKeyIsMaskedWithoutItsScheme(t *testing.T) {
	const key = "sk-of-this-test"
	url := hostile.Serve(t, keyed("401 No", "", `{"error":{"message":"bad KEY"}}`, key))
	for _, before := range []string{"Bearer ", "bearer  ", "Basic ", "Bearer Bearer ", ""} {
		httpClient, err := llm.NewHTTPClient(llm.Config{Breaker: newGuard(resilience.Config{}).Breaker})
		require.NoError(t, err)
		cfg := openai.DefaultConfig(before + key)
		cfg.BaseURL, cfg.HTTPClient = url, httpClient
		guard := newGuard(resilience.Config{})
		leaks(t, guard, key, operations(guard, openai.NewClientWithConfig(cfg))[0].do(t.Context()))
	}
}
