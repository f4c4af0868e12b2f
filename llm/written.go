package llm

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Servers and proxies write a key in their own ways. A character of it is found
// with a fixed number of looks, so that a hostile text, too, is searched in
// linear time.

const (
	// mostEscapes is how many backslashes may stand before a character: each
	// time that JSON is quoted in JSON doubles them.
	mostEscapes = 16
	// mostNested is how many times a URL or HTML may be escaped.
	mostNested = 4
	// mostEntity is how many bytes an entity of HTML may have after its "&".
	mostEntity = 32
)

// maskWritten replaces a key in a text, however it is written.
func maskWritten(text, key string) string {
	var b strings.Builder
	copied, w := 0, newWriting(text, key)
	for at := 0; at < len(text); {
		end := at
		if w.mayBegin(text[at]) {
			end = w.match(at)
		}
		if end == at {
			at++
			continue
		}
		b.WriteString(text[copied:at])
		b.WriteString("********")
		at, copied = end, end
	}
	if copied == 0 {
		return text
	}
	b.WriteString(text[copied:])
	return b.String()
}

// writing looks for one key in one text.
type writing struct {
	text      string
	key       []rune
	forms     []*forms // of the key's characters; nil until one is needed
	now, next []int    // places that the key may have come to
}

// forms are how a character is written by its number.
type forms struct {
	units   []string           // after backslashes: u00fc, two of them for some
	bytes   []string           // after backslashes: xc3 and xbc
	percent [mostNested]string // %c3%bc, %25c3%25bc, …
}

func newWriting(text, key string) *writing {
	runes := []rune(key)
	return &writing{text: text, key: runes, forms: make([]*forms, len(runes))}
}

func (w *writing) formsOf(i int) *forms {
	if w.forms[i] == nil {
		f := new(forms)
		for _, unit := range utf16.Encode(w.key[i : i+1]) {
			f.units = append(f.units, fmt.Sprintf("u%04x", unit))
		}
		for _, b := range []byte(string(w.key[i])) {
			f.bytes = append(f.bytes, fmt.Sprintf("x%02x", b))
			for n := range f.percent {
				f.percent[n] += fmt.Sprintf("%%%s%02x", strings.Repeat("25", n), b)
			}
		}
		w.forms[i] = f
	}
	return w.forms[i]
}

// mayBegin is a cheap look at a first byte.
func (w *writing) mayBegin(c byte) bool {
	return c == '\\' || c == '%' || c == '&' || c >= utf8.RuneSelf || lower(rune(c)) == lower(w.key[0])
}

func lower(r rune) rune {
	if r >= 'A' && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}

// match is where the key ends that begins at a place, or the place itself. A
// character that can be read in two ways is read in both.
func (w *writing) match(at int) int {
	w.now = append(w.now[:0], at)
	for i := range w.key {
		w.next = w.next[:0]
		for _, place := range w.now {
			w.step(place, i)
		}
		if len(w.next) == 0 {
			return at
		}
		w.now, w.next = w.next, w.now
	}
	return slices.Max(w.now)
}

// step adds the places after the i-th character, if that is written at a place.
func (w *writing) step(at, i int) {
	rest := w.text[at:]
	if rest == "" {
		return
	}
	w.reach(at, sameRune(rest, w.key[i]))
	switch rest[0] {
	case '\\':
		w.escaped(at, i)
	case '%':
		for _, form := range w.formsOf(i).percent {
			if hasPrefixFold(rest, form) {
				w.reach(at, len(form))
			}
		}
	case '&':
		w.entity(at, w.key[i])
	}
}

// reach adds the place n bytes after another one, unless n is 0.
func (w *writing) reach(at, n int) {
	if n > 0 && !slices.Contains(w.next, at+n) {
		w.next = append(w.next, at+n)
	}
}

// sameRune is the length of r in either case at the beginning of a text, or 0.
func sameRune(text string, r rune) int {
	if c := rune(text[0]); c < utf8.RuneSelf && r < utf8.RuneSelf {
		if lower(c) == lower(r) {
			return 1
		}
		return 0
	}
	got, n := utf8.DecodeRuneInString(text)
	if got == r || strings.EqualFold(string(got), string(r)) {
		return n
	}
	return 0
}

// escaped adds the places after a character behind backslashes: one that JSON
// writes with them, or the number of any.
func (w *writing) escaped(at, i int) {
	rest, r := w.text[at:], w.key[i]
	n := backslashes(rest)
	switch {
	case r == '\\':
		for k := 2; k <= n; k++ {
			w.reach(at, k)
		}
	case strings.ContainsRune(`"'/`, r) && n < len(rest) && rest[n] == byte(r):
		w.reach(at, n+1)
	}
	if n < len(rest) && (lower(rune(rest[n])) == 'u' || lower(rune(rest[n])) == 'x') {
		w.reach(at, escapes(rest, w.formsOf(i).units))
		w.reach(at, escapes(rest, w.formsOf(i).bytes))
	}
}

func backslashes(text string) int {
	n := 0
	for n < min(len(text), mostEscapes) && text[n] == '\\' {
		n++
	}
	return n
}

// escapes is the length of numbers at the beginning of a text, each behind
// backslashes, or 0.
func escapes(text string, numbers []string) int {
	end := 0
	for _, number := range numbers {
		n := backslashes(text[end:])
		if n == 0 || !hasPrefixFold(text[end+n:], number) {
			return 0
		}
		end += n + len(number)
	}
	return end
}

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// entity adds the places after r as HTML writes it, once or several times
// escaped.
func (w *writing) entity(at int, r rune) {
	begin := 1
	for range mostNested {
		rest := w.text[at+begin:]
		rest = rest[:min(len(rest), mostEntity)]
		if end := strings.IndexByte(rest, ';'); end > 0 && isEntity(rest[:end], r) {
			w.reach(at, begin+end+1)
		}
		if !strings.HasPrefix(rest, "amp;") {
			return
		}
		begin += len("amp;")
	}
}

// isEntity reports whether a name, or a number behind "#", stands for r.
// Letters, digits and the hyphen have no names.
func isEntity(name string, r rune) bool {
	number, isNumber := strings.CutPrefix(name, "#")
	switch {
	case isNumber:
		base := 10
		if hasPrefixFold(number, "x") {
			number, base = number[1:], 16
		}
		n, err := strconv.ParseUint(number, base, 32)
		return err == nil && lower(rune(n)) == lower(r)
	case r == '-', r >= '0' && r <= '9', lower(r) >= 'a' && lower(r) <= 'z':
		return false
	}
	return html.UnescapeString("&"+name+";") == string(r)
}
