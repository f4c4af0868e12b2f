package sdkopt_test

import (
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/vectorstore/internal/sdkopt"
)

func TestReadGet(t *testing.T) {
	got := sdkopt.ReadGet([]client.GetOption{client.GetWithOutputFields("a", "b"), client.GetWithPartitions("p")})
	assert.Equal(t, sdkopt.Get{Partitions: []string{"p"}, OutputFields: []string{"a", "b"}}, got)
	assert.Empty(t, sdkopt.ReadGet(nil).OutputFields)
}

func TestReadIterator(t *testing.T) {
	opt := client.NewQueryIteratorOption("docs").
		WithExpr(`doc == "a"`).
		WithOutputFields("id").
		WithBatchSize(7).
		WithPartitions("p")
	assert.Equal(t, sdkopt.Iterator{
		Collection: "docs", Expr: `doc == "a"`, OutputFields: []string{"id"}, Partitions: []string{"p"}, BatchSize: 7,
	}, sdkopt.ReadIterator(opt))
}

func TestReadSearch(t *testing.T) {
	sp, err := entity.NewIndexFlatSearchParam()
	require.NoError(t, err)
	vectors := []entity.Vector{entity.FloatVector{1}, entity.BinaryVector{2}}
	got := sdkopt.ReadSearch(client.NewANNSearchRequest("vector", entity.L2, "", vectors, sp, 1))
	assert.Equal(t, sdkopt.Search{Vectors: vectors, Param: sp, Limit: 1}, got)
	assert.Equal(
		t,
		sdkopt.Search{Limit: 2},
		sdkopt.ReadSearch(client.NewANNSearchRequest("vector", entity.L2, "", nil, nil, 2)),
	)
}
