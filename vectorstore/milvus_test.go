package vectorstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	set, err := m.g.Query(m.Context(), m.c, coll, partitions, `id != ""`, []string{"id"}, client.WithSearchQueryConsistencyLevel(entity.ClStrong))
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
		it, err := m.g.QueryIterator(t.Context(), m.c, client.NewQueryIteratorOption(coll).WithExpr(`id != "none"`).WithOutputFields("id", "text").WithBatchSize(batch))
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
	_, err = m.g.Upsert(ctx, m.c, coll, "nowhere", append(rowsOf("x"), entity.NewColumnVarChar("text", []string{""}))...)
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
	set, err := m.g.Query(t.Context(), m.c, coll, nil, vectorstore.In("id", ids), []string{"id", "text"}, client.WithSearchQueryConsistencyLevel(entity.ClStrong))
	require.NoError(t, err)
	require.Equal(t, len(ids), set.Len())
	for i, text := range set.GetColumn("text").(*entity.ColumnVarChar).Data() {
		require.True(t, text == texts[0], "row %d came back with %d bytes", i, len(text))
	}
	_, err = m.g.Upsert(t.Context(), m.c, coll, "", append(rowsOf("x"), entity.NewColumnVarChar("text", []string{strings.Repeat("x", 1_000_000)}))...)
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
}

// Columns of another type than the collection's, and rows without a field.
func TestMilvusRefusesWrongColumns(t *testing.T) {
	m := newOnMilvus(t)
	coll, b := m.collection(), m.g.Breaker
	text := entity.NewColumnVarChar("text", []string{""})
	for name, cols := range map[string][]entity.Column{
		"numbers for keys":    {entity.NewColumnInt64("id", []int64{1}), rowsOf("a")[1], text},
		"bytes for a vector":  {rowsOf("a")[0], entity.NewColumnBinaryVector("vector", 32, [][]byte{{1, 2, 3, 4}}), text},
		"another dimension":   {rowsOf("a")[0], entity.NewColumnFloatVector("vector", 3, [][]float32{{1, 0, 0}}), text},
		"a field missing":     rowsOf("a"),
		"a field too many":    append(rowsOf("a"), text, entity.NewColumnInt64("more", []int64{1})),
		"a field twice":       append(rowsOf("a"), text, text),
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
