package statuspage

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longest is how much of a name or an error is shown, in bytes.
const longest = 600

var userinfo = regexp.MustCompile(`://[^/@\s"']+@`)

// clean makes text safe to display: it masks passwords in addresses, replaces
// control and direction characters by spaces, and cuts long texts.
func clean(text string) string {
	text = userinfo.ReplaceAllString(text, "://********@")
	text = strings.Join(strings.Fields(strings.Map(visible, text)), " ")
	return cut(text, longest)
}

// visible keeps line breaks and tabs.
func visible(r rune) rune {
	turns := r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
	if turns || r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' {
		return ' '
	}
	return r
}

// cut shortens a text to n bytes, between runes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
