package pipeline_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// lookout is an embedded vector store that counts the calls of a search, and
// lets something happen before the first ranking and after the last.
type lookout struct {
	*sqlitestore.Store

	before, after func() // nil for nothing

	mu    sync.Mutex
	calls map[string]int
}

func (w *world) lookout(before, after func()) *lookout {
	return &lookout{Store: w.store, before: before, after: after, calls: map[string]int{}}
}

// count counts a call and reports whether it is the first of its kind.
func (l *lookout) count(method string) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[method]++
	return l.calls[method] == 1
}

func (l *lookout) HasCollection(ctx context.Context, collection string) (bool, error) {
	l.count("HasCollection")
	return l.Store.HasCollection(ctx, collection)
}

func (l *lookout) DescribeCollection(ctx context.Context, collection string) (*entity.Collection, error) {
	l.count("DescribeCollection")
	return l.Store.DescribeCollection(ctx, collection)
}

func (l *lookout) Query(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	l.count("Query")
	return l.Store.Query(ctx, collection, partitions, expr, fields, opts...)
}

func (l *lookout) Search(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	vectors []entity.Vector, field string, metric entity.MetricType, k int, param entity.SearchParam,
	opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	if l.count("Search") && l.before != nil {
		l.before()
	}
	return l.Store.Search(ctx, collection, partitions, expr, fields, vectors, field, metric, k, param, opts...)
}

func (l *lookout) SearchText(
	ctx context.Context, collection, expr string, fields []string, question string, k int,
) ([]client.SearchResult, error) {
	found, err := l.Store.SearchText(ctx, collection, expr, fields, question, k)
	if l.count("SearchText") && l.after != nil {
		l.after()
	}
	return found, err
}

var _ vectorstore.TextSearcher = (*lookout)(nil)

// search searches with a store of its own, as another process does.
func (w *world) search(store vectorstore.Store, question, where string) ([]pipeline.Hit, error) {
	config := w.machine().config
	config.Vectors = store
	p, err := pipeline.New(config)
	require.NoError(w.t, err)
	return p.Search(w.t.Context(), question, pipeline.SearchOptions{Limit: 100, Where: where})
}

func (w *world) requireSearch(question, where string) []pipeline.Hit {
	w.t.Helper()
	hits, err := w.search(w.store, question, where)
	require.NoError(w.t, err)
	return hits
}

const flooded = "Which pangolin was opened?"

// flood is a document of many chunks, each of which answers the question better
// than those of a corpus. Two floods share no chunk.
func flood(chunks int, word string) string {
	var text strings.Builder
	for i := range chunks {
		fmt.Fprintf(&text, "# Pangolin\n\nPangolin %d %s was opened.\n\n", i, word)
	}
	return text.String()
}

// diesBefore ends a run before its first call that matches.
func (w *world) diesBefore(last func(call) bool) func(*pipeline.Config) {
	var mu sync.Mutex
	dead := false
	return w.hooked(func(_ context.Context, c call) error {
		mu.Lock()
		defer mu.Unlock()
		if dead = dead || last(c); dead {
			return errCrashed
		}
		return nil
	}, nil)
}

func isMark(c call) bool { return c.method == "Upsert" && c.rows == 1 }

// answers are the answers to a question, with and without a filter.
func (w *world) answers() (list [][]pipeline.Hit) {
	w.t.Helper()
	for _, where := range []string{"", `source == "docs/flood.md"`} {
		list = append(list, w.requireSearch(flooded, where))
	}
	return list
}

// Rows of no complete version, by the thousand and better than all others, take
// no place in an answer.
func TestFloodOfUnfinishedRows(t *testing.T) {
	for _, before := range []string{"", "A pangolin."} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			w := newStillWorld(t)
			w.corpus(150)
			if before != "" {
				w.write("flood.md", before)
			}
			_, err := w.run()
			require.NoError(t, err)
			expected := w.answers()
			w.write("flood.md", flood(1500, "first"))
			_, err = w.run(w.diesBefore(isMark))
			require.Error(t, err)
			require.Greater(t, len(w.rows()), 1500)
			assert.Equal(t, expected, w.answers())
		})
	}
}

func TestFloodOfReplacedRows(t *testing.T) {
	for chunks, after := range map[int]string{2500: "A pangolin.", 1000: flood(200, "second")} {
		t.Run(strconv.Itoa(chunks), func(t *testing.T) {
			t.Parallel()
			w := newStillWorld(t)
			w.corpus(150)
			w.write("flood.md", flood(chunks, "first"))
			_, err := w.run()
			require.NoError(t, err)
			w.write("flood.md", after)
			_, err = w.run(w.diesBefore(isDeletion))
			require.Error(t, err)
			require.Greater(t, len(w.rows()), chunks)
			got := w.answers()
			_, err = w.run()
			require.NoError(t, err)
			assert.Equal(t, w.answers(), got)
		})
	}
}

// Notes are rows with a vector. In a collection with few others, all rows are
// candidates.
func TestNotesAreNoHitsWithFilters(t *testing.T) {
	w := newStillWorld(t)
	w.write("other.txt", "Another document.")
	_, err := w.run()
	require.NoError(t, err)
	for _, where := range []string{
		"", `text != "nothing"`, `doc != "nothing"`, `chunks == 0`, `meta["writer"] != "x"`,
	} {
		expected := w.requireSearch("notes", where)
		w.write("a.md", twoValves("first version"))
		_, err = w.run(w.diesBefore(isMark))
		require.Error(t, err)
		require.NotEmpty(t, w.notes())
		assert.Equal(t, expected, w.requireSearch("notes", where), where)
	}
	assert.Len(t, w.requireSearch("notes", ""), 1)
}

// threeValves is a version of three chunks that differ from those of others.
func threeValves(version string) string {
	return twoValves(version) + "# Third\n\nNo more, says the " + version + ".\n"
}

// What happens between the reads of a search: before its first ranking, when
// the notes have been read once, or after its last.
func TestWhatHappensDuringASearch(t *testing.T) {
	complete := func(w *world) {
		_, err := w.run()
		require.NoError(w.t, err)
	}
	begin := func(w *world) {
		_, err := w.run(w.diesBefore(isMark))
		require.Error(w.t, err)
	}
	remove := func(w *world) { w.machine().delete("a.md") }
	for _, row := range []struct {
		name                 string
		previous             bool         // a version before is complete
		there, before, after func(*world) // nil for nothing
		// What is found; if neither, all that is there of it in the end.
		nothing, someRowsOnly bool
	}{
		{name: "begun", before: begin, nothing: true},
		{name: "begun, and the one before is complete", previous: true, before: begin},
		{name: "completed", there: begin, before: complete},
		{name: "begun and completed", before: complete},
		{name: "replaced", previous: true, before: complete},
		{name: "completed after the ranking", there: begin, after: complete, someRowsOnly: true},
		{name: "begun, and completed after the ranking", before: begin, after: complete, someRowsOnly: true},
		{name: "begun, and deleted after the ranking", before: begin, after: remove, nothing: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := raceWorld(t)
			if row.previous {
				w.write("a.md", threeValves("zeroth version"))
				complete(w)
			}
			w.write("a.md", threeValves("first version"))
			during := func(what func(*world)) func() {
				return func() {
					if what != nil {
						what(w)
					}
				}
			}
			during(row.there)()
			found := w.found(w.lookout(during(row.before), during(row.after)))
			switch {
			case row.nothing:
				assert.Empty(t, found)
			case row.someRowsOnly:
				assert.Len(t, found, 2)
				assert.Subset(t, w.visible()["docs/a.md"], found)
			default:
				assert.ElementsMatch(t, w.visible()["docs/a.md"], found)
			}
		})
	}
}

// found are the rows of a.md that a search finds, which finds no rows of
// nothing.
func (w *world) found(store vectorstore.Store) (ids []string) {
	w.t.Helper()
	hits, err := w.search(store, "Which valve was opened?", "")
	require.NoError(w.t, err)
	for _, hit := range hits {
		assert.NotEmpty(w.t, hit.Source)
		if hit.Source == "docs/a.md" {
			ids = append(ids, hit.ID)
		}
	}
	return ids
}

// A filter keeps its meaning beside that of the search itself.
func TestFiltersBesideHiddenRows(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	names := []string{`a "b" and c.md`, "it's (not) in [].md", `back\slash.md`, "ünï ＂ ' \".md"}
	for _, name := range names {
		w.write(name, "A pangolin.")
	}
	w.config.Meta = map[string]string{"odd": `") or (id != "`}
	_, err := w.run()
	require.NoError(t, err)
	w.write("flood.md", flood(600, "first"))
	_, err = w.run(w.diesBefore(isMark))
	require.Error(t, err)
	for _, name := range names {
		where := "source == " + vectorstore.Quote("docs/"+name)
		hits := w.requireSearch(flooded, where)
		require.Len(t, hits, 1, where)
		assert.Equal(t, "docs/"+name, hits[0].Source)
		assert.Len(t, w.requireSearch(flooded, "  "+where+"\n"), 1)
		assert.Len(t, w.requireSearch(flooded, "(("+where+"))"), 1)
		assert.Empty(t, w.requireSearch(flooded, where+` and id == ")"`))
	}
	odd := `meta["odd"] == ` + vectorstore.Quote(`") or (id != "`)
	assert.Len(t, w.requireSearch(flooded, odd), 7)
	assert.Empty(t, w.requireSearch(flooded, odd+` and source == "docs/flood.md"`))
	assert.Len(t, w.requireSearch(flooded, " \t"), 7)
	for _, wrong := range []string{`id != "") and (id != ""`, `source == "a`, `id in ["a"`, ")", "("} {
		_, err := w.search(w.store, flooded, wrong)
		assert.Error(t, err, wrong)
	}
}

// A document that is replaced between the two rankings of a search is found in
// one of its versions.
func TestReplacedBetweenRankings(t *testing.T) {
	w := newStillWorld(t)
	w.write("report.md", twoValves("zeroth version"))
	_, err := w.run()
	require.NoError(t, err)
	var once sync.Once
	between := &betweenRankings{Store: w.store, do: func() {
		once.Do(func() {
			w.write("report.md", twoValves("first version"))
			_, err := w.run()
			assert.NoError(t, err)
		})
	}}
	p := w.pipeline(func(c *pipeline.Config) { c.Vectors = between })
	found, err := p.Search(t.Context(), "Which version says that a valve was opened?", pipeline.SearchOptions{})
	require.NoError(t, err)
	require.Len(t, found, 2)
	for _, hit := range found {
		assert.Contains(t, hit.Text, "first version")
	}
}

// betweenRankings does something once the ranking by vector is done.
type betweenRankings struct {
	*sqlitestore.Store

	do func()
}

func (s *betweenRankings) SearchText(
	ctx context.Context, collection, expr string, fields []string, question string, k int,
) ([]client.SearchResult, error) {
	s.do()
	return s.Store.SearchText(ctx, collection, expr, fields, question, k)
}

// What a search costs: without notes one read beside the embedding and two
// after the rankings, and with notes of documents that are no candidates too.
func TestCallsOfASearch(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(150)
	_, err := w.run()
	require.NoError(t, err)
	calls := func(question string) map[string]int {
		l := w.lookout(nil, nil)
		_, err := w.search(l, question, "")
		require.NoError(t, err)
		return l.calls
	}
	cheap := map[string]int{"HasCollection": 1, "DescribeCollection": 1, "Query": 3, "Search": 1, "SearchText": 1}
	assert.Equal(t, cheap, calls(flooded))
	w.write("flood.md", flood(600, "first"))
	_, err = w.run(w.diesBefore(isMark))
	require.Error(t, err)
	dear := calls(flooded)
	assert.Equal(t, 2, dear["Search"], "once more without the hidden rows")
	assert.LessOrEqual(t, dear["Query"], 8)
	_, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, cheap, calls(flooded))
}

// A version is abandoned, and its rows and its note removed, between the
// ranking that finds it and the next look at the notes.
func TestVersionThatIsAbandonedDuringASearch(t *testing.T) {
	around := map[string]func(w *world, begin, abandon func()) vectorstore.Store{
		"with text": func(w *world, begin, abandon func()) vectorstore.Store { return w.lookout(begin, abandon) },
		"without text": func(w *world, begin, abandon func()) vectorstore.Store {
			return &aroundSearch{plainStore{w.store}, begin, abandon}
		},
	}
	for name, store := range around {
		t.Run(name, func(t *testing.T) { requireAbandoned(t, store) })
	}
}

// aroundSearch does something before the first ranking by vector and after it.
type aroundSearch struct {
	plainStore

	before, after func()
}

func (s *aroundSearch) Search(
	ctx context.Context, collection string, partitions []string, expr string, fields []string,
	vectors []entity.Vector, field string, metric entity.MetricType, k int, sp entity.SearchParam,
	opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	before, after := s.before, s.after
	s.before, s.after = func() {}, func() {}
	before()
	defer after()
	return s.Store.Search(ctx, collection, partitions, expr, fields, vectors, field, metric, k, sp, opts...)
}

func requireAbandoned(t *testing.T, around func(w *world, begin, abandon func()) vectorstore.Store) {
	w := raceWorld(t)
	w.write("a.md", threeValves("first version"))
	late, release, ended := w.machine(), make(chan struct{}), make(chan struct{})
	begun := make(chan struct{})
	late.config.Vectors = &hooked{Store: w.store, before: func(_ context.Context, c call) error {
		if isMark(c) {
			close(begun)
			<-release
		}
		return nil
	}}
	begin := func() {
		go func() { defer close(ended); late.pass() }()
		<-begun
	}
	abandon := func() {
		w.remove("a.md")
		close(release)
		<-ended
	}
	assert.Empty(t, w.found(around(w, begin, abandon)))
	w.requireSettled("a.md")
	assert.Empty(t, w.notes())
}
