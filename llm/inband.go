package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/inband"
	"github.com/penstock-go/penstock/internal/plain"
)

// A server that fails after it has said 200 can only say so in the answer: with
// an error at its top, in a choice, in a delta, or with a finish reason that is
// no end. The SDK drops all of these but the reason.

// failed are the finish reasons of an answer that its server gave up, beside
// those that begin with error or abort: OpenRouter and Mistral say error, vLLM
// and SGLang abort, Cohere ERROR_TOXIC, Zhipu and DeepSeek the first two,
// Gemini the last. Whatever else is said is an end, such as length and
// content_filter.
var failed = []string{
	"network_error", "insufficient_system_resource", "server_error", "internal_error",
	"timeout", "failed", "cancelled", "canceled",
	"malformed_function_call",
}

// wordIn is a finish reason as it is compared.
func wordIn(reason openai.FinishReason) string {
	return strings.ToLower(strings.TrimSpace(string(reason)))
}

// ends reports whether a finish reason is one; servers say "" and "null" in the
// middle of an answer.
func ends(reason openai.FinishReason) bool {
	word := wordIn(reason)
	return word != "" && word != "null"
}

// reasonOf is the failure that a finish reason stands for, or nil. keys are
// masked in it.
func reasonOf(operation string, reason openai.FinishReason, keys []string) error {
	word := wordIn(mask(reason, keys))
	if !strings.HasPrefix(word, "error") && !strings.HasPrefix(word, "abort") && !slices.Contains(failed, word) {
		return nil
	}
	message := fmt.Sprintf("finish reason %q", plain.Shorten(word, mostWords))
	return inBand(operation, &openai.APIError{Code: word, Message: message})
}

// said is where an answer, or a chunk of one, can hold an error.
type said struct {
	Object  json.RawMessage `json:"object"`
	Type    json.RawMessage `json:"type"`
	Event   json.RawMessage `json:"event"`
	Status  json.RawMessage `json:"status"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Error   json.RawMessage `json:"error"`
		Delta   holder          `json:"delta"`
		Message holder          `json:"message"`
	} `json:"choices"`
}

type holder struct {
	Error json.RawMessage `json:"error"`
}

// errorIn finds the first error in the JSON of an answer or a chunk, or gives
// nil.
func errorIn(operation string, text []byte) error {
	flat := mayBeError(text)
	if !flat && !mayHoldError(text) {
		return nil
	}
	var s said
	_ = json.Unmarshal(text, &s) // what does not fit is the SDK's to refuse
	errs := []json.RawMessage{s.Error}
	if flat && len(s.Choices) == 0 && isError(text) {
		errs = append(errs, text)
	}
	for _, kind := range []json.RawMessage{s.Object, s.Type, s.Event, s.Status} {
		if string(kind) == `"error"` {
			errs = append(errs, text)
		}
	}
	for _, c := range s.Choices {
		errs = append(errs, c.Error, c.Delta.Error, c.Message.Error)
	}
	for _, e := range errs {
		if api := readError(e); api != nil {
			return inBand(operation, api)
		}
	}
	return nil
}

const spaces = " \t\r\n" // of JSON

// mayHoldError is a cheap look: many servers send a field named error with
// every chunk, which is null.
func mayHoldError(text []byte) bool {
	for {
		_, rest, found := bytes.Cut(text, []byte(`"error"`))
		if !found {
			return false
		}
		value, isName := bytes.CutPrefix(bytes.TrimLeft(rest, spaces), []byte(":"))
		if !isName || !bytes.HasPrefix(bytes.TrimLeft(value, spaces), []byte("null")) {
			return true
		}
		text = rest
	}
}

// codes and messages are the fields of an error, under the names that servers
// have for them.
var (
	codes    = []string{"code", "status_code", "error_code", "status"}
	messages = []string{"message", "msg", "error_msg", "detail"}
)

// mayBeError is a cheap look, too: at something that may be an error itself.
func mayBeError(text []byte) bool {
	return !bytes.Contains(text, []byte(`"delta"`)) && !bytes.Contains(text, []byte(`"embedding"`)) &&
		slices.ContainsFunc(codes, func(name string) bool { return bytes.Contains(text, []byte(`"`+name+`"`)) })
}

// troubles are parts of the codes of errors, such as Throttling.RateQuota and
// InternalError.Algo.
var troubles = []string{
	"error", "fail", "invalid", "exceed", "limit", "denied", "unauthorized", "forbidden", "permission", "throttl",
	"quota", "billing", "payment", "arrear", "unavailable", "overload", "exhausted", "timeout", "abort", "exception",
	"internal", "unsupported", "not_found", "notfound", "too_large", "terminated",
}

// isError reports whether a text is an error itself, in words and code. A code
// alone and words alone are those of an event that says how far the answer is,
// and so may be a number below 400 or a word that names no trouble.
func isError(text []byte) bool {
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil {
		return false
	}
	if data, _ := fields["data"].([]any); wordsIn(fields) == "" || len(data) > 0 {
		return false
	}
	return slices.ContainsFunc(codes, func(name string) bool { return isTrouble(name, fields[name]) })
}

// isTrouble reports whether the value of one of the codes is that of an error.
func isTrouble(name string, value any) bool {
	text, isText := value.(string)
	number, isNumber := value.(float64)
	if n, err := strconv.ParseFloat(text, 64); isText && err == nil {
		number, isNumber = n, true
	}
	switch {
	case name == "error_code":
		return !inband.Empty(value) && !success(value)
	case isNumber:
		return number < 0 || number >= http.StatusBadRequest
	case name == "status":
		return false
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(troubles, func(part string) bool { return strings.Contains(text, part) })
}

// wordsIn is the message of an error, or "".
func wordsIn(fields map[string]any) (words string) {
	for _, name := range messages {
		words = cmp.Or(words, word(fields[name]))
	}
	return words
}

// inBand is the error for what a server says in its answer. Where it names a
// status, that is what Classify goes by.
func inBand(operation string, api *openai.APIError) error {
	if status := statusNamed(code(api.Code)); status != 0 {
		api.HTTPStatusCode, api.HTTPStatus = status, fmt.Sprint(status, " ", http.StatusText(status))
	}
	return &ContractError{Operation: operation, Problem: api.Error(), cause: api}
}

// statusNamed is the HTTP status of an error that a word stands for as a
// number, or 0.
func statusNamed(word string) int {
	if n, err := strconv.Atoi(word); err == nil && n >= http.StatusBadRequest && n < 600 {
		return n
	}
	return 0
}

// readError reads an error in any of its forms. It is nil where nothing is
// said: some servers send every field, empty.
func readError(text json.RawMessage) *openai.APIError {
	var v any
	if json.Unmarshal(text, &v) != nil || inband.Empty(v) {
		return nil
	}
	fields, ok := v.(map[string]any)
	if ok && fine(fields) {
		return nil
	}
	for _, name := range codes {
		if c := fields[name]; !inband.Empty(c) {
			return &openai.APIError{Code: c, Message: wordsOf(v, text), Type: word(fields["type"])}
		}
	}
	return &openai.APIError{Message: wordsOf(v, text), Type: word(fields["type"])}
}

// fine holds for an error that reports success: its codes are 0 or 2xx, and its
// words, if any, of success. A code of 0 alone is no proof, since it is also
// what a server sends that has set none.
func fine(fields map[string]any) bool {
	for _, v := range fields {
		if !inband.Empty(v) && !success(v) {
			return false
		}
	}
	return true
}

func success(v any) bool {
	switch v := v.(type) {
	case float64:
		return v >= http.StatusOK && v < http.StatusMultipleChoices
	case string:
		v = strings.ToLower(strings.Trim(v, " .!"))
		n, err := strconv.Atoi(v)
		return slices.Contains([]string{"ok", "success", "succeeded", "successful"}, v) ||
			err == nil && (n == 0 || success(float64(n)))
	}
	return false
}

// wordsOf is the message of an error, or all of it where it has none.
func wordsOf(v any, text json.RawMessage) string {
	words := word(v)
	if fields, ok := v.(map[string]any); ok {
		words = wordsIn(fields)
	}
	return plain.Shorten(cmp.Or(words, string(bytes.TrimSpace(text))), mostWords)
}

func word(v any) string {
	s, _ := v.(string)
	return s
}
