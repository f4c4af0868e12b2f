package plain

import (
	"path"
	"regexp"
	"strings"
)

const (
	// compared is how much of a reason is in its pattern, in bytes.
	compared = 300
	// shortestName is the length from which a name is recognized in a reason.
	shortestName = 4
)

// numbered are words that can hold a number: a page, a size, an address, a time
// or the id of a request.
var numbered = regexp.MustCompile(`[\pL\pN_]+([.-][\pL\pN_]+)*`)

// Pattern is a reason without what differs from document to document, for
// comparison: the name of the document and words with digits. HTTP statuses of
// errors remain. Only the first 300 bytes of the reason count.
func Pattern(reason, name string) string {
	reason = Front(reason, compared)
	for _, name := range []string{name, path.Base(name)} {
		if len(name) >= shortestName {
			reason = strings.ReplaceAll(reason, name, "…")
		}
	}
	reason = numbered.ReplaceAllStringFunc(reason, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && !errorStatus.MatchString(word) {
			return "#"
		}
		return word
	})
	return strings.Join(strings.Fields(reason), " ")
}

// errorStatus is an HTTP status of an error.
var errorStatus = regexp.MustCompile(`^[45][0-9]{2}$`)
