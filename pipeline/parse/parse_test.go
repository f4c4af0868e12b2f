package parse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// read returns the blocks of a document, or the error that ended them.
func read(t testing.TB, reg *parse.Registry, name, content string) ([]block.Block, error) {
	t.Helper()
	var blocks []block.Block
	for b, err := range reg.Blocks(t.Context(), parse.FromBytes(name, []byte(content))) {
		if err != nil {
			return blocks, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// kindOf is the kind of a refusal, "" for any other error and for nil.
func kindOf(err error) string {
	if refused, ok := errors.AsType[*parse.Error](err); ok {
		return refused.Kind
	}
	return ""
}

// outline writes blocks one a line, as "heading1 Text".
func outline(blocks []block.Block) []string {
	var lines []string
	for _, b := range blocks {
		line := b.Kind.String()
		if b.Level > 0 {
			line += strconv.Itoa(b.Level)
		}
		if b.Page > 0 {
			line += fmt.Sprintf(" p%d", b.Page)
		}
		if b.Section != "" {
			line += " @" + b.Section
		}
		if b.Lang != "" {
			line += " [" + b.Lang + "]"
		}
		if b.Header != "" {
			line += " {" + b.Header + "}"
		}
		lines = append(lines, line+" "+b.Text)
	}
	return lines
}

func newRegistry(t testing.TB, limits parse.Limits) *parse.Registry {
	reg := parse.New(limits)
	t.Cleanup(func() { assert.NoError(t, reg.Close()) })
	return reg
}

func TestTextIsParagraphs(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	for _, row := range []struct{ name, content string }{
		{"unix", "One\ntwo.\n\nThree.\n"},
		{"dos", "One\r\ntwo.\r\n\r\nThree.\r\n"},
		{"mac", "One\rtwo.\r\rThree.\r"},
		{"controls", "\x00One\ntw\x01o.\n \t\nThree.\x7f\n" + strings.Repeat("\n", 200)},
	} {
		blocks, err := read(t, reg, "a.txt", row.content)
		require.NoError(t, err, row.name)
		require.Len(t, blocks, 2, row.name)
		assert.Equal(t, "One\ntwo.", blocks[0].Text, row.name)
		assert.Equal(t, "Three.", blocks[1].Text, row.name)
		assert.Equal(t, int64(len("One\ntwo.\n")), blocks[1].Offset, row.name)
	}
}

func TestTextWithoutLineBreaksComesInPieces(t *testing.T) {
	reg := newRegistry(t, parse.Limits{MaxSize: 1000}) // text streams past it
	content := strings.Repeat("žluťoučký kůň ", 50_000)
	blocks, err := read(t, reg, "a.txt", content)
	require.NoError(t, err)
	assert.Greater(t, len(blocks), 10)
	var all strings.Builder
	for _, b := range blocks {
		all.WriteString(b.Text + " ")
	}
	assert.Equal(t, content, all.String())
}

type funcParser func(ctx context.Context, emit func(block.Block) error) error

func (funcParser) Name() string { return "func" }
func (funcParser) Version() int { return 7 }
func (f funcParser) Parse(ctx context.Context, _ parse.Input, emit func(block.Block) error) error {
	return f(ctx, emit)
}

func TestRegisteredParserGoesFirst(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	reg.Register(funcParser(func(_ context.Context, emit func(block.Block) error) error {
		return emit(block.Block{Text: " mine\x00\xff "})
	}), ".mine", ".txt")
	for _, name := range []string{"a.mine", "a.txt"} {
		blocks, err := read(t, reg, name, "content")
		require.NoError(t, err)
		assert.Equal(t, []string{"paragraph mine\uFFFD"}, outline(blocks))
	}
	format, err := reg.Detect(parse.FromBytes("dir.d/a.mine", []byte{0, 1, 2, 3}))
	require.NoError(t, err)
	assert.Equal(t, parse.Format{Parser: "func", Version: 7, MIME: "application/octet-stream"}, format)
}

func TestParserThatPanicsIsAnError(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	reg.Register(funcParser(func(context.Context, func(block.Block) error) error { panic("boom") }), ".x")
	_, err := read(t, reg, "a.x", "content")
	require.Equal(t, "parser crashed", kindOf(err))
	var refused *parse.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "a.x: parser crashed (func): panic: boom", refused.Error())
	assert.Contains(t, string(refused.Stack), "TestParserThatPanicsIsAnError")
	assert.NotEmpty(t, refused.Hint)
}

func TestParsersLeftBehindAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, parse.Limits{Timeout: time.Minute})
		stuck, started := make(chan struct{}), new(atomic.Int32)
		reg.Register(funcParser(func(_ context.Context, emit func(block.Block) error) error {
			started.Add(1)
			<-stuck
			return emit(block.Block{Text: "late"})
		}), ".x")
		for range 16 {
			_, err := read(t, reg, "a.x", "content")
			require.Equal(t, "timed out", kindOf(err))
		}
		_, err := read(t, reg, "b.x", "content")
		require.Equal(t, "timed out", kindOf(err))
		assert.ErrorContains(t, err, "16 other parsers still work")
		assert.EqualValues(t, 16, started.Load(), "the seventeenth has not begun")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range reg.Blocks(ctx, parse.FromBytes("c.x", []byte("content"))) {
			assert.Equal(t, context.DeadlineExceeded, err)
		}

		time.AfterFunc(time.Second, func() { stuck <- struct{}{} })
		blocks, err := read(t, reg, "a.txt", "words")
		require.NoError(t, err, "one has come back")
		assert.Len(t, blocks, 1)
		close(stuck)
	})
}

func TestSlowReaderIsNotATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, parse.Limits{Timeout: time.Second})
		n := 0
		for _, err := range reg.Blocks(t.Context(),
			parse.FromBytes("a.txt", []byte(strings.Repeat("word\n\n", 1000)))) {
			require.NoError(t, err)
			time.Sleep(time.Minute)
			n++
		}
		assert.Equal(t, 1000, n)
	})
}

func TestReaderThatStopsFreesTheParser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		reg := newRegistry(t, parse.Limits{})
		for _, err := range reg.Blocks(t.Context(),
			parse.FromBytes("a.txt", []byte(strings.Repeat("word\n\n", 100_000)))) {
			require.NoError(t, err)
			break
		}
	})
}

func TestEndOfTheCallersContextIsHandedOn(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	reg.Register(funcParser(func(ctx context.Context, _ func(block.Block) error) error {
		cancel()
		<-ctx.Done()
		return errors.New("something else")
	}), ".x")
	for _, err := range reg.Blocks(ctx, parse.FromBytes("a.x", []byte("content"))) {
		assert.Equal(t, context.Canceled, err)
	}
}

func TestFailureToReadIsHandedOn(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	for _, name := range []string{"a.txt", "a.md"} {
		in := parse.FromBytes(name, nil)
		in.Size, in.Content = 10_000, failingReader{}
		for _, err := range reg.Blocks(t.Context(), in) {
			require.ErrorIs(t, err, iotest.ErrTimeout, name)
			var refused *parse.Error
			assert.NotErrorAs(t, err, &refused, name)
		}
	}
}

// failingReader gives some text and then fails.
type failingReader struct{}

func (failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off > 0 || len(p) > 5000 {
		return 0, iotest.ErrTimeout
	}
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestMemoryOfAStreamDoesNotGrow(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	const size = 96 << 20
	in := parse.Input{Name: "big.txt", Content: endlessText{}, Size: size}
	var before, now runtime.MemStats
	runtime.GC() // else the goal of the next one is that of an earlier test
	runtime.ReadMemStats(&before)
	peak, n := uint64(0), 0
	for b, err := range reg.Blocks(t.Context(), in) {
		require.NoError(t, err)
		if n += len(b.Text); n%1000 == 0 {
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
	}
	assert.Greater(t, n, size*9/10)
	assert.Less(t, peak, before.HeapAlloc+32<<20)
}

type endlessText struct{}

const line = "A line of text that continues for a while, and then ends.\n\n"

func (endlessText) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = line[(off+int64(i))%int64(len(line))]
	}
	return len(p), nil
}

var _ io.ReaderAt = endlessText{}

// A zip whose directory points before its beginning was taken for a failure to
// read, and would have been tried again for ever.
func TestZipThatPointsOutsideItselfIsMalformed(t *testing.T) {
	content := []byte(docx(t))
	at := strings.LastIndex(string(content), "PK\x05\x06")
	copy(content[at+16:], "\xff\xff\xff\x7f")
	_, err := read(t, newRegistry(t, parse.Limits{}), "a.docx", string(content))
	require.Equal(t, "malformed", kindOf(err))
}
