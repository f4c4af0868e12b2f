package vectorstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/vectorstore"
)

// wide is a row with a vector of eight dimensions.
func wide() []entity.Column {
	return []entity.Column{
		entity.NewColumnVarChar("id", []string{"a"}),
		entity.NewColumnFloatVector("vector", 8, [][]float32{make([]float32, 8)}),
	}
}

// of makes the collection "docs" again under this schema.
func (s *scripted) of(schema *entity.Schema) {
	s.reply(
		"DescribeCollection",
		&milvuspb.DescribeCollectionResponse{Status: ok(), Schema: schema.ProtoMessage(), CollectionName: "docs"},
	)
}

func wideDocs() *entity.Schema {
	schema := docs()
	schema.Fields[1].WithDim(8)
	return schema
}

// The SDK refused writes for ever by the schema that it had seen first.
func TestWritesAreNotRefusedByASchemaThatHasChanged(t *testing.T) {
	s, addr := serve(t)
	for _, method := range []string{"Insert", "Upsert"} {
		s.reply(method, mutation("a"))
	}
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	for _, err := range writes(t, g, c, "docs", rowsOf("a")) {
		require.NoError(t, err)
	}
	s.of(wideDocs())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, err := range writes(t, g, c, "docs", wide()) {
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	assert.Equal(t, [2]int{9, 9}, [2]int{s.count("Insert"), s.count("Upsert")})
	assert.EqualValues(t, 18, b.Snapshot().Successes)

	asked := s.count("DescribeCollection")
	for _, err := range writes(t, g, c, "docs", rowsOf("a")) {
		require.ErrorContains(t, err, "vector dim 4 not match")
	}
	assert.Equal(t, asked+2, s.count("DescribeCollection"), "once before each refusal")
	assert.EqualValues(t, 2, b.Snapshot().Ignored)
	s.fail("DescribeCollection", status.Error(codes.Unavailable, "down"))
	for _, err := range writes(t, g, c, "docs", rowsOf("a")) {
		assert.Equal(t, codes.Unavailable, status.Code(err), "nobody can say whether it fits: %v", err)
	}
	assert.Equal(t, [2]int{9, 9}, [2]int{s.count("Insert"), s.count("Upsert")})
	assert.EqualValues(t, 2, b.Snapshot().Failures)
}

// What has no field by the schema of before goes into the dynamic field, which
// the server refuses: it may have a field by now. Nothing else that the server
// refuses is sent again.
func TestWriteThatTheServerRefusesIsArrangedAnewOnlyIfTheSchemaHasChanged(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, _ := guard(t)
	s.of(docs().WithDynamicFieldEnabled(true))
	s.reply("Upsert", mutation("a"))
	row := append(rowsOf("a"), entity.NewColumnVarChar("x", []string{"text"}))
	upsert := func() error {
		_, err := g.Upsert(t.Context(), c, "docs", "", row...)
		return err
	}
	require.NoError(t, upsert())
	refused := &milvuspb.MutationResult{
		Status: &commonpb.Status{
			Code:   1100,
			Reason: "fieldSchema(x) has no corresponding fieldData pass in: invalid parameter",
		},
	}
	s.reply("Upsert", refused)
	assert.Equal(t, codes.InvalidArgument, status.Code(upsert()))
	assert.Equal(t, 2, s.count("Upsert"))
	s.of(docs().WithField(entity.NewField().WithName("x").WithDataType(entity.FieldTypeVarChar).WithMaxLength(8)))
	assert.Equal(t, codes.InvalidArgument, status.Code(upsert()))
	assert.Equal(t, 4, s.count("Upsert"), "once for each schema")
	s.fail("Upsert", status.Error(codes.Unavailable, "down"))
	assert.Equal(t, codes.Unavailable, status.Code(upsert()))
	assert.Equal(t, 5, s.count("Upsert"))
}

// A row that the server has taken is not sent again because the SDK cannot read
// the answer.
func TestWriteThatHasLeftIsNotSentAgain(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, _ := guard(t)
	odd := docs()
	odd.Fields[0] = entity.NewField().WithName("id").WithDataType(entity.FieldTypeFloat).WithIsPrimaryKey(true)
	s.of(odd)
	s.reply("Insert", mutation("a"))
	for sent := range 3 {
		_, err := g.Insert(t.Context(), c, "docs", "", entity.NewColumnFloat("id", []float32{1}), rowsOf("a")[1])
		require.ErrorContains(t, err, "unsupported id type")
		assert.Equal(t, sent+1, s.count("Insert"))
	}
}

// rows answers a Query with these fields, and a Search with the key too.
func (s *scripted) rows(key entity.Column, fields ...entity.Column) {
	data := []*schemapb.FieldData{key.FieldData()}
	for _, f := range fields {
		data = append(data, f.FieldData())
	}
	s.reply("Query", &milvuspb.QueryResults{Status: ok(), FieldsData: data})
	ids := strIDs("a")
	if key, ok := key.(*entity.ColumnInt64); ok {
		ids = &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: key.Data()}}}
	}
	s.reply("Search", &milvuspb.SearchResults{Status: ok(), Results: &schemapb.SearchResultData{
		NumQueries: 1, Topks: []int64{1}, Scores: []float32{1}, Ids: ids, FieldsData: data,
	}})
}

// reads are one of each kind, of every field.
func reads(t *testing.T, g vectorstore.Guard, c client.Client) map[string]error {
	t.Helper()
	all, errs := []string{"*"}, map[string]error{}
	_, errs["Query"] = g.Query(t.Context(), c, "docs", nil, `id != ""`, all)
	_, errs["Get"] = g.Get(t.Context(), c, "docs", entity.NewColumnVarChar("id", []string{"a"}),
		client.GetWithOutputFields("*"))
	var found []client.SearchResult
	found, errs["Search"] = g.Search(t.Context(), c, "docs", nil, "", all, vec, "vector", entity.L2, 1, nil)
	if errs["Search"] == nil {
		assert.Equal(t, 1, found[0].IDs.Len())
	}
	return errs
}

// The SDK reads answers by the schema that it has seen first: of a collection
// that was made again with other fields, every correct read failed for ever,
// and with a key of another type each was counted as an outage.
func TestReadsFollowASchemaThatHasChanged(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	schema := docs().WithField(entity.NewField().WithName("old").WithDataType(entity.FieldTypeInt64))
	vector := entity.NewColumnFloatVector("vector", 4, [][]float32{{1, 0, 0, 0}})
	s.of(schema)
	s.rows(entity.NewColumnVarChar("id", []string{"a"}), vector, entity.NewColumnInt64("old", []int64{1}))
	for name, err := range reads(t, g, c) {
		require.NoError(t, err, name)
	}
	require.Equal(t, 1, s.count("DescribeCollection"))

	schema = entity.NewSchema().WithName("docs").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(docs().Fields[1])
	s.of(schema)
	s.rows(entity.NewColumnInt64("id", []int64{7}), vector)
	for name, err := range reads(t, g, c) {
		require.NoError(t, err, name)
	}
	assert.Equal(t, 2, s.count("DescribeCollection"), "asked once")
	assert.Zero(t, b.Snapshot().Failures)

	asked := s.count("Query")
	s.reply("Query", &milvuspb.QueryResults{Status: ok(), FieldsData: []*schemapb.FieldData{vector.FieldData()}})
	_, err := g.Query(t.Context(), c, "docs", nil, "id > 0", []string{"*"})
	require.ErrorContains(t, err, "extra output fields")
	assert.Equal(t, asked+1, s.count("Query"), "by the same schema nobody asks again")
}

// An answer that no schema explains is the server's fault.
func TestSearchThatNoSchemaExplainsIsAskedOnce(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	s.rows(entity.NewColumnInt64("id", []int64{7}))
	for range 2 {
		_, err := g.Search(t.Context(), c, "docs", nil, "", nil, vec, "vector", entity.L2, 1, nil)
		require.ErrorAs(t, err, new(*vectorstore.ContractError))
	}
	assert.Equal(t, 2, s.count("Search"))
	assert.EqualValues(t, 2, b.Snapshot().Failures)
}

// The pages of an iteration were asked for by the name that the key had before.
func TestIterationFollowsAKeyThatWasRenamed(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, _ := guard(t)
	var asked []string
	page := func(field string) {
		s.on("Query", func(_ context.Context, req any) (any, error) {
			asked = append(asked, req.(*milvuspb.QueryRequest).GetExpr())
			key := entity.NewColumnVarChar(field, []string{fmt.Sprintf("k%d", len(asked))})
			return &milvuspb.QueryResults{Status: ok(), FieldsData: []*schemapb.FieldData{key.FieldData()}}, nil
		})
	}
	second := func(field string) string {
		asked = nil
		page(field)
		it, err := g.QueryIterator(t.Context(), c, client.NewQueryIteratorOption("docs").
			WithBatchSize(1).WithOutputFields(field))
		require.NoError(t, err)
		defer it.Close()
		for range 2 {
			_, err = it.Next(t.Context())
			require.NoError(t, err)
		}
		return asked[1]
	}
	assert.Equal(t, `id > "k1"`, second("id"))
	schema := docs()
	schema.Fields[0].WithName("key")
	s.of(schema)
	assert.Equal(t, `key > "k1"`, second("key"))
}

// A failure in words that look like a mistake: nobody knows what was written.
func TestWriteIsNotSentAgainOnAGuess(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, _ := guard(t)
	s.reply("Insert", mutation("a"))
	_, err := g.Insert(t.Context(), c, "docs", "", rowsOf("a")...)
	require.NoError(t, err)
	s.of(docs().WithField(entity.NewField().WithName("x").WithDataType(entity.FieldTypeInt64)))
	refused := &commonpb.Status{Code: 65535, Reason: "the batch must be smaller"}
	s.reply("Insert", &milvuspb.MutationResult{Status: refused})
	_, err = g.Insert(t.Context(), c, "docs", "", rowsOf("a")...)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.Equal(t, 2, s.count("Insert"))
}

// An alias moved to a collection whose generated keys have another type: the
// rows were stored, and each call said that they were not.
func TestKeysOfAnotherTypeAreRead(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	generated := func(of entity.FieldType) *entity.Schema {
		key := entity.NewField().WithName("id").WithDataType(of).WithIsPrimaryKey(true).WithIsAutoID(true)
		return entity.NewSchema().WithName("docs").WithAutoID(true).
			WithField(key.WithMaxLength(8)).WithField(docs().Fields[1])
	}
	numbers := &milvuspb.MutationResult{Status: ok(), IDs: &schemapb.IDs{
		IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: []int64{7}}},
	}}
	insert := func() entity.Column {
		ids, err := g.Insert(t.Context(), c, "docs", "", rowsOf("a")[1])
		require.NoError(t, err)
		return ids
	}
	for range 2 {
		s.of(generated(entity.FieldTypeInt64))
		s.reply("Insert", numbers)
		for range 2 {
			assert.Equal(t, entity.NewColumnInt64("id", []int64{7}), insert())
		}
		s.of(generated(entity.FieldTypeVarChar))
		s.reply("Insert", mutation("x"))
		for range 2 {
			assert.Equal(t, entity.NewColumnVarChar("id", []string{"x"}), insert())
		}
	}
	assert.Zero(t, b.Snapshot().Failures)
	assert.Equal(t, 8, s.count("Insert"), "each row was sent once")
}

// The SDK asks for a schema once for all that wait, with the context of the
// first.
func TestCallersDoNotShareTheEndOfTheFirst(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, _ := guard(t)
	s.rows(entity.NewColumnVarChar("id", []string{"a"}))
	first := make(chan struct{}, 1)
	described := s.answer["DescribeCollection"]
	s.on("DescribeCollection", func(ctx context.Context, req any) (any, error) {
		select {
		case first <- struct{}{}:
			<-ctx.Done()
			return nil, ctx.Err()
		default:
			return described(ctx, req)
		}
	})
	query := func(ctx context.Context) error {
		_, err := g.Query(ctx, c, "docs", nil, `id != ""`, []string{"id"})
		return err
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- query(ctx) }()
	require.Eventually(t, func() bool { return s.count("DescribeCollection") == 1 }, 10*time.Second, time.Millisecond)
	for range 5 {
		require.NoError(t, query(t.Context()))
	}
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
}

// The schema was another one meanwhile, and is what it was: the call that was
// refused by the other is right.
func TestSchemaThatChangesBackIsNoticed(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, _ := guard(t)
	calls := 0
	s.on("Upsert", func(ctx context.Context, _ any) (any, error) {
		calls++
		if calls != 2 {
			return mutation("a"), nil
		}
		for _, schema := range []*entity.Schema{wideDocs(), docs()} {
			s.of(schema)
			if _, err := c.DescribeCollection(ctx, "docs"); err != nil {
				return nil, err
			}
		}
		return &milvuspb.MutationResult{Status: &commonpb.Status{Code: 1100, Reason: "vector dimension"}}, nil
	})
	for range 2 {
		_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
		require.NoError(t, err)
	}
	assert.Equal(t, 3, calls)
}
