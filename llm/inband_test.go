package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

// saying answers every request with body under status 200.
func saying(t *testing.T, kind, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const eventStream = "text/event-stream"

// plain is a client of another make, without the transport of this package.
func plain(url string) *openai.Client {
	cfg := openai.DefaultConfig("")
	cfg.BaseURL = url
	return openai.NewClientWithConfig(cfg)
}

// part is a chunk with a text, or a finish reason, for one choice; more is put
// beside these into the choice.
func part(choice int, text, reason, more string) string {
	if reason == "" {
		reason = "null"
	} else {
		reason = `"` + reason + `"`
	}
	return fmt.Sprintf(
		`data: {"id":"1","choices":[{"index":%d,"delta":{"content":%q},"finish_reason":%s%s}]}`+"\n\n",
		choice,
		text,
		reason,
		more,
	)
}

const (
	gone = `{"code":502,"message":"gone"}`
	done = "data: [DONE]\n\n"
)

// failures are the ways in which servers say in the middle of a stream that
// they have failed, for one choice.
var failures = []struct {
	name  string
	event func(choice int) string
	blind bool // the SDK alone lets nothing of it be seen
}{
	{"error beside choices", func(c int) string {
		return fmt.Sprintf(
			`data: {"id":"1","error":%s,"choices":[{"index":%d,"delta":{"content":""},"finish_reason":"error"}]}`+
				"\n\n",
			gone,
			c,
		)
	}, false},
	{"error before choices", func(c int) string {
		return fmt.Sprintf(
			`data: {"error":%s,"choices":[{"index":%d,"delta":{"content":""},"finish_reason":"error"}]}`+"\n\n",
			gone,
			c,
		)
	}, false},
	{"error before choices that continue", func(c int) string {
		return fmt.Sprintf(
			`data: {"error":%s,"choices":[{"index":%d,"delta":{"content":""},"finish_reason":null}]}`+"\n\n",
			gone,
			c,
		)
	}, false},
	{
		"error beside no choices",
		func(int) string { return `data: {"id":"1","choices":[],"error":` + gone + "}\n\n" },
		false,
	},
	{"error alone", func(int) string { return `data: {"error":` + gone + "}\n\n" }, false},
	{"error with a space", func(int) string { return `data: { "error": ` + gone + " }\n\n" }, false},
	{"error as text", func(int) string { return `data: {"error":"gone"}` + "\n\n" }, false},
	{"error as text beside choices", func(int) string { return `data: {"choices":[],"error":"gone"}` + "\n\n" }, false},
	{"error as a list", func(int) string { return `data: {"choices":[],"error":["gone"]}` + "\n\n" }, false},
	{"error as true", func(int) string { return `data: {"choices":[],"error":true}` + "\n\n" }, false},
	{
		"error without words",
		func(int) string { return `data: {"choices":[],"error":{"code":"server_error"}}` + "\n\n" },
		false,
	},
	{"error in the choice", func(c int) string { return part(c, "", "", `,"error":`+gone) }, false},
	{"error in the choice that stops", func(c int) string { return part(c, "", "stop", `,"error":`+gone) }, false},
	{"error in the delta", func(c int) string {
		return fmt.Sprintf(`data: {"choices":[{"index":%d,"delta":{"error":%s},"finish_reason":null}]}`+"\n\n", c, gone)
	}, false},
	{"error in the message", func(c int) string {
		return fmt.Sprintf(
			`data: {"choices":[{"index":%d,"message":{"error":%s},"finish_reason":null}]}`+"\n\n",
			c,
			gone,
		)
	}, false},
	{"reason error", func(c int) string { return part(c, "", "error", "") }, false},
	{"reason ERROR", func(c int) string { return part(c, "", "ERROR", "") }, false},
	{"reason abort", func(c int) string { return part(c, "", "abort", "") }, false},
	{"reason network_error", func(c int) string { return part(c, "", "network_error", "") }, false},
	{
		"reason insufficient_system_resource",
		func(c int) string { return part(c, "", "insufficient_system_resource", "") },
		false,
	},
	{"flat error", func(int) string {
		return `data: {"object":"error","message":"gone","type":"InternalServerError","code":502}` + "\n\n"
	}, false},
	{
		"comments and an error",
		func(int) string { return ": PROCESSING\n\n: PROCESSING\n\n" + `data: {"error":` + gone + "}\n\n" },
		false,
	},
	{"event error", func(int) string { return "event: error\ndata: {\"error\":" + gone + "}\n\n" }, false},
	{"event error with its type", func(int) string {
		return "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"gone\"}}\n\n"
	}, false},
	{"event error with a number", func(int) string { return "event:error\r\ndata:17\r\n\r\n" }, false},
	{"event error in words", func(int) string { return "event: error\ndata: gone\n\n" }, false},
	{
		"event error without an error",
		func(int) string { return "event: error\ndata: {\"message\":\"gone\"}\n\n" },
		true,
	},
	{"event error with nothing", func(int) string { return "event: error\ndata: {}\n\n" }, true},
	{"error as a field", func(int) string { return "error: " + gone + "\n\n" }, true},
	{"event error in other case", func(int) string { return "event: Error\ndata: {\"message\":\"gone\"}\n\n" }, true},
	{"event error after its data", func(int) string { return "data: {\"message\":\"gone\"}\nevent: error\n\n" }, true},
	{"event error after a chunk", func(c int) string { return "data: {\"choices\":[]}\nevent: error\n\n" }, true},
	{"event error without data", func(int) string { return "event: error\n\n" }, true},
	{"event error with empty data", func(int) string { return "event: error\ndata:\n\n" }, true},
	{
		"error over several lines",
		func(int) string { return "{\n  \"error\": {\n    \"code\": 502,\n    \"message\": \"gone\"\n  }\n}\n" },
		true,
	},
	{
		"error over several lines and a blank one",
		func(int) string { return "{\n\"error\":\n\n" + gone + "\n}\n\n" },
		true,
	},
	{"error by its type", func(int) string { return `data: {"type":"error","message":"gone"}` + "\n\n" }, false},
	{"error by its type without data", func(int) string { return `{"type":"error","message":"gone"}` + "\n\n" }, true},
	{"reason with spaces", func(c int) string { return part(c, "", " error ", "") }, false},
	{"reason ERROR_TOXIC", func(c int) string { return part(c, "", "ERROR_TOXIC", "") }, false},
	{"reason timeout", func(c int) string { return part(c, "", "timeout", "") }, false},
}

// positions are the places of a failure in a stream of two choices, the second
// of which it strikes, and the text that comes before it.
var positions = []struct {
	name   string
	before string
	text   string
}{
	{"first chunk", "", ""},
	{"in the middle", part(0, "a", "", "") + part(1, "b", "", ""), "ab"},
	{"last chunk", part(0, "a", "", "") + part(1, "b", "", "") + part(0, "", "stop", ""), "ab"},
	{"after another choice's end", part(0, "a", "stop", "") + part(1, "b", "", ""), "ab"},
	{"after its own end", part(1, "b", "stop", ""), "b"},
	{
		"after all ends",
		part(
			0,
			"a",
			"stop",
			"",
		) + part(
			1,
			"b",
			"length",
			"",
		) + `data: {"choices":[],"usage":{"total_tokens":3}}` + "\n\n",
		"ab",
	},
}

// A stream in which the server said that it had failed ended as a whole answer.
func TestFailureInTheMiddleOfAStreamIsNoSuccess(t *testing.T) {
	for _, failure := range failures {
		for _, at := range positions {
			for choice := range 2 {
				for _, end := range []string{done, ""} {
					t.Run(
						fmt.Sprintf("%s/%s/choice %d/%d", failure.name, at.name, choice, len(end)),
						func(t *testing.T) {
							url := saying(t, eventStream, at.before+failure.event(choice)+end)
							guard := newGuard(resilience.Config{})
							text, err := readWith(guard, newClient(t, llm.Config{BaseURL: url}))
							assert.Equal(t, at.text, text, "what came before it")
							var contract *llm.ContractError
							require.ErrorAs(t, err, &contract)
							var api *openai.APIError
							require.ErrorAs(t, err, &api)
							assertOutcome(t, guard, resilience.Failure)

							guard = newGuard(resilience.Config{})
							text, err = readWith(guard, plain(url))
							assert.Equal(t, at.text, text, "what came before it, to a client of another make")
							if !failure.blind {
								require.Error(t, err)
								assertOutcome(t, guard, resilience.Failure)
							}
						},
					)
				}
			}
		}
	}
}

func readWith(g llm.Guard, c llm.ChatStreamClient) (string, error) {
	return readAnswers(g, c, 0)
}

// readAnswers asks for n answers, 0 being the server's own number.
func readAnswers(g llm.Guard, c llm.ChatStreamClient, n int) (string, error) {
	request := ask("x")
	request.N = n
	stream, err := g.CreateChatCompletionStream(context.Background(), c, request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := drain(stream)
	if _, again := stream.Recv(); err != nil && !errors.Is(again, err) {
		return text, errors.Join(err, errors.New("the end is not sticky"))
	}
	return text, err
}

// What is said beside a good answer and means nothing, or is an end that the
// caller asked for.
func TestWholeAnswersWithErrorFieldsAreSuccesses(t *testing.T) {
	long := part(0, "a", "", "")
	for name, body := range map[string]string{
		"error null first":       `data: {"error":null,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n" + done,
		"error null last":        `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"error":null}` + "\n\n" + done,
		"error empty":            `data: {"error":{},"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n" + done,
		"error without a value":  `data: {"error":{"code":0,"message":"","param":null},"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n" + done,
		"error null in a choice": part(0, "a", "stop", `,"error":null`) + done,
		"cut at its length":      long + part(0, "", "length", "") + done,
		"filtered":               long + part(0, "", "content_filter", "") + done,
		"calls a tool":           long + part(0, "", "tool_calls", "") + done,
		"a filter's own error": part(0, "a", "stop",
			`,"content_filter_results":{"error":{"code":"content_filter_error","message":"not filtered"}}`) +
			done,
		"annotated after its end": long + part(0, "", "stop", "") +
			part(0, "", "", `,"content_filter_offsets":{"check_offset":3}`) + done,
		"no newline after its end":       long + strings.TrimSuffix(part(0, "", "stop", ""), "\n\n"),
		"another event":                  "event: message\n" + part(0, "a", "stop", "") + done,
		"an error event that says DONE":  long + part(0, "", "stop", "") + "event: error\n" + done,
		"a field named error in a field": part(0, "a", "stop", `,"logprobs":null,"x":{"error":"no"}`) + done,
		"a name after a chunk": long + "data: {\"choices\":[]}\nevent: message\n\n" +
			part(0, "", "stop", "") + done,
		"one line for each event": strings.ReplaceAll(long+"data: {\"x\":1}\n"+part(0, "", "stop", "")+done,
			"\n\n", "\n"),
		"JSON that is no event": long + "{\n\"error\": null\n}\n" + part(0, "", "stop", "") + done,
		"a chunk without choices": "data: {\"id\":\"1\"}\n\n" + part(0, "a", "stop", "") +
			`data: {"usage":{"total_tokens":3}}` + "\n\n",
	} {
		guard := newGuard(resilience.Config{})
		text, err := readWith(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, body)}))
		require.NoError(t, err, name)
		assert.Equal(t, "a", text, name)
		assertOutcome(t, guard, resilience.Success)
	}
}

// A text that shares its chunk with the failure is handed over first.
func TestTextBesideAFailureIsHandedOver(t *testing.T) {
	url := saying(t, eventStream, part(0, "a", "", "")+part(0, "b", "error", "")+done)
	guard := newGuard(resilience.Config{})
	stream, err := guard.CreateChatCompletionStream(t.Context(), plain(url), ask("x"))
	require.NoError(t, err)
	text, err := drain(stream)
	require.ErrorContains(t, err, `finish reason "error"`)
	assert.Equal(t, "ab", text)
	require.NoError(t, stream.Close())
	assertOutcome(t, guard, resilience.Failure)
}

func TestRawStreamFailsInTheMiddle(t *testing.T) {
	url := saying(t, eventStream, part(0, "a", "", "")+part(0, "", "error", `,"error":`+gone)+done)
	guard := newGuard(resilience.Config{})
	stream, err := guard.CreateChatCompletionStream(t.Context(), newClient(t, llm.Config{BaseURL: url}), ask("x"))
	require.NoError(t, err)
	defer stream.Close()
	_, err = stream.RecvRaw()
	require.NoError(t, err)
	_, err = stream.RecvRaw()
	require.ErrorContains(t, err, "gone")
	_, again := stream.RecvRaw()
	assert.Same(t, err, again)
	assertOutcome(t, guard, resilience.Failure)
}

// One choice of two came to its end, and the stream broke off before the other:
// that was a whole answer.
func TestChoiceWithoutItsEndIsNotWhole(t *testing.T) {
	for body, want := range map[string]resilience.Outcome{
		part(0, "a", "stop", "") + part(1, "b", "", ""):                              resilience.Failure,
		part(0, "a", "", "") + part(1, "b", "stop", "") + done:                       resilience.Failure,
		part(0, "a", "stop", "") + part(1, "b", "", "") + part(1, "", "stop", ""):    resilience.Success,
		part(0, "a", "stop", "") + part(1, "b", "stop", "") + part(0, "", "", ""):    resilience.Success,
		part(0, "a", "", "") + part(1, "b", "", "") + part(0, "", "stop", "") + done: resilience.Failure,
	} {
		guard := newGuard(resilience.Config{})
		_, err := readAnswers(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, body)}), 2)
		assert.Equal(t, want == resilience.Success, err == nil, "%s: %v", body, err)
		assertOutcome(t, guard, want)
	}
}

// TGI 1.4 counts the tokens in the index of the choice, and only the last has a
// finish reason: no answer was whole.
func TestTokensCountedAsChoicesAreOneAnswer(t *testing.T) {
	for n := range 2 {
		for last, want := range map[string]resilience.Outcome{
			part(3, "c", "stop", ""): resilience.Success, part(3, "c", "stop", "") + done: resilience.Success,
			part(3, "c", "", ""): resilience.Failure, part(3, "c", "", "") + done: resilience.Success,
		} {
			guard := newGuard(resilience.Config{})
			url := saying(t, eventStream, part(1, "a", "", "")+part(2, "b", "", "")+last)
			text, err := readAnswers(guard, newClient(t, llm.Config{BaseURL: url}), n)
			assert.Equal(t, want == resilience.Success, err == nil, "%d %q: %v", n, last, err)
			assert.Equal(t, "abc", text)
			assertOutcome(t, guard, want)
		}
	}
}

// saidCodes are what errors in an answer say of themselves, and what the
// breaker makes of it.
var saidCodes = []struct {
	said string
	want resilience.Outcome
}{
	{`{"message":"x"}`, resilience.Failure},
	{`{"message":"x","code":400}`, resilience.Ignored},
	{`{"message":"x","code":"400"}`, resilience.Ignored},
	{`{"message":"x","status_code":400}`, resilience.Ignored},
	{`{"message":"x","status":400}`, resilience.Ignored},
	{`{"message":"x","code":"context_length_exceeded"}`, resilience.Ignored},
	{`{"message":"x","type":"invalid_request_error","code":"tool_use_failed"}`, resilience.Ignored},
	{`{"message":"x","type":"BadRequestError","code":400}`, resilience.Ignored},
	{`{"message":"x","type":"not_found_error"}`, resilience.Ignored},
	{`{"message":"x","code":405}`, resilience.Ignored},
	{`{"message":"x","code":401}`, resilience.Denied},
	{`{"message":"x","code":"invalid_api_key"}`, resilience.Denied},
	{`{"message":"x","code":402}`, resilience.Denied},
	{`{"message":"x","code":"402"}`, resilience.Denied},
	{`{"message":"x","code":403}`, resilience.Denied},
	{`{"message":"x","code":"insufficient_quota"}`, resilience.Denied},
	{`{"message":"x","type":"insufficient_quota","code":429}`, resilience.Denied},
	{`{"message":"x","type":"billing_error"}`, resilience.Denied},
	{`{"message":"x","code":429}`, resilience.Throttled},
	{`{"message":"x","code":"429"}`, resilience.Throttled},
	{`{"message":"x","code":429.0,"status":"RESOURCE_EXHAUSTED"}`, resilience.Throttled},
	{`{"message":"x","code":"rate_limit_exceeded"}`, resilience.Throttled},
	{`{"message":"x","type":"rate_limit_error"}`, resilience.Throttled},
	{`{"message":"x","code":408}`, resilience.Failure},
	{`{"message":"x","code":501}`, resilience.Ignored},
	{`{"message":"x","code":502}`, resilience.Failure},
	{`{"message":"x","code":503}`, resilience.Failure},
	{`{"message":"x","code":"server_error"}`, resilience.Failure},
	{`{"message":"x","type":"overloaded_error"}`, resilience.Failure},
	{`{"message":"x","code":1301}`, resilience.Failure},
	{`"x"`, resilience.Failure},
}

// An error beside what looks like an answer was dropped by the SDK, and the
// answer taken for a good one.
func TestErrorBesideAnAnswerIsNoSuccess(t *testing.T) {
	const (
		chat    = `"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"%s}]`
		vectors = `"data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":[0,1]}]`
		models  = `"data":[{"id":"m"}]`
	)
	for _, row := range saidCodes {
		for name, body := range map[string]string{
			"0 beside":        `{"id":"1",` + fmt.Sprintf(chat, "") + `,"error":` + row.said + `}`,
			"0 before":        `{"error":` + row.said + `,` + fmt.Sprintf(chat, "") + `}`,
			"0 alone":         `{"error":` + row.said + `}`,
			"0 in the choice": `{` + fmt.Sprintf(chat, `,"error":`+row.said) + `}`,
			"0 in the message": `{"choices":[{"message":{"content":"a","error":` + row.said +
				`},"finish_reason":"stop"}]}`,
			"0 in the last choice": `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"finish_reason":"error","error":` + row.said + `}]}`,
			"1 beside": `data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}],"error":` +
				row.said + "}\n\n" + done,
			"1 alone":         `data: {"error":` + row.said + "}\n\n" + done,
			"1 in the choice": part(0, "", "error", `,"error":`+row.said) + done,
			"1 event":         "event: error\ndata: " + row.said + "\n\n" + done,
			"1 field":         "error: " + row.said + "\n\n" + done,
			"2 beside":        `{"object":"list",` + vectors + `,"error":` + row.said + `}`,
			"2 before":        `{"error":` + row.said + `,` + vectors + `}`,
			"2 alone":         `{"error":` + row.said + `}`,
			"3 beside":        `{"object":"list",` + models + `,"error":` + row.said + `}`,
			"3 alone":         `{"error":` + row.said + `}`,
		} {
			t.Run(row.said+"/"+name, func(t *testing.T) {
				kind := map[bool]string{true: eventStream, false: "application/json"}[name[0] == '1']
				guard := newGuard(resilience.Config{})
				call := operations(guard, newClient(t, llm.Config{BaseURL: saying(t, kind, body)}))[name[0]-'0']
				err := call.do(t.Context())
				var contract *llm.ContractError
				require.ErrorAs(t, err, &contract)
				assert.Contains(t, contract.Problem, "x", "the server's words")
				assert.NotEqual(t, "request", contract.Operation)
				var api *openai.APIError
				require.ErrorAs(t, err, &api)
				assert.Equal(t, "x", api.Message)
				assertOutcome(t, guard, row.want)
			})
		}
	}
}

func TestErrorNullBesideAnAnswerIsASuccess(t *testing.T) {
	for i, body := range []string{
		`{"error":null,"choices":[{"index":0,"message":{"content":"an \"error\": {}"},"finish_reason":"stop","error":null}]}`,
		`data: {"error":null,"choices":[{"index":0,"delta":{"content":"\"error\""},"finish_reason":"stop"}]}` +
			"\n\n" + done,
		`{"error":null,"data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":[0,1]}]}`,
		`{"error":{"message":""},"data":[]}`,
	} {
		guard := newGuard(resilience.Config{})
		require.NoError(
			t,
			operations(guard, newClient(t, llm.Config{BaseURL: saying(t, "application/json", body)}))[i].do(
				t.Context(),
			),
			body,
		)
		assertOutcome(t, guard, resilience.Success)
	}
}

// Some servers send an error with every answer, which says that nothing failed.
func TestErrorThatSaysSuccessIsNone(t *testing.T) {
	for said, ok := range map[string]bool{
		`{"code":0,"message":"success"}`:                      true,
		`{"code":0,"message":"OK","type":"","param":null}`:    true,
		`{"code":"0","message":" Success. "}`:                 true,
		`{"code":200,"message":"success"}`:                    true,
		`{"code":"200","message":""}`:                         true,
		`{"status":204}`:                                      true,
		`{"code":0,"message":"out of memory"}`:                false,
		`{"code":200,"message":"out of memory"}`:              false,
		`{"code":0,"type":"server_error"}`:                    false,
		`{"code":300,"message":"success"}`:                    false,
		`{"code":199}`:                                        false,
		`{"code":500,"message":"success"}`:                    false,
		`{"code":500,"status":200}`:                           false,
		`{"message":"success","reason":{"message":"broken"}}`: false,
		`"success"`: false,
	} {
		for i, body := range []string{
			`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"error":` + said + `}`,
			`data: {"error":` + said + `,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` +
				"\n\n" + done,
		} {
			guard := newGuard(resilience.Config{})
			err := operations(guard, newClient(t, llm.Config{BaseURL: saying(t, "application/json", body)}))[i].do(
				t.Context(),
			)
			assert.Equal(t, ok, err == nil, "%s: %v", body, err)
		}
	}
}

// Of an answer of its own, a client of another make shows the finish reasons.
func TestFinishReasonOfAFailureIsSeenWithEveryClient(t *testing.T) {
	for reason, ok := range map[string]bool{
		"stop": true, "length": true, "content_filter": true, "tool_calls": true, "function_call": true,
		"eos": true, "": true,
		"STOP": true, "end_turn": true, "max_tokens": true, "SAFETY": true, "eos_token": true, "tool_error": true,
		"error": false, "Error": false, "abort": false, "network_error": false, "insufficient_system_resource": false,
		" error\\t": false, "error_toxic": false, "ERROR_TOXIC": false, "aborted": false,
		"timeout": false, "Timeout": false,
		"failed": false, "cancelled": false, "canceled": false, "server_error": false, "internal_error": false,
		"MALFORMED_FUNCTION_CALL": false,
	} {
		body := `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"message":{"content":"b"},"finish_reason":"` + reason + `"}]}`
		url := saying(t, "application/json", body)
		for _, client := range []*openai.Client{plain(url), newClient(t, llm.Config{BaseURL: url})} {
			guard := newGuard(resilience.Config{})
			_, err := guard.CreateChatCompletion(t.Context(), client, ask("x"))
			assert.Equal(t, ok, err == nil, "%s: %v", reason, err)
		}
	}
}

// The words of an error in an answer may hold the key, or fill the answer.
func TestWordsOfAFailureAreMaskedAndShort(t *testing.T) {
	const key = "sk-of-this-test"
	long := strings.Repeat("ü", 10_000)
	for i, bodies := range [][]string{
		{
			`{"choices":[],"error":{"message":"bad KEY"}}`,
			`{"choices":[{"message":{"content":"KEY"}}],"error":"bad KEY"}`,
		},
		{
			`data: {"error":{"message":"bad KEY"}}` + "\n\n", part(0, "", "error", `,"error":{"message":"bad KEY"}`),
			"event: error\ndata: bad KEY\n\n", "error: {\"message\":\"bad KEY\"}\n\n",
			`{"error":{"message":"bad KEY"}}`,
		},
		{`{"data":[],"error":{"message":"bad KEY"}}`},
		{`{"error":{"message":"bad KEY"}}`, `{"error":{"detail":"bad KEY"}}`},
	} {
		for _, body := range bodies {
			for word, want := range map[string]string{key: "bad ********", long: "bad üüü"} {
				url := saying(t, "text/plain", strings.ReplaceAll(body, "KEY", word))
				err := operations(newGuard(resilience.Config{}),
					newClient(t, llm.Config{BaseURL: url, APIKey: key}))[i].do(
					t.Context(),
				)
				require.ErrorContains(t, err, want, body)
				assert.NotContains(t, err.Error(), key)
				assert.Less(t, len(err.Error()), 5_000)
			}
		}
	}
	url := saying(t, eventStream, part(0, key, "stop", ""))
	text, err := readWith(newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: url, APIKey: key}))
	require.NoError(t, err)
	assert.Equal(t, key, text, "an answer is not masked")
}

// An HTTP client of this package is used for more than the doors, and an error
// may be what was asked for.
func TestAnswersThatNoDoorAskedForAreLeftAlone(t *testing.T) {
	const body = `{"id":"job","error":{"code":"500","message":"that one failed"}}`
	client := newClient(t, llm.Config{BaseURL: saying(t, "application/json", body)})
	job, err := client.RetrieveFineTuningJob(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, "job", job.ID)
}

// wrapping is a client whose connection breaks with an error around io.EOF.
type wrapping struct{ http.RoundTripper }

func (w wrapping) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.MultiReader(strings.NewReader(part(0, "a", "stop", "")), brokenReader{})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body), Request: r}, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, fmt.Errorf("read tcp: %w", io.EOF) }

// An error that wraps io.EOF is a broken connection; callers compare with
// errors.Is and took it for the end.
func TestErrorAroundEOFIsNotTheEnd(t *testing.T) {
	cfg := openai.DefaultConfig("")
	cfg.HTTPClient = &http.Client{Transport: wrapping{}}
	guard := newGuard(resilience.Config{})
	text, err := readWith(guard, openai.NewClientWithConfig(cfg))
	assert.Equal(t, "a", text)
	require.ErrorContains(t, err, "read tcp: EOF")
	require.NotErrorIs(t, err, io.EOF)
	assertOutcome(t, guard, resilience.Failure)
}

const mark = "\ufeff"

// The first event of a stream with a byte order mark was passed over, and half
// an answer was a whole one.
func TestMarkAtTheStartOfAStreamIsNoPartOfIt(t *testing.T) {
	for body, want := range map[string]resilience.Outcome{
		part(0, "a", "", "") + part(0, "b", "stop", "") + done:                    resilience.Success,
		": hello\n\n" + part(0, "a", "", "") + part(0, "b", "stop", ""):           resilience.Success,
		`data: {"error":` + gone + "}\n\n" + part(0, "", "stop", "") + done:       resilience.Failure,
		"event: error\ndata: {\"code\":502}\n\n" + part(0, "", "stop", "") + done: resilience.Failure,
		part(0, "a", "stop", "") + "event: error":                                 resilience.Failure,
		`{"error":` + gone + "}":                                                  resilience.Failure,
	} {
		guard := newGuard(resilience.Config{})
		text, err := readWith(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, mark+body)}))
		if want == resilience.Success {
			require.NoError(t, err, body)
			assert.Equal(t, "ab", text)
		}
		assertOutcome(t, guard, want)
	}
}

// The SDK gave a whole answer up after 300 lines without data.
func TestLinesWithoutDataAreNoFailure(t *testing.T) {
	for name, line := range map[string]string{
		"comments": ": OPENROUTER PROCESSING\n\n", "blank lines": "\n", "names": "event: message\n",
		"numbers": "id: 1\r\n", "delays": "retry: 10\n",
		"empty comments": ":\n", "empty data": "data:\n", "empty data with its end": "data: \r\n\r\n",
		"data without a colon": "data\n\n",
	} {
		lines := strings.Repeat(line, 1_000)
		guard := newGuard(resilience.Config{})
		body := lines + part(0, "a", "", "") + lines + part(0, "b", "stop", "") + lines + done
		text, err := readWith(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, body)}))
		require.NoError(t, err, name)
		assert.Equal(t, "ab", text, name)
		assertOutcome(t, guard, resilience.Success)
	}
}

// The connection was cut off in the very last line, which says no more than
// that the stream has ended.
func TestLastLineThatIsCutOff(t *testing.T) {
	for _, last := range []string{"data: [DONE]", "data: [DON", "data:[", "data: ", "dat", ""} {
		for end, want := range map[string]resilience.Outcome{"stop": resilience.Success, "": resilience.Failure} {
			for name, url := range map[string]string{
				"ended": saying(t, eventStream, part(0, "a", end, "")+last),
				"broken": hostile.Serve(t,
					hostile.Text("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"+part(0, "a", end, "")+last)),
			} {
				want := want
				switch {
				case last == "data: [DONE]":
					want = resilience.Success // it says itself that it was whole
				case name == "broken" && !strings.Contains(last, "["):
					want = resilience.Failure // nothing says that it was whole
				}
				guard := newGuard(resilience.Config{})
				text, err := readWith(guard, newClient(t, llm.Config{BaseURL: url}))
				assert.Equal(t, want == resilience.Success, err == nil, "%q after %q, %s: %v", last, end, name, err)
				assert.Equal(t, "a", text)
				assertOutcome(t, guard, want)
			}
		}
	}
}
