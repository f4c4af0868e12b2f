// Package mask shows the error of an upstream to an operator: on one line, in
// the upstream's own words, and without the secrets in it.
//
// What may be secret becomes "***": the user info of URLs, the value of a field
// with a sensitive name (in a query, a form, JSON, XML, a header), credentials
// behind Bearer and Basic, private keys in PEM, and keys of a known shape.
// Escapes of JSON, URLs and HTML, also in layers, do not hide them. Masking
// goes by names and shapes: a secret that looks like a word in a sentence
// stays.
package mask

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limit is the length of a text, in bytes; a text that was cut ends in "…".
const Limit = 200

const (
	// window is how much of a text is read, in bytes. It holds long tokens and
	// signed URLs in front of what is shown.
	window   = 4 << 10
	stars    = "***"
	ellipsis = "…"
	// passes bounds String: a cut may leave half a word that looks like a
	// secret, which the next pass masks.
	passes = 4
)

// Text is one line of at most Limit bytes that shows err to an operator, as
// String does with its text, or "" for nil. SDKs put ids before the message of
// the upstream: a text that is too long gives way to that of the outermost
// cause that fits, if it ends in that. An Error method that panics is named by
// its type. It is safe for concurrent use if err.Error is.
func Text(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = String(fmt.Sprintf("%T: its Error method panicked", err))
		}
	}()
	whole := err.Error()
	text = String(whole)
	for cause := errors.Unwrap(err); cause != nil && isCut(text); cause = errors.Unwrap(cause) {
		own := cause.Error()
		if short := String(own); short != "" && !isCut(short) && strings.HasSuffix(whole, own) {
			return short
		}
	}
	return text
}

func isCut(text string) bool { return strings.HasSuffix(text, ellipsis) }

// String is text without secrets on one line of at most Limit bytes of UTF-8.
// Runs of white space, control, direction and zero-width characters are one
// space, bytes that are not UTF-8 are U+FFFD. The work is bounded for a text of
// any length, and the result of String is its own result.
func String(text string) string {
	for range passes {
		next := once(text)
		if next == text {
			break
		}
		text = next
	}
	return text
}

// once is one pass of String.
func once(text string) string {
	text, cut := strings.CutSuffix(text, ellipsis)
	if len(text) > window {
		text, cut = text[:lastBreak(text[:window])], true
	}
	return shorten(line(masked(text)), cut)
}

// lastBreak is where the last run begins. A secret at the end of the window may
// be half a secret, with no mark left to know it by, so its run is dropped.
// Secrets of several runs are masked up to the end of the text.
func lastBreak(text string) int {
	return max(0, strings.LastIndexFunc(text, func(r rune) bool {
		return r < utf8.RuneSelf && breaksRun(byte(r))
	}))
}

// line is text on one line, without invisible characters.
func line(text string) string {
	visible := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || invisible(r) {
			return ' '
		}
		return r
	}, text) // Map turns bytes that are not UTF-8 into U+FFFD
	return strings.Join(strings.Fields(visible), " ")
}

func invisible(r rune) bool {
	return r >= utf8.RuneSelf && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// shorten cuts text to Limit bytes, between runes and never inside stars.
func shorten(text string, cut bool) string {
	if !cut && len(text) <= Limit {
		return text
	}
	if end := Limit - len(ellipsis); len(text) > end {
		for !utf8.RuneStart(text[end]) {
			end--
		}
		front := text[:end]
		if text[end] == '*' {
			front = strings.TrimRight(front, "*")
		}
		text = front
	}
	return strings.TrimRight(strings.TrimSpace(text), "…") + ellipsis
}

// masked replaces each secret in text by stars.
func masked(text string) string {
	v := look(text)
	v.maskFields()
	v.maskShapes()
	v.maskUserinfo()
	v.maskPrivateKeys()
	return v.written()
}
