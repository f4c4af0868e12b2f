package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
)

// A run that finds its version complete, and only has to remove what this
// replaces, is killed before it has removed the commit mark of the other one.
func TestKilledBetweenNotesAndCommitMarks(t *testing.T) {
	for name, content := range map[string]func(int) string{
		"one part": func(v int) string { return twoValves(fmt.Sprint("version ", v)) }, "several parts": manyValves,
	} {
		for deletions := range 5 {
			t.Run(fmt.Sprint(name, deletions), func(t *testing.T) {
				w := newStillWorld(t)
				w.write("report.md", content(0))
				_, err := w.run()
				require.NoError(t, err)
				w.write("report.md", content(2))
				_, err = w.run(w.diesAtDeletion(0))
				require.Error(t, err)
				second := w.visible()["docs/report.md"]
				_, _ = w.run(w.diesAtDeletion(deletions)) // which may come to its end
				require.Equal(t, second, w.visible()["docs/report.md"])
				_, err = w.run()
				require.NoError(t, err)
				assert.Equal(t, second, w.requireComplete(1))
				assert.Empty(t, w.notes())
			})
		}
	}
}

// The machine of a run that was killed has a clock that is ahead.
func TestClocksApart(t *testing.T) {
	w := newStillWorld(t)
	w.write("report.md", twoValves("version 0"))
	_, err := w.run()
	require.NoError(t, err)
	w.write("report.md", twoValves("version 1"))
	_, err = w.run(w.diesAtDeletion(0))
	require.Error(t, err)
	second := w.visible()["docs/report.md"]
	require.Len(t, second, 2)
	notes := w.notes()
	require.Len(t, notes, 1)
	notes[0].Attempts[0].At += 1 << 40
	row, err := notes[0].Row(256)
	require.NoError(t, err)
	_, err = w.store.Upsert(t.Context(), "docs", "", rows.Columns([]*rows.Row{row}, 256)...)
	require.NoError(t, err)
	require.Equal(t, second, w.visible()["docs/report.md"])

	w.write("report.md", twoValves("version 2"))
	_, err = w.run(w.diesAtDeletion(0))
	require.Error(t, err)
	third := w.visible()["docs/report.md"]
	_, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, w.requireComplete(1), third)
	assert.Empty(t, w.notes())
}

// diesAtDeletion lets so many deletions through, and after the next nothing.
func (w *world) diesAtDeletion(deletions int) func(*pipeline.Config) {
	return w.diesBefore(after(deletions, isDeletion))
}
