// Package plain makes text from outside safe to show and to store: names of
// files, messages of servers, answers of models.
package plain

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces by spaces what could move a cursor, overwrite a screen or turn
// the direction of reading: control characters other than line breaks and tabs,
// and the marks that embed, override or isolate a direction. So it does with
// bytes that are not UTF-8, and with U+FFFD, which stands for such a byte.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printed(r)
	}, text)
}

// Name is Text for what must stay on one line and keep its spaces: a name with
// a line break must not look like a line of its own.
func Name(text string) string { return strings.Map(printed, text) }

// Line is Text on one line, with one space for each run of white space.
func Line(text string) string { return strings.Join(strings.Fields(Name(text)), " ") }

func printed(r rune) rune {
	turns := r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
	if turns || r == utf8.RuneError || unicode.IsControl(r) {
		return ' '
	}
	return r
}

// Noun is the form of a noun that stands after a count: "document" after 1, and
// "documents" after any other.
func Noun(count int, one, many string) string {
	if count == 1 {
		return one
	}
	return many
}

// Front is the beginning of a text: at most limit bytes, cut between runes.
func Front[T ~string | ~[]byte](text T, limit int) T {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:max(0, limit)]
}

// Back is the end of a text: at most limit bytes, cut between runes.
func Back(text string, limit int) string {
	at := max(0, len(text)-max(0, limit))
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}

// Shorten is Front with "…" behind what was cut.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return Front(text, limit) + "…"
}
