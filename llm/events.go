package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// events is the body of a stream in which every error is a chunk. The SDK's reader takes `{"error":null,` for an error
// and loses the chunk, cannot read an error with a comment or an event line before it, hands on what an error event
// says as if it were a chunk, and passes over fields named error and a last line without an end.
type events struct {
	io.ReadCloser // closes the body
	lines         *bufio.Reader
	key           string // that was sent

	failing bool   // the event is named error
	left    []byte // of the line
	err     error  // after it
}

func newEvents(body io.ReadCloser, key string) *events {
	return &events{ReadCloser: body, lines: bufio.NewReader(body), key: key}
}

// Read gives whole lines, so that none is changed in its middle.
func (e *events) Read(p []byte) (int, error) {
	for len(e.left) == 0 && e.err == nil {
		var line []byte
		line, e.err = e.lines.ReadBytes('\n')
		e.left = e.rewrite(line)
	}
	if len(e.left) == 0 {
		return 0, e.err
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

func (e *events) rewrite(line []byte) []byte {
	text := bytes.TrimSpace(line)
	name, value, _ := bytes.Cut(text, []byte(":"))
	value = bytes.TrimSpace(value)
	switch {
	case len(text) == 0:
		e.failing = false
	case string(name) == "event":
		e.failing = string(value) == "error"
	case string(name) == "error":
		return e.failure(value)
	case text[0] == '{' && errorIn(opChatStream, text) != nil: // no stream, but an error instead of one
		return e.failure(text)
	case string(name) != "data":
		return mask(line, e.key)
	case string(value) == "[DONE]":
		return []byte("data: [DONE]\n")
	case e.failing || errorIn(opChatStream, value) != nil:
		return e.failure(value)
	case bytes.HasPrefix(value, []byte(`{"error":`)):
		return chunk(value)
	case e.err == io.EOF: //nolint:errorlint // a line that a broken connection cut off has no end
		return append(line, '\n')
	}
	return line
}

// failure is a chunk that errorIn finds an error in.
func (e *events) failure(text []byte) []byte {
	text = mask(text, e.key)
	switch {
	case errorIn(opChatStream, text) != nil:
		return chunk(text)
	case readError(text) == nil: // no JSON, or nothing said in it
		text, _ = json.Marshal(first(string(text), "no words"))
	}
	return chunk(append(append([]byte(`{"error":`), text...), '}'))
}

// chunk is a line that the SDK does not take for an error: it goes by how the line begins.
func chunk(text []byte) []byte {
	if rest, ok := bytes.CutPrefix(text, []byte(`{"error":`)); ok {
		text = append([]byte(`{ "error":`), rest...)
	}
	return append(append([]byte("data: "), text...), '\n')
}
