package vectorstore_test

import (
	"sync"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
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
	keyless := docs()
	keyless.Fields[0].WithIsPrimaryKey(false)
	s.of(keyless)
	s.reply("Insert", mutation("a"))
	for sent := range 3 {
		_, err := g.Insert(t.Context(), c, "docs", "", rowsOf("a")...)
		require.ErrorContains(t, err, "PK Field not found")
		assert.Equal(t, sent+1, s.count("Insert"))
	}
}
