package httpdoor_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// service is an HTTP server that counts what reaches it, and a client with a
// breaker below it.
type service struct {
	*testing.T
	*httptest.Server
	breaker *resilience.Breaker
	client  *http.Client
	seen    atomic.Int64
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newService(t *testing.T, handler http.HandlerFunc, change ...func(*httpdoor.Config)) *service {
	t.Helper()
	s := &service{T: t, breaker: testutil.NewBreaker(t, "service", resilience.Config{Logger: quiet()})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.seen.Add(1)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	config := httpdoor.Config{Breaker: s.breaker}
	for _, f := range change {
		f(&config)
	}
	s.client = &http.Client{Transport: httpdoor.Transport(&http.Transport{}, config)}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *service) request(ctx context.Context) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	require.NoError(s, err)
	return r
}

// get makes one call and reads its body to the end.
func (s *service) get() (status int, body string, err error) {
	resp, err := s.client.Do(s.request(s.Context()))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// want compares the breaker's totals, such as "successes 1".
func want(t *testing.T, b *resilience.Breaker, totals string) {
	t.Helper()
	s := b.Snapshot()
	got := map[string]uint64{
		"successes": s.Successes, "failures": s.Failures, "ignored": s.Ignored, "throttled": s.Throttled,
		"denied": s.Denied, "rejected": s.Rejected, "panics": s.Panics,
	}
	wanted := map[string]uint64{}
	for part := range strings.SplitSeq(totals, ", ") {
		name, n, _ := strings.Cut(part, " ")
		for _, digit := range n {
			wanted[name] = wanted[name]*10 + uint64(digit-'0')
		}
	}
	for name, n := range got {
		assert.Equal(t, wanted[name], n, "%s: %+v", name, got)
	}
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, http.StatusText(code))
	}
}
