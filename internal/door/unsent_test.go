package door_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door"
)

// net/http's own words are what Unsent goes by: a release that changes them
// fails here.
func TestUnsentKnowsWhatNetHTTPRefuses(t *testing.T) {
	arrived := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived++ }))
	defer server.Close()
	badProxy := http.Transport{Proxy: func(*http.Request) (*url.URL, error) {
		return nil, fmt.Errorf("invalid proxy address %q: missing host", "::")
	}}
	for name, change := range map[string]func(*http.Request, *http.Client){
		"value":      func(r *http.Request, _ *http.Client) { r.Header.Set("Authorization", "Bearer a\n") },
		"name":       func(r *http.Request, _ *http.Client) { r.Header["a b"] = []string{"x"} },
		"trailer":    func(r *http.Request, _ *http.Client) { r.Trailer = http.Header{"A": {"\x00"}} },
		"method":     func(r *http.Request, _ *http.Client) { r.Method = "GET IT" },
		"scheme":     func(r *http.Request, _ *http.Client) { r.URL.Scheme = "ftp" },
		"host":       func(r *http.Request, _ *http.Client) { r.URL.Host = "" },
		"path":       func(r *http.Request, _ *http.Client) { r.URL.Opaque = "//" + r.URL.Host + "/a\x01" },
		"no URL":     func(r *http.Request, _ *http.Client) { r.URL = nil },
		"requestURI": func(r *http.Request, _ *http.Client) { r.RequestURI = "/" },
		"length":     func(r *http.Request, _ *http.Client) { r.ContentLength = 5 },
		"proxy":      func(_ *http.Request, c *http.Client) { c.Transport = &badProxy },
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		client := &http.Client{Transport: &http.Transport{}}
		change(request, client)
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		require.Error(t, err, name)
		assert.True(t, door.Unsent(err), "%s: %v", name, err)
		assert.True(t, door.Unsent(fmt.Errorf("operation: %w", err)), name)
	}
	_, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a\n", nil)
	assert.True(t, door.Unsent(err), "%v", err)
	assert.Zero(t, arrived)
}

func TestWhatWentOutIsNotUnsent(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := http.Get(server.URL)
	require.Error(t, err)
	for _, err := range []error{
		nil, err, io.ErrUnexpectedEOF, context.DeadlineExceeded,
		errors.New("the server says: net/http: invalid header field "), &url.Error{Op: "Get", Err: io.EOF},
	} {
		assert.False(t, door.Unsent(err), "%v", err)
	}
}
