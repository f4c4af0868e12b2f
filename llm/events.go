package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
)

// events is the body of a stream, rewritten so that the SDK reads each event
// and each error as a chunk in one line. By itself the SDK takes
// `{"error":null,` for an error and loses the chunk, cannot read an error with
// a comment or an event line before it, hands on what an error event says as if
// it were a chunk, passes over fields named error, a first line with a byte
// order mark and a last one without an end, reads each line of data as an
// event, and gives up after 300 lines without data.
type events struct {
	io.ReadCloser // closes the body
	lines         *lines
	keys          []string // that were sent
	call          *wait

	failing bool   // the event is named error
	said    bool   // and its failure is passed on
	part    joined // data of the event of which more lines follow
	held    []byte // data of the event that is no chunk of an answer, since the event's name may follow
	loose   []byte // lines that are no event: an error may be printed over several
	out     []byte // what becomes of the line
	left    []byte // of out
	whole   bool   // the line has an end
	err     error  // after the line
}

func newEvents(body io.ReadCloser, keys []string, call *wait) *events {
	return &events{ReadCloser: body, lines: newLines(body), keys: keys, call: call}
}

const last = "[DONE]"

// Read gives whole lines, so that none is changed in its middle.
func (e *events) Read(p []byte) (int, error) {
	for len(e.left) == 0 && e.err == nil {
		e.out = e.out[:0]
		var line []byte
		line, e.whole, e.err = e.lines.next()
		e.rewrite(line)
		if e.err != nil {
			e.end()
		}
		e.left = e.out
	}
	if len(e.left) == 0 {
		return 0, e.err
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

func (e *events) rewrite(line []byte) {
	text := bytes.TrimSpace(line)
	name, value, _ := bytes.Cut(text, []byte(":"))
	value = bytes.TrimSpace(value)
	switch {
	case len(text) == 0:
		e.dispatch()
	case text[0] == ':', string(name) == "id", string(name) == "retry":
	case string(name) == "event":
		e.failing, e.said = bytes.EqualFold(value, []byte("error")), false
	case string(name) == "data":
		e.data(value)
	case string(name) == "error":
		e.failure(value)
	case text[0] == '{' && errorIn(opChatStream, text) != nil: // no stream, but an error instead of one
		e.failure(text)
	default:
		e.release()
		e.stray(text)
		e.out = append(e.out, mask(line, e.keys)...)
		if e.whole {
			e.out = append(e.out, '\n')
		}
	}
}

// data is a line of it. By the standard there is no event without any, and the
// lines of an event are one text. Servers that leave out the blank line between
// events send each in a line of its own, so JSON that is whole is an event.
func (e *events) data(value []byte) {
	if len(value) == 0 {
		return
	}
	if len(e.part.text) == 0 {
		e.release()
		e.spread()
	}
	if !e.isLast(value) && e.part.add(value) {
		return
	}
	if e.isLast(value) {
		e.release()
	} else {
		value = e.part.take()
	}
	e.value(value)
}

// isLast reports whether data is the last of a stream, or the beginning of that
// in a line that is cut off.
func (e *events) isLast(value []byte) bool {
	return string(value) == last || e.cutOff() && bytes.HasPrefix([]byte(last), value)
}

// value is the data of an event.
func (e *events) value(value []byte) {
	switch {
	case e.isLast(value):
		e.said = true
		if string(value) == last {
			e.call.done.Store(true)
		}
		e.out = append(e.out, "data: "+last+"\n"...)
	case e.failing || errorIn(opChatStream, value) != nil:
		e.failure(value)
	case e.err != nil && e.err != io.EOF: //nolint:errorlint // half a line, of which the error says enough
	case !bytes.Contains(value, []byte(`"choices"`)):
		e.held = append(e.held, value...)
	default:
		e.chunk(value)
	}
}

// cutOff is true of a last line without an end, whether or not the body knows
// that there should have been one.
func (e *events) cutOff() bool {
	return e.err == io.EOF || e.err == io.ErrUnexpectedEOF //nolint:errorlint // the very values
}

// dispatch is the end of an event. One that is named error is a failure without
// any data too, although the standard passes over it.
func (e *events) dispatch() {
	e.release()
	if e.failing && !e.said {
		e.failure(nil)
	}
	e.failing, e.said = false, false
}

func (e *events) end() {
	if e.err == io.EOF { //nolint:errorlint // what comes before a broken connection is no whole event
		e.spread()
		e.dispatch()
	}
}

// release passes on what was held back. An event that is not whole is a chunk
// that nobody can read.
func (e *events) release() {
	if len(e.part.text) > 0 {
		e.value(e.part.take())
	}
	switch {
	case len(e.held) == 0:
		return
	case e.failing:
		e.failure(e.held)
	default:
		e.chunk(e.held)
	}
	e.held = e.held[:0]
}

// stray keeps a line of what may be JSON.
func (e *events) stray(text []byte) {
	if len(e.loose) > 0 || text[0] == '{' {
		e.loose = append(append(e.loose, text...), '\n')
	}
}

// spread looks for an error in the lines that were no event.
func (e *events) spread() {
	if len(e.loose) > 0 && errorIn(opChatStream, e.loose) != nil {
		e.failure(e.loose)
	}
	e.loose = e.loose[:0]
}

// failure is a chunk that errorIn finds an error in.
func (e *events) failure(text []byte) {
	e.said = true
	text = mask(text, e.keys)
	switch {
	case errorIn(opChatStream, text) != nil:
		e.chunk(bytes.ReplaceAll(text, []byte("\n"), []byte(" ")))
		return
	case readError(text) == nil: // no JSON, or nothing said in it
		text, _ = json.Marshal(cmp.Or(string(text), "no words"))
	}
	e.chunk(append(append([]byte(`{"error":`), text...), '}'))
}

// chunk is a line that the SDK does not take for an error: it goes by how the
// line begins.
func (e *events) chunk(text []byte) {
	e.out = append(e.out, "data: "...)
	if rest, ok := bytes.CutPrefix(text, []byte(`{"error":`)); ok {
		e.out = append(e.out, `{ "error":`...)
		text = rest
	}
	e.out = append(append(e.out, text...), '\n')
}
