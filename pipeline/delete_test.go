package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func TestDelete(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(30)
	_, err := w.run()
	require.NoError(t, err)
	w.write("note003.txt", "Another version of note three.")
	_, err = w.run()
	require.NoError(t, err)
	require.Len(t, w.originals(), 31, "originals are kept, old versions too")

	summary, err := w.pipeline().Delete(t.Context(), "docs/note003.txt", "docs/nowhere.txt", "docs/note004.txt")
	require.NoError(t, err)
	assert.Equal(t, 2, summary.Deleted)
	assert.Equal(t, 1, summary.NotFound)
	assert.Equal(t, 2, summary.Removed)
	assert.Equal(t, pipeline.NotFound, w.reports["docs/nowhere.txt"].Result)
	w.requireComplete(28)
	assert.Len(t, w.originals(), 28)
	_, known, err := w.config.Journal.Document(t.Context(), "test", "docs/note003.txt")
	require.NoError(t, err)
	assert.False(t, known)

	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 2, again.Ingested, "it is still in the source")
	w.requireComplete(30)
}

// A deletion that fails says so, is not put on the list for retry, and is ended
// by the next one.
func TestDeleteThatFailsGoesOnNextTime(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(10)
	_, err := w.run()
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	summary, err := w.pipeline(func(c *pipeline.Config) { c.Grace = -1 }).Delete(ctx, "docs/note003.txt")
	require.Error(t, err)
	assert.Equal(t, 1, summary.Deferred)
	totals, err := w.config.Journal.Totals(t.Context(), "test")
	require.NoError(t, err)
	assert.Zero(t, totals.Deferred)
	summary, err = w.pipeline().Delete(t.Context(), "docs/note003.txt")
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Deleted)
	w.requireComplete(9)
}

func TestPrune(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(30)
	census := func() *source.Census {
		in, err := source.Files([]string{filepath.Join(w.dir, "docs")}, source.Options{})
		require.NoError(t, err)
		c := in.Census()
		_, err = w.pipeline().Run(t.Context(), c.All(t.Context()))
		require.NoError(t, err)
		return c
	}
	census()
	for i := range 3 {
		require.NoError(t, os.Remove(filepath.Join(w.dir, "docs", fmt.Sprintf("note%03d.txt", i))))
	}
	c := census()
	var refused *pipeline.PruneError
	_, err := w.pipeline().Prune(t.Context(), c, 2)
	require.ErrorAs(t, err, &refused)
	w.requireComplete(30)
	summary, err := w.pipeline().Prune(t.Context(), c, 3)
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Deleted)
	w.requireComplete(27)
	summary, err = w.pipeline().Prune(t.Context(), c, -1)
	require.NoError(t, err)
	assert.Zero(t, summary.Documents)

	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "docs")))
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "docs"), 0o755))
	_, err = w.pipeline().Prune(t.Context(), census(), -1)
	require.ErrorAs(t, err, &refused)
	assert.ErrorContains(t, err, "no documents any more")
	w.requireComplete(27)
}

// A folder of the same name elsewhere is another place.
func TestPruneKeepsToItsRoot(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(5)
	_, err := w.run()
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "docs")
	require.NoError(t, os.Mkdir(other, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(other, "own.txt"), []byte("A text of its own."), 0o644))
	in, err := source.Files([]string{other}, source.Options{})
	require.NoError(t, err)
	c := in.Census()
	_, err = w.pipeline().Run(t.Context(), c.All(t.Context()))
	require.NoError(t, err)
	_, err = w.pipeline().Prune(t.Context(), c, -1)
	require.NoError(t, err)
	w.requireComplete(6)
}

func TestVerify(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(300)
	v, faults := w.verified(false)
	assert.Zero(t, v.Documents, "before the first run there is nothing to differ")
	assert.Empty(t, faults)
	_, err := w.run()
	require.NoError(t, err)
	ids := w.requireComplete(300)
	v, faults = w.verified(false)
	assert.Equal(t, pipeline.Verification{
		Destination: "test", Documents: 300, Rows: 300, Folder: v.Folder, Originals: 300,
	}, v)
	assert.Empty(t, faults)
	assert.True(t, v.Consistent())

	w.dropRow(w.rowsOf("docs/note007.txt")[0].ID)
	w.addRow(rows.Row{Source: "docs/note008.txt", Policy: "of old", Text: "An old text."})
	w.addRow(rows.Row{Source: "docs/stranger.txt", Policy: "p", Text: "Half a document."})
	require.NoError(t, w.config.Journal.Forget(t.Context(), "test", "docs/note009.txt"))
	want := map[string]pipeline.Fault{
		"docs/note007.txt":  {ID: "docs/note007.txt", Kind: pipeline.FaultMissing, Rows: 1},
		"docs/note008.txt":  {ID: "docs/note008.txt", Kind: pipeline.FaultStale, Rows: 1},
		"docs/stranger.txt": {ID: "docs/stranger.txt", Kind: pipeline.FaultOrphaned, Rows: 1},
		"docs/note009.txt":  {ID: "docs/note009.txt", Kind: pipeline.FaultUnknown, Rows: 1},
	}
	v, faults = w.verified(false)
	assert.Equal(t, want, faults)
	assert.False(t, v.Consistent())
	v, faults = w.verified(true)
	assert.True(t, v.Consistent())
	assert.Equal(t, 4, v.Repaired)
	assert.True(t, faults["docs/note008.txt"].Repaired)

	v, faults = w.verified(false)
	assert.Empty(t, faults)
	assert.Equal(t, 299, v.Documents)
	var problems []journal.Problem
	for p, err := range w.config.Journal.Problems(t.Context(), "test", "") {
		require.NoError(t, err)
		problems = append(problems, p)
	}
	require.Len(t, problems, 1)
	assert.Equal(t, journal.Deferred, problems[0].Status)
	assert.Equal(t, filepath.Join(w.dir, "docs", "note007.txt"), problems[0].Location)
	texts := w.model.Stats().Texts
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, again.Ingested)
	assert.Equal(t, texts+1, w.model.Stats().Texts, "the check of the model: the vector was kept")
	assert.Equal(t, ids, w.requireComplete(300))
}

// A journal that was lost comes back from the store.
func TestVerifyBringsALostJournalBack(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(250)
	_, err := w.run()
	require.NoError(t, err)
	w.loseJournal()
	v, _ := w.verified(true)
	assert.Equal(t, 250, v.Unknown)
	assert.True(t, v.Consistent())
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 250, again.Unchanged)
}

func TestRetryDeadLetters(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("empty.html", "<title>Nothing</title>")
	first, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, first.DeadLetters)
	retry, err := w.run(func(c *pipeline.Config) { c.RetryDeadLetters = true })
	require.NoError(t, err)
	assert.Equal(t, 1, retry.DeadLetters)
	assert.Zero(t, retry.KnownDeadLetters)
}
