package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is forgotten is in no file of the journal after a purge, wherever it was
// written and moved to before.
func TestPurgeLeavesNothingOfWhatIsForgotten(t *testing.T) {
	j, folder := fresh(t)
	ctx, random := t.Context(), rand.New(rand.NewPCG(5, 9))
	const space, documents = "model/4", 2000
	vectors, answers := map[string][]float32{}, map[string]string{}
	var done []Document
	var failed []Problem
	for i := range documents {
		mark := fmt.Sprintf("%d-%016x", i, random.Uint64())
		done = append(done, Document{ID: "docs/" + mark, At: noon})
		failed = append(failed, Problem{ID: "docs/" + mark, Reason: "reason " + mark, At: noon})
		vectors["v"+mark] = []float32{random.Float32(), random.Float32(), random.Float32(), random.Float32()}
		answers["a"+mark] = "answer " + mark
	}
	random.Shuffle(documents, func(a, b int) { done[a], done[b] = done[b], done[a] })
	require.NoError(t, j.Complete(ctx, "d", done...))
	require.NoError(t, j.Fail(ctx, "d", failed...))
	require.NoError(t, j.KeepVectors(ctx, space, vectors))
	require.NoError(t, j.KeepVectors(ctx, "other/4", vectors))
	require.NoError(t, j.KeepAnswers(ctx, answers))
	require.NoError(t, j.EndRun(ctx, "d", noon, map[string]string{"reason": "it stopped at " + done[0].ID}))

	var gone [][]byte
	for _, d := range done[:documents/2] {
		mark := strings.TrimPrefix(d.ID, "docs/")
		require.NoError(t, j.NotePast(ctx, "d", Past{Document: d.ID, Text: "v" + mark, Answers: []string{"a" + mark}}))
		require.NoError(t, j.Forget(ctx, "d", d.ID))
		gone = append(gone, []byte(mark), encode(vectors["v"+mark])[:8])
	}
	require.NotZero(t, countTraces(t, folder, gone[:20]))
	require.NoError(t, j.Purge(ctx))
	require.Zero(t, countTraces(t, folder, gone))
	totals, err := j.Totals(ctx, "d")
	require.NoError(t, err)
	assert.Equal(t, documents/2, totals.Documents)
	last, _, err := j.LastRun(ctx, "d")
	require.NoError(t, err)
	assert.Nil(t, last, "the summary named a document")
	for _, d := range done[documents/2:] {
		mark := strings.TrimPrefix(d.ID, "docs/")
		kept, err := j.Vectors(ctx, space, []string{"v" + mark})
		require.NoError(t, err)
		require.Len(t, kept, 1)
	}
	var verdict string
	require.NoError(t, j.db.QueryRow("PRAGMA integrity_check").Scan(&verdict))
	assert.Equal(t, "ok", verdict)
}

func countTraces(t *testing.T, folder string, gone [][]byte) (found int) {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		require.NoError(t, err)
		for _, trace := range gone {
			if bytes.Contains(content, trace) {
				found++
				t.Logf("%s has %q", file.Name(), trace)
			}
		}
	}
	return found
}

// A journal that is copied elsewhere says in its next copy what is forgotten,
// and what it would forget.
func TestWhatIsForgottenIsCopied(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	require.NoError(t, j.Track(ctx))
	require.NoError(t, j.KeepVectors(ctx, "m/1", map[string][]float32{"kept": {1}, "gone": {2}}))
	require.NoError(t, j.KeepAnswers(ctx, map[string]string{"kept": "yes", "gone": "no"}))
	var first, second bytes.Buffer
	mark, err := j.WriteAll(ctx, &first)
	require.NoError(t, err)
	require.NoError(t, j.Copied(ctx, mark))
	require.NoError(t, j.NotePast(ctx, "d",
		Past{Document: "gone.md", Text: "gone", Answers: []string{"gone", "never there"}},
		Past{Document: "gone.md", Text: "never there"},
		Past{Document: "kept.md", Text: "kept", Answers: []string{"kept"}}))
	require.NoError(t, j.Forget(ctx, "d", "gone.md"))
	_, err = j.WriteChanges(ctx, &second, 1<<20)
	require.NoError(t, err)

	other, _ := fresh(t)
	require.NoError(t, other.Apply(ctx, &first))
	require.NoError(t, other.Apply(ctx, &second))
	vectors, err := other.Vectors(ctx, "m/1", []string{"kept", "gone"})
	require.NoError(t, err)
	assert.Equal(t, map[string][]float32{"kept": {1}}, vectors)
	answers, err := other.Answers(ctx, "kept", "gone")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"kept": "yes"}, answers)
	require.NoError(t, other.Forget(ctx, "d", "kept.md"))
	held, answered, err := other.HoldsPaid(ctx)
	require.NoError(t, err)
	assert.False(t, held)
	assert.False(t, answered)
}
