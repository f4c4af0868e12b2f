package llm

import (
	"bufio"
	"bytes"
	"io"
)

// lines reads a text by lines, which end in a line feed, a carriage return or
// both. A line is given at its end, not at the beginning of the next one.
type lines struct {
	r       *bufio.Reader
	begun   bool   // past the first line
	carried bool   // a line feed may follow, which ends no line
	line    []byte // the last one
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReader(r)} }

const mark = "\ufeff" // of the byte order, at the start of a text

// next is a line without its end, until the next one is read; whole is false
// for what comes before an error. A mark of the byte order is cut off.
func (l *lines) next() (line []byte, whole bool, err error) {
	l.line = l.line[:0]
	for !whole {
		if _, err = l.r.Peek(1); err != nil {
			break
		}
		text, _ := l.r.Peek(l.r.Buffered())
		if l.carried {
			l.carried = false
			if text[0] == '\n' {
				_, _ = l.r.Discard(1)
				continue
			}
		}
		end := endOfLine(text)
		if whole = end < len(text); whole {
			l.carried = text[end] == '\r'
		}
		l.line = append(l.line, text[:end]...)
		_, _ = l.r.Discard(min(end+1, len(text)))
	}
	line = l.line
	if !l.begun {
		l.begun, line = true, bytes.TrimPrefix(line, []byte(mark))
	}
	return line, whole, err
}

// endOfLine is where the first line of a text ends, or the length of the text.
func endOfLine(text []byte) int {
	end := bytes.IndexByte(text, '\n')
	if end < 0 {
		end = len(text)
	}
	if i := bytes.IndexByte(text[:end], '\r'); i >= 0 {
		end = i
	}
	return end
}

// joined is JSON that comes in lines.
type joined struct {
	text            []byte
	depth           int
	quoted, escaped bool
}

// add appends a line and reports whether more lines belong to it. JSON has no
// line end inside a text: one that is open at the end of its line is broken.
func (j *joined) add(line []byte) (open bool) {
	if len(j.text) > 0 {
		j.text = append(j.text, ' ')
	}
	j.text = append(j.text, line...)
	for _, c := range line {
		switch {
		case j.escaped:
			j.escaped = false
		case j.quoted:
			j.escaped, j.quoted = c == '\\', c != '"'
		case c == '"':
			j.quoted = true
		case c == '{', c == '[':
			j.depth++
		case c == '}', c == ']':
			j.depth--
		}
	}
	return j.depth > 0 && !j.quoted
}

// take is the whole text, until the next line is added.
func (j *joined) take() []byte {
	text := j.text
	*j = joined{text: j.text[:0]}
	return text
}
