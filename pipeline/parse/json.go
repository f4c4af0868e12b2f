package parse

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// maxJSONDepth is how deep values may be nested.
const maxJSONDepth = 512

// parseJSON reads JSON and JSON Lines. Each element of an array at the top,
// or each value of a stream, is a record of lines "path.to.key: value".
func parseJSON(_ context.Context, in Input, emit func(block.Block) error) error {
	r, err := textReader(in)
	if err != nil {
		return err
	}
	w := &jsonWalker{tokens: json.NewDecoder(r), emit: emit, limit: in.budget.limits.MaxSize}
	w.tokens.UseNumber()
	for {
		t, err := w.tokens.Token()
		if err == io.EOF { // itself, and not an error of the reader that wraps it
			return nil
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", w.row+1, err)
		}
		if err := w.top(t); err != nil {
			return err
		}
	}
}

// jsonWalker flattens values.
type jsonWalker struct {
	tokens *json.Decoder
	emit   func(block.Block) error
	limit  int64
	text   strings.Builder
	row    int
}

// top reads a value at the top: the elements of an array are records.
func (w *jsonWalker) top(t json.Token) error {
	if t != json.Delim('[') {
		return w.record(t)
	}
	for w.tokens.More() {
		t, err := w.tokens.Token()
		if err != nil {
			return err
		}
		if err := w.record(t); err != nil {
			return err
		}
	}
	_, err := w.tokens.Token()
	return err
}

func (w *jsonWalker) record(t json.Token) error {
	w.row++
	if err := w.value(t, "", 0); err != nil {
		return fmt.Errorf("record %d: %w", w.row, err)
	}
	text := w.text.String()
	w.text.Reset()
	return w.emit(block.Block{Kind: block.Record, Text: text, Row: w.row})
}

// value writes what begins with a token.
func (w *jsonWalker) value(t json.Token, path string, depth int) error {
	if depth > maxJSONDepth {
		return refuse(malformed, fmt.Errorf("values are nested more than %d deep", maxJSONDepth))
	}
	switch t {
	case json.Delim('{'):
		return w.object(path, depth)
	case json.Delim('['):
		return w.array(path, depth)
	case nil:
		return nil
	}
	return w.line(path, fmt.Sprint(t))
}

func (w *jsonWalker) object(path string, depth int) error {
	for w.tokens.More() {
		key, err := w.tokens.Token()
		if err != nil {
			return err
		}
		t, err := w.tokens.Token()
		if err != nil {
			return err
		}
		if err := w.value(t, joinPath(path, fmt.Sprint(key)), depth+1); err != nil {
			return err
		}
	}
	_, err := w.tokens.Token()
	return err
}

// array writes its elements under the array's own path: their number says
// nothing to a reader, and would keep equal records from looking alike.
func (w *jsonWalker) array(path string, depth int) error {
	for w.tokens.More() {
		t, err := w.tokens.Token()
		if err != nil {
			return err
		}
		if err := w.value(t, path, depth+1); err != nil {
			return err
		}
	}
	_, err := w.tokens.Token()
	return err
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (w *jsonWalker) line(path, value string) error {
	if path != "" {
		w.text.WriteString(path + ": ")
	}
	w.text.WriteString(strings.TrimSpace(value) + "\n")
	if int64(w.text.Len()) > w.limit {
		return refuse(TooLarge, fmt.Errorf("a record is larger than %d bytes (MaxSize, --max-size)", w.limit))
	}
	return nil
}
