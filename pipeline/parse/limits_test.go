package parse_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// processor is a clock of processor time: a process that runs all the time has
// so many percent of a processor.
func processor(percent int) func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) * time.Duration(percent) / 100 }
}

// steps is a parser that works in silence before each of n blocks.
func steps(n int, silence time.Duration) funcParser {
	return func(_ context.Context, emit func(block.Block) error) error {
		for i := range n {
			time.Sleep(silence)
			if err := emit(block.Block{Text: fmt.Sprint("word ", i)}); err != nil {
				return err
			}
		}
		return nil
	}
}

// refusalOf is the refusal of a document by a parser.
func refusalOf(t *testing.T, reg *parse.Registry, parser parse.Parser) *parse.Error {
	t.Helper()
	reg.Register(parser, ".x")
	_, err := read(t, reg, "a.x", "content")
	var refused *parse.Error
	require.ErrorAs(t, err, &refused)
	return refused
}

// A document that took longer than a minute was a dead letter, however far its
// parser had come.
func TestParserThatMakesProgressIsNotEnded(t *testing.T) {
	for name, percent := range map[string]int{"idle machine": 100, "busy machine": 5, "two processors": 200} {
		synctest.Test(t, func(t *testing.T) {
			reg := newRegistry(t, parse.Limits{Timeout: time.Minute, ProcessorTime: processor(percent)})
			reg.Register(steps(2000, 50*time.Second), ".x")
			blocks, err := read(t, reg, "a.x", "content")
			require.NoError(t, err, name)
			assert.Len(t, blocks, 2000, name)
		})
	}
}

// readingParser reads a byte now and then.
type readingParser struct{ funcParser }

func (readingParser) Parse(_ context.Context, in parse.Input, emit func(block.Block) error) error {
	for off := range in.Size {
		time.Sleep(50 * time.Second)
		if _, err := in.Content.ReadAt(make([]byte, 1), off); err != nil {
			return err
		}
	}
	return emit(block.Block{Text: "all of it"})
}

func TestReadingIsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, parse.Limits{Timeout: time.Minute, ProcessorTime: processor(100)})
		reg.Register(readingParser{}, ".x")
		blocks, err := read(t, reg, "a.x", strings.Repeat("word ", 100))
		require.NoError(t, err)
		assert.Len(t, blocks, 1)
	})
}

// stuckParser never comes back by itself.
func stuckParser(stuck <-chan struct{}) funcParser {
	return func(context.Context, func(block.Block) error) error { <-stuck; return nil }
}

func TestEndlessLoopIsRefusedForItsProcessorTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		defer close(stuck)
		reg := newRegistry(t, parse.Limits{Timeout: time.Minute, ProcessorTime: processor(100)})
		started := time.Now()
		refused := refusalOf(t, reg, stuckParser(stuck))
		assert.Equal(t, time.Minute, time.Since(started))
		assert.Equal(t, "timed out", refused.Kind)
		assert.False(t, refused.Later, "it is sure")
		assert.Contains(t, refused.Error(), "--parse-timeout")
	})
}

// A machine at load 40 leaves two processors to one process for a twentieth of
// the time.
func TestTimeoutOnABusyMachineIsNoVerdict(t *testing.T) {
	for name, percent := range map[string]int{"load 40": 5, "no processor at all": 0} {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			defer close(stuck)
			reg := newRegistry(t, parse.Limits{Timeout: time.Minute, ProcessorTime: processor(percent)})
			started := time.Now()
			refused := refusalOf(t, reg, stuckParser(stuck))
			assert.Equal(t, 10*time.Minute, time.Since(started), name)
			assert.Equal(t, "timed out", refused.Kind, name)
			assert.True(t, refused.Later, name)
			assert.Contains(t, refused.Error(), "--parse-timeout", name)
		})
	}
}

// Parsers share the processors of their process: eight of them on two have 15
// seconds in a minute.
func TestPoolOfBusyParsersIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, parse.Limits{Timeout: time.Minute, ProcessorTime: processor(200)})
		reg.Register(steps(4, 3*time.Minute), ".x")
		stuck := make(chan struct{})
		defer close(stuck)
		reg.Register(stuckParser(stuck), ".y")
		var readers sync.WaitGroup
		for range 7 {
			readers.Go(func() {
				blocks, err := read(t, reg, "a.x", "content")
				assert.NoError(t, err)
				assert.Len(t, blocks, 4)
			})
		}
		started := time.Now()
		_, err := read(t, reg, "a.y", "content")
		refused, ok := errors.AsType[*parse.Error](err)
		require.True(t, ok, err)
		assert.False(t, refused.Later, "it had its minute")
		assert.InDelta(t, 4*time.Minute, time.Since(started), float64(10*time.Second))
		readers.Wait()
	})
}

func TestParserThatComesBackLateIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		reg := newRegistry(t, parse.Limits{Timeout: time.Second})
		told := make(chan error, 1)
		_ = refusalOf(t, reg, funcParser(func(_ context.Context, emit func(block.Block) error) error {
			time.Sleep(time.Hour)
			err := emit(block.Block{Text: "late"})
			told <- err
			return err
		}))
		assert.Error(t, <-told)
	})
}

// A parser that makes progress for ever has a budget of work, in proportion to
// the document.
func TestWorkWithoutEndIsTooLarge(t *testing.T) {
	for name, b := range map[string]block.Block{
		"empty blocks": {},
		"words":        {Text: "word"},
		"long texts":   {Text: strings.Repeat("word ", 10_000)},
		"notes":        {Kind: block.Note, Text: "the page cannot be read", Page: 1},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t, parse.Limits{})
			refused := refusalOf(t, reg, funcParser(func(_ context.Context, emit func(block.Block) error) error {
				for {
					if err := emit(b); err != nil {
						return err
					}
				}
			}))
			assert.Equal(t, "too large", refused.Kind)
			assert.Contains(t, refused.Error(), "(MaxWork, --max-work)")
		})
	}
}

func TestWorkIsInProportionToTheDocument(t *testing.T) {
	const blocks = 200_000
	parser := funcParser(func(_ context.Context, emit func(block.Block) error) error {
		for range blocks {
			if err := emit(block.Block{}); err != nil {
				return err
			}
		}
		return emit(block.Block{Text: "the end"})
	})
	for _, row := range []struct {
		bytes int
		work  int64
		kind  string
	}{
		{10, 0, "too large"},
		{blocks, 0, ""},
		{10, 10_000, ""},
	} {
		reg := newRegistry(t, parse.Limits{MaxWork: row.work})
		reg.Register(parser, ".x")
		_, err := read(t, reg, "a.x", strings.Repeat("x", row.bytes))
		assert.Equal(t, row.kind, kindOf(err), "%+v", row)
	}
}

// Each limit names the flag that raises it.
func TestLimitsNameTheirFlags(t *testing.T) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "%d ", i*i)
	}
	long := text.String()
	archive := zipOf(t, "a.txt", "one", "b.txt", "two", "c.txt", long)
	for _, row := range []struct {
		limits        parse.Limits
		name, content string
		field, flag   string
	}{
		{parse.Limits{MaxSize: 10}, "a.html", "<p>A paragraph.</p>", "MaxSize", "--max-size"},
		{parse.Limits{MaxSize: 1000}, "a.zip", archive, "MaxSize", "--max-size"},
		{parse.Limits{MaxSize: 1000}, "a.json", `{"a":"` + long + `"}`, "MaxSize", "--max-size"},
		{parse.Limits{MaxEntries: 2}, "a.zip", archive, "MaxEntries", "--max-entries"},
		{parse.Limits{MaxUnpacked: 1000}, "a.zip", archive, "MaxUnpacked", "--max-unpacked"},
		{parse.Limits{MaxRatio: 1}, "a.zip", archive, "MaxRatio", "--max-ratio"},
		{parse.Limits{MaxDepth: 1}, "a.zip", zipOf(t, "b.zip", archive), "MaxDepth", "--max-depth"},
	} {
		_, err := read(t, newRegistry(t, row.limits), row.name, row.content)
		require.Equal(t, "too large", kindOf(err), row.flag)
		assert.ErrorContains(t, err, row.field+", "+row.flag+")")
		_, err = read(t, newRegistry(t, parse.Limits{}), row.name, row.content)
		assert.NoError(t, err, row.flag)
	}
}
