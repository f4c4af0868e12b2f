package llm_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// rawServer answers each connection's first request with what say writes.
func rawServer(t *testing.T, say func(io.Writer)) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					say(conn)
				}
			})
		}
	})
	return "http://" + l.Addr().String() + "/v1"
}

func forever(w io.Writer, text string) {
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// bomb is a body of many gigabytes that fits into a packet.
func bomb(w io.Writer) {
	_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, `{"object":"`)
	page := strings.Repeat("a", 1<<20)
	for range 1 << 10 {
		if _, err := io.WriteString(z, page); err != nil {
			return
		}
	}
}

func TestServersThatLie(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for _, row := range []struct {
		name string
		say  func(io.Writer)
	}{
		{"length too long", func(w io.Writer) {
			_, _ = io.WriteString(w, head+"Content-Length: 5000\r\n\r\n{\"object\":\"list\",\"data\":[")
		}},
		{"length too short", func(w io.Writer) {
			_, _ = io.WriteString(w, head+"Content-Length: 9\r\n\r\n{\"object\":\"list\",\"data\":[]}")
		}},
		{"length no number", func(w io.Writer) { _, _ = io.WriteString(w, head+"Content-Length: many\r\n\r\n{}") }},
		{"two lengths", func(w io.Writer) { _, _ = io.WriteString(w, head+"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}") }},
		{"chunks of garbage", func(w io.Writer) { _, _ = io.WriteString(w, head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}") }},
		{"chunks without end", func(w io.Writer) { _, _ = io.WriteString(w, head+"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"obj") }},
		{"half of its JSON", func(w io.Writer) {
			_, _ = io.WriteString(w, head+"Connection: close\r\n\r\n{\"object\":\"list\",\"data\":[{\"emb")
		}},
		{"no gzip", func(w io.Writer) {
			_, _ = io.WriteString(w, head+"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
		}},
		{"no HTTP", func(w io.Writer) { _, _ = io.WriteString(w, "SSH-2.0-OpenSSH_9.2\r\n") }},
		{"headers without end", func(w io.Writer) { _, _ = io.WriteString(w, head); forever(w, "X-More: and more\r\n") }},
		{"a header without end", func(w io.Writer) { _, _ = io.WriteString(w, head+"X-More: "); forever(w, "and more") }},
		{"hints without end", func(w io.Writer) { forever(w, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") }},
		{"a body without end", func(w io.Writer) {
			_, _ = io.WriteString(w, head+"Connection: close\r\n\r\n")
			forever(w, `{"object":"list","object":"list",`)
		}},
		{"spaces without end", func(w io.Writer) { _, _ = io.WriteString(w, head+"Connection: close\r\n\r\n"); forever(w, "         ") }},
		{"brackets without end", func(w io.Writer) {
			_, _ = io.WriteString(w, head+"Connection: close\r\n\r\n")
			forever(w, "[[[[[[[[[[")
		}},
		{"a bomb", bomb},
		{"a page", func(w io.Writer) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 21\r\n\r\n<html>sign in!</html>")
		}},
		{"an error without end", func(w io.Writer) {
			_, _ = io.WriteString(w, "HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n")
			forever(w, "oops")
		}},
		{"no words", func(io.Writer) {}},
	} {
		t.Run(row.name, func(t *testing.T) {
			client := newClient(t, llm.Config{BaseURL: rawServer(t, row.say), Timeout: 30 * time.Second, MaxResponseBytes: 1 << 20})
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
}

// A caller that leaves at any point of a call is ignored, and the slot is free.
func TestCancelledAtEachStage(t *testing.T) {
	started := make(chan struct{}, 1)
	stages := map[string]func(io.Writer){
		"before the headers": func(w io.Writer) { started <- struct{}{}; _, _ = io.Copy(io.Discard, w.(io.Reader)) },
		"in the headers": func(w io.Writer) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Ty")
			started <- struct{}{}
			_, _ = io.Copy(io.Discard, w.(io.Reader))
		},
		"in the body": func(w io.Writer) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"obj")
			started <- struct{}{}
			_, _ = io.Copy(io.Discard, w.(io.Reader))
		},
	}
	for name, say := range stages {
		client := newClient(t, llm.Config{BaseURL: rawServer(t, say)})
		for i := range 4 {
			guard, _ := openBreaker(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- operations(guard, client)[i].do(ctx) }()
			<-started
			cancel()
			require.Error(t, <-done, name)
			assert.True(t, guard.Breaker.Ready(), "%s, operation %d: the probe's slot is back", name, i)
			assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Ignored, name)
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

// A thousand callers on one client, while the server dies and comes back: the
// breaker's counts add up, refused calls are not sent, and afterwards it works.
func TestThousandCallersWhileTheServerDies(t *testing.T) {
	var broken atomic.Bool
	var arrived atomic.Int64
	healthy := llmtest.NewHandler(llmtest.Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		healthy.ServeHTTP(w, r)
	}))
	defer s.Close()
	s.Config.ErrorLog = discard()
	client, guard := newClient(t, llm.Config{BaseURL: s.URL + "/v1"}), newGuard(resilience.Config{ResetTimeout: 20 * time.Millisecond})
	var answered, failed, refused atomic.Int64
	var callers sync.WaitGroup
	for caller := range 1000 {
		callers.Go(func() {
			for turn := range 5 {
				if caller == 0 {
					broken.Store(turn%2 == 1)
				}
				switch err := operations(guard, client)[caller%4].do(t.Context()); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, resilience.ErrOpen):
					refused.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	broken.Store(false)
	require.Eventually(t, func() bool { return operations(guard, client)[0].do(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	n := guard.Breaker.Snapshot()
	assert.Equal(t, n.Calls, n.Successes+n.Failures+n.Ignored+n.Throttled+n.Denied+n.Panics, "%+v", n)
	assert.EqualValues(t, 5000, answered.Load()+failed.Load()+refused.Load())
	assert.LessOrEqual(t, arrived.Load(), int64(n.Calls+n.Stale), "one call is at most one request")
	assert.True(t, guard.Breaker.Ready())
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
// bytes is refused as the caller's, and the server goes on.
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
			fmt.Fprintf(w, `{"error":{"message":"key %s is bad","type":"invalid"}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		}))
		t.Cleanup(server.Close)
		for key, said := range map[string]string{"sk-of-this-test": "key ******** is bad", "key": "key key is bad"} {
			_, err := llm.ListModels(t.Context(), newClient(t, llm.Config{BaseURL: server.URL, APIKey: key}))
			require.ErrorContains(t, err, said)
		}
	}
}

// What breaks in the middle of an error is said, as without a key.
func TestErrorThatBreaksOff(t *testing.T) {
	url := rawServer(t, func(w io.Writer) {
		_, _ = io.WriteString(w, "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"error\":")
	})
	_, err := llm.ListModels(t.Context(), newClient(t, llm.Config{BaseURL: url, APIKey: "sk-of-this-test"}))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// An answer was waited for to the end of its response, and cost the whole Timeout where a server does not end it.
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
			url := rawServer(t, func(w io.Writer) {
				_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"+text)
				_, _ = io.Copy(io.Discard, w.(io.Reader))
			})
			started := time.Now()
			err := operations(newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: url, Timeout: 30 * time.Second}))[i].do(t.Context())
			assert.Equal(t, ok, err == nil, "%s: %v", text, err)
			assert.Less(t, time.Since(started), 30*time.Second, "the whole timeout")
		}
	}
}
