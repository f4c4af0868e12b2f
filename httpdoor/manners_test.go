package httpdoor_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// endless serves bodies that are begun and not ended, over HTTP/1 or 2.
func endless(t *testing.T, two bool) (*http.Client, *resilience.Breaker, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // else it would read the request first
		_, _ = io.WriteString(w, "begun")
		_ = control.Flush()
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	}))
	server.EnableHTTP2 = two
	server.StartTLS()
	t.Cleanup(server.Close)
	b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
	client := server.Client()
	client.Transport = httpdoor.Transport(client.Transport, httpdoor.Config{Breaker: b})
	t.Cleanup(client.CloseIdleConnections)
	return client, b, server.URL
}

// within fails the test if fn hangs.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.FailNow(t, what+" hangs")
	}
}

// Closing is how another goroutine ends a Read: it hung over HTTP/2, and was a
// failure.
func TestCloseBesideAReadEndsItAndSaysNothing(t *testing.T) {
	for _, two := range []bool{false, true} {
		client, b, url := endless(t, two)
		for range 5 {
			resp, err := client.Get(url)
			require.NoError(t, err)
			first := make([]byte, 5)
			_, err = io.ReadFull(resp.Body, first)
			require.NoError(t, err)
			reading := make(chan error)
			go func() {
				for {
					if _, err := resp.Body.Read(first); err != nil {
						reading <- err
						return
					}
				}
			}()
			within(t, "Close", func() { assert.NoError(t, resp.Body.Close()) })
			within(t, "Read", func() { assert.Error(t, <-reading) })
		}
		want(t, b, "ignored 5")
	}
}

// A request whose body is still being written does not hold its response.
func TestCloseOfAResponseWhoseRequestIsNotEnded(t *testing.T) {
	for _, two := range []bool{false, true} {
		client, b, url := endless(t, two)
		body, writer := io.Pipe()
		resp, err := client.Post(url, "text/plain", body)
		require.NoError(t, err)
		within(t, "Close", func() { assert.NoError(t, resp.Body.Close()) })
		require.NoError(t, writer.Close())
		want(t, b, "ignored 1")
	}
}

// What the caller's own reader says is not the service's, so that strangers
// cannot open the breaker of a proxy.
func TestCallersReaderIsNoFailure(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK)
	})
	closed, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for name, send := range map[string]struct {
		body   func() io.Reader
		length int64
	}{
		"a reader that fails": {func() io.Reader {
			return io.MultiReader(strings.NewReader("text"), readerFunc(func([]byte) (int, error) {
				return 0, errors.New("the disk is gone")
			}))
		}, -1},
		"a closed file":    {func() io.Reader { return closed }, -1},
		"another length":   {func() io.Reader { return strings.NewReader("text") }, 3},
		"too short a body": {func() io.Reader { return struct{ io.Reader }{strings.NewReader("text")} }, 9},
	} {
		before := s.breaker.Snapshot()
		for range 5 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, send.body())
			require.NoError(t, err)
			r.ContentLength = send.length
			resp, err := s.client.Do(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			require.Error(t, err, name)
		}
		assert.Equal(t, before.Failures, s.breaker.Snapshot().Failures, name)
		assert.Equal(t, before.Ignored+5, s.breaker.Snapshot().Ignored, name)
	}
}

// A reader that is closed because the service has gone may say anything.
func TestReaderThatIsClosedByAFailureIsNoneOfIt(t *testing.T) {
	b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
	gone := roundTripper(func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		_, _ = r.Body.Read(make([]byte, 1))
		return nil, errors.New("connection reset")
	})
	transport := httpdoor.Transport(gone, httpdoor.Config{Breaker: b})
	body, _ := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service", body)
	require.NoError(t, err)
	_, err = transport.RoundTrip(r) //nolint:bodyclose // it has no response
	require.ErrorContains(t, err, "connection reset")
	want(t, b, "failures 1")
}

// A proxy over a guarded transport: uploads that its own limit refuses.
func TestProxysOwnLimitIsNoFailure(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK)
	})
	target, err := url.Parse(s.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.ErrorHandler = s.client.Transport, func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.WriteHeader(http.StatusBadGateway)
	}
	front := httptest.NewServer(http.MaxBytesHandler(proxy, 10))
	defer front.Close()
	for range 6 {
		resp, err := http.Post(front.URL, "text/plain", strings.NewReader(strings.Repeat("x", 1000)))
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	assert.Zero(t, s.breaker.Snapshot().Failures)
	assert.Equal(t, resilience.Closed, s.breaker.State())
}

// A response has its caller's request, which can be sent again.
func TestResponseHasTheCallersRequest(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	})
	r := s.request(t.Context())
	resp, err := s.client.Transport.RoundTrip(r)
	require.NoError(t, err)
	readAll(resp, nil)
	assert.Same(t, r, resp.Request)
	resp, err = httpdoor.Do(t.Context(), s.client, s.request(t.Context()))
	require.NoError(t, err)
	readAll(resp, nil)
	assert.Equal(t, "/there", resp.Request.URL.Path)
	calls := s.breaker.Snapshot().Calls
	again, err := s.client.Do(resp.Request.Clone(resp.Request.Context()))
	require.NoError(t, err)
	readAll(again, nil)
	assert.Equal(t, calls+1, s.breaker.Snapshot().Calls, "and is a call of its own")
}

// The two halves of a switched connection end one by one.
func TestUpgradesKeepCloseWrite(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		_ = rw.Flush()
		text, _ := io.ReadAll(rw)
		_, _ = io.WriteString(conn, strings.ToUpper(string(text)))
	})
	r := s.request(t.Context())
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "sum")
	resp, err := s.client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.WriteString(resp.Body.(io.Writer), "text")
	require.NoError(t, err)
	half, ok := resp.Body.(interface{ CloseWrite() error })
	require.True(t, ok)
	require.NoError(t, half.CloseWrite())
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "TEXT", string(answer))
}

func TestCallersOwnRulesAreNoFailures(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/there", http.StatusFound) })
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("not there") }
	for range 5 {
		_, err := httpdoor.Do(t.Context(), s.client, s.request(t.Context())) //nolint:bodyclose // it is closed
		require.ErrorContains(t, err, "not there")
	}
	want(t, s.breaker, "ignored 5")

	s = newService(t, status(422, "Content-Type", "text/plain"), func(c *httpdoor.Config) {
		c.Validate = func(r *http.Response) error {
			if r.Header.Get("Content-Type") != "application/json" {
				return errors.New("no JSON")
			}
			return nil
		}
	})
	code, text, err := s.get()
	require.NoError(t, err, "Validate looks at 2xx")
	assert.Equal(t, 422, code)
	assert.Equal(t, "Unprocessable Entity", text)
	want(t, s.breaker, "successes 1")
}

// Code of the caller's that panics leaves nothing open, and a base that breaks
// the rules no nil pointer.
func TestWhatBreaksTheRules(t *testing.T) {
	body := &closing{Reader: strings.NewReader("text")}
	b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
	answers := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}, nil
	}
	bug := func(context.Context, *http.Response, error) resilience.Verdict { panic("bug") }
	transport := httpdoor.Transport(roundTripper(answers), httpdoor.Config{Breaker: b, Classify: bug})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service", nil)
	require.NoError(t, err)
	assert.PanicsWithValue(t, "bug", func() { _, _ = transport.RoundTrip(r) }) //nolint:bodyclose // it is closed
	assert.Positive(t, body.closed.Load(), "the response's")

	sent := &closing{Reader: strings.NewReader("text")}
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service", sent)
	require.NoError(t, err)
	picks := httpdoor.Transport(nil, httpdoor.Config{Pick: func(*http.Request) *resilience.Breaker { panic("bug") }})
	assert.PanicsWithValue(t, "bug", func() { _, _ = picks.RoundTrip(post) }) //nolint:bodyclose // it has none
	assert.Positive(t, sent.closed.Load(), "the request's")

	nothing := func(*http.Request) (*http.Response, error) { return nil, nil }
	client := &http.Client{Transport: httpdoor.Transport(roundTripper(nothing), httpdoor.Config{Breaker: b})}
	_, err = client.Do(r) //nolint:bodyclose // it has none
	require.Error(t, err)
	_, err = httpdoor.Do(t.Context(), client, nil) //nolint:bodyclose // it has none
	require.ErrorAs(t, err, new(*httpdoor.ConfigError))
	_, err = httpdoor.JSON[any](t.Context(), client, nil)
	require.ErrorAs(t, err, new(*httpdoor.ConfigError))
}

func TestJSONOfServersThatAreSloppy(t *testing.T) {
	for _, kind := range []string{"application/json; charset", "Application/JSON;", "application/vnd.x+json; =;"} {
		_, err := ask[verdict](speak(t, 200, kind, `{"valid":true}`))
		require.NoError(t, err, kind)
	}
	for _, body := range []string{
		`{"error":0,"valid":true}`, `{"error":{ },"valid":true}`, `{"error":{"code":0,"message":""},"valid":true}`,
	} {
		_, err := ask[verdict](speak(t, 200, "application/json", body))
		require.NoError(t, err, body)
	}
	_, err := ask[verdict](speak(t, 200, "application/json", `{"Error":"gone"}`))
	require.ErrorAs(t, err, new(*httpdoor.ContractError))
}
