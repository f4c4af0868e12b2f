// Package secret reads keys as operators hand them over, and takes them out of
// what servers say back.
package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Trim is value without outer white space and byte order marks, which files and
// mounted secrets add. Inside, a control character or an invisible one is an
// error: no header can carry it. The error names the value, not its text.
func Trim(name, value string) (string, error) {
	value = strings.TrimFunc(value, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
	for i, r := range value {
		switch {
		case r == utf8.RuneError:
			return "", fmt.Errorf("%s is not valid UTF-8 at byte %d", name, i)
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return "", fmt.Errorf("%s has the control character %U at byte %d; check where it was copied from", name, r, i)
		}
	}
	return value, nil
}

// least is the length below which a value is a stand-in, such as "none", that
// may be part of any word.
const least = 8

// Mask replaces each secret in text by "********": as it was sent, and as it is
// written in a URL, in JSON and in base64. One of less than eight bytes stays.
func Mask[T ~string | ~[]byte](text T, secrets ...string) T {
	masked := string(text)
	for _, s := range secrets {
		if len(s) < least {
			continue
		}
		quoted, _ := json.Marshal(s)
		for _, form := range []string{
			s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`),
			strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(s)), "="),
		} {
			masked = strings.ReplaceAll(masked, form, "********")
		}
	}
	if masked == string(text) {
		return text
	}
	return T(masked)
}
