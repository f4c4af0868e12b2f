package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func fresh(t *testing.T) (*Journal, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "state with ? and %20")
	j, err := Open(t.Context(), folder)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, j.Close()) })
	return j, folder
}

func TestCompleteAndFail(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	_, ok, err := j.Document(ctx, "d", "a")
	require.NoError(t, err)
	assert.False(t, ok)

	dead := Problem{
		ID: "a", SHA: "s", Policy: "p", Status: DeadLetter, Stage: "parse", Kind: "empty",
		Reason: "nothing in it", At: noon,
	}
	require.NoError(t, j.Fail(ctx, "d", dead, Problem{ID: "b", Status: Deferred, At: noon}))
	got, ok, err := j.Problem(ctx, "d", "a")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, dead, got)
	totals, err := j.Totals(ctx, "d")
	require.NoError(t, err)
	assert.Equal(t, Totals{DeadLetters: 1, Deferred: 1}, totals)

	done := Document{ID: "a", SHA: "s2", Policy: "p", Chunks: 3, At: noon}
	require.NoError(t, j.Complete(ctx, "d", done))
	document, ok, err := j.Document(ctx, "d", "a")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, done, document)
	_, ok, err = j.Problem(ctx, "d", "a")
	require.NoError(t, err)
	assert.False(t, ok, "complete now")

	require.NoError(t, j.Fail(ctx, "d", dead))
	_, ok, err = j.Document(ctx, "d", "a")
	require.NoError(t, err)
	assert.True(t, ok, "the version before is still in the stores")
	require.NoError(t, j.Forget(ctx, "d", "a"))
	totals, err = j.Totals(ctx, "d")
	require.NoError(t, err)
	assert.Equal(t, Totals{Deferred: 1}, totals)
}

func TestDestinationsAreApart(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	require.NoError(t, j.Complete(ctx, "one", Document{ID: "a", At: noon}))
	require.NoError(t, j.Fail(ctx, "two", Problem{ID: "a", At: noon}))
	require.NoError(t, j.EndRun(ctx, "three", noon, map[string]int{"documents": 1}))
	_, ok, err := j.Document(ctx, "two", "a")
	require.NoError(t, err)
	assert.False(t, ok)
	all, err := j.Destinations(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{"one", "three", "two"}, all)
}

// list collects a list that must end without an error.
func list[T any](t *testing.T, entries iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for one, err := range entries {
		require.NoError(t, err)
		all = append(all, one)
	}
	return all
}

func TestListIsReadInPages(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	const n = 2*pageLength + 1
	var problems []Problem
	for i := range n {
		problems = append(problems, Problem{ID: strconv.Itoa(i), Status: Deferred, At: noon})
	}
	require.NoError(t, j.Fail(ctx, "d", problems...))
	assert.Equal(t, "10", list(t, j.Problems(ctx, "d", "1"))[0].ID)
	assert.Len(t, list(t, j.Problems(ctx, "d", "")), n)
	assert.Empty(t, list(t, j.Problems(ctx, "d", "zzz")))
	for p, err := range j.Problems(ctx, "d", "") {
		require.NoError(t, err)
		require.NoError(t, j.Forget(ctx, "d", p.ID), "a list holds no lock")
		if p.ID == "1" {
			break
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range j.Problems(gone, "d", "") {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestProblemsOfOneStatus(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	var problems []Problem
	for i := range 2*pageLength + 1 {
		problems = append(problems, Problem{ID: fmt.Sprintf("a/%05d", i), Status: Deferred, At: noon})
	}
	dead := Problem{ID: "b", Status: DeadLetter, At: noon}
	require.NoError(t, j.Fail(ctx, "d", append(problems, dead)...))
	require.NoError(t, j.Fail(ctx, "other", dead))
	assert.Equal(t, []Problem{dead}, list(t, j.ProblemsOf(ctx, "d", DeadLetter, "")))
	assert.Empty(t, list(t, j.ProblemsOf(ctx, "d", DeadLetter, "b")))
	assert.Equal(t, problems, list(t, j.ProblemsOf(ctx, "d", Deferred, "")))
	assert.Equal(t, problems[7:], list(t, j.ProblemsOf(ctx, "d", Deferred, problems[6].ID)))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range j.ProblemsOf(gone, "d", Deferred, "") {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestLastRun(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	text, _, err := j.LastRun(ctx, "d")
	require.NoError(t, err)
	assert.Nil(t, text)
	require.NoError(t, j.EndRun(ctx, "d", noon, struct{ N int }{1}))
	require.NoError(t, j.EndRun(ctx, "d", noon, struct{ N int }{2}))
	text, at, err := j.LastRun(ctx, "d")
	require.NoError(t, err)
	assert.Equal(t, json.RawMessage(`{"N":2}`), text)
	assert.Equal(t, noon, at)
	require.Error(t, j.EndRun(ctx, "d", noon, func() {}))
}

func TestVectorsAreKeptBySpace(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	require.NoError(t, j.KeepVectors(ctx, "m/2", map[string][]float32{"a": {1, -2.5}, "b": {3, 4}}))
	got, err := j.Vectors(ctx, "m/2", []string{"a", "zzz"})
	require.NoError(t, err)
	assert.Equal(t, map[string][]float32{"a": {1, -2.5}}, got)
	got, err = j.Vectors(ctx, "other/2", []string{"a"})
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = decode([]byte{1, 2, 3})
	require.Error(t, err)
}

func TestSecondRunIsToldWhoHoldsIt(t *testing.T) {
	_, folder := fresh(t)
	_, err := Open(t.Context(), folder)
	var held *HeldError
	require.ErrorAs(t, err, &held)
	assert.Contains(t, held.Error(), "process "+strconv.Itoa(os.Getpid()))

	reader, err := OpenReadOnly(t.Context(), folder)
	require.NoError(t, err, "looking needs no lock")
	_, err = reader.Totals(t.Context(), "d")
	require.NoError(t, err)
	require.NoError(t, reader.Close())
}

func TestCloseGivesTheLockBack(t *testing.T) {
	folder := t.TempDir()
	for range 2 {
		j, err := Open(t.Context(), folder)
		require.NoError(t, err)
		require.NoError(t, j.Close())
	}
}

func TestOpenFaults(t *testing.T) {
	ctx := t.Context()
	_, err := OpenReadOnly(ctx, t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)

	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	_, err = Open(ctx, filepath.Join(blocked, "state"))
	require.ErrorContains(t, err, "state folder")

	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, fileName),
		[]byte("this is not a database, however long it may be"), 0o600))
	for range 2 { // the lock is given back by a failed Open
		_, err = Open(ctx, folder)
		var corrupt *CorruptError
		require.ErrorAs(t, err, &corrupt)
		assert.Contains(t, corrupt.Error(), "not embedded again")
	}
}

func TestNewerLayoutIsRefused(t *testing.T) {
	folder := t.TempDir()
	j, err := Open(t.Context(), folder)
	require.NoError(t, err)
	_, err = j.db.ExecContext(t.Context(), "PRAGMA user_version=99")
	require.NoError(t, err)
	require.NoError(t, j.Close())
	_, err = Open(t.Context(), folder)
	require.ErrorContains(t, err, "newer version")
}

func TestCancelledWriteChangesNothing(t *testing.T) {
	j, _ := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, j.Complete(ctx, "d", Document{ID: "a"}), context.Canceled)
	totals, err := j.Totals(t.Context(), "d")
	require.NoError(t, err)
	assert.Zero(t, totals)
}

func TestManyWriters(t *testing.T) {
	j, _ := fresh(t)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 20 {
				assert.NoError(t, j.Complete(t.Context(), "d",
					Document{ID: strconv.Itoa(w*100 + i), Chunks: 1, At: noon}))
			}
		})
	}
	writers.Wait()
	totals, err := j.Totals(t.Context(), "d")
	require.NoError(t, err)
	assert.Equal(t, Totals{Documents: 160, Chunks: 160}, totals)
}

func BenchmarkDocument(b *testing.B) {
	j, err := Open(b.Context(), b.TempDir())
	require.NoError(b, err)
	require.NoError(b, j.Complete(b.Context(), "d", Document{ID: "a", At: noon}))
	for b.Loop() {
		if _, ok, err := j.Document(b.Context(), "d", "a"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	require.NoError(b, j.Close())
}

// A journal of the first layout is brought up to date, and nothing is lost.
func TestOldLayoutIsMigrated(t *testing.T) {
	folder := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(folder, fileName))
	require.NoError(t, err)
	_, err = db.Exec(`
		CREATE TABLE document (destination TEXT NOT NULL, id TEXT NOT NULL, sha TEXT NOT NULL, policy TEXT NOT NULL,
			chunks INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (destination, id)) WITHOUT ROWID;
		CREATE TABLE problem (destination TEXT NOT NULL, id TEXT NOT NULL, sha TEXT NOT NULL, policy TEXT NOT NULL,
			status TEXT NOT NULL, stage TEXT NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL, at INTEGER NOT NULL,
			PRIMARY KEY (destination, id)) WITHOUT ROWID;
		INSERT INTO document VALUES ('d','a','s','p',3,0);
		INSERT INTO problem VALUES ('d','b','s','p','deferred','read','k','r',0);
		PRAGMA user_version=1;`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = OpenReadOnly(t.Context(), folder)
	require.ErrorContains(t, err, "older version")

	j, err := Open(t.Context(), folder)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, j.Close()) })
	d, ok, err := j.Document(t.Context(), "d", "a")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, Document{ID: "a", SHA: "s", Policy: "p", Chunks: 3, At: time.Unix(0, 0).UTC()}, d)
	d.Location, d.Version, d.Parser = "/srv/a", `"tag"/1`, "markdown"
	d.Plain, d.Pending, d.Size = "q", true, 7
	require.NoError(t, j.Complete(t.Context(), "d", d))
	require.Len(t, list(t, j.Problems(t.Context(), "d", "")), 1)

	d.Location, d.Version = "/mnt/a", `"tag"/2`
	require.NoError(t, j.Confirm(t.Context(), "d", Document{ID: "a", Location: d.Location, Version: d.Version}))
	assert.Equal(t, []Document{d}, list(t, j.Documents(t.Context(), "d", "")))
}

// A document whose rows are being replaced stays listed, and counts as changed.
func TestReopen(t *testing.T) {
	j, _ := fresh(t)
	a := Document{ID: "a", SHA: "s", Policy: "p", Plain: "q", Chunks: 3, At: noon, Location: "/srv/a"}
	b := Document{ID: "b", SHA: "s", Policy: "p", At: noon}
	require.NoError(t, j.Complete(t.Context(), "d", a, b))
	require.NoError(t, j.Reopen(t.Context(), "d", "a", "unknown"))
	a.Policy, a.Plain = "", ""
	assert.Equal(t, []Document{a, b}, list(t, j.Documents(t.Context(), "d", "")))
}

func TestAnswersAreKept(t *testing.T) {
	j, folder := fresh(t)
	require.NoError(t, j.KeepAnswers(t.Context(), map[string]string{"k": "said", "useless": ""}))
	require.NoError(t, j.KeepAnswers(t.Context(), map[string]string{"k": "said again"}))
	found, err := j.Answers(t.Context(), "k", "useless", "never")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"k": "said again", "useless": ""}, found)

	require.NoError(t, j.Close())
	_, err = j.Answers(t.Context(), "k")
	require.ErrorContains(t, err, folder)
	require.Error(t, j.KeepAnswers(t.Context(), map[string]string{"k": ""}))
}

// A journal is useless once it names another collection than the one that
// exists.
func TestCollectionIsKept(t *testing.T) {
	j, _ := fresh(t)
	ctx := t.Context()
	id, err := j.Collection(ctx, "d")
	require.NoError(t, err)
	assert.Empty(t, id)
	forgotten, err := j.SetCollection(ctx, "d", "one")
	require.NoError(t, err)
	assert.Zero(t, forgotten)
	require.NoError(t, j.Complete(ctx, "d", Document{ID: "a", At: noon}))
	forgotten, err = j.SetCollection(ctx, "d", "one")
	require.NoError(t, err)
	assert.Zero(t, forgotten)
	forgotten, err = j.SetCollection(ctx, "d", "two")
	require.NoError(t, err)
	assert.Equal(t, int64(1), forgotten)
	id, err = j.Collection(ctx, "d")
	require.NoError(t, err)
	assert.Equal(t, "two", id)
}
