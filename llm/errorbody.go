package llm

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/penstock-go/penstock/internal/plain"
)

const (
	// mostRead is how many bytes are read of the body of an error.
	mostRead = 64 << 10
	// mostQuoted is how many bytes the body of an error may have to be passed
	// on as it came.
	mostQuoted = 4 << 10
	// mostWords is how many bytes of a text of the server's are repeated.
	mostWords = 1000
)

// readError reads the beginning of an error of the server's, and closes a body
// that has more. Where the beginning breaks off, the SDK says nothing of the
// status.
func (w *wait) readError(body io.ReadCloser, status int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, mostRead))
	if err != nil {
		w.status.Store(int32(status))
	}
	if len(text) == mostRead {
		_ = body.Close()
	}
	return text, err
}

// shortError is the body of an error with no more text than is repeated. One in
// the form that the SDK reads keeps the form.
func shortError(text []byte) []byte {
	if len(text) <= mostQuoted {
		return text
	}
	var body struct {
		Error json.RawMessage `json:"error"`
	}
	var fields map[string]json.RawMessage
	switch {
	case json.Unmarshal(text, &body) != nil || len(body.Error) == 0:
		return []byte(plain.Shorten(string(text), mostWords))
	case json.Unmarshal(body.Error, &fields) == nil && fields != nil:
		short := map[string]json.RawMessage{}
		for _, name := range []string{"message", "type", "code", "param"} {
			if value := shortValue(fields[name]); value != nil {
				short[name] = value
			}
		}
		body.Error, _ = json.Marshal(short)
	default:
		body.Error = shortValue(body.Error)
	}
	if short, err := json.Marshal(body); err == nil {
		return short
	}
	return []byte(plain.Shorten(string(text), mostWords))
}

// shortValue is a JSON value of no more than mostWords, or nil. Several texts
// become one, as in the SDK.
func shortValue(value json.RawMessage) json.RawMessage {
	if len(value) <= mostWords {
		return value
	}
	var text string
	var texts []string
	if json.Unmarshal(value, &text) != nil {
		if json.Unmarshal(value, &texts) != nil {
			return nil
		}
		text = strings.Join(texts, ", ")
	}
	short, _ := json.Marshal(plain.Shorten(text, mostWords))
	return short
}
