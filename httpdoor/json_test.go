package httpdoor_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
)

type verdict struct {
	Valid bool   `json:"valid"`
	Name  string `json:"name"`
}

func ask[T any](s *service) (T, error) {
	return httpdoor.JSON[T](s.Context(), s.client, s.request(s.Context()))
}

// speak answers every request like this.
func speak(t *testing.T, code int, kind, body string) *service {
	return newService(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}, func(c *httpdoor.Config) { c.MaxBody = 1000 })
}

func TestJSONReadsWhatWasAskedFor(t *testing.T) {
	for _, kind := range []string{
		"application/json", "application/json; charset=utf-8", "application/problem+json", "text/plain", "",
	} {
		s := speak(t, 200, kind, ` {"valid":true,"name":"x","more":1} `)
		got, err := ask[verdict](s)
		require.NoError(t, err, kind)
		assert.Equal(t, verdict{true, "x"}, got)
		want(t, s.breaker, "successes 1")
	}
	pointer, err := ask[*verdict](speak(t, 201, "application/json", "null"))
	require.NoError(t, err)
	assert.Nil(t, pointer)
	all, err := ask[map[string]any](speak(t, 200, "application/json", `{"error":"kept","n":1}`))
	require.NoError(t, err)
	assert.Equal(t, "kept", all["error"])
	own, err := ask[struct {
		Error string `json:"error"`
	}](speak(t, 200, "application/json", `{"error":"kept"}`))
	require.NoError(t, err)
	assert.Equal(t, "kept", own.Error)
}

func TestJSONThatWasNotAskedForIsAFailure(t *testing.T) {
	for name, row := range map[string]struct{ kind, body string }{
		"page":               {"text/html; charset=utf-8", "<html>sign in</html>"},
		"page called JSON":   {"application/json", "<html>sign in</html>"},
		"no type":            {"", "<html>sign in</html>"},
		"broken type":        {"application/", "{}"},
		"nothing":            {"application/json", ""},
		"white space":        {"application/json", " \n"},
		"null":               {"application/json", "null"},
		"half":               {"application/json", `{"valid":tr`},
		"two values":         {"application/json", `{"valid":true}{}`},
		"a list":             {"application/json", `[]`},
		"another type":       {"application/json", `{"valid":"yes"}`},
		"an error":           {"application/json", `{"error":{"message":"gone"}}`},
		"an error, then":     {"application/json", `{"valid":false,"error":"gone"}`},
		"errors":             {"application/json", `{"errors":["gone"],"data":null}`},
		"too long":           {"application/json", `{"name":"` + strings.Repeat("x", 1000) + `"}`},
		"spaces without end": {"application/json", strings.Repeat(" ", 5000) + "{}"},
	} {
		s := speak(t, 200, row.kind, row.body)
		_, err := ask[verdict](s)
		var contract *httpdoor.ContractError
		require.ErrorAs(t, err, &contract, name)
		assert.Equal(t, http.MethodGet, contract.Method)
		assert.Contains(t, err.Error(), s.URL, name)
		want(t, s.breaker, "failures 1")
	}
	for _, body := range []string{
		`{"error":null,"valid":true}`, `{"error":"","valid":true}`, `{"errors":[],"valid":true}`,
	} {
		_, err := ask[verdict](speak(t, 200, "application/json", body))
		require.NoError(t, err, body)
	}
}

func TestJSONOfAnotherStatus(t *testing.T) {
	for code, totals := range map[int]string{
		404: "successes 1", 403: "ignored 1", 401: "denied 1", 429: "throttled 1", 500: "failures 1",
		304: "successes 1",
	} {
		s := speak(t, code, "application/json", "{\"why\":\n \"gone\"}"+strings.Repeat("x", 2000))
		_, err := ask[verdict](s)
		failed, ok := errors.AsType[*httpdoor.StatusError](err)
		require.True(t, ok, "%d: %v", code, err)
		assert.Equal(t, code, failed.StatusCode)
		assert.LessOrEqual(t, len(failed.Body), 1000)
		if code != http.StatusNotModified {
			assert.ErrorContains(t, err, fmt.Sprint(code, " ", http.StatusText(code), `: {"why": "gone"}`))
		}
		want(t, s.breaker, totals)
	}
}

func TestDoAndJSONNeedAGuardedClient(t *testing.T) {
	for _, client := range []*http.Client{nil, {}, http.DefaultClient, {Transport: http.DefaultTransport}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service", nil)
		require.NoError(t, err)
		_, err = httpdoor.Do(t.Context(), client, r) //nolint:bodyclose // it has no response
		var config *httpdoor.ConfigError
		require.ErrorAs(t, err, &config)
		_, err = httpdoor.JSON[verdict](t.Context(), client, r)
		require.ErrorAs(t, err, &config)
	}
}

func TestJSONIsOneCallAndAsksForJSON(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		fmt.Fprintf(w, `{"valid":true,"name":%q}`, r.Header.Get("Accept"))
	})
	r := s.request(t.Context())
	got, err := httpdoor.JSON[verdict](t.Context(), s.client, r)
	require.NoError(t, err)
	assert.Equal(t, verdict{true, "application/json"}, got)
	assert.Empty(t, r.Header, "the caller's request stays as it is")
	want(t, s.breaker, "successes 1")
	assert.EqualValues(t, 2, s.seen.Load())
	s.breaker.Trip("drill")
	_, err = httpdoor.JSON[verdict](t.Context(), s.client, s.request(t.Context()))
	require.ErrorIs(t, err, resilience.ErrOpen)
}
