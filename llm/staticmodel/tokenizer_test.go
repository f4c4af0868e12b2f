package staticmodel

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type goldenRow struct {
	Text   string
	IDs    []int32
	Vector []float64
}

// golden is what the reference tokenizer and numpy make of texts, see
// scripts/staticmodel/golden.py.
func golden(t testing.TB) []goldenRow {
	raw, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var rows []goldenRow
	require.NoError(t, json.Unmarshal(raw, &rows))
	require.Greater(t, len(rows), 400)
	return rows
}

func tokenIDs(text string) []int32 {
	ids := []int32{}
	t := tokenizer{data: load(), emit: func(id int32, _ []byte) { ids = append(ids, id) }}
	t.text(text)
	return ids
}

func TestTokensEqualReference(t *testing.T) {
	for _, row := range golden(t) {
		assert.Equal(t, row.IDs, tokenIDs(row.Text), "%q", row.Text)
		assert.Equal(t, len(row.IDs), New().Tokens(row.Text), "%q", row.Text)
	}
}

func TestVectorsEqualReference(t *testing.T) {
	checked := 0
	for _, row := range golden(t) {
		if row.Vector == nil {
			continue
		}
		checked++
		got, tokens := New().Embed(row.Text)
		assert.Equal(t, len(row.IDs), tokens)
		for i, want := range row.Vector {
			require.InDelta(t, want, got[i], 1e-6, "%q dimension %d", row.Text, i)
		}
	}
	assert.Greater(t, checked, 40)
}

func TestBytesThatAreNotUTF8CountAsReplacementCharacter(t *testing.T) {
	for _, text := range []string{"caf\xc3 bar", "\xff", "a\xed\xa0\x80b", "\xf4\x90\x80\x80x"} {
		assert.Equal(t, tokenIDs(strings.ToValidUTF8(text, "\ufffd")), tokenIDs(text), "%q", text)
	}
}

func TestTableIsWhole(t *testing.T) {
	d := load()
	assert.Len(t, d.scale, 30522)
	assert.Len(t, d.table, 30522*dimensions)
	assert.Equal(t, len(d.starts)+len(d.inner), len(d.scale), "no token twice")
	for token, id := range map[string]int32{
		"[PAD]": padID, "[UNK]": unknownID, "[CLS]": clsID,
		"[SEP]": sepID, "[MASK]": maskID,
	} {
		assert.Equal(t, id, d.starts[token], token)
	}
	for i, s := range d.scale {
		require.True(t, s > 0 && s < 1, "scale of token %d is %v", i, s)
	}
}

func TestWordLimitCountsCharacters(t *testing.T) {
	for n, want := range map[int]bool{99: true, 100: true, 101: false} {
		ids := tokenIDs(strings.Repeat("é", n))
		assert.Equal(t, want, ids[0] != unknownID, "%d characters", n)
	}
}

func FuzzEmbed(f *testing.F) {
	for _, text := range []string{"a", "[CLS", "[[SEP]]", "한글 é\u0301 中文", "🙂", "\x00\xff", strings.Repeat("x", 101)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vector, tokens := New().Embed(text)
		var sum float64
		for _, x := range vector {
			sum += float64(x) * float64(x)
		}
		assert.InDelta(t, 1, math.Sqrt(sum), 1e-5, "length of the vector")
		assert.LessOrEqual(t, tokens, 4*utf8.RuneCountInString(text), "a character is at most four words")
		again, _ := New().Embed(text)
		assert.Equal(t, vector, again)
	})
}

func BenchmarkEmbed(b *testing.B) {
	passage := strings.Repeat(
		"The breaker opens after five consecutive failures, and admits one probe a minute later. ", 100)
	for _, size := range []int{200, 1000, 8000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			m := New()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				m.Embed(passage[:size])
			}
		})
	}
}

func BenchmarkTokens(b *testing.B) {
	passage := strings.Repeat(
		"The breaker opens after five consecutive failures, and admits one probe a minute later. ", 11)
	m := New()
	b.SetBytes(int64(len(passage)))
	b.ReportAllocs()
	for b.Loop() {
		m.Tokens(passage)
	}
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		decode(modelFile)
	}
}
