package plain

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestWhatIsNotPrintedBecomesASpace(t *testing.T) {
	for _, row := range []struct{ text, asText, name, line string }{
		{"plain, déjà 日本", "plain, déjà 日本", "plain, déjà 日本", "plain, déjà 日本"},
		{"a\x1b[2Jb\rc\x7f\u0085", "a [2Jb c  ", "a [2Jb c  ", "a [2Jb c"},
		{"a\n\tb  c", "a\n\tb  c", "a  b  c", "a b c"},
		{"exe.\u202Etxt\u2066x\u2069", "exe. txt x ", "exe. txt x ", "exe. txt x"},
		{"a\xffb\uFFFDc", "a b c", "a b c", "a b c"},
	} {
		assert.Equal(t, row.asText, Text(row.text), "%q", row.text)
		assert.Equal(t, row.name, Name(row.text), "%q", row.text)
		assert.Equal(t, row.line, Line(row.text), "%q", row.text)
	}
}

func TestCutsAreBetweenRunes(t *testing.T) {
	const text = "aé日"
	for limit, want := range []string{"", "a", "a", "aé", "aé", "aé", text, text} {
		assert.Equal(t, want, Front(text, limit))
		assert.Equal(t, []byte(want), Front([]byte(text), limit))
	}
	for limit, want := range []string{"", "", "", "日", "日", "é日", text, text} {
		assert.Equal(t, want, Back(text, limit))
	}
	assert.Empty(t, Front(text, -1))
	assert.Empty(t, Back(text, -1))
	assert.Equal(t, "aé…", Shorten(text, 5))
	assert.Equal(t, text, Shorten(text, 6))
}

func FuzzCuts(f *testing.F) {
	f.Add("aé日\xff", 3)
	f.Add(strings.Repeat("\x80", 9), 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		front, back := Front(text, limit), Back(text, limit)
		assert.True(t, strings.HasPrefix(text, front))
		assert.True(t, strings.HasSuffix(text, back))
		assert.LessOrEqual(t, max(len(front), len(back)), max(0, limit))
		if utf8.ValidString(text) {
			assert.True(t, utf8.ValidString(front) && utf8.ValidString(back))
		}
	})
}

func TestNounsOfCounts(t *testing.T) {
	for n, want := range map[int]string{-1: "passes", 0: "passes", 1: "pass", 2: "passes", 11: "passes"} {
		assert.Equal(t, want, Noun(n, "pass", "passes"))
	}
}
