package httpdoor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/hostile"
)

func TestResponsesAreReturnedAsTheyAreAndCounted(t *testing.T) {
	for code, totals := range map[int]string{
		200: "successes 1", 304: "successes 1", 404: "successes 1", 400: "successes 1", 403: "ignored 1",
		401: "denied 1", 429: "throttled 1", 500: "failures 1", 503: "failures 1", 501: "successes 1",
	} {
		s := newService(t, status(code))
		got, body, err := s.get()
		require.NoError(t, err)
		assert.Equal(t, code, got)
		if code != http.StatusNotModified {
			assert.Equal(t, http.StatusText(code), body)
		}
		want(t, s.breaker, totals)
	}
}

func TestOpenBreakerSendsNothing(t *testing.T) {
	s := newService(t, status(503))
	for range 5 {
		code, _, err := s.get()
		require.NoError(t, err)
		assert.Equal(t, 503, code)
	}
	for range 3 {
		_, _, err := s.get()
		var open *resilience.OpenError
		require.ErrorAs(t, err, &open)
		assert.ErrorContains(t, open.LastFailure(), "503 Service Unavailable")
		var client *url.Error
		require.ErrorAs(t, err, &client)
		assert.False(t, client.Timeout())
		assert.False(t, client.Temporary())
	}
	assert.EqualValues(t, 5, s.seen.Load())
	want(t, s.breaker, "failures 5, rejected 3")
}

// closing is a request's body that counts its closes.
type closing struct {
	io.Reader
	closed atomic.Int64
}

func (c *closing) Close() error { c.closed.Add(1); return nil }

// Rules of http.RoundTripper: the body is closed whatever happens, and the
// request stays as it was.
func TestRequestsBodyIsClosedAndTheRequestUnchanged(t *testing.T) {
	tripped := testutil.NewBreaker(t, "tripped", resilience.Config{Logger: quiet()})
	tripped.Trip("drill")
	fine := testutil.NewBreaker(t, "fine", resilience.Config{Logger: quiet()})
	server := httptest.NewServer(status(200))
	defer server.Close()
	down := roundTripper(func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		return nil, errors.New("down")
	})
	none := func(*http.Request) *resilience.Breaker { return nil }
	invalid := func(*http.Response) error { return io.EOF }
	for name, row := range map[string]struct {
		base   http.RoundTripper
		config httpdoor.Config
		header string
		fails  bool
	}{
		"well":          {nil, httpdoor.Config{Breaker: fine}, "x", false},
		"refused":       {nil, httpdoor.Config{Breaker: tripped}, "x", true},
		"unsent":        {nil, httpdoor.Config{Breaker: fine}, "a\nb", true},
		"down":          {down, httpdoor.Config{Breaker: fine}, "x", true},
		"no breaker":    {nil, httpdoor.Config{}, "x", true},
		"none picked":   {nil, httpdoor.Config{Pick: none}, "x", true},
		"two breakers":  {nil, httpdoor.Config{Breaker: fine, Pick: none}, "x", true},
		"its own error": {nil, httpdoor.Config{Breaker: fine, Validate: invalid}, "x", true},
	} {
		body := &closing{Reader: strings.NewReader("text")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
		require.NoError(t, err)
		r.Header.Set("X-Field", row.header)
		before := *r
		header := r.Header.Clone()
		resp, err := httpdoor.Transport(row.base, row.config).RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		assert.Equal(t, row.fails, err != nil, "%s: %v", name, err)
		assert.Positive(t, body.closed.Load(), name)
		assert.Equal(t, header, r.Header, name)
		assert.Equal(t, before.URL, r.URL, name)
		assert.Same(t, body, r.Body, name)
		assert.Equal(t, before.Context(), r.Context(), name)
	}
	assert.EqualValues(t, 1, fine.Snapshot().Ignored, "what was not sent")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The call lasts as long as its body.
func TestBodyDecidesTheOutcome(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
	for name, row := range map[string]struct {
		answer hostile.Answer
		read   func(resp *http.Response, cancel func())
		totals string
	}{
		"whole":      {hostile.Text(head + "0123456789"), readAll, "successes 1"},
		"broken off": {hostile.Text(head + "01234"), readAll, "failures 1"},
		"closed early": {
			hostile.Stalled(head+"01234", nil),
			func(resp *http.Response, _ func()) { _ = resp.Body.Close() }, "ignored 1",
		},
		"decoded": {
			hostile.Text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), decode, "successes 1",
		},
		"decoded, without an end": {
			hostile.Stalled("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", nil), decode, "ignored 1",
		},
		"left by its caller": {
			hostile.Stalled(head+"01234", nil),
			func(resp *http.Response, cancel func()) { cancel(); readAll(resp, cancel) }, "ignored 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
			client := &http.Client{Transport: httpdoor.Transport(&http.Transport{}, httpdoor.Config{Breaker: b})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, hostile.Serve(t, row.answer), nil)
			require.NoError(t, err)
			resp, err := client.Do(r)
			require.NoError(t, err)
			assert.Zero(t, b.Snapshot().Successes, "not before its end")
			row.read(resp, cancel)
			want(t, b, row.totals)
			_ = resp.Body.Close()
			want(t, b, row.totals)
		})
	}
}

func decode(resp *http.Response, _ func()) {
	var v any
	_ = json.NewDecoder(resp.Body).Decode(&v)
	_ = resp.Body.Close()
}

func readAll(resp *http.Response, _ func()) { _, _ = io.Copy(io.Discard, resp.Body) }

// A body that stalls is a failure once its client gives it up.
func TestStalledBodyIsAFailure(t *testing.T) {
	b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
	client := &http.Client{
		Transport: httpdoor.Transport(&http.Transport{}, httpdoor.Config{Breaker: b}), Timeout: 50 * time.Millisecond,
	}
	url := hostile.Serve(t, hostile.Stalled("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01", nil))
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err)
	want(t, b, "failures 1")
}

// probing is a breaker that is due for its probe.
func probing(t *testing.T, clock *testutil.FakeClock) *resilience.Breaker {
	b := testutil.NewBreaker(t, "service", resilience.Config{Clock: clock, Logger: quiet()})
	b.Trip("drill")
	clock.Advance(time.Minute)
	return b
}

// A body that nobody reads or closes gives its slot back.
func TestAbandonedBodyGivesItsSlotBack(t *testing.T) {
	server := httptest.NewServer(status(200))
	defer server.Close()
	for name, abandon := range map[string]func(cancel func()){
		"context": func(cancel func()) { cancel() },
		"garbage": func(func()) { runtime.GC() },
	} {
		b := probing(t, testutil.NewClock())
		client := &http.Client{Transport: httpdoor.Transport(&http.Transport{}, httpdoor.Config{Breaker: b})}
		ctx, cancel := context.WithCancel(t.Context())
		func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			_, err = client.Do(r) //nolint:bodyclose // that is the point
			require.NoError(t, err)
		}()
		require.False(t, b.Ready(), name)
		require.Eventually(t, func() bool { abandon(cancel); return b.Ready() }, 10*time.Second, time.Millisecond, name)
		want(t, b, "ignored 1")
		cancel()
	}
}

// Data that flows keeps a probe, in either direction.
func TestDataRenewsTheLeaseOfAProbe(t *testing.T) {
	clock := testutil.NewClock()
	b := probing(t, clock)
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for range more {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: httpdoor.Transport(&http.Transport{}, httpdoor.Config{Breaker: b})}
	upload := readerFunc(func(p []byte) (int, error) {
		clock.Advance(50 * time.Second)
		if clock.Monotonic() > 6*time.Minute {
			return 0, io.EOF
		}
		p[0] = 'x'
		return 1, nil
	})
	go func() { more <- struct{}{} }()
	resp, err := client.Post(server.URL, "text/plain", upload)
	require.NoError(t, err)
	defer resp.Body.Close()
	one := make([]byte, 1)
	for range 5 {
		_, err = io.ReadFull(resp.Body, one)
		require.NoError(t, err)
		clock.Advance(50 * time.Second)
		go func() { more <- struct{}{} }()
	}
	_, err = io.ReadFull(resp.Body, one)
	require.NoError(t, err)
	close(more)
	_, err = resp.Body.Read(one)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, resilience.Closed, b.State())
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Each hop is a call of the breaker that owns its host, and the body goes with
// it.
func TestRedirectsAreCallsOfTheirOwnHosts(t *testing.T) {
	var got string
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = string(text)
	}))
	defer target.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	family, err := resilience.NewRegistry(resilience.Config{Logger: quiet()}).Keyed("host", resilience.Config{})
	require.NoError(t, err)
	byHost := func(r *http.Request) *resilience.Breaker { return family.Get(r.URL.Host) }
	client := &http.Client{Transport: httpdoor.Transport(&http.Transport{}, httpdoor.Config{Pick: byHost})}
	post := func() (*http.Response, error) {
		return client.Post(first.URL, "text/plain", bytes.NewReader([]byte("text")))
	}

	resp, err := post()
	require.NoError(t, err)
	readAll(resp, nil)
	assert.Equal(t, "text", got)
	host := func(s *httptest.Server) *resilience.Breaker {
		u, err := url.Parse(s.URL)
		require.NoError(t, err)
		return family.Get(u.Host)
	}
	want(t, host(first), "successes 1")
	want(t, host(target), "successes 1")

	host(target).Trip("drill")
	_, err = post() //nolint:bodyclose // it has no response
	require.ErrorIs(t, err, resilience.ErrOpen)
	want(t, host(first), "successes 2")

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, first.URL, strings.NewReader("whole"))
	require.NoError(t, err)
	resp, err = httpdoor.Do(t.Context(), client, r)
	require.NoError(t, err, "as a door, it is one call of the first host's breaker")
	readAll(resp, nil)
	assert.Equal(t, "whole", got)
	want(t, host(first), "successes 3")
	want(t, host(target), "successes 1, rejected 1")
}

// A response that switches to another protocol can be written to.
func TestUpgradesKeepTheirInterfaces(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	r := s.request(t.Context())
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := s.client.Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	both, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(both, "ping")
	require.NoError(t, err)
	text := make([]byte, 4)
	_, err = io.ReadFull(both, text)
	require.NoError(t, err)
	assert.Equal(t, "ping", string(text))
	want(t, s.breaker, "successes 0")
	require.NoError(t, both.Close())
	want(t, s.breaker, "successes 1")
}

// HTTP/2, connections that are used again, trailers.
func TestConnectionsAreReused(t *testing.T) {
	for _, two := range []bool{false, true} {
		var conns atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.Copy(w, r.Body)
			w.Header().Set("X-Sum", "42")
		}))
		server.EnableHTTP2 = two
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns.Add(1)
			}
		}
		server.StartTLS()
		defer server.Close()
		b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
		client := server.Client()
		client.Transport = httpdoor.Transport(client.Transport, httpdoor.Config{Breaker: b})
		for range 20 {
			resp, err := client.Post(server.URL, "text/plain", strings.NewReader("text"))
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, "text", string(text))
			assert.Equal(t, "42", resp.Trailer.Get("X-Sum"))
			assert.Equal(t, two, resp.ProtoMajor == 2)
		}
		assert.EqualValues(t, 1, conns.Load(), "HTTP/2: %v", two)
		want(t, b, "successes 20")
	}
}

// A thousand callers of a service that is down cost it five requests.
func TestThousandCallersOfADeadService(t *testing.T) {
	var limiter *inflight.Limiter
	s := newService(t, status(500), func(c *httpdoor.Config) {
		var err error
		limiter, err = inflight.New(c.Breaker, 0)
		require.NoError(t, err)
		c.Breaker, c.InFlight = nil, limiter
	})
	errs := testutil.Stampede(1000, func() error {
		code, _, err := s.get()
		if err == nil {
			assert.Equal(t, 500, code)
		}
		return err
	})
	refused := 0
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, resilience.ErrOpen)
			refused++
		}
	}
	assert.EqualValues(t, 5, s.seen.Load())
	assert.Equal(t, 995, refused)
}

func TestThousandCallersOfAHealthyService(t *testing.T) {
	s := newService(t, status(200))
	for _, err := range testutil.Stampede(1000, func() error { _, _, err := s.get(); return err }) {
		require.NoError(t, err)
	}
	want(t, s.breaker, "successes 1000")
}

// net/http sends an idempotent request again when a connection that it reuses
// has died: one call.
func TestRepeatedRequestIsOneCall(t *testing.T) {
	dying := true
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/die" && dying {
			dying = false
			panic(http.ErrAbortHandler)
		}
		status(200)(w, r)
	})
	_, _, err := s.get() // there is a connection to reuse
	require.NoError(t, err)
	r := s.request(t.Context())
	r.URL.Path = "/die"
	resp, err := s.client.Do(r)
	require.NoError(t, err)
	readAll(resp, nil)
	assert.EqualValues(t, 3, s.seen.Load())
	want(t, s.breaker, "successes 2")
}

// A client with a breaker below it, in the call of another door: that door's
// admission counts.
func TestCallOfADoorIsNotCountedBelowIt(t *testing.T) {
	s := newService(t, status(200))
	above := testutil.NewBreaker(t, "above", resilience.Config{Logger: quiet()})
	op := door.Op{
		Name: "test", Span: untraced{}, Observe: func(*resilience.Breaker, string, time.Duration) {},
		Classify: func(context.Context, error) resilience.Verdict { return resilience.Verdict{} },
	}
	get := func(ctx context.Context) (*http.Response, error) { return s.client.Do(s.request(ctx)) }
	resp, err := door.Call(t.Context(), door.Guard{Breaker: above}, op, get)
	require.NoError(t, err)
	readAll(resp, nil)
	resp, err = door.Open(t.Context(), door.Guard{Breaker: above}, op,
		func(h *door.Handle) (*http.Response, error) { return get(h.Context()) })
	require.NoError(t, err)
	readAll(resp, nil)
	want(t, above, "successes 2")
	want(t, s.breaker, "successes 0")
	_, _, err = s.get()
	require.NoError(t, err)
	want(t, s.breaker, "successes 1")
}

type untraced struct{}

func (untraced) Start(ctx context.Context, _ *resilience.Breaker) context.Context { return ctx }
func (untraced) End(resilience.Verdict, error)                                    {}
func (untraced) Refuse(error)                                                     {}

func TestOwnClassifierAndValidation(t *testing.T) {
	s := newService(t, status(403), func(c *httpdoor.Config) {
		c.Classify = func(ctx context.Context, r *http.Response, err error) resilience.Verdict {
			if r != nil && r.StatusCode == http.StatusForbidden {
				return resilience.Verdict{Outcome: resilience.Denied}
			}
			return httpdoor.Classify(ctx, r, err)
		}
	})
	_, _, err := s.get()
	require.NoError(t, err)
	want(t, s.breaker, "denied 1")

	var told []resilience.Outcome
	s = newService(t, status(200, "Content-Type", "text/html"), func(c *httpdoor.Config) {
		c.Settled = func(v resilience.Verdict) { told = append(told, v.Outcome) }
		c.Validate = func(r *http.Response) error {
			if r.Header.Get("Content-Type") == "text/html" {
				return errors.New("a page")
			}
			return nil
		}
	})
	_, _, err = s.get()
	var contract *httpdoor.ContractError
	require.ErrorAs(t, err, &contract)
	assert.ErrorContains(t, err, "the response is not valid: a page")
	want(t, s.breaker, "failures 1")
	assert.Equal(t, []resilience.Outcome{resilience.Failure}, told)
}

func TestPanicBelowGoesOnAndGivesItsSlotBack(t *testing.T) {
	b := probing(t, testutil.NewClock())
	client := &http.Client{Transport: httpdoor.Transport(
		roundTripper(func(*http.Request) (*http.Response, error) { panic("bug") }), httpdoor.Config{Breaker: b})}
	get := func() { _, _ = client.Get("http://service") } //nolint:bodyclose // it has no response
	assert.PanicsWithValue(t, "bug", get)
	assert.True(t, b.Ready())
	want(t, b, "panics 1")
}

// Servers that violate HTTP: each call ends, as a failure.
func TestServersThatLie(t *testing.T) {
	hostile.Each(t, hostile.HTTP("application/json", `{"data":[`, `{"error":"`), func(t *testing.T, url string) {
		b := testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})
		client := &http.Client{
			Transport: httpdoor.Transport(&http.Transport{}, httpdoor.Config{Breaker: b, MaxBody: 1 << 20}),
			Timeout:   20 * time.Second,
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		_, err = httpdoor.JSON[map[string]any](t.Context(), client, r)
		require.Error(t, err)
		assert.Less(t, len(err.Error()), 5000)
		want(t, b, "failures 1")
	})
}
