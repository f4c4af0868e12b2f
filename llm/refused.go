package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/plain"
)

// The SDK reads one form of an error. For any other it says what it misses in
// the body, not what the server said.

// mostBegun is how many bytes are quoted of an answer that is no JSON.
const mostBegun = 100

// title matches that of an HTML page, with which proxies refuse.
var title = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// inWords is the text of an error with the server's own words, where the SDK
// could not read them.
func inWords(err error) string {
	own := err.Error()
	if !strings.Contains(own, ", body: ") { // a cheap look
		return own
	}
	request, ok := errors.AsType[*openai.RequestError](err)
	if !ok || request.HTTPStatusCode == 0 {
		return own
	}
	text := fmt.Sprintf("error, status code: %d, status: %s", request.HTTPStatusCode, request.HTTPStatus)
	if words := refusal(request.Body); words != "" {
		text += ", message: " + words
	}
	return strings.Replace(own, request.Error(), text, 1)
}

// refusal is what the body of an error says: the message in JSON of any form,
// the title of a page, or the text as it is. It is empty for an empty one.
func refusal(body []byte) string {
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Valid(body) {
		_ = json.Unmarshal(body, &outer) // only an object has fields
		for _, text := range [][]byte{outer.Error, body} {
			if api := readError(text); api != nil {
				return api.Message
			}
		}
		return ""
	}
	if found := title.FindSubmatch(body); found != nil {
		return plain.Line(cmp.Or(strings.TrimSpace(string(found[1])), string(body)))
	}
	return plain.Line(string(body))
}

// notJSON is an answer that the SDK cannot read, under a good status.
type notJSON struct {
	begin string
	error
}

func (e *notJSON) Error() string {
	return fmt.Sprintf("the answer is not JSON; it begins with %q", e.begin)
}
func (e *notJSON) Unwrap() error { return e.error }

// beginning keeps the first bytes that are written to it.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), mostRead-len(*b))]...)
	return len(p), nil
}

// quote is the error of a decoder with what it has read, if that is not JSON.
func (b beginning) quote(err error, keys []string) error {
	if _, wrong := errors.AsType[*json.SyntaxError](err); !wrong {
		return err
	}
	return &notJSON{plain.Shorten(plain.Line(string(mask([]byte(b), keys))), mostBegun), err}
}
