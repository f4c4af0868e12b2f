package llm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// spread writes the JSON of a stream's events over several lines.
func spread(stream string) string {
	return strings.NewReplacer(`,"`, ",\ndata: \"", "[{", "[\ndata:{", "}]", "}\ndata\ndata:\ndata: ]").Replace(stream)
}

// By the standard an event may have several lines of data, and a line may end
// in a carriage return.
func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	whole := part(0, "a", "", "") + ": a comment\n\n" + part(0, "b", "stop", "") + done
	for name, body := range map[string]string{
		"line feeds": whole, "several lines": spread(whole),
		"pretty": "data: {\ndata:   \"choices\": [{\"index\":0,\ndata: \"delta\":{\"content\":\"ab\"},\n" +
			"id: 7\n: a comment\ndata: \"finish_reason\":\"stop\"}]\ndata: }\n\n" + done,
		"one line for each event":       strings.ReplaceAll(whole, "\n\n", "\n"),
		"several lines, no blank lines": strings.ReplaceAll(spread(whole), "\n\n", "\n"),
		"no last line":                  strings.TrimSuffix(spread(part(0, "ab", "stop", "")), "\n\n"),
		"brackets in a text":            spread(strings.Replace(whole, `"b"`, `"b","x":"]}\\\"}{["`, 1)),
	} {
		for end, lineEnd := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r"} {
			guard := newGuard(resilience.Config{})
			url := saying(t, eventStream, strings.ReplaceAll(body, "\n", lineEnd))
			text, err := readWith(guard, newClient(t, llm.Config{BaseURL: url}))
			require.NoError(t, err, "%s, %s", name, end)
			assert.Equal(t, "ab", text, "%s, %s", name, end)
			assertOutcome(t, guard, resilience.Success)
		}
	}
}

// A line that ends in a carriage return is not held back for the next one.
func TestLineIsPassedOnAtItsEnd(t *testing.T) {
	body := strings.ReplaceAll(part(0, "a", "", ""), "\n\n", "\r")
	client := newClient(t, llm.Config{BaseURL: silentAfter(t, body, false)})
	stream, err := newGuard(resilience.Config{}).CreateChatCompletionStream(t.Context(), client, ask("x"))
	require.NoError(t, err)
	chunk, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, "a", chunk.Choices[0].Delta.Content)
	require.NoError(t, stream.Close())
}

func TestEventThatIsNotWholeFails(t *testing.T) {
	for name, body := range map[string]string{
		"half an event":       "data: {\"choices\":\n\n" + part(0, "a", "stop", "") + done,
		"half, no blank line": "data: {\"choices\":\n" + part(0, "a", "stop", "") + done,
		"half at the end":     part(0, "a", "", "") + "data: {\"choices\":[\ndata: {\"delta\":{},",
		"a text over two lines": "data: {\"choices\":[{\"delta\":{\"content\":\"a\n" +
			"data: b\"},\"finish_reason\":\"stop\"}]}\n\n" + done,
		"an error over two lines": part(0, "a", "", "") +
			"data: {\"error\":\ndata: {\"message\":\"down\"}}\n\n" + done,
		"an event named error":     part(0, "a", "stop", "") + "event: error\ndata: {\ndata: \"x\":1}\n\n" + done,
		"named error after it":     part(0, "a", "stop", "") + "data: {\ndata: \"x\":1}\nevent: error\n\n" + done,
		"an error, CR":             strings.ReplaceAll(part(0, "a", "stop", "")+"event: error\n\n"+done, "\n", "\r"),
		"an unfinished error":      part(0, "a", "stop", "") + "event: error\ndata: {\n\n" + done,
		"an unfinished error, end": part(0, "a", "stop", "") + "event: error\ndata: {",
	} {
		guard := newGuard(resilience.Config{})
		_, err := readWith(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, body)}))
		require.Error(t, err, name)
		assertOutcome(t, guard, resilience.Failure)
	}
}

// An error in place of a chunk, without the word, was passed over, and what
// came before it a whole answer.
func TestEventThatSaysAnErrorInWordsAndCodeIsOne(t *testing.T) {
	for said, want := range map[string]resilience.Outcome{
		`{"message":"internal error","code":500}`:                             resilience.Failure,
		`{"code":"500","message":"internal error","request_id":"1"}`:          resilience.Failure,
		`{"code":"InternalError.Algo","message":"broken","request_id":"1"}`:   resilience.Failure,
		`{"error_code":336100,"error_msg":"try again","id":"1"}`:              resilience.Failure,
		`{"status":503,"message":"busy"}`:                                     resilience.Failure,
		`{"status_code":502,"detail":"bad gateway"}`:                          resilience.Failure,
		`{"code":429,"msg":"slow down"}`:                                      resilience.Throttled,
		`{"code":"invalid_api_key","message":"who are you"}`:                  resilience.Denied,
		`{"code":400,"message":"too long"}`:                                   resilience.Ignored,
		`{"choices":[],"code":500,"message":"internal error"}`:                resilience.Failure,
		`{"choices":null,"code":500,"message":"internal error","object":"x"}`: resilience.Failure,
		`{"type":"ping"}`:                                                      resilience.Success,
		`{"type":"ping","message":"still here"}`:                               resilience.Success,
		`{"message":"warming up"}`:                                             resilience.Success,
		`{"code":0,"message":"ok"}`:                                            resilience.Success,
		`{"code":200,"message":"success"}`:                                     resilience.Success,
		`{"code":200,"message":"queued"}`:                                      resilience.Success,
		`{"code":"Success","message":"done"}`:                                  resilience.Success,
		`{"code":1,"msg":"success"}`:                                           resilience.Success,
		`{"code":102,"message":"processing"}`:                                  resilience.Success,
		`{"status":"queued","message":"position 3"}`:                           resilience.Success,
		`{"code":1,"message":"step 1 of 3"}`:                                   resilience.Success,
		`{"code":"QUEUED","message":"position 3"}`:                             resilience.Success,
		`{"error_code":0,"error_msg":"none"}`:                                  resilience.Success,
		`{"error_code":17,"error_msg":"daily limit reached"}`:                  resilience.Failure,
		`{"code":-1,"message":"down"}`:                                         resilience.Failure,
		`{"code":1301,"message":"not allowed"}`:                                resilience.Failure,
		`{"code":"Throttling.RateQuota","message":"slow down"}`:                resilience.Failure,
		`{"code":500}`:                                                         resilience.Success,
		`{"choices":[],"usage":{"total_tokens":3}}`:                            resilience.Success,
		`{"choices":[],"code":"","message":"","usage":{"total_tokens":3}}`:     resilience.Success,
		`{"type":"message_start","message":{"id":"1"},"code":7}`:               resilience.Success,
		`{"choices":[{"index":0,"delta":{}}],"message":"filtered","code":"x"}`: resilience.Success,
	} {
		body := part(0, "a", "", "") + "data: " + said + "\n\n" + part(0, "", "stop", "") + done
		url := saying(t, eventStream, body)
		for who, client := range map[string]llm.ChatStreamClient{
			"ours": newClient(t, llm.Config{BaseURL: url}), "other": plain(url),
		} {
			guard := newGuard(resilience.Config{})
			_, err := readWith(guard, client)
			assert.Equal(t, want == resilience.Success, err == nil, "%s, %s: %v", said, who, err)
			assertOutcome(t, guard, want)
		}
	}
}

// The same in place of an answer: its code decides, where it was a failure.
func TestAnswerThatSaysAnErrorInWordsAndCodeIsRead(t *testing.T) {
	url := saying(t, "application/json", `{"code":429,"message":"slow down"}`)
	for _, call := range []int{0, 2, 3} {
		guard := newGuard(resilience.Config{})
		err := operations(guard, newClient(t, llm.Config{BaseURL: url}))[call].do(t.Context())
		require.ErrorContains(t, err, "slow down")
		assertOutcome(t, guard, resilience.Throttled)
	}
}
