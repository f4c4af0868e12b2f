package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// answers are what servers say, and what the breaker makes of the SDK's error
// for it.
var answers = []struct {
	name   string
	status int
	header http.Header
	body   string
	want   resilience.Outcome
	wait   time.Duration
}{
	{name: "400", status: 400, want: resilience.Ignored},
	{
		name:   "404 unknown model",
		status: 404,
		body:   `{"error":{"message":"no such model","code":"model_not_found"}}`,
		want:   resilience.Ignored,
	},
	{name: "409", status: 409, want: resilience.Ignored},
	{name: "413 too large", status: 413, want: resilience.Ignored},
	{name: "422", status: 422, want: resilience.Ignored},
	{name: "431", status: 431, want: resilience.Ignored},
	{name: "408 the server's own timeout", status: 408, want: resilience.Failure},
	{name: "401", status: 401, want: resilience.Denied},
	{name: "402 unpaid", status: 402, want: resilience.Denied},
	{name: "403", status: 403, want: resilience.Denied},
	{name: "401 of a proxy, in HTML", status: 401, body: "<html>who are you</html>", want: resilience.Denied},
	{name: "429", status: 429, want: resilience.Throttled},
	{name: "429 with zero", status: 429, header: http.Header{"Retry-After": {"0"}}, want: resilience.Throttled},
	{
		name:   "429 with seconds",
		status: 429,
		header: http.Header{"Retry-After": {"7"}},
		want:   resilience.Throttled,
		wait:   7 * time.Second,
	},
	{
		name:   "429 with an error text",
		status: 429,
		header: http.Header{"Retry-After": {"3"}},
		body:   `{"error":"slow down"}`,
		want:   resilience.Throttled,
		wait:   3 * time.Second,
	},
	{
		name:   "429 without a body",
		status: 429,
		header: http.Header{"Retry-After": {"3"}},
		body:   "\n",
		want:   resilience.Throttled,
		wait:   3 * time.Second,
	},
	{
		name:   "429 quota",
		status: 429,
		header: http.Header{"Retry-After": {"7"}},
		body:   `{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}`,
		want:   resilience.Denied,
	},
	{
		name:   "429 quota by type",
		status: 429,
		body:   `{"error":{"message":"x","type":"insufficient_quota","code":null}}`,
		want:   resilience.Denied,
	},
	{
		name:   "429 billing",
		status: 429,
		body:   `{"error":{"message":"x","code":"billing_hard_limit_reached"}}`,
		want:   resilience.Denied,
	},
	{
		name:   "429 with a number for code",
		status: 429,
		body:   `{"error":{"message":"x","code":429}}`,
		want:   resilience.Throttled,
	},
	{name: "500", status: 500, want: resilience.Failure},
	{name: "500 with an error text", status: 500, body: `{"error":"boom"}`, want: resilience.Failure},
	{name: "500 without an error", status: 500, body: `{}`, want: resilience.Failure},
	{name: "500 in HTML", status: 500, body: "<html>", want: resilience.Failure},
	{name: "501 not implemented", status: 501, want: resilience.Ignored},
	{name: "501 with seconds", status: 501, header: http.Header{"Retry-After": {"20"}}, want: resilience.Ignored},
	{name: "505 another HTTP", status: 505, want: resilience.Ignored},
	{name: "502", status: 502, want: resilience.Failure},
	{name: "504", status: 504, want: resilience.Failure},
	{name: "506", status: 506, want: resilience.Failure},
	{name: "503", status: 503, want: resilience.Failure},
	{
		name:   "503 with seconds",
		status: 503,
		header: http.Header{"Retry-After": {"20"}},
		want:   resilience.Throttled,
		wait:   20 * time.Second,
	},
	{
		name:   "503 with a date",
		status: 503,
		header: http.Header{
			"Retry-After": {"Thu, 01 Jan 2026 12:00:20 GMT"},
			"Date":        {"Thu, 01 Jan 2026 12:00:00 GMT"},
		},
		want: resilience.Throttled,
		wait: 20 * time.Second,
	},
	{name: "503 with zero", status: 503, header: http.Header{"Retry-After": {"0"}}, want: resilience.Failure},
	{
		name:   "503 with a negative number",
		status: 503,
		header: http.Header{"Retry-After": {"-5"}},
		want:   resilience.Failure,
	},
	{
		name:   "503 with a date gone by",
		status: 503,
		header: http.Header{
			"Retry-After": {"Thu, 01 Jan 2026 11:59:00 GMT"},
			"Date":        {"Thu, 01 Jan 2026 12:00:00 GMT"},
		},
		want: resilience.Failure,
	},
	{name: "503 with nonsense", status: 503, header: http.Header{"Retry-After": {"soon"}}, want: resilience.Failure},
	{name: "500 with seconds", status: 500, header: http.Header{"Retry-After": {"20"}}, want: resilience.Failure},
	{name: "529 overloaded", status: 529, want: resilience.Failure},
	{name: "529 with zero", status: 529, header: http.Header{"Retry-After": {"0"}}, want: resilience.Failure},
	{
		name:   "529 with seconds",
		status: 529,
		header: http.Header{"Retry-After": {"20"}},
		want:   resilience.Throttled,
		wait:   20 * time.Second,
	},
	{name: "301 without location", status: 301, want: resilience.Failure},
	{name: "301", status: 301, header: http.Header{"Location": {"/elsewhere"}}, want: resilience.Failure},
	{name: "308", status: 308, header: http.Header{"Location": {"/elsewhere"}}, want: resilience.Failure},
	{
		name:   "200 with an error body",
		status: 200,
		body:   `{"error":{"message":"x","code":500}}`,
		want:   resilience.Failure,
	},
	{name: "200 with a page", status: 200, body: "<html>welcome</html>", want: resilience.Failure},
	{name: "200 with nothing", status: 200, body: "\n", want: resilience.Failure},
	{name: "200 with an empty object", status: 200, body: "{}", want: resilience.Failure},
	{name: "204", status: 204, want: resilience.Failure},
}

func TestAnswersOfServersByOperation(t *testing.T) {
	for _, row := range answers {
		s := llmtest.NewServer(t, llmtest.Options{})
		s.Script(llmtest.All(llmtest.Fault{Status: row.status, Header: row.header, Body: row.body}))
		client := newClient(t, llm.Config{BaseURL: s.URL})
		for i, name := range []string{"chat", "stream", "embeddings", "models"} {
			guard := newGuard(resilience.Config{OpenOnThrottle: true})
			told := doortest.Hear(&guard.Settled)
			err := operations(guard, client)[i].do(t.Context())
			t.Run(row.name+"/"+name, func(t *testing.T) {
				require.Error(t, err)
				assertOutcome(t, guard, row.want)
				assert.InDelta(
					t,
					row.wait,
					held(guard, row.want),
					float64(time.Second),
					"the server's wait reaches the breaker",
				)
				want := resilience.Verdict{Outcome: row.want, RetryAfter: row.wait}
				want.Unavailable = row.want == resilience.Throttled && row.status != http.StatusTooManyRequests
				assert.Equal(t, []resilience.Verdict{want}, *told)
			})
		}
		assert.Equal(t, 4, s.Stats().Requests, "%s: each attempt is one call", row.name)
	}
}

// held is how long a throttled breaker waits beyond its own time.
func held(g llm.Guard, outcome resilience.Outcome) time.Duration {
	s := g.Breaker.Snapshot()
	if outcome != resilience.Throttled || s.OpenUntil.IsZero() {
		return 0
	}
	left := time.Until(s.OpenUntil)
	if left > 50*time.Second { // the reset time: the server named none
		return 0
	}
	return left
}

// A server that is unavailable is asked five times, whatever time it names; one
// that throttles is asked each time.
func TestUnavailableServersOpenTheBreaker(t *testing.T) {
	type row struct {
		fault llmtest.Fault
		sent  int
	}
	rows := []row{{llmtest.RateLimit("1"), 50}, {llmtest.RateLimit("0"), 50}}
	for _, after := range []string{
		"", "0", "0.0", "-0", "-1", "-Inf", "soon", "NaN", "1", "Thu, 01 Jan 2026 11:59:00 GMT",
		"Thu, 01 Jan 2026 12:00:00 GMT", "Thu, 99 Jan 2026 12:00:00 GMT", "2026-01-01T12:00:00Z",
	} {
		head := http.Header{"Retry-After": {after}, "Date": {"Thu, 01 Jan 2026 12:00:00 GMT"}}
		for _, status := range []int{503, 529} {
			rows = append(rows, row{llmtest.Fault{Status: status, Header: head}, 5})
		}
	}
	for _, row := range rows {
		s := llmtest.NewServer(t, llmtest.Options{})
		s.Script(llmtest.All(row.fault))
		client := newClient(t, llm.Config{BaseURL: s.URL})
		guard := newGuard(resilience.Config{})
		for _, call := range operations(guard, client) {
			guard.Breaker.Reset()
			before := s.Stats().Requests
			for range 50 {
				require.Error(t, call.do(t.Context()))
			}
			sent := s.Stats().Requests - before
			assert.Equal(t, row.sent, sent, "%d %v, %s", row.fault.Status, row.fault.Header, call.name)
		}
	}
}

func TestRetryAfterOfAClientOfAnotherMake(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.RateLimit("7")))
	cfg := openai.DefaultConfig("")
	cfg.BaseURL = s.URL
	for i, name := range []string{"chat", "", "embeddings", "models"} {
		if name == "" {
			continue // the SDK drops the header of streams
		}
		guard := newGuard(resilience.Config{OpenOnThrottle: true})
		require.Error(t, operations(guard, openai.NewClientWithConfig(cfg))[i].do(t.Context()))
		assert.InDelta(t, 7*time.Second, held(guard, resilience.Throttled), float64(time.Second), name)
	}
}

// refusals are requests that never leave.
func TestRequestsThatNeverLeaveAreIgnored(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	bad := openai.DefaultConfig("")
	bad.BaseURL = "http://[::1"
	with := func(change func(*openai.ChatCompletionRequest)) openai.ChatCompletionRequest {
		r := ask("x")
		change(&r)
		return r
	}
	for _, row := range []struct {
		name   string
		client *openai.Client
		r      openai.ChatCompletionRequest
	}{
		{"stream flag", client, with(func(r *openai.ChatCompletionRequest) { r.Stream = true })},
		{"old model", client, with(func(r *openai.ChatCompletionRequest) { r.Model = "text-davinci-003" })},
		{"reasoning model with max tokens", client, with(func(r *openai.ChatCompletionRequest) {
			//lint:ignore SA1019 that it is refused is what the row is about
			r.Model, r.MaxTokens = "o1-mini", 5 //nolint:staticcheck // as above
		})},
		{"not a number", client, with(func(r *openai.ChatCompletionRequest) { r.Temperature = float32(math.NaN()) })},
		{"content twice", client, with(func(r *openai.ChatCompletionRequest) {
			r.Messages[0].MultiContent = []openai.ChatMessagePart{{Type: "text", Text: "y"}}
		})},
		{
			"a value that JSON cannot hold", client,
			with(func(r *openai.ChatCompletionRequest) { r.ToolChoice = func() {} }),
		},
		{"base URL", openai.NewClientWithConfig(bad), ask("x")},
	} {
		guard := newGuard(resilience.Config{})
		_, err := guard.CreateChatCompletion(t.Context(), row.client, row.r)
		require.Error(t, err, row.name)
		assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Ignored, "%s: %v", row.name, err)
	}
	assert.Zero(t, s.Stats().Requests)
}

func TestTransportErrorsAreFailures(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	dropping := llmtest.NewServer(t, llmtest.Options{})
	dropping.Script(llmtest.All(llmtest.Drop()))
	hanging := llmtest.NewServer(t, llmtest.Options{})
	hanging.Script(llmtest.All(llmtest.Hang()))
	tls := llmtest.NewTLSServer(t, llmtest.Options{})
	tls.HTTP.Config.ErrorLog = discard()
	short := truncating(t)
	silent := silentListener(t)
	for _, row := range []struct{ name, url string }{
		{"refused", closed.URL},
		{"dropped", dropping.URL},
		{"hanging", hanging.URL},
		{"unknown authority", tls.URL},
		{"truncated", short},
		{"accepts and says nothing", silent},
		{"no such host", "http://host.invalid"},
	} {
		client := newClient(t, llm.Config{
			BaseURL: row.url, Timeout: 100 * time.Millisecond, ChatTimeout: 100 * time.Millisecond,
		})
		for i, name := range []string{"chat", "stream", "embeddings", "models"} {
			guard := newGuard(resilience.Config{})
			err := operations(guard, client)[i].do(t.Context())
			require.Error(t, err, row.name)
			assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Failures, "%s, %s: %v", row.name, name, err)
		}
	}
	assert.Equal(t, 4, dropping.Stats().Requests, "net/http sends none again")
}

func TestWhoEndedTheCallDecides(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Hang()))
	later := 50 * time.Millisecond
	for _, row := range []struct {
		name string
		ctx  func() (context.Context, context.CancelFunc)
		cfg  llm.Config
		call time.Duration
		want resilience.Outcome
	}{
		{"the caller cancels", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			return ctx, after(later, cancel)
		}, llm.Config{}, 0, resilience.Ignored},
		{"the caller cancels and says why", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			return ctx, after(later, func() { cancel(errors.New("budget spent")) })
		}, llm.Config{}, 0, resilience.Ignored},
		{"the caller's deadline", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), later)
		}, llm.Config{}, 0, resilience.Failure},
		{"the caller's deadline with a cause", func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), later, errors.New("too slow"))
		}, llm.Config{}, 0, resilience.Failure},
		{"the client's timeout", func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		}, llm.Config{Timeout: later, ChatTimeout: later}, 0, resilience.Failure},
		{"the breaker's timeout", func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		}, llm.Config{}, later, resilience.Failure},
	} {
		row.cfg.BaseURL = s.URL
		client := newClient(t, row.cfg)
		for i, name := range []string{"chat", "stream", "embeddings", "models"} {
			guard := newGuard(resilience.Config{CallTimeout: row.call})
			ctx, cancel := row.ctx()
			err := operations(guard, client)[i].do(ctx)
			cancel()
			t.Run(row.name+"/"+name, func(t *testing.T) {
				require.Error(t, err)
				assertOutcome(t, guard, row.want)
			})
		}
	}
}

// after calls f once, soon.
func after(d time.Duration, f func()) context.CancelFunc {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop(); f() }
}

func TestRefusalOfAnInnerBreakerIsIgnored(t *testing.T) {
	inner := newGuard(resilience.Config{})
	inner.Breaker.ForceOpen("maintenance")
	guard := newGuard(resilience.Config{})
	_, err := guard.CreateChatCompletion(t.Context(), guarded{inner}, ask("x"))
	require.ErrorIs(t, err, resilience.ErrOpen)
	assertOutcome(t, guard, resilience.Ignored)
}

// guarded is a client behind a breaker of its own.
type guarded struct{ guard llm.Guard }

func (g guarded) CreateChatCompletion(
	ctx context.Context, r openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	return g.guard.CreateChatCompletion(ctx, panicky, r)
}

func TestClassifyAlone(t *testing.T) {
	assert.Equal(t, resilience.Failure, llm.Classify(t.Context(), io.ErrUnexpectedEOF).Outcome)
	assert.Equal(t, resilience.Failure, llm.Classify(t.Context(), context.Canceled).Outcome, "not the caller's")
	assert.Equal(t, resilience.Failure, llm.Classify(t.Context(), &json.SyntaxError{}).Outcome)
	assert.Equal(t, resilience.Throttled, llm.Classify(t.Context(), &openai.APIError{HTTPStatusCode: 429}).Outcome)
}

// truncating is a server whose answers end in the middle.
func truncating(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "500")
		_, _ = io.WriteString(w, `{"data":[{"embed`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// silentListener takes connections and says nothing.
func silentListener(t *testing.T) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}
