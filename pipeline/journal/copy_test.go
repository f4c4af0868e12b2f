package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func tracked(t *testing.T) *Journal {
	t.Helper()
	j, _ := fresh(t)
	require.NoError(t, j.Track(t.Context()))
	return j
}

// changes are the lines of the next copy, without header and end, and takes
// them for copied.
func changes(t *testing.T, j *Journal) (lines []string, text string) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, j.NoteVectors(t.Context(), true))
	mark, err := j.WriteChanges(t.Context(), &b, 1<<20)
	require.NoError(t, err)
	if mark == 0 {
		assert.Zero(t, b.Len())
		return nil, ""
	}
	require.NoError(t, j.Copied(t.Context(), mark))
	all := strings.Split(strings.TrimSpace(b.String()), "\n")
	return all[1 : len(all)-1], b.String()
}

// contents is everything that a journal says.
func contents(t *testing.T, j *Journal) string {
	t.Helper()
	ctx := t.Context()
	all := map[string]any{}
	destinations, err := j.Destinations(ctx)
	require.NoError(t, err)
	for _, d := range destinations {
		documents, problems := list(t, j.Documents(ctx, d, "")), list(t, j.Problems(ctx, d, ""))
		collection, err := j.Collection(ctx, d)
		require.NoError(t, err)
		summary, at, err := j.LastRun(ctx, d)
		require.NoError(t, err)
		all[d] = []any{documents, problems, collection, string(summary), at}
	}
	all["answers"], err = j.Answers(ctx, "k", "useless")
	require.NoError(t, err)
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(t, err)
	return string(text)
}

func fill(t *testing.T, j *Journal) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, j.Complete(ctx, "d",
		Document{
			ID: "a/ü \x01\"", SHA: "s", Policy: "p", Chunks: 3, At: noon, Location: "/a", Version: `"e"/3`,
			Parser: "md", Size: 5 << 30,
		},
		Document{ID: "b", SHA: "t", Policy: "p", Chunks: 1, At: noon, Plain: "q", Pending: true}))
	require.NoError(t, j.Fail(ctx, "d",
		Problem{
			ID: "c", SHA: "u", Policy: "p", Status: DeadLetter, Stage: "parse", Kind: "empty",
			Reason: "<nothing>\n", At: noon, Location: "s3://b/c",
		},
		Problem{ID: "e", Status: Deferred, Stage: "embed", Kind: "stopped", Reason: "r", At: noon}))
	require.NoError(t, j.EndRun(ctx, "d", noon, map[string]int{"documents": 4}))
	_, err := j.SetCollection(ctx, "d", "ingest-1")
	require.NoError(t, err)
	require.NoError(t, j.KeepVectors(ctx, "m/2", map[string][]float32{"k": {1, -2.5}}))
	require.NoError(t, j.KeepAnswers(ctx, map[string]string{"k": "<said>", "useless": ""}))
}

// A copy of all, and copies of the changes one after the other, say what the
// journal says.
func TestCopies(t *testing.T) {
	j, copied, ctx := tracked(t), tracked(t), t.Context()
	other, _ := fresh(t)
	fill(t, j)
	for round := range 4 {
		switch round {
		case 1:
			require.NoError(t, j.Forget(ctx, "d", "b"))
			require.NoError(t, j.Complete(ctx, "d", Document{ID: "c", SHA: "v", Policy: "p", Chunks: 1, At: noon}))
		case 2:
			require.NoError(t, j.Confirm(ctx, "d", Document{ID: "c", Location: "/elsewhere"}))
			require.NoError(t, j.EndRun(ctx, "other", noon, nil))
		case 3:
			_, err := j.SetCollection(ctx, "d", "ingest-2")
			require.NoError(t, err)
		}
		_, text := changes(t, j)
		require.NoError(t, copied.Apply(ctx, strings.NewReader(text)))
		require.Equal(t, contents(t, j), contents(t, copied), "round %d", round)
	}
	lines, _ := changes(t, j)
	assert.Empty(t, lines, "nothing has changed since")

	var all bytes.Buffer
	_, err := j.WriteAll(ctx, &all)
	require.NoError(t, err)
	require.NoError(t, other.Apply(ctx, iotest.OneByteReader(&all)))
	assert.Equal(t, contents(t, j), contents(t, other))
	vectors, err := other.Vectors(ctx, "m/2", []string{"k"})
	require.NoError(t, err)
	assert.Equal(t, map[string][]float32{"k": {1, -2.5}}, vectors)
}

func TestChangesAreBounded(t *testing.T) {
	j, ctx := tracked(t), t.Context()
	copied, _ := fresh(t)
	const problems, reason = 2_000, 5_000 // 10 MB
	for i := range problems {
		require.NoError(t, j.Fail(ctx, "d", Problem{
			ID: strconv.Itoa(i), Status: Deferred,
			Reason: strings.Repeat("x", reason), At: noon,
		}))
	}
	copies := 0
	for {
		var b bytes.Buffer
		mark, err := j.WriteChanges(ctx, &b, 1<<20)
		require.NoError(t, err)
		if mark == 0 {
			break
		}
		copies++
		assert.Less(t, b.Len(), 1<<20+2*reason)
		require.NoError(t, copied.Apply(ctx, &b))
		require.NoError(t, j.Copied(ctx, mark))
	}
	assert.GreaterOrEqual(t, copies, 10)
	totals, err := copied.Totals(ctx, "d")
	require.NoError(t, err)
	assert.Equal(t, problems, totals.Deferred)
}

// What changes while a copy is on its way is in the next one.
func TestChangeDuringCopy(t *testing.T) {
	j, ctx := tracked(t), t.Context()
	require.NoError(t, j.Fail(ctx, "d", Problem{ID: "a", Status: Deferred, Reason: "one", At: noon}))
	mark, err := j.WriteChanges(ctx, io.Discard, 1<<20)
	require.NoError(t, err)
	require.NoError(t, j.Fail(ctx, "d", Problem{ID: "a", Status: Deferred, Reason: "two", At: noon}))
	require.NoError(t, j.Copied(ctx, mark))
	lines, _ := changes(t, j)
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "two")
}

// A vector goes into copies from when it was paid for until the vector store
// has it.
func TestVectorsInCopies(t *testing.T) {
	j, ctx := tracked(t), t.Context()
	keep := func(keys ...string) {
		vectors := map[string][]float32{}
		for _, k := range keys {
			vectors[k] = []float32{1}
		}
		require.NoError(t, j.KeepVectors(ctx, "m/1", vectors))
	}
	keep("a", "b")
	require.NoError(t, j.Stored(ctx, "m/1", "a", "unknown"))
	lines, _ := changes(t, j)
	require.Len(t, lines, 1, "a was stored before anybody copied it")
	assert.Equal(t, `["vector","m/1","b","AACAPw=="]`, lines[0])
	require.NoError(t, j.Stored(ctx, "m/1", "b"))
	lines, _ = changes(t, j)
	assert.Equal(t, []string{`["-vector","m/1","b"]`}, lines)
	known, err := j.Vectors(ctx, "m/1", []string{"a", "b"})
	require.NoError(t, err)
	assert.Len(t, known, 2, "here they stay")

	keep("c")
	var all bytes.Buffer
	_, err = j.WriteAll(ctx, &all)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(all.String(), `["vector"`))

	next, _ := fresh(t)
	require.NoError(t, next.Apply(ctx, &all))
	require.NoError(t, next.Track(ctx))
	require.NoError(t, next.Stored(ctx, "m/1", "c"))
	lines, _ = changes(t, next)
	assert.Equal(t, []string{`["-vector","m/1","c"]`}, lines, "the copy that it came from has it")
}

// A copy holds the newest answers; the others are in the rows.
func TestCopyHoldsTheNewestAnswers(t *testing.T) {
	j, ctx := tracked(t), t.Context()
	answers := map[string]string{}
	for i := range paidKept {
		answers[strconv.Itoa(i)] = "old"
	}
	require.NoError(t, j.KeepAnswers(ctx, answers))
	require.NoError(t, j.KeepAnswers(ctx, map[string]string{"new": "said"}))
	for range 2 {
		var all bytes.Buffer
		_, err := j.WriteAll(ctx, &all)
		require.NoError(t, err)
		j = tracked(t)
		require.NoError(t, j.Apply(ctx, &all))
		found, err := j.Answers(ctx, "new")
		require.NoError(t, err)
		assert.Len(t, found, 1)
		var n int
		require.NoError(t, j.db.QueryRowContext(ctx, "SELECT count(*) FROM answer").Scan(&n))
		assert.Equal(t, paidKept, n)
	}
}

// Most vectors are stored a moment after they were paid for: only those that
// wait for longer are copied.
func TestFreshVectorsAreNotCopied(t *testing.T) {
	j, ctx := tracked(t), t.Context()
	copied := func(fresh bool) int64 {
		require.NoError(t, j.NoteVectors(ctx, fresh))
		mark, err := j.WriteChanges(ctx, io.Discard, 1<<20)
		require.NoError(t, err)
		require.NoError(t, j.Copied(ctx, mark))
		return mark
	}
	require.NoError(t, j.KeepVectors(ctx, "m/1", map[string][]float32{"a": {1}}))
	assert.Zero(t, copied(false), "it has just come")
	assert.NotZero(t, copied(false), "it still waits")
	assert.Zero(t, copied(false), "the copy has it")
	require.NoError(t, j.KeepVectors(ctx, "m/1", map[string][]float32{"b": {1}}))
	assert.NotZero(t, copied(true), "at the end all are taken along")
	assert.Zero(t, copied(true))
	require.NoError(t, j.KeepVectors(ctx, "m/1", map[string][]float32{"c": {1}}))
	assert.Zero(t, copied(false))
	require.NoError(t, j.Stored(ctx, "m/1", "c"))
	assert.Zero(t, copied(true), "no copy has ever heard of it")
}

func TestStoredCostsNothingWhereNobodyCopies(t *testing.T) {
	j, _ := fresh(t)
	require.NoError(t, j.KeepVectors(t.Context(), "m/1", map[string][]float32{"a": {1}}))
	require.NoError(t, j.Stored(t.Context(), "m/1", "a"))
}

func TestDamagedCopies(t *testing.T) {
	const header = `{"journal":1,"tables":{"problem":["destination","id"],"vector":["space","key","vector"],"run":["destination","fancy"]}}` + "\n"
	for _, row := range []struct {
		name, text, says string
		newer            bool
	}{
		{"empty", "", "breaks off", false},
		{"no copy", "hello\n", "does not begin as one", false},
		{"another object", "{}\n", "does not begin as one", false},
		{"newer format", `{"journal":2}` + "\n", "newer version", true},
		{"newer table", header + `["enriched","d"]` + "\n", `a table "enriched"`, true},
		{"newer column", header + `["run","d","x"]` + "\n", `a column "fancy"`, true},
		{"no row", header + "7\n", "a line is no row", false},
		{"no table", header + "[]\n", "a line is no row", false},
		{"short row", header + `["problem","d"]` + "\n", "has 1 values, not 2", false},
		{"long key", header + `["-problem","d","a","b"]` + "\n", "has 3 values, not 2", false},
		{"vector", header + `["vector","m","k","%"]` + "\n", "a vector", false},
		{"cut short", header + `["-problem","d","a"]` + "\n", "breaks off", false},
		{"cut in a line", header + `["-problem","d`, "breaks off", false},
		{
			"lines lost", header + `["-problem","d","a"]` + "\n" + `{"end":2}` + "\n",
			"its end does not fit its 1 lines",
			false,
		},
		{"more", header + `{"end":0}` + "\n" + `["-problem","d","a"]` + "\n", "more behind its end", false},
		{"endless line", header + strings.Repeat(" ", longestLine+1<<20), "a line is longer than", false},
		{"no end", header + `{"start":0}` + "\n", "its end does not fit", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			j, _ := fresh(t)
			require.NoError(t, j.Fail(t.Context(), "d", Problem{ID: "a", Status: Deferred, At: noon}))
			err := j.Apply(t.Context(), strings.NewReader(row.text))
			var bad *CopyError
			require.ErrorAs(t, err, &bad)
			assert.Contains(t, bad.Error(), row.says)
			assert.Equal(t, row.newer, bad.Newer)
			totals, err := j.Totals(t.Context(), "d")
			require.NoError(t, err)
			assert.Equal(t, Totals{Deferred: 1}, totals, "all or nothing")
		})
	}
	j, _ := fresh(t)
	require.ErrorIs(t, j.Apply(t.Context(), iotest.ErrReader(io.ErrClosedPipe)), io.ErrClosedPipe)
}

// A reader that failed with an error that wraps io.EOF was taken for the end:
// the copy for a damaged one, or for whole although what is behind its end was
// not looked at.
func TestReaderThatFailsIsNotTheEndOfACopy(t *testing.T) {
	const whole = `{"journal":1,"tables":{"problem":["destination","id"]}}` + "\n" + `["-problem","d","a"]` + "\n" +
		`{"end":1}` + "\n"
	for _, text := range []string{"", whole[:20], whole[:len(whole)-1], whole} {
		for _, failure := range []error{
			fmt.Errorf("broke off: %w", io.EOF),
			fmt.Errorf("broke off: %w", bufio.ErrBufferFull), io.ErrUnexpectedEOF,
		} {
			j, _ := fresh(t)
			require.NoError(t, j.Fail(t.Context(), "d", Problem{ID: "a", Status: Deferred, At: noon}))
			err := j.Apply(t.Context(), io.MultiReader(strings.NewReader(text), iotest.ErrReader(failure)))
			require.ErrorIs(t, err, failure, "%q", text)
			var damaged *CopyError
			require.NotErrorAs(t, err, &damaged, "%q", text)
			totals, err := j.Totals(t.Context(), "d")
			require.NoError(t, err)
			assert.Equal(t, Totals{Deferred: 1}, totals, "all or nothing")
		}
	}
}

// A copy of an older layout lacks columns, which get their defaults.
func TestCopyOfAnOlderLayout(t *testing.T) {
	j, _ := fresh(t)
	text := `{"journal":1,"tables":{"document":["destination","id","sha","policy","chunks","at"]}}` + "\n" +
		`["document","d","a","s","p",3,0]` + "\n" + `{"end":1}` + "\n"
	require.NoError(t, j.Apply(t.Context(), strings.NewReader(text)))
	d, ok, err := j.Document(t.Context(), "d", "a")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, 3, d.Chunks)
	assert.Empty(t, d.Location)
}

// tables names what the schema has, but for what is not copied.
func TestEveryColumnIsCopied(t *testing.T) {
	j, _ := fresh(t)
	rows, err := j.db.QueryContext(
		t.Context(),
		"SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type='table' ORDER BY m.name, c.cid",
	)
	require.NoError(t, err)
	found := map[string][]string{}
	for rows.Next() {
		var name, column string
		require.NoError(t, rows.Scan(&name, &column))
		found[name] = append(found[name], column)
	}
	require.NoError(t, rows.Err())
	for _, table := range tables {
		assert.Equal(t, found[table.name], table.columns)
		delete(found, table.name)
	}
	assert.Empty(t, found, "a table that is not copied")
}

func TestRevoke(t *testing.T) {
	j, _ := fresh(t)
	first, second := errors.New("first"), errors.New("second")
	over, why := j.Revoked()
	j.Restore()
	select {
	case <-over:
		t.Error("nobody has revoked it")
	default:
	}
	j.Revoke(first)
	j.Revoke(second)
	<-over
	assert.Equal(t, first, why())
	j.Restore()
	again, _ := j.Revoked()
	select {
	case <-again:
		t.Error("it was restored")
	default:
	}
	assert.Equal(t, first, why(), "what was revoked stays so")
}

// BenchmarkCopy copies and applies a journal of 100,000 documents.
func BenchmarkCopy(b *testing.B) {
	ctx := b.Context()
	j, err := Open(ctx, b.TempDir())
	require.NoError(b, err)
	require.NoError(b, j.Track(ctx))
	documents := make([]Document, 100_000)
	for i := range documents {
		documents[i] = Document{
			ID: fmt.Sprintf("docs/guide/%06d.md", i), SHA: fmt.Sprintf("%064x", i*7919),
			Policy: fmt.Sprintf("%064x", 1), Chunks: 4, At: noon,
			Location: fmt.Sprintf("/srv/docs/guide/%06d.md", i), Parser: "markdown",
		}
	}
	require.NoError(b, j.Complete(ctx, "d", documents...))
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			_, err := j.WriteAll(ctx, io.Discard)
			require.NoError(b, err)
		}
	})
	var all bytes.Buffer
	_, err = j.WriteAll(ctx, &all)
	require.NoError(b, err)
	b.Run("apply", func(b *testing.B) {
		b.SetBytes(int64(all.Len()))
		for b.Loop() {
			other, err := Open(ctx, b.TempDir())
			require.NoError(b, err)
			require.NoError(b, other.Apply(ctx, bytes.NewReader(all.Bytes())))
			require.NoError(b, other.Close())
		}
	})
	require.NoError(b, j.Close())
}
