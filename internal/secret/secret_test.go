package secret

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTrim(t *testing.T) {
	for value, want := range map[string]string{
		"":                     "",
		"key":                  "key",
		" \t\r\nkey two\r\n\n": "key two",
		"\ufeffkey\u200b":      "key",
	} {
		got, err := Trim("the key", value)
		require.NoError(t, err, "%q", value)
		assert.Equal(t, want, got, "%q", value)
	}
	for _, value := range []string{"ke\ny", "ke\ty", "ke\x00y", "ke\x7fy", "ke\u200by", "ke\xffy", "ke\u0085y"} {
		_, err := Trim("the key", value)
		require.ErrorContains(t, err, "the key", "%q", value)
		assert.NotContains(t, err.Error(), "ke\n")
	}
}

func TestMask(t *testing.T) {
	const key = `k/y+ "0123<`
	for _, text := range []string{
		key, "k%2Fy%2B+%220123%3C", "k%2Fy+%20%220123%3C", `k/y+ \"0123\u003c`, "ay95KyAiMDEyMzw=",
		"k%2fy%2b+%220123%3c", "k%2fy+%20%220123%3c", `k\/y+ "0123<`, `k\/y+ \"0123\u003c`, `k_y- "0123<`,
	} {
		assert.Contains(t, Mask("a "+text+" b", key), "a ********", text)
		assert.NotContains(t, Mask("a "+text+" b", key), "0123", text)
	}
	const bytes = "\xfb\xff\xfe012345"
	for _, text := range []string{"+//+MDEyMzQ1", "-__-MDEyMzQ1"} {
		assert.Equal(t, "a ******** b", Mask("a "+text+" b", bytes), text)
	}
	assert.Equal(t, "a word", Mask("a word", "word", ""), "a stand-in is part of many words")
	text := []byte("no key in it")
	assert.Same(t, &text[0], &Mask(text, key)[0], "what has no secret is not copied")
}
