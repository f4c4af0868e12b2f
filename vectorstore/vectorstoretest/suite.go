// Package vectorstoretest is the conformance suite for vector stores: what
// vectorstore.Store promises, checked through the door. A backend's test is
//
//	func TestConformance(t *testing.T) {
//		vectorstoretest.Run(t, func(t *testing.T) vectorstore.Store { return open(t) })
//	}
//
// The suite makes collections with names of its own and drops them. It stores
// some ten thousand rows, which takes a second in process and a minute on a
// server.
package vectorstoretest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

const dim = 8

// Run checks the store that open makes, which is opened once and closed at the
// end. A store that is a vectorstore.TextSearcher is asked for text too.
func Run(t *testing.T, open func(t *testing.T) vectorstore.Store) {
	t.Helper()
	st := open(t)
	t.Cleanup(func() { assert.NoError(t, st.Close()) })
	breaker, err := resilience.New("conformance", resilience.Config{})
	require.NoError(t, err)
	s := &suite{st: st, door: vectorstore.Guard{Breaker: breaker}}
	t.Run("catalogue", s.catalogue)
	t.Run("not loaded", s.notLoaded)
	t.Run("rows", s.rows)
	t.Run("awkward keys", s.awkwardKeys)
	t.Run("filters", s.filters)
	t.Run("scores", s.scores)
	t.Run("wrong calls", s.wrongCalls)
	t.Run("ten thousand rows", s.tenThousand)
	t.Run("left out", s.leftOut)
	if text, ok := st.(vectorstore.TextSearcher); ok {
		t.Run("text", func(t *testing.T) { s.text(t, text) })
	}
	assert.Zero(t, breaker.Snapshot().Failures, "the suite's own mistakes were counted as failures of the store")
}

type suite struct {
	st   vectorstore.Store
	door vectorstore.Guard
}

// row is a row of the suite's collections.
type row struct {
	id, doc, text, meta string
	ordinal             int64
	vector              []float32
}

func schema(name string) *entity.Schema {
	field := func(name string, t entity.FieldType) *entity.Field {
		return entity.NewField().WithName(name).WithDataType(t)
	}
	return entity.NewSchema().WithName(name).WithDescription(`{"model":"m","dimensions":8}`).
		WithField(field("id", entity.FieldTypeVarChar).WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(field("doc", entity.FieldTypeVarChar).WithMaxLength(64)).
		WithField(field("ordinal", entity.FieldTypeInt64)).
		WithField(field("text", entity.FieldTypeVarChar).WithMaxLength(4096)).
		WithField(field("meta", entity.FieldTypeJSON)).
		WithField(field("vector", entity.FieldTypeFloatVector).WithDim(dim))
}

func columns(rows ...row) []entity.Column {
	var (
		ids, docs, texts []string
		ordinals         []int64
		metas            [][]byte
		vectors          [][]float32
	)
	for _, r := range rows {
		if r.meta == "" {
			r.meta = "{}"
		}
		if r.vector == nil {
			r.vector = direction(0)
		}
		ids, docs, texts = append(ids, r.id), append(docs, r.doc), append(texts, r.text)
		ordinals, metas, vectors = append(ordinals, r.ordinal), append(metas, []byte(r.meta)), append(vectors, r.vector)
	}
	return []entity.Column{
		entity.NewColumnVarChar(
			"id",
			ids,
		), entity.NewColumnVarChar("doc", docs), entity.NewColumnInt64("ordinal", ordinals),
		entity.NewColumnVarChar(
			"text",
			texts,
		), entity.NewColumnJSONBytes("meta", metas), entity.NewColumnFloatVector("vector", dim, vectors),
	}
}

// direction is a vector along one axis.
func direction(axis int) []float32 {
	v := make([]float32, dim)
	v[axis] = 1
	return v
}

func keys(ids ...string) entity.Column { return entity.NewColumnVarChar("id", ids) }

func index() entity.Index {
	return entity.NewGenericIndex("", entity.Flat, map[string]string{"metric_type": string(entity.COSINE)})
}

func strong() client.SearchQueryOptionFunc {
	return client.WithSearchQueryConsistencyLevel(entity.ClStrong)
}

// collection makes an empty, loaded collection that goes with the test.
func (s *suite) collection(t *testing.T, rows ...row) string {
	t.Helper()
	name := fmt.Sprintf("conformance_%d", time.Now().UnixNano())
	t.Cleanup(func() { assert.NoError(t, s.st.DropCollection(context.WithoutCancel(t.Context()), name)) })
	ctx := t.Context()
	require.NoError(t, s.door.CreateCollection(ctx, s.st, schema(name), entity.DefaultShardNumber))
	require.NoError(t, s.door.CreateIndex(ctx, s.st, name, "vector", index(), false))
	require.NoError(t, s.door.LoadCollection(ctx, s.st, name, false))
	if len(rows) > 0 {
		s.upsert(t, name, rows...)
	}
	return name
}

func (s *suite) upsert(t *testing.T, coll string, rows ...row) {
	t.Helper()
	ids, err := s.door.Upsert(t.Context(), s.st, coll, "", columns(rows...)...)
	require.NoError(t, err)
	require.Equal(t, len(rows), ids.Len())
}

func (s *suite) query(t *testing.T, coll, expr string, fields ...string) client.ResultSet {
	t.Helper()
	set, err := s.door.Query(t.Context(), s.st, coll, nil, expr, fields, strong())
	require.NoError(t, err, expr)
	return set
}

func (s *suite) ids(t *testing.T, coll, expr string) []string {
	t.Helper()
	return sorted(t, s.query(t, coll, expr, "id").GetColumn("id"))
}

func sorted(t *testing.T, col entity.Column) []string {
	t.Helper()
	ids, ok := col.(*entity.ColumnVarChar)
	require.True(t, ok, "%T is no column of keys", col)
	return slices.Sorted(slices.Values(ids.Data()))
}

func (s *suite) count(t *testing.T, coll, expr string) int64 {
	t.Helper()
	n, err := s.query(t, coll, expr, "count(*)").GetColumn("count(*)").GetAsInt64(0)
	require.NoError(t, err)
	return n
}

func (s *suite) catalogue(t *testing.T) {
	ctx, name := t.Context(), fmt.Sprintf("catalogue_%d", time.Now().UnixNano())
	has, err := s.door.HasCollection(ctx, s.st, name)
	require.NoError(t, err)
	assert.False(t, has)
	_, err = s.door.DescribeCollection(ctx, s.st, name)
	assertCode(t, "DescribeCollection", err, codes.NotFound)
	require.NoError(t, s.door.DropCollection(ctx, s.st, name), "dropping what is not there")

	require.NoError(t, s.door.CreateCollection(ctx, s.st, schema(name), entity.DefaultShardNumber))
	require.NoError(
		t,
		s.door.CreateCollection(ctx, s.st, schema(name), entity.DefaultShardNumber),
		"making the same again",
	)
	got, err := s.door.DescribeCollection(ctx, s.st, name)
	require.NoError(t, err)
	s.sameSchema(t, schema(name), got.Schema)
	list, err := s.door.ListCollections(ctx, s.st)
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(list, func(c *entity.Collection) bool { return c.Name == name }))

	require.NoError(t, s.door.CreateIndex(ctx, s.st, name, "vector", index(), false))
	defs, err := s.door.DescribeIndex(ctx, s.st, name, "vector")
	require.NoError(t, err)
	require.Len(t, defs, 1)
	assert.Equal(t, "COSINE", defs[0].Params()["metric_type"])
	s.loading(t, name)
	require.NoError(t, s.door.DropCollection(ctx, s.st, name))
	has, err = s.door.HasCollection(ctx, s.st, name)
	require.NoError(t, err)
	assert.False(t, has)
}

func (s *suite) sameSchema(t *testing.T, want, got *entity.Schema) {
	t.Helper()
	assert.Equal(t, want.Description, got.Description)
	assert.Equal(t, want.PKFieldName(), got.PKFieldName())
	require.Len(t, got.Fields, len(want.Fields))
	for i, f := range want.Fields {
		assert.Equal(t, f.Name, got.Fields[i].Name)
		assert.Equal(t, f.DataType, got.Fields[i].DataType)
		for k, v := range f.TypeParams {
			assert.Equal(t, v, got.Fields[i].TypeParams[k], f.Name+" "+k)
		}
	}
}

func (s *suite) loading(t *testing.T, coll string) {
	t.Helper()
	ctx := t.Context()
	state, err := s.door.GetLoadState(ctx, s.st, coll, nil)
	require.NoError(t, err)
	assert.Equal(t, entity.LoadStateNotLoad, state)
	require.NoError(t, s.door.LoadCollection(ctx, s.st, coll, false))
	state, err = s.door.GetLoadState(ctx, s.st, coll, nil)
	require.NoError(t, err)
	assert.Equal(t, entity.LoadStateLoaded, state)
	require.NoError(t, s.door.ReleaseCollection(ctx, s.st, coll))
	require.NoError(t, s.door.DropIndex(ctx, s.st, coll, "vector"))
	_, err = s.door.DescribeIndex(ctx, s.st, coll, "vector")
	assertCode(t, "DescribeIndex", err, codes.NotFound)
}

func (s *suite) notLoaded(t *testing.T) {
	name := fmt.Sprintf("unloaded_%d", time.Now().UnixNano())
	require.NoError(t, s.door.CreateCollection(t.Context(), s.st, schema(name), entity.DefaultShardNumber))
	defer func() { assert.NoError(t, s.st.DropCollection(t.Context(), name)) }()
	_, err := s.door.Query(t.Context(), s.st, name, nil, `id == "a"`, []string{"id"}, strong())
	assertCode(t, "Query", err, codes.FailedPrecondition)
	err = s.door.LoadCollection(t.Context(), s.st, name, false)
	require.Error(t, err, "loading without an index")
	assertCode(t, "LoadCollection", err, codes.NotFound, codes.FailedPrecondition)
}

func (s *suite) rows(t *testing.T) {
	ctx := t.Context()
	coll := s.collection(
		t,
		row{id: "a", doc: "x", text: "ünïcode 東京 🚰", meta: `{"lang":"en"}`, vector: direction(0)},
		row{
			id:      "b",
			doc:     "x",
			ordinal: 1,
			vector:  direction(1),
		},
		row{id: "c", doc: "y", ordinal: -7, vector: direction(2)},
	)
	assert.Equal(t, []string{"a", "b", "c"}, s.ids(t, coll, `id != ""`))
	assert.EqualValues(t, 2, s.count(t, coll, `doc == "x"`))

	set := s.query(t, coll, `id == "a"`, "doc", "text", "ordinal", "meta", "vector")
	assert.Equal(t, []string{"ünïcode 東京 🚰"}, set.GetColumn("text").(*entity.ColumnVarChar).Data())
	assert.JSONEq(t, `{"lang":"en"}`, string(set.GetColumn("meta").(*entity.ColumnJSONBytes).Data()[0]))
	assert.Equal(t, [][]float32{direction(0)}, set.GetColumn("vector").(*entity.ColumnFloatVector).Data())
	got, err := s.door.Get(ctx, s.st, coll, keys("c", "nobody"), client.GetWithOutputFields("id", "ordinal"))
	require.NoError(t, err)
	assert.Equal(t, []int64{-7}, got.GetColumn("ordinal").(*entity.ColumnInt64).Data())

	none := s.query(t, coll, `id == "nobody"`, "id", "doc", "text", "ordinal", "meta", "vector")
	assert.Zero(t, none.Len(), "a query that matches nothing")
	none, err = s.door.Get(ctx, s.st, coll, keys("nobody"))
	require.NoError(t, err)
	assert.Zero(t, none.Len(), "a key that is not there")

	s.upsert(t, coll, row{id: "a", doc: "z", text: "new"})
	assert.EqualValues(t, 3, s.count(t, coll, `id != ""`))
	assert.Equal(t, []string{"a"}, s.ids(t, coll, `doc == "z"`))
	ids, err := s.door.Insert(ctx, s.st, coll, "", columns(row{id: "d", doc: "y"})...)
	require.NoError(t, err)
	assert.Equal(t, []string{"d"}, sorted(t, ids))

	require.NoError(t, s.door.Delete(ctx, s.st, coll, "", vectorstore.In("id", []string{"b", "c"})))
	require.NoError(t, s.door.DeleteByPks(ctx, s.st, coll, "", keys("d", "nobody")))
	assert.Equal(t, []string{"a"}, s.ids(t, coll, `id != ""`))
	require.NoError(t, s.door.Flush(ctx, s.st, coll, false))
	assert.Equal(t, []string{"a"}, s.ids(t, coll, `id != ""`))
}

// awkwardIDs would break out of their quotes, end a list, or match more than
// themselves in a store that does not escape.
var awkwardIDs = []string{
	`"`, `\`, `\"`, `a"b`, `a\`, `'`, `a'b`, `", "plain`, `"] or id != ["`, "tab\there", "line\nbreak", "%", "_",
	"日本語", "🚰", " ", "é", "plain",
}

func (s *suite) awkwardKeys(t *testing.T) {
	ctx := t.Context()
	rows := make([]row, len(awkwardIDs))
	for i, id := range awkwardIDs {
		rows[i] = row{id: id, doc: id}
	}
	coll := s.collection(t, rows...)
	for _, id := range awkwardIDs {
		assert.Equal(t, []string{id}, s.ids(t, coll, vectorstore.In("doc", []string{id})), "in %q", id)
		assert.Equal(t, []string{id}, s.ids(t, coll, "id == "+vectorstore.Quote(id)), "== %q", id)
		got, err := s.door.Get(ctx, s.st, coll, keys(id), client.GetWithOutputFields("id"))
		if assert.NoError(t, err, "get %q", id) {
			assert.Equal(t, []string{id}, sorted(t, got.GetColumn("id")), "get %q", id)
		}
	}
	left := slices.Sorted(slices.Values(awkwardIDs))
	for len(left) > 0 {
		require.NoError(t, s.door.DeleteByPks(ctx, s.st, coll, "", keys(left[0])), "delete %q", left[0])
		left = left[1:]
		assert.EqualValues(t, len(left), s.count(t, coll, `id != "none"`), "a deletion took more than its row")
	}
}

func (s *suite) filters(t *testing.T) {
	coll := s.collection(
		t,
		row{id: "a", doc: "x", meta: `{"lang":"en","n":1}`},
		row{id: "b", doc: "x", ordinal: 1, meta: `{"lang":"de","n":2}`},
		row{id: "c", doc: "y", ordinal: 1, meta: `{"n":"1"}`},
	)
	for _, tt := range []struct {
		expr string
		want []string
	}{
		{`doc == "x"`, []string{"a", "b"}},
		{`doc != "x"`, []string{"c"}},
		{`doc in ["x", "y"] and ordinal == 1`, []string{"b", "c"}},
		{`(doc == "x") and (ordinal in [1, 2])`, []string{"b"}},
		{`meta["lang"] == "de"`, []string{"b"}},
		{`meta["n"] == 1`, []string{"a"}},
		{`meta["n"] == "1"`, []string{"c"}},
		{`meta["lang"] == "de" and doc in ["x"]`, []string{"b"}},
		{`doc not in ["y", "z"]`, []string{"a", "b"}},
		{`doc not in ["x"] and ordinal == 1`, []string{"c"}},
		{`ordinal not in [0, 2] and id not in ["c"]`, []string{"b"}},
		{`id > "a"`, []string{"b", "c"}},
		{`doc == "nothing"`, nil},
	} {
		assert.Equal(t, tt.want, s.ids(t, coll, tt.expr), tt.expr)
	}
}

// leftOut searches with a list of values that must not be found.
func (s *suite) leftOut(t *testing.T) {
	rows := make([]row, 50)
	docs := make([]string, len(rows))
	for i := range rows {
		docs[i] = fmt.Sprintf("doc%02d", i)
		rows[i] = row{id: docs[i], doc: docs[i], text: "breaker", vector: []float32{1, float32(i), 0, 0, 0, 0, 0, 0}}
	}
	coll, expr := s.collection(t, rows...), "doc not "+strings.TrimPrefix(vectorstore.In("doc", docs[:48]), "doc ")
	got, err := s.door.Search(t.Context(), s.st, coll, nil, expr, []string{"doc"},
		[]entity.Vector{entity.FloatVector(direction(0))}, "vector", entity.COSINE, 10, nil, strong())
	require.NoError(t, err)
	assert.Equal(t, docs[48:], got[0].IDs.(*entity.ColumnVarChar).Data())
	assert.EqualValues(t, 2, s.count(t, coll, expr))
	if st, ok := s.st.(vectorstore.TextSearcher); ok {
		got, err := s.door.SearchText(t.Context(), st, coll, expr, []string{"text"}, "breaker", 10)
		require.NoError(t, err)
		assert.ElementsMatch(t, docs[48:], got[0].IDs.(*entity.ColumnVarChar).Data())
	}
}

func (s *suite) scores(t *testing.T) {
	coll := s.collection(
		t,
		row{id: "same", doc: "x", vector: scaled(direction(0), 5)},
		row{id: "half", doc: "x", vector: []float32{1, 1, 0, 0, 0, 0, 0, 0}},
		row{
			id:     "square",
			doc:    "y",
			vector: direction(3),
		},
		row{id: "opposite", doc: "y", vector: scaled(direction(0), -2)},
	)
	search := func(expr string, topK int, vectors ...entity.Vector) []client.SearchResult {
		got, err := s.door.Search(
			t.Context(),
			s.st,
			coll,
			nil,
			expr,
			[]string{"doc"},
			vectors,
			"vector",
			entity.COSINE,
			topK,
			nil,
			strong(),
		)
		require.NoError(t, err)
		return got
	}
	got := search("", 4, entity.FloatVector(direction(0)))
	assert.Equal(t, []string{"same", "half", "square", "opposite"}, got[0].IDs.(*entity.ColumnVarChar).Data())
	assert.InDeltaSlice(t, []float32{1, float32(1 / math.Sqrt2), 0, -1}, got[0].Scores, 1e-5)
	assert.Equal(t, []string{"x", "x", "y", "y"}, got[0].Fields.GetColumn("doc").(*entity.ColumnVarChar).Data())

	assert.Equal(
		t,
		[]string{"square"},
		search(`doc == "y"`, 1, entity.FloatVector(direction(0)))[0].IDs.(*entity.ColumnVarChar).Data(),
	)
	assert.Zero(t, search(`doc == "none"`, 4, entity.FloatVector(direction(0)))[0].ResultCount)
	two := search("", 1, entity.FloatVector(direction(0)), entity.FloatVector(direction(3)))
	assert.Equal(t, "square", two[1].IDs.(*entity.ColumnVarChar).Data()[0])
}

func scaled(v []float32, by float32) []float32 {
	for i := range v {
		v[i] *= by
	}
	return v
}

// wrongCalls are the caller's own mistakes: each must come back as an invalid
// argument (or the like) and none may count against the store.
func (s *suite) wrongCalls(t *testing.T) {
	ctx, coll := t.Context(), s.collection(t, row{id: "a"})
	nan := direction(0)
	nan[1] = float32(math.NaN())
	ragged := columns(row{id: "p", vector: make([]float32, dim-1)}, row{id: "q", vector: make([]float32, dim+1)})
	for name, cols := range map[string][]entity.Column{
		"mixed lengths": ragged, "not finite": columns(row{id: "p", vector: nan}),
		"key twice":     columns(row{id: "p"}, row{id: "p"}),
		"key too long":  columns(row{id: strings.Repeat("ü", 33)}),
		"text too long": columns(row{id: "p", text: strings.Repeat("t", 4097)}),
		"invalid UTF-8": columns(row{id: "p", text: "\xff\xfe"}), "invalid JSON": columns(row{id: "p", meta: "{"}),
		"no rows": columns(),
	} {
		_, err := s.door.Upsert(ctx, s.st, coll, "", cols...)
		assertCode(t, name, err, codes.InvalidArgument)
	}
	for _, expr := range []string{`id ==`, `nosuchfield == "a"`, `id == 1`, `id in ["a"`} {
		_, err := s.door.Query(ctx, s.st, coll, nil, expr, []string{"id"}, strong())
		assertCode(t, expr, err, codes.InvalidArgument, codes.NotFound)
	}
	_, err := s.door.Query(ctx, s.st, "nosuchcollection", nil, `id == "a"`, []string{"id"})
	assertCode(t, "Query", err, codes.NotFound)
	_, err = s.door.Search(
		ctx,
		s.st,
		coll,
		nil,
		"",
		nil,
		[]entity.Vector{entity.FloatVector{1}},
		"vector",
		entity.COSINE,
		1,
		nil,
	)
	assertCode(t, "dimensions", err, codes.InvalidArgument)
	assert.Equal(t, []string{"a"}, s.ids(t, coll, `id != ""`), "a refused call left rows behind")
}

func (s *suite) tenThousand(t *testing.T) {
	const n, per = 10_000, 5
	coll := s.collection(t)
	for at := 0; at < n; at += 1000 {
		rows := make([]row, 1000)
		for i := range rows {
			k := at + i
			angle := float64(k) / n
			rows[i] = row{
				id: fmt.Sprintf("id%05d", k), doc: fmt.Sprintf("doc%05d", k/per), ordinal: int64(k % per),
				vector: []float32{float32(math.Cos(angle)), float32(math.Sin(angle)), 0, 0, 0, 0, 0, 0},
			}
		}
		s.upsert(t, coll, rows...)
	}
	require.EqualValues(t, n, s.count(t, coll, `id != ""`))
	docs := make([]string, 1000)
	for i := range docs {
		docs[i] = fmt.Sprintf("doc%05d", i)
	}
	set := s.query(t, coll, vectorstore.In("doc", docs)+` and ordinal == 4`, "id", "doc")
	assert.Equal(t, len(docs), set.Len())
	found, err := s.door.Search(
		t.Context(),
		s.st,
		coll,
		nil,
		"",
		[]string{"doc"},
		[]entity.Vector{entity.FloatVector(direction(0))},
		"vector",
		entity.COSINE,
		100,
		nil,
		strong(),
	)
	require.NoError(t, err)
	assert.Equal(t, 100, found[0].ResultCount)
	assert.True(
		t,
		slices.IsSortedFunc(found[0].Scores, func(a, b float32) int { return cmp.Compare(b, a) }),
		"best first",
	)
	require.NoError(t, s.door.Delete(t.Context(), s.st, coll, "", vectorstore.In("doc", docs)))
	assert.EqualValues(t, n-len(docs)*per, s.count(t, coll, `id != ""`))
}

func (s *suite) text(t *testing.T, st vectorstore.TextSearcher) {
	coll := s.collection(
		t,
		row{id: "breaker", doc: "x", text: "The breaker opens after five failures."},
		row{id: "probe", doc: "x", text: "A probe closes the breaker again."},
		row{id: "rain", doc: "y", text: "It rains."},
	)
	ask := func(expr, question string) []string {
		got, err := s.door.SearchText(t.Context(), st, coll, expr, []string{"text"}, question, 10)
		require.NoError(t, err, question)
		require.Len(t, got, 1)
		assert.True(
			t,
			slices.IsSortedFunc(got[0].Scores, func(a, b float32) int { return cmp.Compare(b, a) }),
			"best first",
		)
		return got[0].IDs.(*entity.ColumnVarChar).Data()
	}
	assert.Equal(t, "breaker", ask("", "After how many failures does it open?")[0])
	assert.ElementsMatch(t, []string{"breaker", "probe"}, ask("", "breaker"))
	assert.Empty(t, ask(`doc == "y"`, "breaker"))
	assert.Empty(t, ask("", "?"))
}
