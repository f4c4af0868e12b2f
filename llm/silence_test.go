package llm

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// says is what a server sends, and how long it is silent before.
type says struct {
	after time.Duration
	text  string
}

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	jsonHead   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"

	role     = `data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}` + "\n\n"
	nothing  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":null}}]}` + "\n\n"
	usage    = `data: {"choices":[],"usage":{"prompt_tokens":7}}` + "\n\n"
	comment  = ": keep-alive\n\n"
	greeting = `data: {"choices":[{"index":0,"delta":{"content":"ok"}}]}` + "\n\n"
	stop     = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	answered = `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`
)

// dialed is how a client reaches a server that says these things, in a bubble
// of testing/synctest: a pipe, since nothing waits for a network there.
func dialed(lines []says) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			r, err := http.ReadRequest(bufio.NewReader(there))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			left := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, there)
				close(left)
			}()
			for _, line := range lines {
				select {
				case <-time.After(line.after):
				case <-left:
					return
				}
				if _, err := io.WriteString(there, line.text); err != nil {
					return
				}
			}
		}()
		return here, nil
	}
}

// thinking is a client of this package before a server that says these things.
func thinking(t *testing.T, cfg Config, lines ...says) *openai.Client {
	own, err := cfg.bounded()
	require.NoError(t, err)
	own.pooled.DialContext, own.fresh.DialContext = dialed(lines), dialed(lines)
	return clientOver(cfg.guarded(own))
}

func clientOver(httpClient *http.Client) *openai.Client {
	sdk := openai.DefaultConfig("")
	sdk.BaseURL, sdk.HTTPClient = "http://model.test/v1", httpClient
	return openai.NewClientWithConfig(sdk)
}

func alone(t *testing.T) Guard {
	b, err := resilience.New("llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return Guard{Breaker: b}
}

var hello = openai.ChatCompletionRequest{
	Model: "thinker", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}},
}

func chat(ctx context.Context, g Guard, c *openai.Client) error {
	_, err := g.CreateChatCompletion(ctx, c, hello)
	return err
}

func stream(ctx context.Context, g Guard, c *openai.Client) error {
	s, err := g.CreateChatCompletionStream(ctx, c, hello)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = s.Recv()
	}
	if err == io.EOF { //nolint:errorlint // the very value
		err = nil
	}
	return errors.Join(err, s.Close())
}

type way func(context.Context, Guard, *openai.Client) error

// Five of these opened the breaker: a model that thinks says nothing for
// longer than other servers live.
func TestModelThatThinksBeforeItsAnswerIsHealthy(t *testing.T) {
	const long, short = 10*time.Minute - time.Second, 5*time.Minute - time.Second
	for name, row := range map[string]struct {
		call  way
		lines []says
	}{
		"an answer":            {chat, []says{{long, jsonHead + answered}}},
		"headers, then answer": {chat, []says{{0, jsonHead}, {long, answered}}},
		"half an answer, then the rest": {
			chat,
			[]says{{long / 2, jsonHead + answered[:20]}, {long / 2, answered[20:]}},
		},
		"a stream":           {stream, []says{{long, streamHead + role + greeting + stop}}},
		"headers at once":    {stream, []says{{0, streamHead}, {long, role + greeting + stop}}},
		"75 s after a role":  {stream, []says{{0, streamHead + role}, {75 * time.Second, greeting + stop}}},
		"a role":             {stream, []says{{long, streamHead + role}, {long, greeting + stop}}},
		"a chunk of nothing": {stream, []says{{0, streamHead + nothing}, {long, usage}, {long, greeting + stop}}},
		"comments": {
			stream,
			[]says{{0, streamHead + role}, {long, comment}, {long, comment}, {long, greeting + stop}},
		},
		"pauses between pieces": {
			stream,
			[]says{{0, streamHead + role + greeting}, {short, greeting}, {short, comment}, {short, greeting + stop}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard, client := alone(t), thinking(t, Config{}, row.lines...)
				var callers sync.WaitGroup
				for range 5 {
					callers.Go(func() { assert.NoError(t, row.call(t.Context(), guard, client)) })
				}
				callers.Wait()
				assert.Equal(t, resilience.Closed, guard.Breaker.State())
				assert.Equal(t, uint64(5), guard.Breaker.Snapshot().Successes)
			})
		})
	}
}

// delta is a chunk with a field of a delta.
func delta(field string) string {
	return `data: {"choices":[{"index":0,"delta":{` + field + `}}]}` + "\n\n"
}

func TestSilenceIsBoundedByWhatCameBefore(t *testing.T) {
	const chatTime, idle = 10 * time.Minute, 5 * time.Minute
	for name, row := range map[string]struct {
		call  way
		said  string
		after time.Duration
	}{
		"nothing, for chat":         {chat, "", chatTime},
		"headers, for chat":         {chat, jsonHead, chatTime},
		"nothing":                   {stream, "", chatTime},
		"headers":                   {stream, streamHead, chatTime},
		"a comment":                 {stream, streamHead + comment, chatTime},
		"a role":                    {stream, streamHead + role, chatTime},
		"a chunk of nothing":        {stream, streamHead + nothing, chatTime},
		"usage":                     {stream, streamHead + usage, chatTime},
		"half a line":               {stream, streamHead + strings.TrimSuffix(greeting, "}]}\n\n"), chatTime},
		"content":                   {stream, streamHead + role + greeting, idle},
		"content after a mark":      {stream, streamHead + mark + greeting, idle},
		"content, then a comment":   {stream, streamHead + role + greeting + comment, idle},
		"content, then a role":      {stream, streamHead + greeting + role, idle},
		"reasoning":                 {stream, streamHead + delta(`"reasoning_content":"hm"`), idle},
		"reasoning by another name": {stream, streamHead + delta(`"content":"","reasoning":"hm"`), idle},
		"a refusal":                 {stream, streamHead + delta(`"refusal":"no"`), idle},
		"a tool call": {
			stream,
			streamHead + delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f"}}]`), idle,
		},
		"a function call": {stream, streamHead + delta(`"function_call":{"name":"f"}`), idle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard, client := alone(t), thinking(t, Config{}, says{0, row.said}, says{time.Hour, ""})
				started := time.Now()
				err := row.call(t.Context(), guard, client)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "no answer in time")
				assert.Equal(t, row.after, time.Since(started))
				assert.Equal(t, uint64(1), guard.Breaker.Snapshot().Failures)
			})
		})
	}
}

func TestBoundsOfTheConfiguration(t *testing.T) {
	cfg := Config{Timeout: time.Second, ChatTimeout: 2 * time.Second, StreamIdleTimeout: 3 * time.Second}
	embed := func(ctx context.Context, g Guard, c *openai.Client) error {
		_, err := g.CreateEmbeddings(ctx, c, openai.EmbeddingRequest{Input: "a"})
		return err
	}
	models := func(ctx context.Context, g Guard, c *openai.Client) error {
		_, err := g.ListModels(ctx, c)
		return err
	}
	bare := func(ctx context.Context, _ Guard, c *openai.Client) error {
		_, err := c.CreateChatCompletion(ctx, hello)
		return err
	}
	completion := func(ctx context.Context, _ Guard, c *openai.Client) error {
		_, err := c.CreateCompletion(ctx, openai.CompletionRequest{Model: "thinker", Prompt: "hi"})
		return err
	}
	bareStream := func(ctx context.Context, _ Guard, c *openai.Client) error {
		s, err := c.CreateChatCompletionStream(ctx, hello)
		for err == nil {
			_, err = s.Recv()
		}
		return err
	}
	for name, row := range map[string]struct {
		call way
		said string
		want time.Duration
	}{
		"embeddings":                        {embed, "", cfg.Timeout},
		"embeddings after headers":          {embed, jsonHead, cfg.Timeout},
		"models":                            {models, "", cfg.Timeout},
		"chat":                              {chat, "", cfg.ChatTimeout},
		"a stream":                          {stream, "", cfg.ChatTimeout},
		"a stream with a role":              {stream, streamHead + role, cfg.ChatTimeout},
		"a stream with content":             {stream, streamHead + greeting, cfg.StreamIdleTimeout},
		"chat through no door":              {bare, "", cfg.ChatTimeout},
		"a completion through no door":      {completion, "", cfg.ChatTimeout},
		"a stream through no door":          {bareStream, streamHead + role, cfg.ChatTimeout},
		"a stream with content, by no door": {bareStream, streamHead + greeting, cfg.StreamIdleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := thinking(t, cfg, says{0, row.said}, says{time.Hour, ""})
				started := time.Now()
				require.ErrorIs(t, row.call(t.Context(), alone(t), client), context.DeadlineExceeded)
				assert.Equal(t, row.want, time.Since(started))
			})
		})
	}
}

// openNow has failed, and its next call is the probe.
func openNow(t *testing.T) Guard {
	guard := alone(t)
	guard.Breaker.Trip("down")
	<-time.After(guard.Breaker.Config().ResetTimeout)
	require.True(t, guard.Breaker.Ready())
	return guard
}

// A probe lost its lease after ProbeTimeout, and was a failure, although its
// model was only thinking.
func TestProbeOutlastsTheSilenceOfAModelThatThinks(t *testing.T) {
	const long, short = 9 * time.Minute, 4 * time.Minute
	for name, row := range map[string]struct {
		call  way
		limit time.Duration
		lines []says
	}{
		"an answer":         {chat, 0, []says{{long, jsonHead + answered}}},
		"no limit":          {chat, math.MaxInt64, []says{{24 * time.Hour, jsonHead + answered}}},
		"headers at once":   {chat, 0, []says{{0, jsonHead}, {long, answered}}},
		"a stream":          {stream, 0, []says{{long, streamHead + role}, {long, greeting}, {short, stop}}},
		"a stream's pieces": {stream, 0, []says{{0, streamHead + greeting}, {short, greeting}, {short, stop}}},
		"comments": {stream, 0, []says{
			{0, streamHead + role}, {15 * time.Second, comment}, {long, comment}, {15 * time.Second, greeting + stop},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard, client := openNow(t), thinking(t, Config{ChatTimeout: row.limit}, row.lines...)
				done := make(chan error)
				go func() { done <- row.call(t.Context(), guard, client) }()
				<-time.After(2 * time.Minute)
				assert.Equal(t, resilience.HalfOpen, guard.Breaker.State())
				require.NoError(t, <-done)
				assert.Equal(t, resilience.Closed, guard.Breaker.State())
			})
		})
	}
}

// nested is a client that is guarded itself.
type nested struct {
	Guard
	client *openai.Client
}

func (n nested) CreateChatCompletion(
	ctx context.Context, r openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	return n.Guard.CreateChatCompletion(ctx, n.client, r)
}

func TestProbeOfAGuardAroundAnotherOutlastsTheSilenceToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := openNow(t)
		inner := nested{alone(t), thinking(t, Config{}, says{5 * time.Minute, jsonHead + answered})}
		_, err := guard.CreateChatCompletion(t.Context(), inner, hello)
		require.NoError(t, err)
		assert.Equal(t, resilience.Closed, guard.Breaker.State())
	})
}

// A probe of the client's own method, without a door, has that time too.
func TestProbeWithoutADoorOutlastsTheSilenceToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := openNow(t)
		client := thinking(t, Config{Breaker: guard.Breaker}, says{5 * time.Minute, jsonHead + answered})
		_, err := client.CreateChatCompletion(t.Context(), hello)
		require.NoError(t, err)
		assert.Equal(t, resilience.Closed, guard.Breaker.State())
	})
}

func TestProbeOfASilentServerFailsWhenTheClientGivesUp(t *testing.T) {
	for name, call := range map[string]way{"chat": chat, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard, client := openNow(t), thinking(t, Config{ChatTimeout: 3 * time.Minute}, says{time.Hour, ""})
				started := time.Now()
				err := call(t.Context(), guard, client)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, 3*time.Minute, time.Since(started))
				assert.Equal(t, resilience.Open, guard.Breaker.State())
				var open *resilience.OpenError
				require.ErrorAs(t, call(t.Context(), guard, client), &open)
				assert.Equal(t, err, open.LastFailure(), "the call's own error, not that its lease ran out")
			})
		})
	}
}

// What nobody reads, or another client bounds, has ProbeTimeout as ever.
func TestLeaseIsHeldByTheClientAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := openNow(t)
		client := thinking(t, Config{}, says{0, streamHead + role + greeting}, says{time.Hour, stop})
		s, err := guard.CreateChatCompletionStream(t.Context(), client, hello)
		require.NoError(t, err)
		defer s.Close()
		<-time.After(guard.Breaker.Config().ProbeTimeout)
		assert.Equal(t, resilience.Open, guard.Breaker.State(), "a forgotten stream")
	})
	synctest.Test(t, func(t *testing.T) {
		guard := openNow(t)
		client := thinking(t, Config{}, says{0, streamHead + role + greeting}, says{time.Hour, stop})
		s, err := guard.CreateChatCompletionStream(t.Context(), client, hello)
		require.NoError(t, err)
		defer s.Close()
		for range 2 {
			_, err = s.Recv()
			require.NoError(t, err)
		}
		<-time.After(guard.Breaker.Config().ProbeTimeout)
		assert.Equal(t, resilience.Open, guard.Breaker.State(), "one that is forgotten half-way")
	})
	synctest.Test(t, func(t *testing.T) {
		guard := openNow(t)
		client := clientOver(&http.Client{Transport: &http.Transport{
			DialContext: dialed([]says{{5 * time.Minute, jsonHead + answered}}),
		}})
		done := make(chan error)
		go func() { done <- chat(t.Context(), guard, client) }()
		<-time.After(guard.Breaker.Config().ProbeTimeout + time.Second)
		assert.Equal(t, resilience.Open, guard.Breaker.State(), "a client of another make")
		require.NoError(t, <-done)
	})
}

// Servers keep connections alive for hours, before an answer and in it.
func TestThousandsOfKeepAlivesAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := []says{{0, streamHead}}
		waits := func(text string) {
			for range 3_000 {
				lines = append(lines, says{time.Minute, text})
			}
		}
		waits(comment)
		lines = append(lines, says{0, role})
		waits(":\r\n\r\n")
		lines = append(lines, says{0, greeting})
		waits("event: ping\ndata:\n\n")
		lines = append(lines, says{0, greeting + stop})
		guard := openNow(t)
		require.NoError(t, stream(t.Context(), guard, thinking(t, Config{}, lines...)))
		assert.Equal(t, resilience.Closed, guard.Breaker.State())
	})
}

func TestFirstContentIsFoundHoweverItIsCut(t *testing.T) {
	for text, want := range map[string]bool{
		role + comment + greeting: true, role + nothing + usage + comment: false,
		strings.ReplaceAll(greeting, "\n", "\r\n"):                                              true,
		"data:" + strings.TrimPrefix(delta(`"content":[{"type":"text","text":"a"}]`), "data: "): true,
		delta(`"content":null`): false, delta(`"content":" "`): true, delta(`"tool_calls":[]`): false,
		delta(`"annotations":[{"url":"x"}]`):                                      false,
		`data: {"choices":[{"message":{"content":"a"}}]}` + "\n":                  true,
		`data: {"choices":[{"text":"a"}]}` + "\n":                                 true,
		`data: {"choices":[{"text":""}]}` + "\n":                                  false,
		`data: {"type":"response.output_text.delta","delta":"a"}` + "\n":          true,
		`data: {"type":"response.created","response":{"status":"queued"}}` + "\n": false,
		"data: [DONE]\n": false, "data: {\n": false, "{\"choices\":[]}\n": false,
	} {
		for size := 1; size <= len(text); size++ {
			l, got := new(listener), false
			for rest := text; rest != "" && !got; {
				n := min(size, len(rest))
				got, rest = l.hears([]byte(rest[:n])), rest[n:]
			}
			require.Equal(t, want, got, "%q in pieces of %d", text, size)
		}
	}
}
