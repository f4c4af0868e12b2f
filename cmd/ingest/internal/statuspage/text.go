package statuspage

import (
	"regexp"

	"github.com/penstock-go/penstock/internal/plain"
)

// longest is how much of a name or an error is shown, in bytes.
const longest = 600

var userinfo = regexp.MustCompile(`://[^/@\s"']+@`)

// clean makes text safe to display: it masks passwords in addresses, replaces
// control and direction characters by spaces, and cuts long texts.
func clean(text string) string {
	text = userinfo.ReplaceAllString(text, "://********@")
	return plain.Shorten(plain.Line(text), longest)
}
