package mask

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// soft is white space that was escaped, or a control character. It separates
// words, but a value continues after it.
const soft = '\x01'

// view is a text as a reader of its escapes sees it, so that a rule is written
// once for all the ways in which a quote, an ampersand or a space is spelled.
// Byte i of text stands for source[from[i]:to[i]].
type view struct {
	source   string
	text     []byte
	from, to []int
	secret   []bool // by byte of text
}

func look(source string) *view {
	n := len(source)
	v := &view{source: source, text: make([]byte, 0, n), from: make([]int, 0, n), to: make([]int, 0, n)}
	for i := 0; i < len(source); {
		b, n := decode(source[i:])
		if b != 0 {
			v.text = append(v.text, b)
			v.from = append(v.from, i)
			v.to = append(v.to, i+n)
		}
		i += n
	}
	v.secret = make([]bool, len(v.text))
	return v
}

// decode returns the first character of a text and the length of its spelling.
// It is 0 for what is invisible, which must not hide the rest of a secret.
func decode(text string) (byte, int) {
	switch c := text[0]; {
	case c == '\\':
		return decodeBackslashes(text)
	case c == '%':
		return decodePercent(text)
	case c == '&':
		return decodeEntity(text)
	case c == 0x1b:
		return decodeColor(text)
	case c == 0x7f || c < ' ' && !unicode.IsSpace(rune(c)):
		return soft, 1
	case c >= utf8.RuneSelf:
		return decodeRune(text)
	case c < ' ':
		return ' ', 1
	default:
		return c, 1
	}
}

// decodeColor reads the sequence that colors a terminal.
func decodeColor(text string) (byte, int) {
	if codes, ok := strings.CutPrefix(text, "\x1b["); ok {
		if rest, ok := strings.CutPrefix(strings.TrimLeft(codes, "0123456789;"), "m"); ok {
			return 0, len(text) - len(rest)
		}
	}
	return soft, 1
}

// decodeRune passes the bytes of visible runes one by one: no rule looks at
// them.
func decodeRune(text string) (byte, int) {
	r, n := utf8.DecodeRuneInString(text)
	switch {
	case unicode.IsSpace(r):
		return ' ', n
	case invisible(r):
		return 0, n
	case unicode.IsControl(r):
		return soft, n
	}
	return text[0], 1
}

// decodeBackslashes reads \" with any number of backslashes, as JSON in JSON
// has them, and \n, \u0026 and \x26.
func decodeBackslashes(text string) (byte, int) {
	n := len(text) - len(strings.TrimLeft(text, `\`))
	if n == len(text) {
		return '\\', n
	}
	switch c := text[n]; c {
	case '"', '\'', '`', '/':
		return c, n + 1
	case 'n', 'r', 't', ' ':
		return soft, n + 1
	case 'u', 'x':
		digits := 2
		if c == 'u' {
			digits = 4
		}
		if code, ok := hexadecimal(text[n+1:], digits); ok {
			return escaped(code), n + 1 + digits
		}
	}
	return '\\', n
}

// decodePercent reads %26, and %2526 for what was escaped twice.
func decodePercent(text string) (byte, int) {
	n := 1
	for strings.HasPrefix(text[n:], "25") {
		n += 2
	}
	if code, ok := hexadecimal(text[n:], 2); ok {
		return escaped(code), n + 2
	}
	return '%', n
}

var entities = []struct {
	name string
	is   byte
}{
	{"&amp;", '&'},
	{"&quot;", '"'},
	{"&#34;", '"'},
	{"&#x22;", '"'},
	{"&apos;", '\''},
	{"&#39;", '\''},
	{"&#x27;", '\''},
	{"&lt;", '<'},
	{"&gt;", '>'},
	{"&#61;", '='},
	{"&#x3d;", '='},
}

func decodeEntity(text string) (byte, int) {
	for _, e := range entities {
		if n := len(e.name); len(text) >= n && strings.EqualFold(text[:n], e.name) {
			return e.is, n
		}
	}
	return '&', 1
}

func hexadecimal(text string, digits int) (code int, ok bool) {
	if len(text) < digits {
		return 0, false
	}
	for _, c := range []byte(text[:digits]) {
		digit := strings.IndexByte("0123456789abcdef", lower(c))
		if digit < 0 {
			return 0, false
		}
		code = code<<4 | digit
	}
	return code, true
}

// escaped is the character of an escape. All beyond ASCII are alike to the
// rules.
func escaped(code int) byte {
	switch {
	case code <= ' ' || code == 0x7f:
		return soft
	case code > 0x7f:
		return 0x80
	}
	return byte(code)
}

// at is byte i, or 0 outside the text.
func (v *view) at(i int) byte {
	if i < 0 || i >= len(v.text) {
		return 0
	}
	return v.text[i]
}

// skip is the first position from i on whose byte is not one of set.
func (v *view) skip(i int, set string) int {
	for i < len(v.text) && strings.IndexByte(set, v.text[i]) >= 0 {
		i++
	}
	return i
}

// spelling is how byte i is written, escapes included.
func (v *view) spelling(i int) string { return v.source[v.from[i]:v.to[i]] }

func (v *view) find(i int, part string) int {
	if at := bytes.Index(v.text[min(i, len(v.text)):], []byte(part)); at >= 0 {
		return i + at
	}
	return -1
}

func (v *view) mask(from, to int) {
	for i := from; i < to; i++ {
		v.secret[i] = true
	}
}

// written is the source with each masked range as stars.
func (v *view) written() string {
	var out strings.Builder
	kept := 0
	for i := 0; i < len(v.text); i++ {
		if !v.secret[i] {
			continue
		}
		out.WriteString(v.source[kept:v.from[i]])
		out.WriteString(stars)
		for i+1 < len(v.text) && v.secret[i+1] {
			i++
		}
		kept = v.to[i]
	}
	out.WriteString(v.source[kept:])
	return out.String()
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool { return isDigit(c) || 'a' <= lower(c) && lower(c) <= 'z' }
func isName(c byte) bool  { return isAlnum(c) || c == '_' || c == '-' }

// isPunctuation reports whether c may follow a value without being part of it.
func isPunctuation(c byte) bool { return isQuote(c) || strings.IndexByte(`)]}>.,;:!?\`, c) >= 0 }

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

// breaksRun reports whether c separates runs, of which a URL is one.
func breaksRun(c byte) bool {
	return c == ' ' || '\t' <= c && c <= '\r' || c == '"' || c == '`' || c == '<' || c == '>'
}
