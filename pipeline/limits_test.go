package pipeline_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// stuck is a parser that ends only with its context.
type stuck struct{}

func (stuck) Name() string { return "stuck" }
func (stuck) Version() int { return 1 }
func (stuck) Parse(ctx context.Context, _ parse.Input, _ func(block.Block) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// parsersWith are parsers whose process has so much processor time more
// whenever it is asked.
func parsersWith(t *testing.T, more time.Duration) func(*pipeline.Config) {
	t.Helper()
	var used atomic.Int64
	parsers := parse.New(parse.Limits{
		Timeout:       10 * time.Millisecond,
		ProcessorTime: func() time.Duration { return time.Duration(used.Add(int64(more))) },
	})
	parsers.Register(stuck{}, ".stuck")
	t.Cleanup(func() { assert.NoError(t, parsers.Close()) })
	return func(c *pipeline.Config) { c.Parsers = parsers }
}

// A document that a busy machine did not get to the end of was condemned, and
// stayed a dead letter on an idle one.
func TestTimeoutOnABusyMachineIsDeferred(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.stuck", "A text.")
	w.write("b.md", "Another.")
	summary, err := w.run(parsersWith(t, 0))
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
	assert.Equal(t, [3]int{1, 1, 0}, [3]int{summary.Ingested, summary.Deferred, summary.DeadLetters})
	report := w.reports["docs/a.stuck"]
	assert.Equal(t, [2]string{"parse", "timed out"}, [2]string{report.Stage, report.Kind})
	assert.Contains(t, report.Reason, "--parse-timeout")

	summary, err = w.run(parsersWith(t, time.Hour))
	require.NoError(t, err)
	assert.Equal(t, 1, summary.DeadLetters, "now it is sure")
	assert.Contains(t, w.reports["docs/a.stuck"].Reason, "--parse-timeout")
	summary, err = w.run(parsersWith(t, time.Hour))
	require.NoError(t, err)
	assert.Equal(t, 1, summary.KnownDeadLetters)
}

// A dead letter that was over a limit stayed one, whatever the limit was raised
// to.
func TestDeadLetterIsTriedAgainWithOtherLimits(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for i := range 3 {
		member, err := z.Create(fmt.Sprint(i, ".txt"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(member, "Text %d.", i)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	w.write("a.zip", archive.String())
	within := func(entries int) func(*pipeline.Config) {
		parsers := parse.New(parse.Limits{MaxEntries: entries})
		t.Cleanup(func() { assert.NoError(t, parsers.Close()) })
		return func(c *pipeline.Config) { c.Parsers = parsers }
	}
	for _, row := range []struct {
		entries int
		result  pipeline.Result
	}{
		{1, pipeline.DeadLetter},
		{1, pipeline.KnownDeadLetter},
		{2, pipeline.DeadLetter},
		{2, pipeline.KnownDeadLetter},
		{3, pipeline.Ingested},
		{1, pipeline.Unchanged},
	} {
		_, err := w.run(within(row.entries))
		require.NoError(t, err)
		assert.Equal(t, row.result, w.reports["docs/a.zip"].Result, "%d entries", row.entries)
	}
	totals, err := w.config.Journal.Totals(t.Context(), w.config.Destination)
	require.NoError(t, err)
	assert.Equal(t, journal.Totals{Documents: 1, Chunks: totals.Chunks}, totals)
}
