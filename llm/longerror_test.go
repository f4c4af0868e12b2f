package llm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

// answering answers every request with a body under a status.
func answering(t *testing.T, status int, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// spanBytes is the size of what the spans say.
func spanBytes() (n int) {
	for _, span := range spans.GetSpans() {
		n += len(span.Name) + len(span.Status.Description)
		attrs := span.Attributes
		for _, event := range span.Events {
			attrs = append(attrs, event.Attributes...)
		}
		for _, attr := range attrs {
			n += len(attr.Value.String())
		}
	}
	return n
}

// An error of eight megabytes was repeated as one, and each span held it too.
func TestLongErrorIsCut(t *testing.T) {
	const much = 8 << 20
	long := strings.Repeat("no ", much/3)
	for name, body := range map[string]string{
		"a page":               "<p>" + long,
		"a message":            `{"error":{"message":"` + long + `","code":"overloaded"}}`,
		"a message in words":   `{"error":"` + long + `"}`,
		"a code":               `{"error":{"message":"no","code":"` + long[:60_000] + `","type":"t"}}`,
		"a message that fits":  `{"error":{"message":"` + long[:60_000] + `","code":"overloaded"}}`,
		"messages":             `{"error":{"message":["` + strings.Repeat(`no","`, 9_000) + `"],"code":"overloaded"}}`,
		"beside":               `{"error":{"message":"no"},"more":"` + long[:60_000] + `"}`,
		"a page that fits":     "<p>" + long[:60_000],
		"words alone":          `"` + long[:60_000] + `"`,
		"many fields":          `{` + strings.Repeat(`"x":1,`, 9_000) + `"error":"no"}`,
		"nested":               strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000),
		"a message in its own": `{"error":{"message":{"x":"` + long[:60_000] + `"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, llm.Config{BaseURL: answering(t, 500, body), APIKey: "sk-of-this-test"})
			for i, call := range operations(newGuard(resilience.Config{}), nil) {
				spans.Reset()
				guard := newGuard(resilience.Config{})
				err := operations(guard, client)[i].do(t.Context())
				require.Error(t, err, call.name)
				assert.Contains(t, err.Error(), "500", call.name)
				assert.Less(t, len(err.Error()), 6_000, call.name)
				assert.Less(t, spanBytes(), 16_000, call.name)
				assertOutcome(t, guard, resilience.Failure)
			}
		})
	}
}

// Of a long error the code decides, as of a short one.
func TestLongErrorKeepsItsCode(t *testing.T) {
	for _, form := range []string{
		`{"error":{"message":%q,"code":"insufficient_quota"}}`, `{"error":{"code":"insufficient_quota","message":%q}}`,
	} {
		body := fmt.Sprintf(form, strings.Repeat("no money ", 6_000))
		guard := newGuard(resilience.Config{})
		client := newClient(t, llm.Config{BaseURL: answering(t, 429, body)})
		_, err := guard.CreateChatCompletion(t.Context(), client, ask("x"))
		var api *openai.APIError
		require.ErrorAs(t, err, &api)
		assert.Equal(t, "insufficient_quota", api.Code)
		assert.Less(t, len(api.Message), 2_000)
		assertOutcome(t, guard, resilience.Denied)
	}
}

// A client of another make reads it all, but the error and its span are short.
func TestLongErrorOfAnotherClientIsCut(t *testing.T) {
	spans.Reset()
	url := answering(t, 500, strings.Repeat("x", 1<<20))
	err := operations(newGuard(resilience.Config{}), plain(url))[0].do(t.Context())
	var request *openai.RequestError
	require.ErrorAs(t, err, &request)
	assert.Equal(t, 500, request.HTTPStatusCode)
	assert.Less(t, len(err.Error()), 10_000)
	assert.Less(t, spanBytes(), 20_000)
}

// A short error is the SDK's own, byte for byte.
func TestShortErrorIsNotChanged(t *testing.T) {
	const body = `{"error":{"message":"a  <b>\u00fc","type":"t","param":"p","code":1.50},"more":[1,2]}`
	_, err := newGuard(resilience.Config{}).ListModels(t.Context(),
		newClient(t, llm.Config{BaseURL: answering(t, 500, body)}))
	_, want := plain(answering(t, 500, body)).ListModels(t.Context())
	assert.Equal(t, want.Error(), err.Error())
	_, err = newGuard(resilience.Config{}).ListModels(t.Context(),
		newClient(t, llm.Config{BaseURL: answering(t, 500, `{"detail":"a  <b>"}`)}))
	require.ErrorContains(t, err, "message: a  <b>", "of a form that the SDK does not read, the message")
}

// What else of an answer is repeated: its status line, what stands for a
// number, the names of the model and the answer.
func TestNothingOfAnAnswerIsRepeatedAtLength(t *testing.T) {
	long := strings.Repeat("1", 200_000)
	for name, answer := range map[string]hostile.Answer{
		"status line": hostile.Text("HTTP/1.1 500 " + long + "\r\nConnection: close\r\n\r\n{}"),
		"a number": hostile.Text("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" +
			`{"choices":[{"index":` + long + `}],"data":[{"index":` + long + `}]}`),
		"a number in a stream": hostile.Text("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" +
			`data: {"id":"` + long + `","model":"` + long +
			`","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n" +
			`data: {"choices":[{"index":` + long + "}]}\n\n"),
	} {
		client := newClient(t, llm.Config{BaseURL: hostile.Serve(t, answer)})
		for i := range 4 {
			spans.Reset()
			if err := operations(newGuard(resilience.Config{}), client)[i].do(t.Context()); err != nil {
				assert.Less(t, len(err.Error()), 10_000, "%s, operation %d", name, i)
			}
			assert.Less(t, spanBytes(), 20_000, "%s, operation %d", name, i)
		}
	}
}

// An error without an end, or that comes slowly, is not waited for beyond what
// is repeated of it; a stream that was refused gives its connection back.
func TestEndlessErrorIsNotWaitedFor(t *testing.T) {
	served := make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		_, _ = io.WriteString(w, strings.Repeat("no ", 30_000))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		served <- struct{}{}
	}))
	defer s.Close()
	client := newClient(t, llm.Config{BaseURL: s.URL})
	for i := range 4 {
		guard := newGuard(resilience.Config{})
		err := operations(guard, client)[i].do(context.WithoutCancel(t.Context()))
		require.ErrorContains(t, err, "500")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		<-served
	}
}

// Sixty megabytes of escapes kept a call with a deadline of a second for ten.
func TestMaskingTakesNoTimeOfItsOwn(t *testing.T) {
	key := "sk-proj-" + strings.Repeat("Ab3_-xYz9", 17)
	for name, unit := range map[string]string{
		"percent": "%", "percent 25": "%25", "entities": "&#0", "ampersands": "&amp;", "escapes": `\u0073`,
		"backslashes": `\`, "beginnings": key[:60] + `\`, "zeros": "&#x0000000",
	} {
		flood := strings.Repeat(unit, (4<<20)/len(unit))
		for i, body := range []string{flood, `{"error":{"message":"` + strings.ReplaceAll(flood, `\`, `\\`) + `"}}`} {
			client := newClient(t, llm.Config{BaseURL: saying(t, "application/json", body), APIKey: key})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			err := operations(newGuard(resilience.Config{}), client)[i].do(ctx)
			cancel()
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded, name)
		}
	}
}
