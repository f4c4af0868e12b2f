package llm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/inband"
)

// A reasoning model may say nothing for minutes before its answer; once it
// answers, a silence is short. The first content tells the one from the other.

// isChat reports whether a model writes the answer to a request: by the door's
// operation, else by the address.
func isChat(w *wait, r *http.Request) bool {
	if w.operation != "" {
		return w.operation == opChat || w.operation == opChatStream
	}
	return strings.HasSuffix(r.URL.Path, "/completions") || strings.HasSuffix(r.URL.Path, "/responses")
}

// contents are the fields of a delta that are part of an answer, under the
// names that servers have for them. A role is none.
var contents = []string{
	"content", "reasoning_content", "reasoning", "reasoning_details", "thinking", "refusal",
	"tool_calls", "function_call", "audio",
}

// piece is where a chunk of a stream can hold content: in a delta of a chat, in
// the text of a completion, in the delta of a response's event.
type piece struct {
	Choices []struct {
		Index   int                        `json:"index"`
		Text    json.RawMessage            `json:"text"`
		Delta   map[string]json.RawMessage `json:"delta"`
		Message map[string]json.RawMessage `json:"message"`
	} `json:"choices"`
	Delta json.RawMessage `json:"delta"`
}

// speaking are the choices that have content in a chunk.
func speaking(text []byte) (choices []int) {
	var p piece
	_ = json.Unmarshal(text, &p) // what does not fit is the SDK's to refuse
	for _, c := range p.Choices {
		if some(c.Text) || slices.ContainsFunc(contents, func(name string) bool {
			return some(c.Delta[name]) || some(c.Message[name])
		}) {
			choices = append(choices, c.Index)
		}
	}
	if len(p.Choices) == 0 && some(p.Delta) {
		choices = append(choices, 0)
	}
	return choices
}

func some(value json.RawMessage) bool {
	var v any
	return json.Unmarshal(value, &v) == nil && !inband.Empty(v)
}

// listener waits for the first content of a stream.
type listener struct {
	line []byte // the beginning of one
	data joined // of an event of which more lines follow
}

// hears reports whether the stream has had content, with p.
func (l *listener) hears(p []byte) bool {
	for {
		end := endOfLine(p)
		l.line = append(l.line, p[:end]...)
		if end == len(p) {
			return false
		}
		p = p[end+1:]
		if l.content(bytes.TrimSpace(bytes.TrimPrefix(l.line, []byte(mark)))) {
			return true
		}
		l.line = l.line[:0]
	}
}

// content reports whether an event has any, once its last line is read.
func (l *listener) content(line []byte) bool {
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	if isData {
		return !l.data.add(bytes.TrimSpace(data)) && len(speaking(l.data.take())) > 0
	}
	return false
}
