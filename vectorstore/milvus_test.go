package vectorstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// The doors that a store of the conformance suite need not have, on the real
// server.

// onMilvus is the real server through a door whose breaker must count no
// failure.
type onMilvus struct {
	*testing.T
	c client.Client
	g vectorstore.Guard
}

func newOnMilvus(t *testing.T) *onMilvus {
	t.Helper()
	c := connect(t, vectorstore.Config{Address: upstreams.Milvus(t)})
	g, b := guard(t)
	t.Cleanup(func() { assert.Zero(t, b.Snapshot().Failures) })
	return &onMilvus{t, c, g}
}

func (m *onMilvus) name() string {
	return fmt.Sprintf("doors_%d", time.Now().UnixNano())
}

// collection makes one with a text field, indexed and loaded.
func (m *onMilvus) collection() string {
	m.Helper()
	name := m.name()
	schema := docs().WithName(name).
		WithField(entity.NewField().WithName("text").WithDataType(entity.FieldTypeVarChar).WithMaxLength(65535))
	require.NoError(m, m.g.CreateCollection(m.Context(), m.c, schema, 1))
	m.Cleanup(func() { assert.NoError(m, m.c.DropCollection(context.WithoutCancel(m.Context()), name)) })
	idx, err := entity.NewIndexFlat(entity.COSINE)
	require.NoError(m, err)
	require.NoError(m, m.g.CreateIndex(m.Context(), m.c, name, "vector", idx, false))
	require.NoError(m, m.g.LoadCollection(m.Context(), m.c, name, false))
	return name
}

func (m *onMilvus) upsert(coll, partition string, ids, texts []string) {
	m.Helper()
	cols := append(rowsOf(ids...), entity.NewColumnVarChar("text", texts))
	got, err := m.g.Upsert(m.Context(), m.c, coll, partition, cols...)
	require.NoError(m, err)
	require.Equal(m, len(ids), got.Len())
}

func (m *onMilvus) keys(coll string, partitions []string) []string {
	m.Helper()
	set, err := m.g.Query(
		m.Context(),
		m.c,
		coll,
		partitions,
		`id != ""`,
		[]string{"id"},
		client.WithSearchQueryConsistencyLevel(entity.ClStrong),
	)
	require.NoError(m, err)
	return slices.Sorted(slices.Values(set.GetColumn("id").(*entity.ColumnVarChar).Data()))
}

func TestMilvusIteratorReadsEveryRow(t *testing.T) {
	m := newOnMilvus(t)
	coll := m.collection()
	var want []string
	for at := 0; at < 3000; at += 1000 {
		ids := make([]string, 1000)
		for i := range ids {
			ids[i] = fmt.Sprintf("k%06d", at+i)
		}
		want = append(want, ids...)
		m.upsert(coll, "", ids, make([]string, len(ids)))
	}
	awkward := []string{`k"`, `k\`, `k" or "`, "日本", "🚰"}
	m.upsert(coll, "", awkward, make([]string, len(awkward)))
	want = append(want, awkward...)
	require.Len(t, m.keys(coll, nil), len(want), "the rows are to be seen")
	for _, batch := range []int{1000, 7} {
		var got []string
		it, err := m.g.QueryIterator(
			t.Context(),
			m.c,
			client.NewQueryIteratorOption(coll).
				WithExpr(`id != "none"`).
				WithOutputFields("id", "text").
				WithBatchSize(batch),
		)
		require.NoError(t, err)
		for {
			set, err := it.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			got = append(got, set.GetColumn("id").(*entity.ColumnVarChar).Data()...)
		}
		require.NoError(t, it.Close())
		assert.ElementsMatch(t, want, got, "pages of %d", batch)
	}
}

func TestMilvusPartitions(t *testing.T) {
	m := newOnMilvus(t)
	coll, ctx := m.collection(), t.Context()
	require.NoError(t, m.g.CreatePartition(ctx, m.c, coll, "north"))
	has, err := m.g.HasPartition(ctx, m.c, coll, "north")
	require.NoError(t, err)
	assert.True(t, has)
	has, err = m.g.HasPartition(ctx, m.c, coll, "south")
	require.NoError(t, err)
	assert.False(t, has)
	list, err := m.g.ShowPartitions(ctx, m.c, coll)
	require.NoError(t, err)
	assert.Len(t, list, 2, "and the one that every collection has")

	require.NoError(t, m.g.LoadPartitions(ctx, m.c, coll, []string{"north"}, false))
	m.upsert(coll, "north", []string{"n"}, []string{""})
	m.upsert(coll, "", []string{"d"}, []string{""})
	assert.Equal(t, []string{"n"}, m.keys(coll, []string{"north"}))
	assert.Equal(t, []string{"d", "n"}, m.keys(coll, nil))
	_, err = m.g.Upsert(
		ctx,
		m.c,
		coll,
		"nowhere",
		append(rowsOf("x"), entity.NewColumnVarChar("text", []string{""}))...)
	assert.Equal(t, codes.NotFound, status.Code(err), "%v", err)

	require.NoError(t, m.g.ReleasePartitions(ctx, m.c, coll, []string{"north"}))
	require.NoError(t, m.g.DropPartition(ctx, m.c, coll, "north"))
	assert.Equal(t, []string{"d"}, m.keys(coll, nil))
}

func TestMilvusAliasesAndNames(t *testing.T) {
	m := newOnMilvus(t)
	coll, other, ctx, alias := m.collection(), m.collection(), t.Context(), m.name()
	m.upsert(coll, "", []string{"a"}, []string{""})
	m.upsert(other, "", []string{"b"}, []string{""})
	require.NoError(t, m.g.CreateAlias(ctx, m.c, coll, alias))
	assert.Equal(t, []string{"a"}, m.keys(alias, nil))
	require.NoError(t, m.g.AlterAlias(ctx, m.c, other, alias))
	assert.Equal(t, []string{"b"}, m.keys(alias, nil))
	require.NoError(t, m.g.DropAlias(ctx, m.c, alias))
	_, err := m.g.DescribeCollection(ctx, m.c, alias)
	assert.Equal(t, codes.NotFound, status.Code(err), "%v", err)

	renamed := m.name()
	require.NoError(t, m.g.RenameCollection(ctx, m.c, other, renamed))
	assert.Equal(t, []string{"b"}, m.keys(renamed, nil))
	require.NoError(t, m.g.RenameCollection(ctx, m.c, renamed, other))
}

// Searches were refused by the dimensions of the collection that the alias had
// stood for.
func TestMilvusAliasMovesToOtherDimensions(t *testing.T) {
	m := newOnMilvus(t)
	alias := m.name()
	of := func(dim int64) string {
		return m.of(
			flat(t, entity.L2),
			false,
			entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(dim),
		)
	}
	blue, green := of(4), of(8)
	search := func(dim int) error {
		_, err := m.g.Search(
			t.Context(),
			m.c,
			alias,
			nil,
			"",
			nil,
			[]entity.Vector{entity.FloatVector(make([]float32, dim))},
			"v",
			entity.L2,
			1,
			nil,
		)
		return err
	}
	require.NoError(t, m.g.CreateAlias(t.Context(), m.c, blue, alias))
	require.NoError(t, search(4))
	require.NoError(
		t,
		connect(t, vectorstore.Config{Address: upstreams.Milvus(t)}).AlterAlias(t.Context(), green, alias),
	)
	require.NoError(t, search(8))
	assert.Equal(t, codes.InvalidArgument, status.Code(search(4)))
	require.NoError(t, m.g.DropAlias(t.Context(), m.c, alias))
}

// Writes were refused for ever by the dimensions of the collection that the
// alias had stood for: the SDK keeps them.
func TestMilvusWritesAfterTheAliasMoved(t *testing.T) {
	m, alias := newOnMilvus(t), ""
	of := func(dim int64) string {
		return m.of(
			flat(t, entity.L2),
			false,
			entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(dim),
		)
	}
	write := func(dim int) []error {
		return writes(
			t,
			m.g,
			m.c,
			alias,
			[]entity.Column{
				entity.NewColumnInt64("id", []int64{1}),
				entity.NewColumnFloatVector("v", dim, [][]float32{make([]float32, dim)}),
			},
		)
	}
	elsewhere := connect(t, vectorstore.Config{Address: upstreams.Milvus(t)})
	blue, green := of(4), of(8)
	alias = m.name()
	require.NoError(t, m.g.CreateAlias(t.Context(), m.c, blue, alias))
	require.NoError(t, errors.Join(write(4)...))
	require.NoError(t, elsewhere.AlterAlias(t.Context(), green, alias))
	calls := m.g.Breaker.Snapshot().Calls
	require.NoError(t, errors.Join(write(8)...))
	assert.Equal(t, calls+2, m.g.Breaker.Snapshot().Calls)
	for _, err := range write(4) {
		require.ErrorContains(t, err, "vector dim 4 not match")
	}
	require.NoError(t, m.g.DropAlias(t.Context(), m.c, alias))
	assert.Equal(t, codes.NotFound, status.Code(write(4)[0]), "nobody can say whether it fits")
}

// Likewise for a collection that another client has dropped and made again,
// also with what had no field before, or has none now.
func TestMilvusWritesToACollectionMadeAnew(t *testing.T) {
	m := newOnMilvus(t)
	vector := entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector)
	text := entity.NewField().WithName("x").WithDataType(entity.FieldTypeVarChar).WithMaxLength(100)
	elsewhere := connect(t, vectorstore.Config{Address: upstreams.Milvus(t)})
	coll := m.name()
	remade := func(dim int64, dynamic bool, fields ...*entity.Field) {
		schema := entity.NewSchema().WithName(coll).WithDynamicFieldEnabled(dynamic).
			WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
			WithField(vector.WithDim(dim))
		for _, f := range fields {
			schema.WithField(f)
		}
		require.NoError(t, elsewhere.DropCollection(t.Context(), coll))
		require.NoError(t, elsewhere.CreateCollection(t.Context(), schema, 1))
		require.NoError(t, elsewhere.CreateIndex(t.Context(), coll, "v", flat(t, entity.L2), false))
		require.NoError(t, elsewhere.LoadCollection(t.Context(), coll, false))
	}
	t.Cleanup(func() { assert.NoError(t, elsewhere.DropCollection(context.WithoutCancel(t.Context()), coll)) })
	vectors := func(dim int) entity.Column {
		return entity.NewColumnFloatVector("v", dim, [][]float32{make([]float32, dim)})
	}
	x := entity.NewColumnVarChar("x", []string{"text"})
	for _, row := range []struct {
		name    string
		make    func()
		columns []entity.Column
	}{
		{"four dimensions", func() { remade(4, false) }, []entity.Column{vectors(4)}},
		{"eight dimensions", func() { remade(8, false) }, []entity.Column{vectors(8)}},
		{"a field more", func() { remade(8, false, text) }, []entity.Column{vectors(8), x}},
		{"a field less", func() { remade(8, false) }, []entity.Column{vectors(8)}},
		{"a dynamic field", func() { remade(8, true) }, []entity.Column{vectors(8), x}},
		{"a field instead of the dynamic one", func() { remade(8, false, text) }, []entity.Column{vectors(8), x}},
		{"the dynamic field instead of one", func() { remade(8, true) }, []entity.Column{vectors(8), x}},
		{"a field beside the dynamic one", func() { remade(8, true, text) }, []entity.Column{vectors(8), x}},
	} {
		row.make()
		columns := append([]entity.Column{entity.NewColumnInt64("id", []int64{1})}, row.columns...)
		require.NoError(t, errors.Join(writes(t, m.g, m.c, coll, columns)...), row.name)
		if len(row.columns) == 1 {
			continue
		}
		fresh := connect(t, vectorstore.Config{Address: upstreams.Milvus(t)})
		set, err := fresh.Query(
			t.Context(),
			coll,
			nil,
			"id == 1",
			[]string{"id", "x"},
			client.WithSearchQueryConsistencyLevel(entity.ClStrong),
		)
		require.NoError(t, err, row.name)
		require.NotNil(t, set.GetColumn("x"), row.name)
		kept, err := set.GetColumn("x").GetAsString(0)
		require.NoError(t, err, row.name)
		assert.Equal(t, "text", kept, row.name)
	}
}

func TestMilvusSaysWhatItIs(t *testing.T) {
	m := newOnMilvus(t)
	version, err := m.g.GetVersion(t.Context(), m.c)
	require.NoError(t, err)
	assert.Contains(t, version, "2.3")
	health, err := m.g.CheckHealth(t.Context(), m.c)
	require.NoError(t, err)
	assert.True(t, health.IsHealthy)
}

// A document of a million bytes is rows of the largest text that a row takes.
func TestMilvusTakesAMillionBytes(t *testing.T) {
	m := newOnMilvus(t)
	coll := m.collection()
	var ids, texts []string
	for i := range 16 {
		text := strings.Repeat("ünïcode 文書 🚰 ", 65535/24)
		ids, texts = append(ids, fmt.Sprintf("m%02d", i)), append(texts, text+strings.Repeat(".", 65535-len(text)))
	}
	m.upsert(coll, "", ids, texts)
	set, err := m.g.Query(
		t.Context(),
		m.c,
		coll,
		nil,
		vectorstore.In("id", ids),
		[]string{"id", "text"},
		client.WithSearchQueryConsistencyLevel(entity.ClStrong),
	)
	require.NoError(t, err)
	require.Equal(t, len(ids), set.Len())
	for i, text := range set.GetColumn("text").(*entity.ColumnVarChar).Data() {
		require.True(t, text == texts[0], "row %d came back with %d bytes", i, len(text))
	}
	_, err = m.g.Upsert(
		t.Context(),
		m.c,
		coll,
		"",
		append(rowsOf("x"), entity.NewColumnVarChar("text", []string{strings.Repeat("x", 1_000_000)}))...)
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
}

// Columns of another type than the collection's, and rows without a field.
func TestMilvusRefusesWrongColumns(t *testing.T) {
	m := newOnMilvus(t)
	coll, b := m.collection(), m.g.Breaker
	text := entity.NewColumnVarChar("text", []string{""})
	for name, cols := range map[string][]entity.Column{
		"numbers for keys": {entity.NewColumnInt64("id", []int64{1}), rowsOf("a")[1], text},
		"bytes for a vector": {
			rowsOf("a")[0], entity.NewColumnBinaryVector("vector", 32, [][]byte{{1, 2, 3, 4}}),
			text,
		},
		"another dimension":   {rowsOf("a")[0], entity.NewColumnFloatVector("vector", 3, [][]float32{{1, 0, 0}}), text},
		"a field missing":     rowsOf("a"),
		"a field too many":    append(rowsOf("a"), text, entity.NewColumnInt64("more", []int64{1})),
		"a number for a text": append(rowsOf("a"), entity.NewColumnInt64("text", []int64{1})),
	} {
		before := b.Snapshot()
		_, err := m.g.Upsert(t.Context(), m.c, coll, "", cols...)
		require.Error(t, err, name)
		assert.Equal(t, before.Ignored+1, b.Snapshot().Ignored, "%s: %v", name, err)
	}
	for name, v := range map[string]entity.Vector{
		"huge":       entity.FloatVector(make([]float32, 40_000)),
		"empty":      entity.FloatVector{},
		"not finite": entity.FloatVector{float32(math.NaN()), 0, 0, 0},
		"binary":     entity.BinaryVector{1, 2, 3, 4},
	} {
		_, err := m.g.Search(t.Context(), m.c, coll, nil, "", nil, []entity.Vector{v}, "vector", entity.COSINE, 1, nil)
		require.Error(t, err, name)
		assert.Equal(t, resilience.Ignored, vectorstore.Classify(t.Context(), err).Outcome, "%s: %v", name, err)
	}
}

// of makes a collection with int64 keys and these fields, indexed and loaded.
func (m *onMilvus) of(index entity.Index, dynamic bool, fields ...*entity.Field) string {
	m.Helper()
	name := m.name()
	schema := entity.NewSchema().WithName(name).WithDynamicFieldEnabled(dynamic).
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true))
	for _, f := range fields {
		schema.WithField(f)
	}
	require.NoError(m, m.g.CreateCollection(m.Context(), m.c, schema, 1))
	m.Cleanup(func() { assert.NoError(m, m.c.DropCollection(context.WithoutCancel(m.Context()), name)) })
	require.NoError(m, m.g.CreateIndex(m.Context(), m.c, name, fields[0].Name, index, false))
	require.NoError(m, m.g.LoadCollection(m.Context(), m.c, name, false))
	return name
}

// refused is an upsert that was not sent, because of a mistake of these words.
func (m *onMilvus) refused(coll, words string, columns ...entity.Column) {
	m.Helper()
	for _, err := range writes(m.T, m.g, m.c, coll,
		append([]entity.Column{entity.NewColumnInt64("id", intIDs(columns[0].Len()))}, columns...)) {
		e := new(vectorstore.ArgumentError)
		require.ErrorAs(m, err, &e)
		assert.Contains(m, e.Reason, words)
	}
}

// kept are the values of a field of all rows after an upsert, by key.
func (m *onMilvus) kept(coll, field string, columns ...entity.Column) entity.Column {
	m.Helper()
	_, err := m.g.Upsert(
		m.Context(),
		m.c,
		coll,
		"",
		append([]entity.Column{entity.NewColumnInt64("id", intIDs(columns[0].Len()))}, columns...)...)
	require.NoError(m, err)
	set, err := m.g.Query(
		m.Context(),
		m.c,
		coll,
		nil,
		"id >= 0",
		[]string{"id", field},
		client.WithSearchQueryConsistencyLevel(entity.ClStrong),
	)
	require.NoError(m, err)
	require.Equal(m, intIDs(columns[0].Len()), set.GetColumn("id").(*entity.ColumnInt64).Data())
	return set.GetColumn(field)
}

func flat(t *testing.T, metric entity.MetricType) entity.Index {
	idx, err := entity.NewIndexFlat(metric)
	require.NoError(t, err)
	return idx
}

// The server stored rows of 1 and 3 bytes as two of 2.
func TestMilvusBinaryVectorsAreNotShifted(t *testing.T) {
	m := newOnMilvus(t)
	idx, err := entity.NewIndexBinFlat(entity.HAMMING, 1)
	require.NoError(t, err)
	coll := m.of(idx, false, entity.NewField().WithName("v").WithDataType(entity.FieldTypeBinaryVector).WithDim(16))
	m.refused(
		coll,
		`column "v": row 0: 1 bytes`,
		entity.NewColumnBinaryVector("v", 16, [][]byte{{0xAA}, {0xBB, 0xCC, 0xDD}}),
	)
	m.refused(
		coll,
		`column "v": row 1: 3 bytes`,
		entity.NewColumnBinaryVector("v", 16, [][]byte{{0xAA, 0xBB}, {0xBB, 0xCC, 0xDD}, {0}}),
	)
	rows := [][]byte{{0xAA, 0xBB}, {0, 0}, {0xFF, 0xFF}}
	assert.Equal(
		t,
		rows,
		m.kept(coll, "v", entity.NewColumnBinaryVector("v", 16, rows)).(*entity.ColumnBinaryVector).Data(),
	)
	search := func(v entity.Vector) ([]client.SearchResult, error) {
		return m.g.Search(
			t.Context(),
			m.c,
			coll,
			nil,
			"",
			[]string{"id"},
			[]entity.Vector{v},
			"v",
			entity.HAMMING,
			1,
			nil,
			client.WithSearchQueryConsistencyLevel(entity.ClStrong),
		)
	}
	for _, v := range []entity.Vector{
		entity.BinaryVector{1},
		entity.BinaryVector{1, 2, 3},
		entity.Float16Vector{1, 2},
		entity.FloatVector{1},
	} {
		_, err := search(v)
		e := new(vectorstore.ArgumentError)
		require.ErrorAs(t, err, &e, "%T", v)
	}
	near, err := search(entity.BinaryVector{0xFF, 0xFE})
	require.NoError(t, err)
	assert.Equal(t, []int64{2}, near[0].IDs.(*entity.ColumnInt64).Data())
}

// Milvus 2.3 keeps vectors of FLOAT16 (but dies of BFLOAT16).
func TestMilvusHalfFloatsAreNotShifted(t *testing.T) {
	m := newOnMilvus(t)
	coll := m.of(
		flat(t, entity.L2),
		false,
		entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloat16Vector).WithDim(2),
	)
	m.refused(coll, "row 0: 2 bytes", entity.NewColumnFloat16Vector("v", 2, [][]byte{half(1), half(1, 2, 3)}))
	m.refused(coll, "the field has 2", entity.NewColumnFloat16Vector("v", 1, [][]byte{half(1), half(2)}))
	m.refused(coll, "not finite", entity.NewColumnFloat16Vector("v", 2, [][]byte{half(0, halfNaN)}))
	rows := [][]byte{half(0x3c00, 0), half(0, halfMax), half(0x8000, 1)}
	assert.Equal(
		t,
		rows,
		m.kept(coll, "v", entity.NewColumnFloat16Vector("v", 2, rows)).(*entity.ColumnFloat16Vector).Data(),
	)
	// A search is answered. What it finds is not looked at: this version often
	// finds another row, or none, by vectors of FLOAT16, with the bare SDK as
	// well.
	_, err := m.g.Search(
		t.Context(),
		m.c,
		coll,
		nil,
		"",
		[]string{"id"},
		[]entity.Vector{entity.Float16Vector(half(0x3c00, 0))},
		"v",
		entity.L2,
		1,
		nil,
		client.WithSearchQueryConsistencyLevel(entity.ClStrong),
	)
	require.NoError(t, err)
}

func TestMilvusArrays(t *testing.T) {
	m := newOnMilvus(t)
	vector := entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(2)
	two := entity.NewColumnFloatVector("v", 2, [][]float32{{1, 2}, {3, 4}})
	for _, row := range []struct {
		of    entity.FieldType
		right entity.Column
		want  any
		wrong map[string]entity.Column
	}{
		{
			entity.FieldTypeInt64, entity.NewColumnInt64Array("x", [][]int64{{1, 2, 3}, {}}),
			[][]int64{{1, 2, 3}, nil},
			map[string]entity.Column{
				"row 1: 4 elements, the field holds 3": entity.NewColumnInt64Array("x", [][]int64{{}, {1, 2, 3, 4}}),
				"row 0: values of":                     entity.NewColumnInt32Array("x", [][]int32{{1}, {2}}),
			},
		},
		{
			entity.FieldTypeInt8, entity.NewColumnInt32Array("x", [][]int32{{-128, 127}, {1}}),
			[][]int8{{-128, 127}, {1}},
			map[string]entity.Column{
				"element 1: 128 is no Int8": entity.NewColumnInt16Array("x", [][]int16{{1, 128}, {}}),
			},
		},
		{
			entity.FieldTypeVarChar, entity.NewColumnVarCharArray("x", [][][]byte{bytes("éé", ""), {}}),
			[][][]byte{bytes("éé", ""), {}},
			map[string]entity.Column{
				"element 0: 6 bytes, the limit is 4": entity.NewColumnVarCharArray("x", [][][]byte{bytes("ééé"), {}}),
				"element 1: not valid UTF-8": entity.NewColumnVarCharArray("x",
					[][][]byte{bytes("", "\xff"), {}}),
			},
		},
	} {
		coll := m.of(flat(t, entity.L2), false, vector, arrayOf(row.of))
		for words, col := range row.wrong {
			m.refused(coll, words, two, col)
		}
		assert.Equal(
			t,
			row.want,
			reflect.ValueOf(m.kept(coll, "x", two, row.right)).MethodByName("Data").Call(nil)[0].Interface(),
		)
	}
}

// JSON whose text is not UTF-8 was stored, and every filter on the field failed
// from then on.
func TestMilvusJSON(t *testing.T) {
	m := newOnMilvus(t)
	vector := entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(2)
	coll := m.of(flat(t, entity.L2), false, vector, field(entity.FieldTypeJSON))
	one := entity.NewColumnFloatVector("v", 2, [][]float32{{1, 2}})
	m.refused(coll, "not valid JSON", one, entity.NewColumnJSONBytes("x", bytes("{\"a\":\"\xff\"}")))
	text := bytes(`{"a":"\ud800","b":123456789012345678901234567890}`)
	assert.Equal(t, text, m.kept(coll, "x", one, entity.NewColumnJSONBytes("x", text)).(*entity.ColumnJSONBytes).Data())
	// What newer servers take is the server's to refuse, and the caller's
	// mistake.
	for _, text := range []string{`[1]`, `"a"`, `{"a":1e400}`, `{"a":"` + strings.Repeat("x", 65_536) + `"}`} {
		_, err := m.g.Insert(
			t.Context(),
			m.c,
			coll,
			"",
			entity.NewColumnInt64("id", []int64{2}),
			one,
			entity.NewColumnJSONBytes("x", bytes(text)),
		)
		require.Error(t, err)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "%.40s: %v", text, err)
	}
}

func TestMilvusDynamicField(t *testing.T) {
	m := newOnMilvus(t)
	coll := m.of(
		flat(t, entity.L2),
		true,
		entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(2),
	)
	one := entity.NewColumnFloatVector("v", 2, [][]float32{{1, 2}})
	m.refused(coll, "as base64", one, entity.NewColumnJSONBytes("x", bytes(`{"a":1}`)))
	m.refused(coll, "as base64", one, entity.NewColumnVarCharArray("x", [][][]byte{bytes("a")}))
	m.refused(coll, "not a JSON object", one, entity.NewColumnJSONBytes("x", bytes(`[1]`)).WithIsDynamic(true))
	x, err := m.kept(coll, "x", one, entity.NewColumnDouble("x", []float64{1.5})).GetAsDouble(0)
	require.NoError(t, err)
	assert.Equal(t, 1.5, x)
	read := m.kept(coll, "x", one, entity.NewColumnJSONBytes("any", bytes(`{"x":7}`)).WithIsDynamic(true))
	n, err := read.GetAsInt64(0)
	require.NoError(t, err)
	assert.EqualValues(t, 7, n)
	m.refused(coll, "was read out of a dynamic field", one, read)
	_, err = m.g.Insert(
		t.Context(),
		m.c,
		coll,
		"",
		entity.NewColumnInt64("id", []int64{2}),
		one,
		entity.NewColumnJSONBytes("any", bytes(`{"$meta":1}`)).WithIsDynamic(true),
	)
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
}
