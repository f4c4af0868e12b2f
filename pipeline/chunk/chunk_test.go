package chunk_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/chunk"
)

// words counts what white space divides: easy to follow in a test.
func words(s string) int { return len(strings.Fields(s)) }

func sequence(blocks []block.Block) iter.Seq2[block.Block, error] {
	return func(yield func(block.Block, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func cut(t testing.TB, cfg chunk.Config, blocks ...block.Block) []chunk.Chunk {
	t.Helper()
	c, err := chunk.New(cfg)
	require.NoError(t, err)
	var chunks []chunk.Chunk
	for piece, err := range c.Chunks(sequence(blocks)) {
		require.NoError(t, err)
		chunks = append(chunks, piece)
	}
	return chunks
}

func texts(chunks []chunk.Chunk) []string {
	var lines []string
	for _, c := range chunks {
		lines = append(lines, c.Heading+": "+c.Text)
	}
	return lines
}

func heading(level int, text string) block.Block {
	return block.Block{Kind: block.Heading, Level: level, Text: text}
}
func para(text string) block.Block { return block.Block{Text: text} }

// sentence is n words.
func sentence(name string, n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s%d", name, i)
	}
	return strings.ToUpper(name[:1]) + strings.Join(parts, " ")[1:] + "."
}

func TestSectionsAreKeptApart(t *testing.T) {
	chunks := cut(t, chunk.Config{Count: words},
		block.Block{Kind: block.Title, Text: "The Book", Lang: "en"},
		para("Before."), heading(1, "Guide"), heading(2, "Empty"), heading(2, "Setup"), para("One."), para("Two."),
		block.Block{Kind: block.ListItem, Text: "a"}, block.Block{Kind: block.ListItem, Text: "b"},
		heading(3, "Windows"), para("Three."), heading(1, "Last"))
	assert.Equal(t, []string{
		"The Book: Before.",
		"Guide > Empty: Empty",
		"Guide > Setup: One.\n\nTwo.\n\na\nb",
		"Guide > Setup > Windows: Three.",
		"Last: Last",
	}, texts(chunks))
	for i, c := range chunks {
		assert.Equal(t, i, c.Ordinal)
		assert.Equal(t, "The Book", c.Title)
		assert.Equal(t, "en", c.Lang)
		assert.Equal(t, words(c.EmbedText()), c.Tokens)
	}
	assert.Equal(t, "Guide > Setup\n\nOne.\n\nTwo.\n\na\nb", chunks[2].EmbedText())
}

func TestBreaksFallBetweenBlocksThenSentences(t *testing.T) {
	cfg := chunk.Config{Tokens: 20, Overlap: -1, Count: words}
	a, b, c := sentence("a", 8), sentence("b", 9), sentence("c", 10)
	assert.Equal(t, []string{": " + a + "\n\n" + b, ": " + c}, texts(cut(t, cfg, para(a), para(b), para(c))))
	assert.Equal(t, []string{": " + a + " " + b, ": " + c}, texts(cut(t, cfg, para(a+" "+b+" "+c))))
	long := sentence("d", 50)
	chunks := cut(t, cfg, para(long))
	require.Len(t, chunks, 3)
	assert.Equal(t, strings.Fields(long), strings.Fields(chunks[0].Text+" "+chunks[1].Text+" "+chunks[2].Text))
}

func TestSentencesAcrossLinesStayWhole(t *testing.T) {
	cfg := chunk.Config{Tokens: 9, Overlap: -1, Count: words}
	chunks := cut(t, cfg, para("One two three.\nFour five\nsix seven eight.\nNine ten eleven twelve thirteen."))
	assert.Equal(t, []string{": One two three.\nFour five\nsix seven eight.", ": Nine ten eleven twelve thirteen."},
		texts(chunks))
}

func TestOverlapIsTheEndOfTheChunkBefore(t *testing.T) {
	a, b, c := sentence("a", 8), sentence("b", 4), sentence("c", 8)
	cfg := chunk.Config{Tokens: 16, Overlap: 5, Count: words}
	chunks := cut(t, cfg, para(a+" "+b+" "+c), heading(1, "Next"), para("New."))
	assert.Equal(t, []string{": " + a + " " + b, ": " + b + " " + c, "Next: New."}, texts(chunks))
	assert.Equal(t, []int{0, len(b) + 1, 0}, []int{chunks[0].Repeated, chunks[1].Repeated, chunks[2].Repeated})
	assert.Equal(t, int64(len(a+" "+b+" ")), chunks[1].Start)
	assert.Equal(t, int64(len(a+" "+b+" "+c)), chunks[1].End)
}

func TestTableHeaderIsRepeated(t *testing.T) {
	rows := make([]string, 6)
	for i := range rows {
		rows[i] = fmt.Sprintf("r%d | x y z", i)
	}
	table := block.Block{Kind: block.Table, Header: "name | size", Text: strings.Join(rows, "\n"), Row: 1}
	chunks := cut(t, chunk.Config{Tokens: 20, Overlap: -1, Count: words}, para("See."), table)
	require.Len(t, chunks, 2)
	assert.Equal(t, "See.\n\nname | size\n"+strings.Join(rows[:3], "\n"), chunks[0].Text)
	assert.Equal(t, "name | size\n"+strings.Join(rows[3:], "\n"), chunks[1].Text)
	assert.Equal(t, []int{0, 4}, []int{chunks[0].Row, chunks[1].Row})
	assert.Equal(t, len("name | size\n"), chunks[1].Repeated)
}

func TestRowsModeGivesEachRowAChunk(t *testing.T) {
	chunks := cut(t, chunk.Config{Mode: chunk.Rows, Count: words}, para("A."), para("B."),
		block.Block{Kind: block.Table, Header: "h", Text: "1\n2", Row: 1}, block.Block{
			Kind: block.Table, Header: "h",
			Text: "3", Row: 3,
		},
		block.Block{Kind: block.Record, Text: "k: v\nl: w", Row: 1}, block.Block{
			Kind: block.Record, Text: "k: u",
			Row: 2,
		})
	assert.Equal(t, []string{": A.\n\nB.", ": h\n1", ": h\n2", ": h\n3", ": k: v\nl: w", ": k: u"}, texts(chunks))
	assert.Equal(t, []int{0, 1, 2, 3, 1, 2}, []int{
		chunks[0].Row, chunks[1].Row, chunks[2].Row, chunks[3].Row,
		chunks[4].Row, chunks[5].Row,
	})
}

func TestFixedModeIgnoresStructure(t *testing.T) {
	chunks := cut(t, chunk.Config{Mode: chunk.Fixed, Tokens: 8, Overlap: 2, Count: words},
		heading(1, "Head line"), para(sentence("a", 5)), para(sentence("b", 6)))
	assert.Equal(t, []string{": Head line\n\nA0 a1 a2 a3 a4.\n\nB0", ": a4.\n\nB0 b1 b2 b3 b4 b5."}, texts(chunks))
}

func TestCodeIsCutBetweenStanzas(t *testing.T) {
	code := "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 2\n}\n\nfunc c() {\n\treturn 3\n}"
	chunks := cut(t, chunk.Config{Tokens: 13, Overlap: -1, Count: words},
		block.Block{Kind: block.Code, Lang: "go", Text: code})
	require.Len(t, chunks, 2)
	assert.True(t, strings.HasPrefix(chunks[1].Text, "func c() {\n\treturn 3"))
	assert.Equal(t, []string{"go", "go"}, []string{chunks[0].Lang, chunks[1].Lang})
}

func TestPagesAndSectionsBreak(t *testing.T) {
	chunks := cut(t, chunk.Config{Count: words},
		block.Block{Text: "One.", Page: 1}, block.Block{Text: "Two.", Page: 1}, block.Block{Text: "Three.", Page: 2},
		block.Block{Kind: block.Note, Text: "unread", Section: "a.png"}, block.Block{Text: "Four.", Section: "b.txt"})
	assert.Equal(t, []string{": One.\n\nTwo.", ": Three.", ": Four."}, texts(chunks))
	assert.Equal(t, []int{1, 2, 0}, []int{chunks[0].Page, chunks[1].Page, chunks[2].Page})
	assert.Equal(t, "b.txt", chunks[2].Section)
}

func TestLongHeadings(t *testing.T) {
	long := sentence("h", 60)
	chunks := cut(t, chunk.Config{Tokens: 40, Count: words}, heading(1, long), heading(2, "Sub"), para("Text."))
	assert.Equal(t, "Sub: Text.", chunks[len(chunks)-1].Heading+": "+chunks[len(chunks)-1].Text)
	checkAll(t, chunk.Config{Tokens: 40, Count: words},
		[]block.Block{heading(1, long), heading(2, "Sub"), para("Text.")})
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for _, cfg := range []chunk.Config{
		{Tokens: 100, Overlap: 100}, {Tokens: 3}, {MaxBytes: 10}, {Mode: 9}, {Tokens: -1},
	} {
		_, err := chunk.New(cfg)
		assert.ErrorIs(t, err, chunk.ErrConfig, "%+v", cfg)
	}
	c, err := chunk.New(chunk.Config{})
	require.NoError(t, err)
	assert.Equal(t, "structure/1 256+32 8192", c.Policy())
}

func TestErrorsOfTheBlocksAreHandedOn(t *testing.T) {
	c, err := chunk.New(chunk.Config{})
	require.NoError(t, err)
	broken := errors.New("broken")
	n := 0
	for _, err := range c.Chunks(func(yield func(block.Block, error) bool) {
		if yield(para("a"), nil) {
			yield(block.Block{}, broken)
		}
	}) {
		assert.Equal(t, broken, err)
		n++
	}
	assert.Equal(t, 1, n)
}

func TestReaderMayStop(t *testing.T) {
	c, err := chunk.New(chunk.Config{Tokens: 10, Count: words})
	require.NoError(t, err)
	for _, err := range c.Chunks(sequence([]block.Block{para(sentence("a", 500)), heading(1, "x"), heading(1, "y")})) {
		require.NoError(t, err)
		break
	}
}

// checkAll holds the five properties against the chunks of some blocks.
func checkAll(t testing.TB, cfg chunk.Config, blocks []block.Block) {
	t.Helper()
	chunks := cut(t, cfg, blocks...)
	assert.Equal(t, chunks, cut(t, cfg, blocks...), "the same input gives other chunks")
	var got strings.Builder
	for i, c := range chunks {
		require.True(t, utf8.ValidString(c.Text) && utf8.ValidString(c.Heading), "chunk %d is not UTF-8: %q", i, c.Text)
		require.LessOrEqual(t, c.Repeated, len(c.Text))
		fresh := c.Text[c.Repeated:]
		require.NotEmpty(t, strings.TrimSpace(fresh), "chunk %d says nothing new: %q", i, c.Text)
		require.True(t, utf8.ValidString(fresh), "Repeated cuts a rune")
		if utf8.RuneCountInString(c.Text) > 1 {
			require.LessOrEqual(t, cfg.Count(c.EmbedText()), cfg.Tokens, "chunk %d: %q", i, c.EmbedText())
		}
		require.LessOrEqual(t, len(c.Text), cfg.MaxBytes|8192*b2i(cfg.MaxBytes == 0))
		got.WriteString(c.Heading) // of each chunk: the next section may have the same
		got.WriteString(fresh)
	}
	requireSubsequence(t, solid(got.String()), blocks)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// requireSubsequence checks that each block's text is there, in order, rune by
// rune; headings may also come in pieces between other texts.
func requireSubsequence(t testing.TB, got []rune, blocks []block.Block) {
	t.Helper()
	at := 0
	for _, b := range blocks {
		if b.Kind == block.Title || b.Kind == block.Note {
			continue
		}
		for _, r := range solid(b.Text) {
			i := slices.Index(got[at:], r)
			require.GreaterOrEqual(t, i, 0, "lost %q of %q", r, b.Text)
			at += i + 1
		}
	}
}

// solid is a text without white space.
func solid(s string) []rune {
	var runes []rune
	for _, r := range s {
		if !unicode.IsSpace(r) {
			runes = append(runes, r)
		}
	}
	return runes
}

// blocksOf makes blocks of every kind from the lines of a fuzzer's text.
func blocksOf(text string) []block.Block {
	var blocks []block.Block
	offset := int64(0)
	for part := range strings.SplitSeq(strings.ToValidUTF8(text, ""), "\n\n") {
		part = strings.Trim(part, "\n ")
		if part == "" {
			continue
		}
		kind := block.Kind(part[0] % 8)
		b := block.Block{Kind: kind, Level: 1 + int(part[0]>>3)%6, Text: part, Offset: offset, Page: len(blocks) / 7}
		if kind == block.Table {
			b.Header, b.Row = part[:strings.IndexByte(part+"\n", '\n')], 1+int(part[0]>>5)
		}
		if kind == block.Code {
			b.Lang = "go"
		}
		offset += int64(len(part)) + 1
		blocks = append(blocks, b)
	}
	return blocks
}

func FuzzChunks(f *testing.F) {
	f.Add("One.\n\nTwo three. Four!\n\nqHeading\n\ndx | y\na | b\nc | d", uint8(0), uint8(12), uint8(3), uint16(64),
		uint8(0))
	f.Add(strings.Repeat("word ", 300)+"\n\n"+strings.Repeat("日本語の文章です。", 50), uint8(1), uint8(20), uint8(9),
		uint16(200), uint8(1))
	f.Add("a"+strings.Repeat("\u0301", 500)+"\n\n\x13👩‍👩‍👧‍👦👩‍👩‍👧‍👦", uint8(2), uint8(8), uint8(0), uint16(70),
		uint8(2))
	f.Add("\x04r | s\n1 | 2\n3 | 4\n\n\x04r | s\n5 | 6\n\n\x02A\n\n\x02B\n\n\x0aC", uint8(2), uint8(30), uint8(5),
		uint16(100), uint8(0))
	f.Add("B\n\ns\n\nB\n\n 6", uint8(2), uint8(17), uint8(3), uint16(100), uint8(0))
	counters := []func(string) int{
		words, chunk.EstimateTokens, utf8.RuneCountInString,
		func(s string) int { return (len(s) + 3) / 4 },
	}
	f.Fuzz(func(t *testing.T, text string, mode, tokens, overlap uint8, maxBytes uint16, counter uint8) {
		cfg := chunk.Config{
			Mode: chunk.Mode(mode % 3), Tokens: 8 + int(tokens), MaxBytes: 64 + int(maxBytes%4096),
			Count: counters[int(counter)%len(counters)],
		}
		cfg.Overlap = int(overlap) % cfg.Tokens
		checkAll(t, cfg, blocksOf(text))
	})
}

// BenchmarkChunks cuts a document with sections of mixed length.
func BenchmarkChunks(b *testing.B) {
	var blocks []block.Block
	total := 0
	for i := range 200 {
		blocks = append(blocks, heading(2, fmt.Sprintf("Section %d", i)))
		for range i % 10 {
			blocks = append(blocks, para(strings.Repeat(sentence("w", 20)+" ", 1+i%20)))
			total += len(blocks[len(blocks)-1].Text)
		}
	}
	for _, mode := range []chunk.Mode{chunk.Structure, chunk.Fixed} {
		b.Run(mode.String(), func(b *testing.B) {
			b.SetBytes(int64(total))
			for b.Loop() {
				cut(b, chunk.Config{Mode: mode}, blocks...)
			}
		})
	}
}
