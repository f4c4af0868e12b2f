package version_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/version"
)

func TestStamp(t *testing.T) {
	taken := map[string]bool{}
	next := func(doc, sha, policy string) string {
		return version.Stamp(doc, sha, policy, func(stamp string) bool { return taken[stamp] })
	}
	first := next("doc", "sha", "policy")
	assert.Len(t, first, 16)
	assert.Equal(t, first, next("doc", "sha", "policy"), "the same input has the same stamps")
	for range 50 {
		stamp := next("doc", "sha", "policy")
		assert.NotContains(t, taken, stamp)
		taken[stamp] = true
	}
	assert.Contains(t, taken, first)
	for _, other := range [][3]string{
		{"doc2", "sha", "policy"}, {"doc", "sha2", "policy"}, {"doc", "sha", "policy2"}, {"doc\nsha", "", "policy"},
	} {
		assert.NotContains(t, taken, version.Stamp(other[0], other[1], other[2], func(string) bool { return false }),
			"%q", other)
	}
}

func TestNewAndSame(t *testing.T) {
	a := version.Attempt{Doc: "d", SHA: "s", Policy: "p", Stamp: "1", At: 1, Before: []string{"old"}}
	assert.False(t, a.New(rows.Row{ID: "old", Chunks: 1}))
	assert.True(t, a.New(rows.Row{ID: "new", Chunks: 1}))
	assert.False(t, a.New(rows.Row{ID: "new"}), "not a commit mark")

	assert.True(t, a.Same(version.Attempt{Doc: "d", SHA: "s", Policy: "p", Stamp: "2", At: 2, Kept: "mark"}))
	assert.False(t, a.Same(version.Attempt{Doc: "e", SHA: "s", Policy: "p"}))
	assert.False(t, a.Same(version.Attempt{Doc: "d", SHA: "t", Policy: "p"}))
	assert.False(t, a.Same(version.Attempt{Doc: "d", SHA: "s", Policy: "q"}))
}

// A note's row fits into the fields of a collection, whatever the model's
// dimensions, and belongs to no document.
func TestRow(t *testing.T) {
	note := version.Note{
		ID: "note-1", Writer: "w", Run: "r", At: time.Unix(1, 0).UTC(),
		Attempts: []version.Attempt{
			{Doc: "d", Stamp: "1", SHA: "s", Policy: "p", At: 5, Before: []string{"m"}, Kept: "m"},
		},
	}
	for _, dimensions := range []int{0, 1, 256} {
		row, err := note.Row(dimensions)
		require.NoError(t, err)
		require.NoError(t, row.Check())
		assert.False(t, row.IsMark())
		assert.Equal(t, version.Place, row.Doc)
		assert.Equal(t, -1, row.Ordinal)
		assert.Len(t, row.Vector, max(dimensions, 1))
		back, err := version.Read([]rows.Row{*row})
		require.NoError(t, err)
		assert.Equal(t, version.Notes{note}, back)
	}
}

func attempts(n int, before ...string) (list []version.Attempt) {
	for i := range n {
		list = append(list, version.Attempt{
			Doc: rows.DocumentHash(strconv.Itoa(i)), Stamp: fmt.Sprintf("%016x", i), At: 1 << 40,
			SHA: rows.TextHash(strconv.Itoa(i)), Policy: rows.PolicyHash(), Before: before, Kept: rows.TextHash("mark"),
		})
	}
	return list
}

// Milvus takes 65,536 bytes in a JSON field.
func TestSplit(t *testing.T) {
	marks := make([]string, 300)
	for i := range marks {
		marks[i] = rows.TextHash(strconv.Itoa(i))
	}
	for _, row := range []struct {
		list  []version.Attempt
		parts int
	}{
		{nil, 0},
		{attempts(1), 1},
		{attempts(128), 1}, // a whole group
		{attempts(1000), 6},
		{attempts(10, marks...), 5},
	} {
		parts := version.Split(row.list)
		assert.Equal(t, row.parts, len(parts), "%d attempts", len(row.list))
		var joined []version.Attempt
		for _, part := range parts {
			made, err := version.Note{
				ID: "x", Writer: strings.Repeat("w", 64), Run: strings.Repeat("r", 64),
				At: time.Unix(1, 999_999_999).UTC(), Attempts: part,
			}.Row(1)
			require.NoError(t, err)
			assert.Less(t, len(made.Meta), 65_536)
			joined = append(joined, part...)
		}
		assert.True(t, reflect.DeepEqual(row.list, joined))
	}
}

func TestRead(t *testing.T) {
	notes, err := version.Read(nil)
	require.NoError(t, err)
	assert.Empty(t, notes.Attempts())
	for _, meta := range []string{
		"", "{", "[]", `"text"`, `{"attempts":{}}`, `{"attempts":[{"at":"soon"}]}`, `{"at":"never"}`, "{}x",
	} {
		_, err := version.Read([]rows.Row{{ID: "note-7", Meta: json.RawMessage(meta)}})
		require.ErrorContains(t, err, "note-7", "%q: what it hides is unknown", meta)
	}
	a := version.Attempt{Doc: "d", Stamp: "1", SHA: "s", Policy: "p", At: 5}
	other := a
	other.Stamp = "2"
	list := make([]rows.Row, 2)
	for i, attempts := range [][]version.Attempt{{a, other}, {a, {Doc: "e"}}} {
		row, err := version.Note{ID: strconv.Itoa(i), Attempts: attempts}.Row(1)
		require.NoError(t, err)
		list[i] = *row
	}
	notes, err = version.Read(list)
	require.NoError(t, err)
	assert.Equal(t, map[string][]version.Attempt{"d": {a, other}, "e": {{Doc: "e"}}}, notes.Attempts(), "each once")
}

// FuzzRead reads notes of any content, and judges rows by them: nothing in a
// collection makes a reader fail otherwise than by an error.
func FuzzRead(f *testing.F) {
	note, err := version.Note{Writer: "w", Run: "r", Attempts: []version.Attempt{
		{Doc: "d", Stamp: "1", SHA: "s", Policy: "p", At: 5, Before: []string{"m"}, Kept: "m"},
		{Doc: "d", Stamp: "2", SHA: "t", Policy: "p", At: 5, Before: []string{"m", "n"}},
	}}.Row(1)
	require.NoError(f, err)
	for _, seed := range []string{
		string(note.Meta), "null", "{}", `{"attempts":null}`, `{"attempts":[{}]}`,
		`{"attempts":[{"doc":"d","stamp":"","sha":"s","policy":"p"}]}`, `{"at":"0000-00-00T00:00:00Z"}`,
	} {
		f.Add([]byte(seed))
	}
	list := []rows.Row{
		row("a", "1", 0), row("b", "2", 0), row("c", "", 0),
		mark("m", "s", 2), mark("n", "t", 2),
	}
	f.Fuzz(func(t *testing.T, meta []byte) {
		notes, err := version.Read([]rows.Row{{ID: "x", Meta: meta}})
		if err != nil {
			require.Nil(t, notes)
			return
		}
		for doc, attempts := range notes.Attempts() {
			verdicts := version.Judge(attempts, list)
			require.Len(t, verdicts, len(list))
			for _, stamp := range version.Open(attempts, list) {
				require.Contains(t, stampsOf(attempts), stamp, doc)
			}
			for _, a := range version.Current(attempts, list) {
				require.Contains(t, attempts, a)
			}
			for _, part := range version.Split(attempts) {
				require.NotEmpty(t, part)
			}
		}
		written, err := notes[0].Row(1)
		require.NoError(t, err)
		again, err := version.Read([]rows.Row{*written})
		require.NoError(t, err)
		require.Equal(t, len(notes[0].Attempts), len(again[0].Attempts))
	})
}

func stampsOf(attempts []version.Attempt) (stamps []string) {
	for _, a := range attempts {
		stamps = append(stamps, a.Stamp)
	}
	return stamps
}
