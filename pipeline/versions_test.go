package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/vectorstore"
)

// manyValves is version v of a document that goes through in several parts. The
// versions share chunks: those of one number in three differ.
func manyValves(v int) string {
	var text strings.Builder
	for section := range 290 + 20*v {
		said := v
		if section%3 > 0 {
			said = v / 2
		}
		fmt.Fprintf(&text, "# Valve %d\n\nValve %d was opened %d times.\n\n", section, section, said)
	}
	return text.String()
}

// visible are the rows that belong to complete versions, by document, as the
// notes in the store tell them apart.
func (w *world) visible() map[string][]string {
	w.t.Helper()
	attempts := w.notes().Attempts()
	byDoc := map[string][]rows.Row{}
	for _, row := range w.rows() {
		byDoc[row.Doc] = append(byDoc[row.Doc], row)
	}
	ids := map[string][]string{}
	for doc, list := range byDoc {
		for i, standing := range version.Judge(attempts[doc], list) {
			if standing == version.Complete {
				ids[list[i].Source] = append(ids[list[i].Source], list[i].ID)
			}
		}
	}
	for _, list := range ids {
		slices.Sort(list)
	}
	return ids
}

// hits are the rows that a search finds, by id.
func (w *world) hits(question string) (ids []string) {
	w.t.Helper()
	found, err := w.pipeline().Search(w.t.Context(), question, pipeline.SearchOptions{Limit: 100})
	require.NoError(w.t, err)
	for _, hit := range found {
		ids = append(ids, hit.ID)
	}
	return ids
}

// Kills in the middle of a document of several parts, whatever its next version
// is and whether the journal survives: a search finds rows of the version that
// was complete last, and the next run comes to the end.
func TestOnlyCompleteVersionsAreFound(t *testing.T) {
	const versions = 4
	expected := map[int][]string{}
	for v := range versions + 1 {
		w := newStillWorld(t)
		w.write("report.md", manyValves(v))
		_, err := w.run()
		require.NoError(t, err)
		expected[v] = w.requireComplete(1)
		assert.Empty(t, w.notes(), "nothing is left of the note")
	}

	w := newStillWorld(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	current := []int{}
	for range kills() {
		next := random.IntN(versions)
		w.write("report.md", manyValves(next))
		_, err := w.run(w.diesAt(random.IntN(9)))
		if random.IntN(4) == 0 {
			w.loseJournal()
		}
		visible := w.visible()["docs/report.md"]
		if err == nil && visible != nil {
			current = []int{next}
		} else if !slices.Contains(current, next) {
			current = append(current, next)
		}
		held := slices.IndexFunc(current, func(v int) bool { return slices.Equal(expected[v], visible) })
		require.True(t, held >= 0 || len(visible) == 0,
			"%d rows are visible, of no version in %v", len(visible), current)
		if held >= 0 {
			current = []int{current[held]}
		}
		require.Subset(t, visible, w.hits("Was valve 12 opened 3 times?"))
		v, faults := w.verified(false)
		require.Zero(t, v.Missing+v.Stale+v.Orphaned, "%v", faults)
		require.Equal(t, len(visible), v.Rows)
	}
	w.write("report.md", manyValves(versions))
	_, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, expected[versions], w.requireComplete(1))
	assert.Empty(t, w.notes())
}

// The rows that a repair removed were taken off the count of those that are
// left: it became negative.
func TestRepairCountsTheRowsThatAreLeft(t *testing.T) {
	for _, known := range []bool{true, false} {
		w := newStillWorld(t)
		w.write("report.md", "One valve.")
		_, err := w.run()
		require.NoError(t, err)
		w.write("report.md", manyValves(1))
		_, err = w.run(w.diesAt(2))
		require.Error(t, err)
		require.NotEmpty(t, w.notes())
		if !known {
			w.loseJournal()
		}
		for _, repair := range []bool{false, true, false} {
			v, _ := w.verified(repair)
			assert.Equal(t, 1, v.Rows)
		}
		assert.Empty(t, w.notes())
	}
}

// kills is how many runs are ended in the middle: a few by default, and as many
// as make one sure with PENSTOCK_LONG=1.
func kills() int {
	if os.Getenv("PENSTOCK_LONG") == "1" {
		return 200
	}
	return 10
}

// diesAt is dies, with the notes counted as well.
func (w *world) diesAt(writes int) func(*pipeline.Config) {
	return w.hooked(crash(after(writes, func(c call) bool { return isWrite(c) || isNote(c) })), nil)
}

// A note that cannot be read is a matter for the operator: what it hides is
// unknown.
func TestUnreadableNotes(t *testing.T) {
	w := newStillWorld(t)
	w.write("report.md", twoValves("first version"))
	_, err := w.run()
	require.NoError(t, err)
	note := rows.Row{ID: "note-x", Doc: version.Place, Ordinal: -1, Meta: []byte(`{"attempts": 7}`)}
	note.Vector = make([]float32, 256)
	note.Vector[0] = 1
	_, err = w.store.Upsert(t.Context(), "docs", "", rows.Columns([]*rows.Row{&note}, 256)...)
	require.NoError(t, err)

	w.write("report.md", twoValves("second version"))
	_, err = w.run()
	stop := stopOf(t, err)
	assert.Equal(t, pipeline.StopConfiguration, stop.Kind)
	assert.ErrorContains(t, stop, "note-x")
	_, err = w.pipeline().Search(t.Context(), "valve", pipeline.SearchOptions{})
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
	_, err = w.pipeline().Verify(t.Context(), pipeline.VerifyOptions{}, func(pipeline.Fault) {})
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
}

// A run is killed before it has removed the rows that it replaces, and these
// are nearer to a question than all others, however many they are.
func TestReplacedRowsHideNoOthers(t *testing.T) {
	for _, replaced := range []int{3000, 9000} {
		t.Run(strconv.Itoa(replaced), func(t *testing.T) {
			t.Parallel()
			w := newStillWorld(t)
			var text strings.Builder
			for i := range replaced {
				fmt.Fprintf(&text, "# Valve %d\n\nValve was opened %d times.\n\n", i, i)
			}
			w.write("report.md", text.String())
			w.write("boat.txt", "The cook of the boat opened a valve.")
			_, err := w.run()
			require.NoError(t, err)
			w.write("report.md", "# Cats\n\nCats sleep.\n\n# Dogs\n\nDogs bark at night.\n")
			_, err = w.run(w.diesAtDeletion(0))
			require.Error(t, err)
			hits := w.hits("Was a valve opened?")
			assert.Contains(t, hits, w.rowsOf("docs/boat.txt")[0].ID)
			assert.Subset(t, append(w.visible()["docs/report.md"], w.visible()["docs/boat.txt"]...), hits)
		})
	}
}

// A note is no hit, though it is gone when the search reads the notes, or names
// nothing.
func TestNotesAreNoHits(t *testing.T) {
	w := newStillWorld(t)
	w.write("boat.txt", "The cook of the boat opened a valve.")
	_, err := w.run()
	require.NoError(t, err)
	row, err := version.Note{ID: "note"}.Row(256)
	require.NoError(t, err)
	_, err = w.store.Upsert(t.Context(), "docs", "", rows.Columns([]*rows.Row{row}, 256)...)
	require.NoError(t, err)
	assert.Equal(t, w.requireComplete(1), w.hits("Was a valve opened?"))
}

// A store that refuses notes says nothing about the documents in them.
func TestRefusedNotesBlameNoDocument(t *testing.T) {
	w := newStillWorld(t)
	w.write("a.md", twoValves("first version"))
	w.write("b.md", twoValves("first version"))
	summary, err := w.run(w.hooked(on("UpsertNotes", func(context.Context, call) error {
		return status.Error(codes.InvalidArgument, "no notes here")
	}), nil))
	require.Error(t, err)
	assert.Equal(t, 2, summary.Deferred)
	assert.Empty(t, w.everything())
	_, err = w.run()
	require.NoError(t, err)
	w.requireComplete(2)
}

// forgetful is a vector store that finds nothing by vector once a filter leaves
// rows out, as the approximate index of a growing segment of Milvus does beside
// thousands of these.
type forgetful struct{ plainStore }

// plainStore is a store that searches no text.
type plainStore struct{ vectorstore.Store }

func (s *forgetful) Search(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	vectors []entity.Vector, field string, metric entity.MetricType, k int, sp entity.SearchParam,
	opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	if strings.Contains(expr, "not in") {
		expr = `id == ""`
	}
	return s.Store.Search(ctx, collection, partitions, expr, fields, vectors, field, metric, k, sp, opts...)
}

// What the store does not find, since its index passes over it, is ranked all
// the same.
func TestRowsThatTheIndexPassesOver(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(20)
	_, err := w.run()
	require.NoError(t, err)
	plain := func(c *pipeline.Config) { c.Vectors = plainStore{w.store} }
	search := func(change func(*pipeline.Config)) []pipeline.Hit {
		found, err := w.pipeline(change).Search(t.Context(), "Was valve 12 opened?", pipeline.SearchOptions{Limit: 20})
		require.NoError(t, err)
		return found
	}
	before := search(plain)
	require.Len(t, before, 20)
	w.write("report.md", manyValves(0))
	_, err = w.run(w.diesAt(2)) // a note, and rows
	require.Error(t, err)
	require.NotEmpty(t, w.notes())
	after := search(func(c *pipeline.Config) { c.Vectors = &forgetful{plainStore{w.store}} })
	require.Len(t, after, 20)
	for i := range before {
		assert.Equal(t, before[i].ID, after[i].ID)
		assert.InDelta(t, before[i].Score, after[i].Score, 1e-5)
	}
}

// A deletion that is killed leaves rows without a commit mark; no search may
// find them.
func TestKilledDeletionIsNotFound(t *testing.T) {
	w := newStillWorld(t)
	w.write("report.md", manyValves(0))
	w.write("other.txt", "Another document.")
	_, err := w.run()
	require.NoError(t, err)
	_, err = w.pipeline(w.hooked(crash(after(1, isDeletion)), nil)).Delete(t.Context(), "docs/report.md")
	require.Error(t, err)
	left := w.rowsOf("docs/report.md")
	require.NotEmpty(t, left)
	for _, row := range left {
		require.False(t, row.IsMark())
	}
	assert.Empty(t, w.visible()["docs/report.md"])
	assert.Len(t, w.hits("Was valve 12 opened 3 times?"), 1)
	v, faults := w.verified(false)
	assert.True(t, v.Consistent(), "%v", faults)
	assert.Equal(t, len(left), faults["docs/report.md"].Rows)
	assert.Equal(t, pipeline.FaultUnfinished, faults["docs/report.md"].Kind)
	_, err = w.run() // the file is still there
	require.NoError(t, err)
	w.requireComplete(2)
	assert.Empty(t, w.notes())

	_, err = w.pipeline(w.hooked(crash(after(1, isDeletion)), nil)).Delete(t.Context(), "docs/report.md")
	require.Error(t, err)
	require.NotEmpty(t, w.rowsOf("docs/report.md"))
	w.remove("report.md")
	_, err = w.run() // it has no work, and finishes the deletion
	require.NoError(t, err)
	w.requireComplete(1)
	assert.Empty(t, w.notes())
}
