package llm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// Streams as servers other than OpenAI's write them.

// reasoned is a chunk with a finish reason as it stands in the JSON, or none.
func reasoned(choice int, delta, reason string) string {
	if reason != "" {
		reason = `,"finish_reason":` + reason
	}
	return fmt.Sprintf(`data: {"choices":[{"index":%d,"delta":{%s}%s}]}`+"\n\n", choice, delta, reason)
}

// noReasons are the ways of servers to name no finish reason.
var noReasons = []string{``, `null`, `""`, `" "`, `"null"`, `"NULL"`, `" Null "`}

// Five whole answers without a finish reason opened the breaker.
func TestDoneAfterContentIsAWholeAnswer(t *testing.T) {
	for _, reason := range noReasons {
		for _, content := range []string{
			`"content":"a"`, `"reasoning_content":"hm"`, `"reasoning":"hm"`, `"refusal":"no"`,
			`"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]`,
		} {
			body := reasoned(0, `"role":"assistant"`, reason) + reasoned(0, content, reason) + reasoned(0, ``, reason)
			guard := newGuard(resilience.Config{})
			client := newClient(t, llm.Config{BaseURL: saying(t, eventStream, body+done)})
			for range 5 {
				_, err := readWith(guard, client)
				require.NoError(t, err, "%q, %s", reason, content)
			}
			assert.Equal(t, resilience.Closed, guard.Breaker.State())
			assert.Equal(t, uint64(5), guard.Breaker.Snapshot().Successes)
		}
	}
}

// "null" in quotes was taken for an end, and half an answer for a whole one.
func TestNoFinishReasonIsNoEndByItself(t *testing.T) {
	for _, reason := range noReasons {
		body := reasoned(0, `"content":"a"`, reason)
		for name, end := range map[string]string{
			"the end of the connection": "", "half of the last line": "data: [DON", "a comment": ": bye\n\n",
		} {
			for kind, client := range map[string]*openai.Client{
				"ours":    newClient(t, llm.Config{BaseURL: saying(t, eventStream, body+end)}),
				"another": plain(saying(t, eventStream, body+end)),
			} {
				guard := newGuard(resilience.Config{})
				_, err := readWith(guard, client)
				var contract *llm.ContractError
				require.ErrorAs(t, err, &contract, "%q, %s, %s", reason, name, kind)
				assertOutcome(t, guard, resilience.Failure)
			}
		}
	}
}

func TestDoneWithoutContentIsNoAnswer(t *testing.T) {
	for _, reason := range noReasons {
		for _, body := range []string{
			"", reasoned(0, `"role":"assistant"`, reason), reasoned(0, `"content":""`, reason),
			reasoned(0, `"content":null,"tool_calls":[]`, reason), `data: {"choices":[]}` + "\n\n",
		} {
			guard := newGuard(resilience.Config{})
			_, err := readWith(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, body+done)}))
			var contract *llm.ContractError
			require.ErrorAs(t, err, &contract, body)
			assertOutcome(t, guard, resilience.Failure)
		}
	}
	guard := newGuard(resilience.Config{})
	_, err := readWith(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, part(0, "", "stop", "")+done)}))
	require.NoError(t, err, "an empty answer with its end")
}

func TestSeveralChoicesAreWholeTogether(t *testing.T) {
	for body, ok := range map[string]bool{
		part(0, "a", "stop", "") + part(1, "b", "stop", ""):                                    true,
		part(0, "a", "stop", "") + part(1, "b", "", "") + done:                                 false,
		part(0, "a", "", "") + part(1, "b", "null", "") + part(0, "", "stop", "") + done:       false,
		part(0, "a", "", "") + part(1, "b", "", "") + done:                                     true,
		part(0, "a", "", "") + part(1, "b", "", ""):                                            false,
		part(0, "a", "", "") + done:                                                            false,
		part(0, "a", "", "") + part(1, "", "", "") + done:                                      false,
		part(0, "a", "null", "") + reasoned(1, `"reasoning":"b"`, "null") + done:               true,
		reasoned(0, `"content":"a"`, "") + reasoned(1, `"refusal":"b"`, `"null"`) + done:       true,
		part(0, "a", "stop", "") + part(1, "b", "length", "") + part(0, "", "", "") + done:     true,
		part(0, "a", "stop", "") + part(1, "b", " NULL ", "") + part(1, "", "stop", "") + done: true,
	} {
		guard := newGuard(resilience.Config{})
		_, err := readAnswers(guard, newClient(t, llm.Config{BaseURL: saying(t, eventStream, body)}), 2)
		assert.Equal(t, ok, err == nil, "%s: %v", body, err)
		if !ok {
			var contract *llm.ContractError
			require.ErrorAs(t, err, &contract)
			assertOutcome(t, guard, resilience.Failure)
		}
	}
}

// Of several choices at once, one without an end among others that have theirs
// was cut off. Where none has one, the server names no reasons.
func TestOneOfSeveralChoicesIsCutOff(t *testing.T) {
	for reasons, ok := range map[string]bool{
		"stop,stop": true, "stop,length": true, "stop,": false, ",stop": false, "stop,null": false,
		" NULL ,stop": false, ",": true, "null,": true,
	} {
		first, second, _ := strings.Cut(reasons, ",")
		body := fmt.Sprintf(`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":%q},`+
			`{"index":1,"message":{"content":"b"},"finish_reason":%q}]}`, first, second)
		url := saying(t, "application/json", body)
		for _, client := range []*openai.Client{plain(url), newClient(t, llm.Config{BaseURL: url})} {
			for n, fine := range map[int]bool{0: true, 2: ok} {
				guard, request := newGuard(resilience.Config{}), ask("x")
				request.N = n
				_, err := guard.CreateChatCompletion(t.Context(), client, request)
				assert.Equal(t, fine, err == nil, "%d, %q: %v", n, reasons, err)
			}
		}
	}
}

// permutations are all orders of a list.
func permutations(list []string) (all [][]string) {
	if len(list) < 2 {
		return [][]string{list}
	}
	for i := range list {
		rest := append(append([]string{}, list[:i]...), list[i+1:]...)
		for _, p := range permutations(rest) {
			all = append(all, append([]string{list[i]}, p...))
		}
	}
	return all
}

// The SDK knows an error by the first key of its object.
func TestErrorIsSeenWhereverItsKeyStands(t *testing.T) {
	const failed = `"error":{"type":"server_error","message":"gone","param":null,"code":502}`
	objects := map[string][]string{
		"beside choices":       {`"id":"1"`, failed, `"choices":[{"index":0,"delta":{"content":""}}]`},
		"beside none":          {`"id":"1"`, `"choices":[]`, failed},
		"without choices":      {`"id":"1"`, `"object":"error"`, failed},
		"an event's":           {`"type":"error"`, failed, `"request_id":"1"`},
		"flat":                 {`"object":"error"`, `"message":"gone"`, `"code":502`},
		"flat, by its type":    {`"type":"error"`, `"message":"gone"`, `"code":502`},
		"flat, by its event":   {`"event":"error"`, `"message":"gone"`, `"code":502`},
		"flat, by its status":  {`"status":"error"`, `"message":"gone"`, `"code":502`},
		"beside another error": {`"x":{"error":null}`, failed, `"choices":[]`},
	}
	for place, format := range map[string]string{
		"in a choice": `{"choices":[{%s}]}`, "in the second choice": `{"choices":[{"index":0},{%s}]}`,
		"in a delta":   `{"choices":[{"index":0,"delta":{%s}}]}`,
		"in a message": `{"choices":[{"index":0,"message":{%s}}]}`,
	} {
		for _, order := range permutations([]string{`"content":""`, failed, `"finish_reason":null`}) {
			errorsEverywhere(t, place, fmt.Sprintf(format, strings.Join(order, ",")))
		}
	}
	for place, fields := range objects {
		for _, order := range permutations(fields) {
			errorsEverywhere(t, place, "{"+strings.Join(order, ",")+"}")
		}
	}
}

// errorsEverywhere sends an error at each place of a stream, to every client.
func errorsEverywhere(t *testing.T, place, object string) {
	require.True(t, json.Valid([]byte(object)), object)
	event := "data: " + object + "\n\n"
	for _, body := range []string{
		event, event + done, part(0, "a", "", "") + event + done, part(0, "a", "stop", "") + event + done,
		reasoned(0, `"content":"a"`, "") + event + done,
	} {
		url := saying(t, eventStream, body)
		for _, client := range []*openai.Client{newClient(t, llm.Config{BaseURL: url}), plain(url)} {
			guard := newGuard(resilience.Config{})
			_, err := readWith(guard, client)
			require.ErrorContains(t, err, "gone", "%s: %s", place, body)
			assertOutcome(t, guard, resilience.Failure)
		}
	}
}

// One text of tokens in a []any was counted as many texts.
func TestTokensAreOneTextWhateverHoldsThem(t *testing.T) {
	type token int
	for _, row := range []struct {
		input any
		want  int
	}{
		{[]any{1, 2, 3}, 1},
		{[]any{int64(1), uint8(2), int32(3)}, 1},
		{[]any{1.0, 2.0}, 1},
		{[]any{json.Number("1"), json.Number("2")}, 1},
		{[]any{1, json.Number("2"), 3.0}, 1},
		{[]json.Number{"1", "2"}, 1},
		{[]int{1, 2}, 1},
		{[]int{}, 1},
		{[]int64{1, 2}, 1},
		{[]float64{1, 2}, 1},
		{[]token{1, 2}, 1},
		{[3]int{1, 2, 3}, 1},
		{[]any{7}, 1},
		{"a", 1},
		{openai.EmbeddingModel("a"), 1},
		{[]any{"a"}, 1},
		{[]any{"a", "b", "c"}, 3},
		{[]string{"a", "b"}, 2},
		{[]openai.EmbeddingModel{"a", "b"}, 2},
		{[]any{[]int{1, 2}, []int{3}}, 2},
		{[]any{[]any{1, 2}, []any{3}, []any{json.Number("4")}}, 3},
		{[]any{[]any{1, 2, 3}}, 1},
		{[][]any{{1, 2}, {3}}, 2},
		{[][]int{{1}, {2}}, 2},
		{[][]int64{{1}, {2}, {3}}, 3},
		{[]any{"a", []int{1}}, 2},
		{[]any{nil, 1}, 2},
	} {
		for n := range 5 {
			answer := double{Data: make([]openai.Embedding, n)}
			for i := range answer.Data {
				answer.Data[i].Embedding = []float32{1}
			}
			_, err := newGuard(resilience.Config{}).CreateEmbeddings(t.Context(), answer,
				openai.EmbeddingRequest{Model: "m", Input: row.input})
			assert.Equal(t, n == row.want, err == nil, "%d vectors for %#v: %v", n, row.input, err)
		}
	}
	for _, unknown := range []any{json.RawMessage(`["a","b"]`), map[string]any{}, 7, nil} {
		answer := double{Data: []openai.Embedding{{Embedding: []float32{1}}, {Embedding: []float32{1}}}}
		_, err := newGuard(resilience.Config{}).CreateEmbeddings(t.Context(), answer,
			openai.EmbeddingRequest{Model: "m", Input: unknown})
		assert.NoError(t, err, "%#v", unknown)
	}
}
