package llm

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf16"

	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/secret"
)

// Servers say back the key that was sent, and errors are logged and traced.
// What the SDK makes an error of is masked before the SDK reads it; redact has
// the last look at every error of a door.

// keysOf are the keys that a request shows its server.
func keysOf(h http.Header) []string {
	authorization := h.Get("Authorization")
	if _, key, withScheme := strings.Cut(authorization, " "); withScheme {
		authorization = key
	}
	var keys []string
	for _, key := range []string{authorization, h.Get("Api-Key"), h.Get("X-Api-Key")} {
		if key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// leastKey is the length below which a key is a stand-in, such as "none", that
// may be part of any word.
const leastKey = 8

// mask takes keys out of a text, however JSON, a URL or HTML writes them.
func mask[T ~string | ~[]byte](text T, keys []string) T {
	text = secret.Mask(text, keys...)
	if !strings.ContainsAny(string(text), `\%&`) {
		return text
	}
	for _, key := range keys {
		if len(key) < leastKey {
			continue
		}
		if w := written(key); w != nil {
			text = T(w.ReplaceAllLiteralString(string(text), "********"))
		}
	}
	return text
}

// written matches a text in any case, each of whose characters may be escaped.
// It is nil for one of a length that no key has.
func written(text string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?i)")
	for _, r := range text {
		plain, byName := regexp.QuoteMeta(string(r)), regexp.QuoteMeta(html.EscapeString(string(r)))
		if strings.ContainsRune(`"/\`, r) {
			plain = `\\*` + plain
		}
		fmt.Fprintf(&b, `(?:%s|%s|%s|%s|&#x0*%x;|&#0*%d;)`, plain, byName,
			each(utf16.Encode([]rune{r}), `\\+u%04x`), each([]byte(string(r)), `%%%02x`), r, r)
	}
	expression, _ := regexp.Compile(b.String())
	return expression
}

// each writes the units of a character one after the other.
func each[T uint16 | byte](units []T, format string) string {
	var b strings.Builder
	for _, unit := range units {
		fmt.Fprintf(&b, format, unit)
	}
	return b.String()
}

// redacted is an error whose text repeated a key.
type redacted struct {
	text string
	error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.error }

// redact is err, or an error around it if its text repeats a key.
func redact(err error, keys []string) error {
	if err == nil || len(keys) == 0 {
		return err
	}
	text := err.Error()
	if masked := mask(text, keys); masked != text {
		return &redacted{masked, err}
	}
	return err
}

// masked are attributes of a span with the keys of the call masked.
func (w *wait) masked(attrs []attribute.KeyValue) []attribute.KeyValue {
	keys := w.keys()
	for i, kv := range attrs {
		switch kv.Value.Type() { //nolint:exhaustive // others hold no text
		case attribute.STRING:
			attrs[i].Value = attribute.StringValue(mask(kv.Value.AsString(), keys))
		case attribute.STRINGSLICE:
			texts := kv.Value.AsStringSlice()
			for j := range texts {
				texts[j] = mask(texts[j], keys)
			}
			attrs[i].Value = attribute.StringSliceValue(texts)
		}
	}
	return attrs
}
