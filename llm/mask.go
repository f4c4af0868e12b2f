package llm

import (
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/internal/secret"
)

// Servers say back the key that was sent, and errors are logged and traced.
// What the SDK makes an error of is masked before the SDK reads it; redact has
// the last look at every error of a door.

// keysOf are the keys that a request shows its server: what stands behind the
// scheme, and its last word, where one scheme was sent behind another.
func keysOf(h http.Header) []string {
	bearer := h.Get("Authorization")
	if _, key, withScheme := strings.Cut(bearer, " "); withScheme {
		bearer = key
	}
	word := bearer[strings.LastIndexByte(bearer, ' ')+1:]
	var keys []string
	for _, key := range []string{bearer, word, h.Get("Api-Key"), h.Get("X-Api-Key")} {
		if key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// mask takes keys out of a text, however JSON, a URL or HTML writes them.
func mask[T ~string | ~[]byte](text T, keys []string) T {
	text = secret.Mask(text, keys...)
	for _, key := range keys {
		if secret.Mask(key, key) == key {
			continue // a stand-in, such as "none", that may be part of any word
		}
		if masked := maskWritten(string(text), key); masked != string(text) {
			text = T(masked)
		}
	}
	return text
}

// mostError is how many bytes the text of an error may have.
const mostError = 8 << 10

// redacted is an error whose text repeated a key, or a long answer.
type redacted struct {
	text string
	error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.error }

// redact is err, or an error around it if its text repeats a key, is longer
// than anybody reads, or lacks the words of the server.
func redact(err error, keys []string) error {
	if err == nil {
		return nil
	}
	if shown := plain.Shorten(mask(inWords(err), keys), mostError); shown != err.Error() {
		return &redacted{shown, err}
	}
	return err
}

// masked are attributes of a span, short and with the keys of the call masked.
func (w *wait) masked(attrs []attribute.KeyValue) []attribute.KeyValue {
	keys := w.keys()
	shown := func(text string) string { return plain.Shorten(mask(text, keys), mostWords) }
	for i, kv := range attrs {
		switch kv.Value.Type() { //nolint:exhaustive // others hold no text
		case attribute.STRING:
			attrs[i].Value = attribute.StringValue(shown(kv.Value.AsString()))
		case attribute.STRINGSLICE:
			texts := kv.Value.AsStringSlice()
			for j := range texts {
				texts[j] = shown(texts[j])
			}
			attrs[i].Value = attribute.StringSliceValue(texts)
		}
	}
	return attrs
}
