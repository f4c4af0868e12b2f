// Package secret reads keys as operators hand them over, and takes them out of
// what servers say back.
package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
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
// written in a URL, in JSON and in base64, that of URLs too. One of less than
// eight bytes stays.
func Mask[T ~string | ~[]byte](text T, secrets ...string) T {
	masked := string(text)
	for _, s := range secrets {
		if len(s) < least {
			continue
		}
		for _, form := range forms(s) {
			masked = strings.ReplaceAll(masked, form, "********")
		}
		if strings.Contains(masked, "%") {
			masked = escaped(s).ReplaceAllLiteralString(masked, "********")
		}
	}
	if masked == string(text) {
		return text
	}
	return T(masked)
}

var urlSafe = strings.NewReplacer("+", "-", "/", "_")

// forms are a secret as servers may write it, but for those of URLs.
func forms(s string) []string {
	marshaled, _ := json.Marshal(s)
	quoted := strings.Trim(string(marshaled), `"`)
	encoded := base64.RawStdEncoding.EncodeToString([]byte(s))
	return []string{
		s, quoted, strings.ReplaceAll(quoted, "/", `\/`), strings.ReplaceAll(s, "/", `\/`),
		encoded, urlSafe.Replace(encoded), urlSafe.Replace(s),
	}
}

var escape = regexp.MustCompile(`%[0-9A-F]{2}`)

// escaped finds a secret in the query or the path of a URL, its hexadecimal
// digits in either case.
func escaped(s string) *regexp.Regexp {
	anyCase := func(form string) string {
		return escape.ReplaceAllString(regexp.QuoteMeta(form), "(?i:$0)")
	}
	return regexp.MustCompile(anyCase(url.QueryEscape(s)) + "|" + anyCase(url.PathEscape(s)))
}
