package sqlitestore_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

const coll = "docs"

func field(name string, t entity.FieldType) *entity.Field {
	return entity.NewField().WithName(name).WithDataType(t)
}

// rowSchema is the scheme of a retrieval pipeline.
func rowSchema(dim int64) *entity.Schema {
	return entity.NewSchema().WithName(coll).WithDescription(`{"model":"m"}`).
		WithField(field("id", entity.FieldTypeVarChar).WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(field("doc", entity.FieldTypeVarChar).WithMaxLength(64)).
		WithField(field("ordinal", entity.FieldTypeInt64)).
		WithField(field("heading", entity.FieldTypeVarChar).WithMaxLength(2048)).
		WithField(field("text", entity.FieldTypeVarChar).WithMaxLength(65535)).
		WithField(field("meta", entity.FieldTypeJSON)).
		WithField(field("vector", entity.FieldTypeFloatVector).WithDim(dim))
}

type row struct {
	id, doc       string
	ordinal       int64
	heading, text string
	meta          string
	vector        []float32
}

func columns(dim int, rows ...row) []entity.Column {
	return []entity.Column{
		entity.NewColumnFloatVector("vector", dim, each(rows, func(r row) []float32 { return r.vector })),
		entity.NewColumnVarChar("id", each(rows, func(r row) string { return r.id })),
		entity.NewColumnVarChar("doc", each(rows, func(r row) string { return r.doc })),
		entity.NewColumnInt64("ordinal", each(rows, func(r row) int64 { return r.ordinal })),
		entity.NewColumnVarChar("heading", each(rows, func(r row) string { return r.heading })),
		entity.NewColumnVarChar("text", each(rows, func(r row) string { return r.text })),
		entity.NewColumnJSONBytes("meta", each(rows, func(r row) []byte { return []byte(cmp.Or(r.meta, "{}")) })),
	}
}

func each[T any](rows []row, value func(row) T) (all []T) {
	for _, r := range rows {
		all = append(all, value(r))
	}
	return all
}

func cosineIndex() entity.Index {
	return entity.NewGenericIndex("", entity.Flat, map[string]string{"metric_type": "COSINE"})
}

func open(t testing.TB) *sqlitestore.Store {
	t.Helper()
	st, err := sqlitestore.Open(filepath.Join(t.TempDir(), "rows.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, st.Close()) })
	return st
}

func ready(t testing.TB, dim int64) *sqlitestore.Store {
	t.Helper()
	st, ctx := open(t), t.Context()
	require.NoError(t, st.CreateCollection(ctx, rowSchema(dim), entity.DefaultShardNumber))
	require.NoError(t, st.CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(t, st.LoadCollection(ctx, coll, false))
	return st
}

func ids(t testing.TB, set client.ResultSet) []string {
	t.Helper()
	col, ok := set.GetColumn("id").(*entity.ColumnVarChar)
	require.True(t, ok, "the answer has no id column")
	return col.Data()
}

func three(t testing.TB) *sqlitestore.Store {
	t.Helper()
	st := ready(t, 2)
	_, err := st.Upsert(t.Context(), coll, "", columns(2,
		row{
			id: "a", doc: "x", text: "the breaker opens after five failures", heading: "States",
			vector: []float32{1, 0}, meta: `{"lang":"en","n":1,"ok":true}`,
		},
		row{
			id: "b", doc: "x", ordinal: 1, text: "a probe closes it", heading: "Recovery", vector: []float32{0, 2},
			meta: `{"lang":"de","n":2,"ok":false}`,
		},
		row{id: "c", doc: "y", text: "rain in spring", vector: []float32{-3, 0}, meta: `{"n":"1"}`},
	)...)
	require.NoError(t, err)
	return st
}

func TestSearchGivesCosineSimilarityBestFirst(t *testing.T) {
	st := three(t)
	got, err := st.Search(t.Context(), coll, nil, "", []string{"doc", "text"},
		[]entity.Vector{entity.FloatVector{2, 1}},
		"vector", entity.COSINE, 3, nil)
	require.NoError(t, err)
	require.Len(t, got, 1)
	assert.Equal(t, []string{"a", "b", "c"}, got[0].IDs.(*entity.ColumnVarChar).Data())
	assert.InDeltaSlice(t, []float32{2 / float32(math.Sqrt(5)), 1 / float32(math.Sqrt(5)), -2 / float32(math.Sqrt(5))},
		got[0].Scores, 1e-5)
	assert.Equal(t, []string{"x", "x", "y"}, got[0].Fields.GetColumn("doc").(*entity.ColumnVarChar).Data())
	assert.Equal(t, 3, got[0].ResultCount)
}

func TestSearchTakesAFilterAndAnOffset(t *testing.T) {
	st, q := three(t), []entity.Vector{entity.FloatVector{1, 0}}
	got, err := st.Search(t.Context(), coll, nil, `doc in ["x"] and id != "a"`, nil, q, "vector", entity.COSINE, 3, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, got[0].IDs.(*entity.ColumnVarChar).Data())

	got, err = st.Search(t.Context(), coll, nil, "", nil, q, "vector", entity.COSINE, 1, nil, client.WithOffset(1))
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, got[0].IDs.(*entity.ColumnVarChar).Data())
}

func TestL2GivesTheSquaredDistanceAndRebuilds(t *testing.T) {
	st, ctx := three(t), t.Context()
	require.NoError(t, st.CreateIndex(ctx, coll, "vector",
		entity.NewGenericIndex("", entity.Flat, map[string]string{"metric_type": "L2"}), false))
	got, err := st.Search(ctx, coll, nil, "", nil, []entity.Vector{entity.FloatVector{0, 0}}, "vector",
		entity.L2, 3, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, got[0].IDs.(*entity.ColumnVarChar).Data())
	assert.InDeltaSlice(t, []float32{1, 4, 9}, got[0].Scores, 1e-5)
}

func TestQueryFilters(t *testing.T) {
	st := three(t)
	for _, tt := range []struct {
		expr string
		want []string
	}{
		{``, []string{"a", "b", "c"}},
		{`id == "a"`, []string{"a"}},
		{`id in ["a", "c", "zz"]`, []string{"a", "c"}},
		{`id in []`, nil},
		{`id not in ["a", "zz"]`, []string{"b", "c"}},
		{`id not in []`, []string{"a", "b", "c"}},
		{`doc != "x"`, []string{"c"}},
		{`ordinal == 1`, []string{"b"}},
		{`ordinal != -1 and doc == "y"`, []string{"c"}},
		{`(doc == "x") AND (ordinal == 0)`, []string{"a"}},
		{`doc == "x" && ordinal == 0`, []string{"a"}},
		{`meta["lang"] == "de"`, []string{"b"}},
		{`meta["lang"] != "de"`, []string{"a", "c"}},
		{`meta["n"] == 1`, []string{"a"}},
		{`meta["n"] == "1"`, []string{"c"}},
		{`meta["ok"] == true`, []string{"a"}},
		{`meta["missing"] == "x"`, nil},
		{`id > "a"`, []string{"b", "c"}},
	} {
		set, err := st.Query(t.Context(), coll, nil, tt.expr, []string{"doc"})
		if assert.NoError(t, err, tt.expr) {
			assert.ElementsMatch(t, tt.want, ids(t, set), tt.expr)
		}
	}
}

func TestQueryRefusesTheRest(t *testing.T) {
	st := three(t)
	for _, expr := range []string{
		`doc == "x" or doc == "y"`, `not doc == "x"`, `doc like "x%"`, `ordinal > 1`, `id == `,
		`id == "a`, `id in ["a"`, `id in "a"`,
		`id not ["a"]`, `id not in`, `meta["lang"] not in ["de"]`,
		`id == 'a'`, `id = "a"`, `(id == "a"`, `id == "a")`, `ordinal == "1"`, `id == 1`,
		`nothing == "a"`, `vector == "a"`,
		`meta == "a"`, `meta["a"]["b"] == 1`, `meta["a\""] == 1`, `1 == 1`, `id == "a" and`,
		`id == "\q"`, `; DROP TABLE c1`,
		strings.Repeat("(", 5000) + `id == "a"`, `ordinal == 99999999999999999999`,
	} {
		_, err := st.Query(t.Context(), coll, nil, expr, []string{"id"})
		assertCode(t, codes.InvalidArgument, err, expr)
	}
}

func TestCountStandsAlone(t *testing.T) {
	st := three(t)
	set, err := st.Query(t.Context(), coll, nil, `doc == "x"`, []string{"count(*)"})
	require.NoError(t, err)
	n, err := set.GetColumn("count(*)").GetAsInt64(0)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)

	_, err = st.Query(t.Context(), coll, nil, "", []string{"count(*)", "id"})
	assertCode(t, codes.InvalidArgument, err)
}

func TestQueryPagesInTheOrderOfTheKeys(t *testing.T) {
	st := three(t)
	set, err := st.Query(t.Context(), coll, nil, "", []string{"id"}, client.WithLimit(1), client.WithOffset(1))
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, ids(t, set))
}

func TestGetReturnsEveryField(t *testing.T) {
	st := three(t)
	set, err := st.Get(t.Context(), coll, entity.NewColumnVarChar("id", []string{"b", "nobody"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, ids(t, set))
	assert.Equal(t, [][]float32{{0, 2}}, set.GetColumn("vector").(*entity.ColumnFloatVector).Data())
	assert.JSONEq(t, `{"lang":"de","n":2,"ok":false}`,
		string(set.GetColumn("meta").(*entity.ColumnJSONBytes).Data()[0]))

	set, err = st.Get(t.Context(), coll, entity.NewColumnVarChar("id", []string{"b"}),
		client.GetWithOutputFields("text"))
	require.NoError(t, err)
	assert.Len(t, set, 2, "the field and the key")
}

func TestUpsertReplacesEverywhere(t *testing.T) {
	st, ctx := three(t), t.Context()
	_, err := st.Upsert(ctx, coll, "",
		columns(2, row{id: "a", doc: "z", text: "marmalade", vector: []float32{0, 1}})...)
	require.NoError(t, err)

	set, err := st.Query(ctx, coll, nil, `id == "a"`, []string{"*"})
	require.NoError(t, err)
	assert.Equal(t, []string{"marmalade"}, set.GetColumn("text").(*entity.ColumnVarChar).Data())
	assert.Equal(t, []string{"a"}, textHits(t, st, "marmalade"))
	assert.Empty(t, textHits(t, st, "failures"), "the old text is still found")
	got, err := st.Search(ctx, coll, nil, "", nil, []entity.Vector{entity.FloatVector{1, 0}}, "vector",
		entity.COSINE, 10, nil)
	require.NoError(t, err)
	assert.Len(t, got[0].Scores, 3, "the old vector is still found")
}

func TestInsertRefusesAKeyThatIsThere(t *testing.T) {
	st := three(t)
	_, err := st.Insert(t.Context(), coll, "",
		columns(2, row{id: "new", vector: []float32{1, 1}}, row{id: "a", vector: []float32{1, 1}})...)
	assertCode(t, codes.AlreadyExists, err)
	set, err := st.Query(t.Context(), coll, nil, `id == "new"`, []string{"id"})
	require.NoError(t, err)
	assert.Empty(t, ids(t, set), "half of a refused call was written")
}

func TestDelete(t *testing.T) {
	st, ctx := three(t), t.Context()
	require.NoError(t, st.Delete(ctx, coll, "", `doc == "x" and ordinal == 0`))
	require.NoError(t, st.DeleteByPks(ctx, coll, "", entity.NewColumnVarChar("id", []string{"c", "nobody"})))
	set, err := st.Query(ctx, coll, nil, "", []string{"id"})
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, ids(t, set))
	assert.Empty(t, textHits(t, st, "rain"))
	assertCode(t, codes.InvalidArgument, st.Delete(ctx, coll, "", " "))
}

func textHits(t testing.TB, st *sqlitestore.Store, question string) []string {
	t.Helper()
	got, err := st.SearchText(t.Context(), coll, "", []string{"text"}, question, 10)
	require.NoError(t, err, question)
	require.Len(t, got, 1)
	return got[0].IDs.(*entity.ColumnVarChar).Data()
}

func TestSearchTextFindsWordsStemsAccentsAndUnspacedScripts(t *testing.T) {
	st := ready(t, 1)
	v := []float32{1}
	_, err := st.Upsert(t.Context(), coll, "", columns(1,
		row{id: "breaker", text: "The breaker opens after five failures.", vector: v},
		row{id: "heading", heading: "Probing > Recovery", text: "One call is admitted.", vector: v},
		row{id: "french", text: "Les élèves étudient à l'école.", vector: v},
		row{id: "chinese", text: "东京大学位于日本东京都文京区。", vector: v},
		row{id: "japanese", text: "回路遮断器は五回の失敗で開きます。テスト", vector: v},
		row{id: "korean", text: "서울은 대한민국의 수도이다", vector: v},
		row{id: "thai", text: "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", vector: v},
		row{id: "mixed", text: "GPU加速の説明", vector: v},
	)...)
	require.NoError(t, err)
	for _, tt := range []struct{ question, want string }{
		{"When does the breaker open?", "breaker"},
		{"failure", "breaker"},
		{"recovery", "heading"},
		{"eleve ecole", "french"},
		{"东京大学在哪里？", "chinese"},
		{"遮断器", "japanese"},
		{"テスト", "japanese"},
		{"서울", "korean"},
		{"เมืองหลวง", "thai"},
		{"加速", "mixed"},
		{"gpu", "mixed"},
	} {
		hits := textHits(t, st, tt.question)
		if assert.NotEmpty(t, hits, tt.question) {
			assert.Equal(t, tt.want, hits[0], tt.question)
		}
	}
	for _, nothing := range []string{"", "?!", "\"", "zebra", "NEAR(", "*", "a:b^c"} {
		assert.Empty(t, textHits(t, st, nothing), nothing)
	}
	assert.NotEmpty(t, textHits(t, st, "the"), "stop words alone are searched for as they are")
}

func TestSearchTextScoresFallAndFilterApplies(t *testing.T) {
	st := three(t)
	got, err := st.SearchText(t.Context(), coll, `doc == "x"`, []string{"doc"}, "breaker probe rain", 10)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"a", "b"}, got[0].IDs.(*entity.ColumnVarChar).Data())
	assert.Greater(t, got[0].Scores[1], float32(0))
	assert.GreaterOrEqual(t, got[0].Scores[0], got[0].Scores[1])
}

func TestBatchIsCheckedBeforeAnythingIsWritten(t *testing.T) {
	st := ready(t, 2)
	ok := row{id: "ok", vector: []float32{1, 0}}
	with := func(f func(*row)) []entity.Column { r := ok; r.id = "bad"; f(&r); return columns(2, ok, r) }
	for name, cols := range map[string][]entity.Column{
		"short vector":   with(func(r *row) { r.vector = []float32{1} }),
		"long vector":    with(func(r *row) { r.vector = []float32{1, 2, 3} }),
		"not a number":   with(func(r *row) { r.vector = []float32{float32(math.NaN()), 0} }),
		"infinite":       with(func(r *row) { r.vector = []float32{float32(math.Inf(1)), 0} }),
		"zeros":          with(func(r *row) { r.vector = []float32{0, 0} }),
		"key too long":   with(func(r *row) { r.id = strings.Repeat("ä", 33) }),
		"invalid UTF-8":  with(func(r *row) { r.text = "\xff" }),
		"invalid JSON":   with(func(r *row) { r.meta = "{" }),
		"JSON not UTF-8": with(func(r *row) { r.meta = "{\"a\":\"\xff\"}" }),
		"bits": append(columns(2, ok)[1:],
			entity.NewColumnBinaryVector("vector", 64, [][]byte{make([]byte, 8)})),
		"half floats": append(columns(2, ok)[1:],
			entity.NewColumnFloat16Vector("vector", 2, [][]byte{make([]byte, 4)})),
		"foreign column": append(columns(2, ok)[1:], foreign{columns(2, ok)[0]}),
		"key twice":      with(func(r *row) { r.id = "ok" }),
		"missing field":  columns(2, ok)[1:],
		"unknown field":  append(columns(2, ok), entity.NewColumnInt64("x", []int64{1})),
		"field twice":    append(columns(2, ok), entity.NewColumnInt64("ordinal", []int64{1})),
		"wrong type":     append(columns(2, ok)[:6], entity.NewColumnVarChar("meta", []string{"{}"})),
		"lengths differ": append(columns(2, ok)[:6], entity.NewColumnJSONBytes("meta", nil)),
		"no rows":        columns(2),
	} {
		_, err := st.Upsert(t.Context(), coll, "", cols...)
		assertCode(t, codes.InvalidArgument, err, name)
	}
	_, err := st.Upsert(t.Context(), coll, "part", columns(2, ok)...)
	assertCode(t, codes.InvalidArgument, err, "partition")
	set, err := st.Query(t.Context(), coll, nil, "", []string{"id"})
	require.NoError(t, err)
	assert.Empty(t, ids(t, set))
}

// foreign is a column of another make.
type foreign struct{ entity.Column }

// SQLite keeps no NaN: it takes one for NULL, and the refusal looked like a
// fault of the store.
func TestNumberThatSQLiteCannotKeepIsRefused(t *testing.T) {
	st, ctx := open(t), t.Context()
	sch := entity.NewSchema().WithName(coll).
		WithField(field("k", entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(field("vector", entity.FieldTypeFloatVector).WithDim(1)).
		WithField(field("f", entity.FieldTypeFloat)).WithField(field("d", entity.FieldTypeDouble))
	require.NoError(t, st.CreateCollection(ctx, sch, 1))
	require.NoError(t, st.CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(t, st.LoadCollection(ctx, coll, false))
	upsert := func(f float32, d float64) error {
		_, err := st.Upsert(ctx, coll, "", entity.NewColumnInt64("k", []int64{1, 2}),
			entity.NewColumnFloatVector("vector", 1, [][]float32{{1}, {1}}),
			entity.NewColumnFloat("f", []float32{0, f}), entity.NewColumnDouble("d", []float64{0, d}))
		return err
	}
	require.NoError(t, upsert(float32(math.Inf(1)), math.Inf(-1)))
	assertCode(t, codes.InvalidArgument, upsert(float32(math.NaN()), 0))
	err := upsert(0, math.NaN())
	assertCode(t, codes.InvalidArgument, err)
	require.ErrorContains(t, err, `field "d", row 1: not a number`)
	set, err := st.Query(ctx, coll, nil, "k > 0", []string{"f", "d"})
	require.NoError(t, err)
	assert.Equal(t, []float32{0, float32(math.Inf(1))}, set.GetColumn("f").(*entity.ColumnFloat).Data())
	assert.Equal(t, []float64{0, math.Inf(-1)}, set.GetColumn("d").(*entity.ColumnDouble).Data())
}

func TestEveryFieldTypeComesBack(t *testing.T) {
	st, ctx := open(t), t.Context()
	sch := entity.NewSchema().WithName(coll).
		WithField(field("k", entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(field("vector", entity.FieldTypeFloatVector).WithDim(1)).
		WithField(field("b", entity.FieldTypeBool)).WithField(field("i8", entity.FieldTypeInt8)).
		WithField(field("i16", entity.FieldTypeInt16)).WithField(field("i32", entity.FieldTypeInt32)).
		WithField(field("f", entity.FieldTypeFloat)).WithField(field("d", entity.FieldTypeDouble)).
		WithField(field("s", entity.FieldTypeVarChar).WithMaxLength(9)).WithField(field("j", entity.FieldTypeJSON))
	require.NoError(t, st.CreateCollection(ctx, sch, 1))
	require.NoError(t, st.CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(t, st.LoadCollection(ctx, coll, false))
	in := []entity.Column{
		entity.NewColumnInt64("k", []int64{math.MaxInt64}), entity.NewColumnFloatVector("vector", 1, [][]float32{{1}}),
		entity.NewColumnBool("b", []bool{true}), entity.NewColumnInt8("i8", []int8{-8}),
		entity.NewColumnInt16("i16", []int16{-16}),
		entity.NewColumnInt32("i32", []int32{-32}), entity.NewColumnFloat("f", []float32{1.5}),
		entity.NewColumnDouble("d", []float64{2.5}),
		entity.NewColumnVarChar("s", []string{"a\x00b\"\\"}),
		entity.NewColumnJSONBytes("j", [][]byte{[]byte(`{"a":[1]}`)}),
	}
	_, err := st.Insert(ctx, coll, "", in...)
	require.NoError(t, err)
	set, err := st.Query(ctx, coll, nil,
		`k == 9223372036854775807 and b == true and f == 1.5 and d != 1 and i8 in [-8]`, []string{"*"})
	require.NoError(t, err)
	assert.Equal(t, client.ResultSet(in), set)
	_, err = st.SearchText(ctx, coll, "", nil, "x", 1)
	assertCode(t, codes.InvalidArgument, err, "no text field")
}

func TestCatalogue(t *testing.T) {
	st, ctx := open(t), t.Context()
	state, err := st.GetLoadState(ctx, coll, nil)
	require.NoError(t, err)
	assert.Equal(t, entity.LoadStateNotExist, state)
	_, err = st.DescribeCollection(ctx, coll)
	assertCode(t, codes.NotFound, err)
	require.NoError(t, st.DropCollection(ctx, coll), "dropping what is not there")

	require.NoError(t, st.CreateCollection(ctx, rowSchema(4), 2))
	require.NoError(t, st.CreateCollection(ctx, rowSchema(4), 2), "the same again")
	assertCode(t, codes.AlreadyExists, st.CreateCollection(ctx, rowSchema(8), 2))
	assertCode(t, codes.FailedPrecondition, st.LoadCollection(ctx, coll, false), "no index yet")
	_, err = st.DescribeIndex(ctx, coll, "vector")
	assertCode(t, codes.NotFound, err)
	_, err = st.Query(ctx, coll, nil, "", []string{"id"})
	assertCode(t, codes.FailedPrecondition, err, "not loaded")

	require.NoError(t, st.CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(t, st.CreateIndex(ctx, coll, "ordinal", entity.NewScalarIndex(), false))
	require.NoError(t, st.LoadCollection(ctx, coll, false))
	idx, err := st.DescribeIndex(ctx, coll, "vector")
	require.NoError(t, err)
	assert.Equal(t, "COSINE", idx[0].Params()["metric_type"])
	state, err = st.GetLoadState(ctx, coll, nil)
	require.NoError(t, err)
	assert.Equal(t, entity.LoadStateLoaded, state)

	info, err := st.DescribeCollection(ctx, coll)
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m"}`, info.Schema.Description)
	assert.Equal(t, "id", info.Schema.PKFieldName())
	assert.Len(t, info.Schema.Fields, 7)
	list, err := st.ListCollections(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, coll, list[0].Name)

	require.NoError(t, st.Flush(ctx, coll, false))
	require.NoError(t, st.ReleaseCollection(ctx, coll))
	require.NoError(t, st.DropCollection(ctx, coll))
	has, err := st.HasCollection(ctx, coll)
	require.NoError(t, err)
	assert.False(t, has)
	assertCode(t, codes.NotFound, st.Flush(ctx, coll, false))
}

func TestSchemasThatAreRefused(t *testing.T) {
	st := open(t)
	key := func() *entity.Field { return field("id", entity.FieldTypeInt64).WithIsPrimaryKey(true) }
	vec := func() *entity.Field { return field("v", entity.FieldTypeFloatVector).WithDim(2) }
	sch := func(fields ...*entity.Field) *entity.Schema {
		s := entity.NewSchema().WithName("c")
		for _, f := range fields {
			s.WithField(f)
		}
		return s
	}
	for name, s := range map[string]*entity.Schema{
		"nil": nil, "no name": sch(key(), vec()).WithName(""), "no key": sch(vec()), "no vector": sch(key()),
		"two vectors": sch(key(), vec(), vec().WithName("w")), "two keys": sch(key(), key().WithName("k"), vec()),
		"auto id": sch(key().WithIsAutoID(true), vec()), "dynamic": sch(key(), vec()).WithDynamicFieldEnabled(true),
		"float key":     sch(field("id", entity.FieldTypeFloat).WithIsPrimaryKey(true), vec()),
		"no dim":        sch(key(), field("v", entity.FieldTypeFloatVector)),
		"no max length": sch(key(), vec(), field("s", entity.FieldTypeVarChar)),
		"array":         sch(key(), vec(), field("s", entity.FieldTypeArray)),
		"name twice":    sch(key(), vec(), field("id", entity.FieldTypeInt8)),
		"bits":          sch(key(), field("v", entity.FieldTypeBinaryVector).WithDim(8)),
		"bits too":      sch(key(), vec(), field("w", entity.FieldTypeBinaryVector).WithDim(8)),
		"float16":       sch(key(), field("v", entity.FieldTypeFloat16Vector).WithDim(8)),
		"bfloat16":      sch(key(), field("v", entity.FieldTypeBFloat16Vector).WithDim(8)),
		"sparse":        sch(key(), vec(), field("w", entity.FieldTypeSparseVector)),
	} {
		assertCode(t, codes.InvalidArgument, st.CreateCollection(t.Context(), s, 1), name)
	}
}

func TestSearchRefusals(t *testing.T) {
	st := three(t)
	ok := []entity.Vector{entity.FloatVector{1, 0}}
	for _, tt := range []struct {
		name    string
		field   string
		metric  entity.MetricType
		topK    int
		vectors []entity.Vector
		outputs []string
	}{
		{"field", "nope", entity.COSINE, 1, ok, nil},
		{"metric", "vector", entity.IP, 1, ok, nil},
		{"topK zero", "vector", entity.COSINE, 0, ok, nil},
		{"topK large", "vector", entity.COSINE, 4097, ok, nil},
		{"none", "vector", entity.COSINE, 1, nil, nil},
		{"dimensions", "vector", entity.COSINE, 1, []entity.Vector{entity.FloatVector{1}}, nil},
		{"kind", "vector", entity.COSINE, 1, []entity.Vector{entity.BinaryVector{1}}, nil},
		{"output", "vector", entity.COSINE, 1, ok, []string{"nope"}},
	} {
		_, err := st.Search(t.Context(), coll, nil, "", tt.outputs, tt.vectors, tt.field, tt.metric, tt.topK, nil)
		assertCode(t, codes.InvalidArgument, err, tt.name)
	}
	got, err := st.Search(t.Context(), coll, nil, "", nil, ok, "vector", entity.COSINE, 4096, nil)
	require.NoError(t, err)
	assert.Equal(t, 3, got[0].ResultCount)
}

func TestRowsOutliveTheStore(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "a b?#%.db"), t.Context()
	st, err := sqlitestore.Open(path)
	require.NoError(t, err)
	require.NoError(t, st.CreateCollection(ctx, rowSchema(2), 1))
	require.NoError(t, st.CreateIndex(ctx, coll, "vector", cosineIndex(), false))
	require.NoError(t, st.LoadCollection(ctx, coll, false))
	_, err = st.Insert(ctx, coll, "", columns(2, row{id: "a", text: "kept", vector: []float32{1, 0}})...)
	require.NoError(t, err)
	require.NoError(t, st.Close())
	require.FileExists(t, path)

	st, err = sqlitestore.Open(path)
	require.NoError(t, err)
	defer st.Close()
	assert.Equal(t, []string{"a"}, textHits(t, st, "kept"))
}

func TestFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("this is no database. ", 500)), 0o600))
	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE theirs(a)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	newer := filepath.Join(dir, "newer.db")
	st, err := sqlitestore.Open(newer)
	require.NoError(t, err)
	require.NoError(t, st.Close())
	db, err = sql.Open("sqlite", newer)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA user_version = 99")
	require.NoError(t, err)
	require.NoError(t, db.Close())

	for path, want := range map[string]codes.Code{
		garbage: codes.DataLoss, foreign: codes.FailedPrecondition, newer: codes.FailedPrecondition,
		filepath.Join(dir, "missing", "x.db"): codes.FailedPrecondition, dir: codes.FailedPrecondition,
	} {
		_, err := sqlitestore.Open(path)
		assertCode(t, want, err, path)
		assert.ErrorContains(t, err, path)
	}
}

func TestErrorsSayWhatAndCarryTheContext(t *testing.T) {
	st := ready(t, 2)
	_, err := st.Query(t.Context(), "nope", nil, "", nil)
	e := new(sqlitestore.Error)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "Query", e.Op)
	assert.ErrorContains(t, err, `collection "nope" does not exist`)
	require.NoError(t, st.Close())
	_, err = st.Query(t.Context(), coll, nil, "", nil)
	assertCode(t, codes.FailedPrecondition, err)
}

func TestAThousandDocumentsInOneFilter(t *testing.T) {
	st, ctx := ready(t, 8), t.Context()
	const n = 6_000
	for at := 0; at < n; at += 1000 {
		rows := make([]row, 1000)
		for i := range rows {
			k := at + i
			rows[i] = row{
				id: fmt.Sprint("id", k), doc: fmt.Sprint("doc", k/5), text: fmt.Sprint("word", k),
				vector: []float32{float32(k), 1, 0, 0, 0, 0, 0, float32(n - k)},
			}
		}
		_, err := st.Upsert(ctx, coll, "", columns(8, rows...)...)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"id4711"}, textHits(t, st, "word4711"))
	docs := make([]string, 1000)
	for i := range docs {
		docs[i] = fmt.Sprintf("%q", fmt.Sprint("doc", i))
	}
	set, err := st.Query(ctx, coll, nil, "doc in ["+strings.Join(docs, ",")+"]", []string{"id"})
	require.NoError(t, err)
	assert.Equal(t, 5000, set.Len())
}
