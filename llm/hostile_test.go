package llm_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// bomb is a body of many gigabytes that fits into a packet.
func bomb(conn io.ReadWriter) {
	_, _ = io.WriteString(
		conn,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n",
	)
	z := gzip.NewWriter(conn)
	_, _ = io.WriteString(z, `{"object":"`)
	page := strings.Repeat("a", 1<<20)
	for range 1 << 10 {
		if _, err := io.WriteString(z, page); err != nil {
			return
		}
	}
}

func TestServersThatLie(t *testing.T) {
	const (
		head   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		closed = head + "Connection: close\r\n\r\n"
	)
	answers := hostile.HTTP("application/json", `{"object":"list","data":[{"emb`, "")
	maps.Copy(answers, map[string]hostile.Answer{
		"length too long":      hostile.Text(head + "Content-Length: 5000\r\n\r\n{\"object\":\"list\",\"data\":["),
		"length too short":     hostile.Text(head + "Content-Length: 9\r\n\r\n{\"object\":\"list\",\"data\":[]}"),
		"half of a chunk":      hostile.Text(head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"obj"),
		"a header without end": hostile.Endless(head+"X-More: ", "and more"),
		"a body without end":   hostile.Endless(closed, `{"object":"list","object":"list",`),
		"spaces without end":   hostile.Endless(closed, " "),
		"brackets without end": hostile.Endless(closed, "["),
		"a bomb":               bomb,
		"comments without end": hostile.Endless(closed, ": wait\n\n"),
		"roles without end":    hostile.Endless(closed, `data: {"choices":[{"delta":{"role":"assistant"}}]}`+"\n\n"),
		"pieces without end":   hostile.Endless(closed, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n"),
		"data without end":     hostile.Endless(closed+`data: {"choices":[{"delta":{"content":"`, "a"),
		"DONE at once":         hostile.Text(closed + "data: [DONE]\n\n"),
		"null for a reason":    hostile.Text(closed + part(0, "a", "null", "")),
	})
	hostile.Each(t, answers, func(t *testing.T, url string) {
		client := newClient(t, llm.Config{
			BaseURL: url + "/v1", Timeout: 30 * time.Second, ChatTimeout: 30 * time.Second, MaxResponseBytes: 1 << 20,
		})
		for i, name := range []string{"chat", "stream", "embeddings", "models"} {
			guard := newGuard(resilience.Config{})
			started := time.Now()
			err := operations(guard, client)[i].do(t.Context())
			require.Error(t, err, name)
			assertOutcome(t, guard, resilience.Failure)
			assert.Less(t, time.Since(started), 30*time.Second, "%s ended by its timeout: %v", name, err)
			assert.Less(t, len(err.Error()), 5000, "%s: the error quotes the whole answer", name)
		}
	})
}

// causes are why a caller leaves; the last two are what errgroup makes of
// another call's end.
var causes = map[string]error{
	"no cause": nil, "a cause": errors.New("the run is over"), "a deadline elsewhere": context.DeadlineExceeded,
	"the end of a file": io.EOF, "around the end of a file": fmt.Errorf("read: %w", io.EOF),
}

// stages are the points of a call at which a server falls silent.
var stages = map[string]string{
	"before the headers":   "",
	"in the headers":       "HTTP/1.1 200 OK\r\nContent-Ty",
	"after the headers":    "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
	"in the body":          "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"obj",
	"in a chunk":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n500\r\n{\"obj",
	"in an error":          "HTTP/1.1 500 Oops\r\nContent-Length: 500\r\n\r\n{\"err",
	"in a stream":          "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
	"after a stream's end": "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n",
}

// A caller that leaves at any point of a call is ignored, and the slot is free;
// net/http gave the cause alone, and callers that look for context.Canceled
// took it for a failure, or for the end of a stream.
func TestCancelledAtEachStage(t *testing.T) {
	for name, text := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{}, 1)
			url := hostile.Serve(t, hostile.Stalled(text, func() { started <- struct{}{} }))
			client := newClient(t, llm.Config{BaseURL: url + "/v1"})
			for i := range 4 {
				if strings.Contains(name, "stream") && i != 1 {
					continue
				}
				for why, cause := range causes {
					guard, _ := openBreaker(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					done := make(chan error)
					go func() { done <- operations(guard, client)[i].do(ctx) }()
					<-started
					cancel(cause)
					cancelled(t, <-done, cause)
					assert.True(t, guard.Breaker.Ready(), "operation %d, %s: the probe's slot is back", i, why)
					assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Ignored, "operation %d, %s", i, why)
				}
			}
		})
	}
}

// cancelled requires the error of a call whose caller left for a cause. One
// that would pass for the end of an answer is in its text alone.
func cancelled(t *testing.T, err, cause error) {
	t.Helper()
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, io.EOF)
	if cause != nil && !errors.Is(cause, io.EOF) {
		require.ErrorIs(t, err, cause)
	}
	if cause != nil {
		require.ErrorContains(t, err, cause.Error())
	}
}

func TestDeadlineAtEachStage(t *testing.T) {
	for name, text := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := hostile.Serve(t, hostile.Stalled(text, nil))
			client := newClient(t, llm.Config{BaseURL: url + "/v1"})
			for i := range 4 {
				if strings.Contains(name, "stream") && i != 1 {
					continue
				}
				for why, cause := range causes {
					guard := newGuard(resilience.Config{})
					ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
					err := operations(guard, client)[i].do(ctx)
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded, "operation %d, %s", i, why)
					require.NotErrorIs(t, err, io.EOF)
					if cause != nil && !errors.Is(cause, io.EOF) {
						require.ErrorIs(t, err, cause)
					}
					assertOutcome(t, guard, resilience.Failure)
				}
			}
		})
	}
}

// Another call's timeout, as errgroup hands it on, is no timeout of this one.
func TestCauseThatIsAnotherCallsTimeoutIsACancellation(t *testing.T) {
	url := hostile.Serve(t, hostile.Stalled("", nil))
	hasty := newClient(t, llm.Config{BaseURL: url + "/v1", Timeout: time.Millisecond, ChatTimeout: time.Millisecond})
	patient := newClient(t, llm.Config{BaseURL: url + "/v1"})
	for i := range 4 {
		timeout := operations(newGuard(resilience.Config{}), hasty)[i].do(t.Context())
		require.ErrorIs(t, timeout, context.DeadlineExceeded)
		for timeout != nil {
			guard := newGuard(resilience.Config{})
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := time.AfterFunc(10*time.Millisecond, func() { cancel(timeout) })
			cancelled(t, operations(guard, patient)[i].do(ctx), timeout)
			stop.Stop()
			assertOutcome(t, guard, resilience.Ignored)
			timeout = errors.Unwrap(timeout)
		}
	}
}

// A call that was over before it began says why, too.
func TestCancelledBeforeTheCall(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	for i := range 4 {
		for _, cause := range causes {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			cancelled(t, operations(newGuard(resilience.Config{}), client)[i].do(ctx), cause)
		}
	}
	assert.Zero(t, s.Stats().Requests)
}

// An error that broke off, or was endless, lost its status: a throttled call
// was a failure, and a wrong one too.
func TestStatusCountsWhereItsErrorBreaksOff(t *testing.T) {
	for _, row := range []struct {
		status string
		want   resilience.Verdict
	}{
		{"400 No", resilience.Verdict{Outcome: resilience.Ignored}},
		{"401 No", resilience.Verdict{Outcome: resilience.Denied}},
		{"404 No", resilience.Verdict{Outcome: resilience.Ignored}},
		{"429 Slow", resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 7 * time.Second}},
		{"500 Oops", resilience.Verdict{Outcome: resilience.Failure}},
		{"501 No", resilience.Verdict{Outcome: resilience.Ignored}},
		{"503 Busy", resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 7 * time.Second, Unavailable: true}},
	} {
		head := "HTTP/1.1 " + row.status + "\r\nRetry-After: 7\r\n"
		for name, answer := range map[string]hostile.Answer{
			"no body":         hostile.Text(head + "Content-Length: 100\r\n\r\n"),
			"half a body":     hostile.Text(head + "Content-Length: 100\r\n\r\n{\"error\":"),
			"half of a chunk": hostile.Text(head + "Transfer-Encoding: chunked\r\n\r\n50\r\n{\"error\":"),
			"no end":          hostile.Endless(head+"Connection: close\r\n\r\n{\"error\":\"", "no "),
			"silence":         hostile.Stalled(head+"Content-Length: 100\r\n\r\n{", nil),
		} {
			cfg := llm.Config{BaseURL: hostile.Serve(t, answer), MaxResponseBytes: 1 << 16}
			if name == "silence" {
				cfg.Timeout, cfg.ChatTimeout = 20*time.Millisecond, 20*time.Millisecond
			}
			client := newClient(t, cfg)
			for i := range 4 {
				spans.Reset()
				guard := newGuard(resilience.Config{})
				told := doortest.Hear(&guard.Settled)
				require.Error(t, operations(guard, client)[i].do(t.Context()))
				assert.Equal(t, []resilience.Verdict{row.want}, *told, "%s, %s, operation %d", row.status, name, i)
				_, _, attrs := lastSpan(t)
				assert.Equal(t, row.status[:3], attrs["error.type"])
			}
		}
	}
}

// A stream that nobody reads or closes held a probe's slot until its lease ran
// out, although its context had ended.
func TestStreamWhoseContextEndsGivesItsSlotBack(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	guard, _ := openBreaker(t)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := guard.CreateChatCompletionStream(ctx, client, ask("one two"))
	require.NoError(t, err)
	require.False(t, guard.Breaker.Ready())
	cancel()
	require.Eventually(t, guard.Breaker.Ready, 5*time.Second, time.Millisecond)
	assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Ignored)
	require.NoError(t, stream.Close())
}

// A document of a million bytes through each kind of server.
func TestMillionBytes(t *testing.T) {
	document := strings.Repeat("ünïcode/文書/🚰/\\/\"/\x00/line\n", 1_000_000/32+1)
	require.Greater(t, len(document), 1_000_000)
	s := llmtest.NewServer(t, llmtest.Options{})
	client, guard := newClient(t, llm.Config{BaseURL: s.URL}), newGuard(resilience.Config{})
	chat, err := guard.CreateChatCompletion(t.Context(), client, ask(document))
	require.NoError(t, err)
	assert.Equal(t, "echo: "+document, chat.Choices[0].Message.Content)
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask(document))
	require.NoError(t, err)
	assert.Equal(t, "echo: "+document, readAll(t, stream))
	vectors, err := guard.CreateEmbeddings(t.Context(), client, texts(document, "short"))
	require.NoError(t, err)
	assert.Len(t, vectors.Data, 2)
}

// The real model has room for some thousand tokens: a document of a million
// bytes is refused as the caller's, and the server continues.
func TestRealServerRefusesAMillionBytes(t *testing.T) {
	client, guard := newClient(t, llm.Config{BaseURL: upstreams.Llama(t)}), newGuard(resilience.Config{})
	document := strings.Repeat("Die Flüsse führen Wasser. 川には水がある。", 20_000)
	_, err := guard.CreateChatCompletion(t.Context(), client, short(document))
	require.Error(t, err)
	assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Ignored, "%v", err)
	_, err = guard.CreateChatCompletion(t.Context(), client, short("Und \"jetzt\"? \\ \t 🚰 \u202e"))
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint(resilience.Closed), fmt.Sprint(guard.Breaker.State()))
}

// Some servers say the key that they refuse, and errors go into logs.
func TestKeyThatIsSaidBackIsMasked(t *testing.T) {
	for _, status := range []int{400, 401, 500} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(
				w,
				`{"error":{"message":"key %s is bad","type":"invalid"}}`,
				strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
			)
		}))
		t.Cleanup(server.Close)
		for key, said := range map[string]string{"sk-of-this-test": "key ******** is bad", "key": "key key is bad"} {
			client := newClient(t, llm.Config{BaseURL: server.URL, APIKey: key})
			_, err := newGuard(resilience.Config{}).ListModels(t.Context(), client)
			require.ErrorContains(t, err, said)
		}
	}
}

// What breaks in the middle of an error is said, as without a key.
func TestErrorThatBreaksOff(t *testing.T) {
	url := hostile.Serve(
		t,
		hostile.Text(
			"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"error\":",
		),
	)
	client := newClient(t, llm.Config{BaseURL: url, APIKey: "sk-of-this-test"})
	_, err := newGuard(resilience.Config{}).ListModels(t.Context(), client)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// An answer was waited for to the end of its response, and cost the whole
// Timeout where a server does not end it.
func TestAnswerWithoutAnEndOfItsResponseIsRead(t *testing.T) {
	for i, body := range []string{
		0: `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`,
		2: `{"data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":[0,1]}]}`,
		3: `{"data":[{"id":"m"}]}`,
	} {
		for text, ok := range map[string]bool{body: true, `{"error":{"message":"gone"}}`: false} {
			if body == "" {
				continue // of a stream
			}
			url := hostile.Serve(t, hostile.Stalled("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"+text, nil))
			started := time.Now()
			err := operations(newGuard(resilience.Config{}),
				newClient(t, llm.Config{BaseURL: url, Timeout: 30 * time.Second, ChatTimeout: 30 * time.Second}))[i].do(
				t.Context(),
			)
			assert.Equal(t, ok, err == nil, "%s: %v", text, err)
			assert.Less(t, time.Since(started), 30*time.Second, "the whole timeout")
		}
	}
}
