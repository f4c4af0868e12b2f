package vectorstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/vectorstore"
)

// level is what a read asks the server for.
type level struct {
	guarantee uint64
	of        commonpb.ConsistencyLevel
	byDefault bool
}

var strongLevel = level{client.StrongTimestamp, commonpb.ConsistencyLevel_Strong, false}

// levels is what each kind of read asks for under ctx.
func levels(t *testing.T, ctx context.Context, s *scripted, c client.Client) map[string]level {
	t.Helper()
	g, _ := guard(t)
	got := map[string]level{}
	key := entity.NewColumnVarChar("id", []string{"a"})
	kind := ""
	s.on("Query", func(_ context.Context, req any) (any, error) {
		r := req.(*milvuspb.QueryRequest)
		got[kind] = level{r.GetGuaranteeTimestamp(), r.GetConsistencyLevel(), r.GetUseDefaultConsistency()}
		return &milvuspb.QueryResults{Status: ok(), FieldsData: []*schemapb.FieldData{key.FieldData()}}, nil
	})
	s.on("Search", func(_ context.Context, req any) (any, error) {
		r := req.(*milvuspb.SearchRequest)
		got[kind] = level{r.GetGuaranteeTimestamp(), r.GetConsistencyLevel(), r.GetUseDefaultConsistency()}
		return found([]int64{1}, []float32{1}, "a"), nil
	})
	s.on("HybridSearch", func(_ context.Context, req any) (any, error) {
		r := req.(*milvuspb.HybridSearchRequest)
		got[kind] = level{r.GetGuaranteeTimestamp(), r.GetConsistencyLevel(), r.GetUseDefaultConsistency()}
		part := r.GetRequests()[0]
		got["part"] = level{part.GetGuaranteeTimestamp(), part.GetConsistencyLevel(), part.GetUseDefaultConsistency()}
		return found([]int64{1}, []float32{1}, "a"), nil
	})
	var errs []error
	try := func(name string, read func() error) {
		kind = name
		errs = append(errs, read())
	}
	eventually := client.WithSearchQueryConsistencyLevel(entity.ClEventually)
	try("Get", func() error {
		_, err := g.Get(ctx, c, "docs", key, client.GetWithOutputFields("id"))
		return err
	})
	try("Query", func() error {
		_, err := g.Query(ctx, c, "docs", nil, `id != ""`, []string{"id"}, eventually)
		return err
	})
	try("Search", func() error {
		_, err := g.Search(ctx, c, "docs", nil, "", nil, vec, "vector", entity.L2, 1, nil, eventually)
		return err
	})
	try("HybridSearch", func() error {
		_, err := g.HybridSearch(ctx, c, "docs", nil, 1, nil, client.NewRRFReranker(),
			[]*client.ANNSearchRequest{client.NewANNSearchRequest("vector", entity.L2, "", vec, noParams(t), 1)})
		return err
	})
	try("first page", func() error {
		it, err := g.QueryIterator(ctx, c, client.NewQueryIteratorOption("docs").
			WithBatchSize(1).WithOutputFields("id"))
		if err != nil {
			return err
		}
		defer it.Close()
		_, err = it.Next(t.Context())
		kind = "second page"
		_, err2 := it.Next(t.Context())
		return errors.Join(err, err2)
	})
	require.NoError(t, errors.Join(errs...))
	return got
}

func noParams(t *testing.T) entity.SearchParam {
	sp, err := entity.NewIndexFlatSearchParam()
	require.NoError(t, err)
	return sp
}

func TestStrongReadsAreAskedForOnTheWire(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	for kind, got := range levels(t, vectorstore.Strong(t.Context()), s, c) {
		assert.Equal(t, strongLevel, got, kind)
	}
}

// The SDK reads with the consistency that a collection had when it first asked;
// an alias may have moved since.
func TestReadsHaveTheConsistencyOfTheCollectionOfToday(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	got := levels(t, t.Context(), s, c)
	assert.Len(t, got, 7)
	for kind, l := range got {
		named := kind == "Query" || kind == "Search" // levels names one for them
		assert.Equal(t, !named, l.byDefault, kind)
		if named {
			assert.Equal(t, client.EventuallyTimestamp, l.guarantee, kind)
		}
	}
}

// The SDK's bare client can ask for it with an option, where it has one.
func TestStrongReadsOfABareClient(t *testing.T) {
	s, addr := serve(t)
	bare, err := client.NewClient(t.Context(), client.Config{Address: addr, DisableConn: true})
	require.NoError(t, err)
	defer bare.Close()
	g, b := guard(t)
	asked := uint64(42)
	s.on("Query", func(_ context.Context, req any) (any, error) {
		asked = req.(*milvuspb.QueryRequest).GetGuaranteeTimestamp()
		return nil, errors.New("seen")
	})
	ctx := vectorstore.Strong(t.Context())
	_, _ = g.Query(ctx, bare, "docs", nil, `id != ""`, nil, client.WithSearchQueryConsistencyLevel(entity.ClEventually))
	assert.Equal(t, client.StrongTimestamp, asked)

	before := b.Snapshot().Calls
	_, err = g.Get(ctx, bare, "docs", entity.NewColumnVarChar("id", []string{"a"}))
	require.ErrorAs(t, err, new(*vectorstore.ArgumentError))
	_, err = g.QueryIterator(ctx, bare, client.NewQueryIteratorOption("docs"))
	require.ErrorAs(t, err, new(*vectorstore.ArgumentError))
	_, err = g.HybridSearch(ctx, bare, "docs", nil, 1, nil, client.NewRRFReranker(),
		[]*client.ANNSearchRequest{client.NewANNSearchRequest("vector", entity.L2, "", vec, noParams(t), 1)})
	require.ErrorAs(t, err, new(*vectorstore.ArgumentError))
	assert.Equal(t, before, b.Snapshot().Calls)
}

// A row that was written just now was not found by its key, and nobody could
// ask for more.
func TestMilvusStrongGetFindsWhatWasWrittenJustNow(t *testing.T) {
	m := newOnMilvus(t)
	coll := m.collection()
	for _, id := range []string{"a", "b", "c"} {
		m.upsert(coll, "", []string{id}, []string{"text"})
		set, err := m.g.Get(vectorstore.Strong(t.Context()), m.c, coll, entity.NewColumnVarChar("id", []string{id}))
		require.NoError(t, err)
		assert.Equal(t, 1, set.Len(), "row %s", id)
	}
}
