package vectorstore_test

import (
	"context"
	"math"
	"strconv"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/vectorstore"
)

// mistake is a call that its caller has made wrong.
type mistake struct {
	name string
	call func() error
}

// Milvus 2.3 gives most mistakes the code of its own failures, so that five
// pages beyond its limit opened the breaker.
func TestMilvusMistakesAreTheCallers(t *testing.T) {
	m := newOnMilvus(t)
	coll := m.collection()
	m.upsert(coll, "", []string{"a"}, []string{"text"})
	all := m.pageMistakes(coll)
	all = append(all, m.searchMistakes(coll)...)
	all = append(all, m.partitionMistakes()...)
	all = append(all, m.indexMistakes()...)
	all = append(all, m.schemaMistakes()...)
	for _, x := range all {
		before := m.g.Breaker.Snapshot().Failures
		err := x.call()
		require.Error(t, err, x.name)
		assert.Equal(t, before, m.g.Breaker.Snapshot().Failures, "%s: %v", x.name, err)
	}
}

func (m *onMilvus) pageMistakes(coll string) []mistake {
	query := func(name, expr string, fields []string, opts ...client.SearchQueryOptionFunc) mistake {
		return mistake{"query: " + name, func() error {
			_, err := m.g.Query(m.Context(), m.c, coll, nil, expr, fields, opts...)
			return err
		}}
	}
	id := []string{"id"}
	return []mistake{
		query("page beyond the limit", `id != ""`, id, client.WithOffset(16380), client.WithLimit(100)),
		query("limit beyond the limit", `id != ""`, id, client.WithLimit(16385)),
		query("negative limit", `id != ""`, id, client.WithLimit(-1)),
		query("negative offset", `id != ""`, id, client.WithOffset(-1)),
		query("a field as a filter", `id`, id),
		query("a constant as a filter", `true`, id),
		query("the words of an outage", `id == "rpc error: timeout" and`, id),
		query("count beside a field", `id != ""`, []string{"count(*)", "id"}),
		query("no such field", `id != ""`, []string{"none"}),
		query("a field with a space", `id != ""`, []string{"a b"}),
		query("a constant filter", `1 == 1`, id),
		query("offset without a limit", `id != ""`, id, client.WithOffset(1)),
		query("limit and offset that overflow", `id != ""`, id, client.WithLimit(1), client.WithOffset(math.MaxInt64)),
		query("an option that is nil", `id != ""`, id, nil),
		{"query: partition", func() error {
			_, err := m.g.Query(m.Context(), m.c, coll, []string{"a b"}, `id != ""`, id)
			return err
		}},
		{"iterate: without the key", func() error {
			_, err := m.g.QueryIterator(m.Context(), m.c, client.NewQueryIteratorOption(coll).WithOutputFields("text"))
			return err
		}},
		{"iterate: all at once", func() error {
			_, err := m.g.QueryIterator(m.Context(), m.c,
				client.NewQueryIteratorOption(coll).WithOutputFields("id").WithBatchSize(math.MaxInt))
			return err
		}},
	}
}

// partitionMistakes are those of a collection that keeps its own partitions.
func (m *onMilvus) partitionMistakes() []mistake {
	key := entity.NewField().WithName("k").WithDataType(entity.FieldTypeInt64).WithIsPartitionKey(true)
	vector := entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(4)
	coll := m.of(flat(m.T, entity.L2), false, vector, key)
	row := []entity.Column{
		entity.NewColumnInt64("id", []int64{1}), entity.NewColumnInt64("k", []int64{1}),
		entity.NewColumnFloatVector("v", 4, [][]float32{{1, 0, 0, 0}}),
	}
	const one = "_default_0"
	ctx := m.Context()
	return []mistake{
		{"own partitions: create", func() error { return m.g.CreatePartition(ctx, m.c, coll, "p") }},
		{"own partitions: drop", func() error { return m.g.DropPartition(ctx, m.c, coll, one) }},
		{"own partitions: load", func() error { return m.g.LoadPartitions(ctx, m.c, coll, []string{one}, false) }},
		{"own partitions: load none", func() error { return m.g.LoadPartitions(ctx, m.c, coll, nil, false) }},
		{"own partitions: insert", func() error { _, err := m.g.Insert(ctx, m.c, coll, one, row...); return err }},
		{"own partitions: upsert", func() error { _, err := m.g.Upsert(ctx, m.c, coll, one, row...); return err }},
		{"own partitions: delete", func() error { return m.g.Delete(ctx, m.c, coll, one, "id == 1") }},
		{"own partitions: query", func() error {
			_, err := m.g.Query(ctx, m.c, coll, []string{one}, "id > 0", []string{"id"})
			return err
		}},
	}
}

func (m *onMilvus) searchMistakes(coll string) []mistake {
	search := func(name string, k int, metric entity.MetricType, opts ...client.SearchQueryOptionFunc) mistake {
		return mistake{"search: " + name, func() error {
			_, err := m.g.Search(m.Context(), m.c, coll, nil, "", nil, vec, "vector", metric, k, nil, opts...)
			return err
		}}
	}
	ring, err := entity.NewIndexFlatSearchParam()
	require.NoError(m, err)
	ring.AddRadius(0.9)
	ring.AddRangeFilter(0.1)
	crowd := make([]entity.Vector, 16385)
	for i := range crowd {
		crowd[i] = vec[0]
	}
	return []mistake{
		search("no rows", 0, entity.COSINE),
		search("too many rows", 16385, entity.COSINE),
		search("page beyond the limit", 100, entity.COSINE, client.WithOffset(16380)),
		search("negative offset", 1, entity.COSINE, client.WithOffset(-1)),
		search("another metric", 1, entity.L2),
		search("no metric", 1, "FOO"),
		{"search: a radius in words", func() error {
			_, err := m.g.Search(m.Context(), m.c, coll, nil, "", nil, vec, "vector", entity.COSINE, 1,
				worded{"radius": "wide"})
			return err
		}},
		{"search: a ring inside out", func() error {
			_, err := m.g.Search(m.Context(), m.c, coll, nil, "", nil, vec, "vector", entity.COSINE, 1, ring)
			return err
		}},
		{"search: too many vectors", func() error {
			_, err := m.g.Search(m.Context(), m.c, coll, nil, "", nil, crowd, "vector", entity.COSINE, 1, nil)
			return err
		}},
	}
}

// worded are search parameters of the caller's own.
type worded map[string]any

func (w worded) Params() map[string]any { return w }
func (worded) AddRadius(float64)        {}
func (worded) AddRangeFilter(float64)   {}

func (m *onMilvus) indexMistakes() []mistake {
	name := m.name()
	require.NoError(m, m.g.CreateCollection(m.Context(), m.c, docs().WithName(name), 1))
	m.Cleanup(func() { assert.NoError(m, m.c.DropCollection(context.WithoutCancel(m.Context()), name)) })
	index := func(about, kind string, params ...string) mistake {
		all := map[string]string{"metric_type": "L2"}
		for i := 0; i+1 < len(params); i += 2 {
			all[params[i]] = params[i+1]
		}
		return mistake{"index: " + about, func() error {
			return m.g.CreateIndex(m.Context(), m.c, name, "vector",
				entity.NewGenericIndex("", entity.IndexType(kind), all), false)
		}}
	}
	return []mistake{
		index("no such kind", "NONE"),
		index("parameter out of range", "HNSW", "M", "-1", "efConstruction", "8"),
		index("parameter missing", "IVF_FLAT"),
		index("parameter in words", "IVF_FLAT", "nlist", "many"),
		index("dimensions that cannot be divided", "IVF_PQ", "nlist", "8", "m", "3", "nbits", "8"),
		index("metric of another type", "FLAT", "metric_type", "HAMMING"),
		index("kind of another type", "BIN_FLAT", "metric_type", "HAMMING"),
		{"index: name", func() error {
			return m.g.CreateIndex(m.Context(), m.c, name, "vector", flat(m.T, entity.L2), false,
				client.WithIndexName("a b!"))
		}},
		{"load: without an index", func() error { return m.g.LoadCollection(m.Context(), m.c, name, false) }},
	}
}

func (m *onMilvus) schemaMistakes() []mistake {
	field := func(name string, of entity.FieldType) *entity.Field {
		return entity.NewField().WithName(name).WithDataType(of)
	}
	create := func(about string, fields ...*entity.Field) mistake {
		return mistake{"create: " + about, func() error {
			schema := docs().WithName(m.name())
			schema.Fields = append(schema.Fields, fields...)
			return m.g.CreateCollection(m.Context(), m.c, schema, 1)
		}}
	}
	many := make([]*entity.Field, 70)
	for i := range many {
		many[i] = field("f"+strconv.Itoa(i), entity.FieldTypeInt64)
	}
	return []mistake{
		create("two vectors", field("w", entity.FieldTypeFloatVector).WithDim(4)),
		create("a vector without dimensions", field("w", entity.FieldTypeFloatVector)),
		create("a text without a length", field("s", entity.FieldTypeVarChar)),
		create("a name twice", field("vector", entity.FieldTypeInt64)),
		create("a list without a capacity", field("a", entity.FieldTypeArray).WithElementType(entity.FieldTypeInt64)),
		create("a list of nothing", field("a", entity.FieldTypeArray).WithMaxCapacity(3)),
		create("a partition key of another type", field("a", entity.FieldTypeFloat).WithIsPartitionKey(true)),
		create("too many fields", many...),
		create("two partition keys",
			field("k", entity.FieldTypeInt64).WithIsPartitionKey(true),
			field("l", entity.FieldTypeInt64).WithIsPartitionKey(true)),
		create("a generated field beside the key", field("k", entity.FieldTypeInt64).WithIsAutoID(true)),
		{"create: no key", func() error {
			schema := docs().WithName(m.name())
			schema.Fields[0].WithIsPrimaryKey(false)
			return m.g.CreateCollection(m.Context(), m.c, schema, 1)
		}},
		{"create: too many shards", func() error {
			return m.g.CreateCollection(m.Context(), m.c, docs().WithName(m.name()), 1000)
		}},
	}
}

// Every field of a collection that another client has made again, with others.
func TestMilvusReadsOfACollectionMadeAgain(t *testing.T) {
	m := newOnMilvus(t)
	field := func(name string) *entity.Field {
		return entity.NewField().WithName(name).WithDataType(entity.FieldTypeInt64)
	}
	vector := func() *entity.Field {
		return entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(4)
	}
	before, after := m.of(flat(t, entity.L2), false, vector(), field("old")), m.of(flat(t, entity.L2), false, vector())
	alias := m.name()
	require.NoError(t, m.g.CreateAlias(t.Context(), m.c, before, alias))
	read := func() []error {
		ctx, all := vectorstore.Strong(t.Context()), []string{"*"}
		_, query := m.g.Query(ctx, m.c, alias, nil, "id > 0", all)
		_, get := m.g.Get(ctx, m.c, alias, entity.NewColumnInt64("id", []int64{1}), client.GetWithOutputFields("*"))
		found, search := m.g.Search(ctx, m.c, alias, nil, "", all, vec, "v", entity.L2, 1, nil)
		if search == nil {
			assert.Equal(t, 1, found[0].ResultCount)
		}
		return []error{query, get, search}
	}
	row := []entity.Column{
		entity.NewColumnInt64("id", []int64{1}), entity.NewColumnFloatVector("v", 4, [][]float32{{1, 0, 0, 0}}),
	}
	_, err := m.g.Insert(t.Context(), m.c, after, "", row...)
	require.NoError(t, err)
	_, err = m.g.Insert(t.Context(), m.c, before, "", append(row, entity.NewColumnInt64("old", []int64{1}))...)
	require.NoError(t, err)
	for _, err := range read() {
		require.NoError(t, err)
	}
	elsewhere := connect(t, vectorstore.Config{Address: upstreams.Milvus(t)})
	require.NoError(t, elsewhere.AlterAlias(t.Context(), after, alias))
	for _, err := range read() {
		require.NoError(t, err)
	}
	require.NoError(t, m.g.DropAlias(t.Context(), m.c, alias))
}

// An alias moved from a collection that reads what is there to one that reads
// everything: rows that were written just now were missing.
func TestMilvusReadsHaveTheConsistencyOfToday(t *testing.T) {
	m := newOnMilvus(t)
	collection := func(level entity.ConsistencyLevel) string {
		name := m.name()
		require.NoError(t, m.g.CreateCollection(t.Context(), m.c, docs().WithName(name), 1,
			client.WithConsistencyLevel(level)))
		t.Cleanup(func() { assert.NoError(t, m.c.DropCollection(context.WithoutCancel(t.Context()), name)) })
		require.NoError(t, m.g.CreateIndex(t.Context(), m.c, name, "vector", flat(t, entity.L2), false))
		require.NoError(t, m.g.LoadCollection(t.Context(), m.c, name, false))
		return name
	}
	loose, strict, alias := collection(entity.ClEventually), collection(entity.ClStrong), m.name()
	require.NoError(t, m.g.CreateAlias(t.Context(), m.c, loose, alias))
	_, err := m.g.Query(t.Context(), m.c, alias, nil, `id != ""`, []string{"id"})
	require.NoError(t, err)
	elsewhere := connect(t, vectorstore.Config{Address: upstreams.Milvus(t)})
	require.NoError(t, elsewhere.AlterAlias(t.Context(), strict, alias))
	for i := range 5 {
		_, err = elsewhere.Insert(t.Context(), strict, "", rowsOf("k"+strconv.Itoa(i))...)
		require.NoError(t, err)
		set, err := m.g.Query(t.Context(), m.c, alias, nil, `id != ""`, []string{"id"})
		require.NoError(t, err)
		assert.Equal(t, i+1, set.Len())
	}
	require.NoError(t, m.g.DropAlias(t.Context(), m.c, alias))
}
