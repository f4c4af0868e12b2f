package main

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// anyModel takes every model name, as many servers do.
type anyModel struct{ *staticmodel.Model }

func (m anyModel) CreateEmbeddings(
	ctx context.Context, c openai.EmbeddingRequestConverter,
) (openai.EmbeddingResponse, error) {
	request := c.Convert()
	request.Model = staticmodel.Name
	return m.Model.CreateEmbeddings(ctx, request)
}

// embedded returns clients of embedded stores and of a model server that fails
// on demand.
func embedded(t *testing.T) (clients, *llmtest.Server, *sqlitestore.Store) {
	t.Helper()
	server := llmtest.NewServer(t, llmtest.Options{Reply: "A short text.", Embedder: anyModel{staticmodel.New()}})
	chat, err := llm.NewClient(llm.Config{BaseURL: server.URL})
	require.NoError(t, err)
	objects, err := filestore.Open(t.TempDir())
	require.NoError(t, err)
	_, err = objects.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("summaries")})
	require.NoError(t, err)
	vectors, err := sqlitestore.Open(filepath.Join(t.TempDir(), "vectors.db"))
	require.NoError(t, err)
	schema := entity.NewSchema().WithName("summaries").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
			WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(256))
	require.NoError(t, vectors.CreateCollection(t.Context(), schema, 1))
	index, err := entity.NewIndexAUTOINDEX(entity.COSINE)
	require.NoError(t, err)
	require.NoError(t, vectors.CreateIndex(t.Context(), "summaries", "vector", index, false))
	require.NoError(t, vectors.LoadCollection(t.Context(), "summaries", false))
	t.Cleanup(func() {
		assert.NoError(t, vectors.Close())
		assert.NoError(t, objects.Close())
		resilience.LLM.Reset()
	})
	resilience.LLM.Reset()
	return clients{chat: chat, objects: objects, vectors: vectors}, server, vectors
}

func TestLoad(t *testing.T) {
	c, _, vectors := embedded(t)
	require.NoError(t, load(t.Context(), c, "a", "A long text."))
	got, err := vectors.Get(t.Context(), "summaries", entity.NewColumnVarChar("id", []string{"a"}))
	require.NoError(t, err)
	assert.Equal(t, 1, got.Len())
	assert.Zero(t, exitCode(nil))
	assert.Equal(t, 1, exitCode(errors.New("x")))
}

// In a process that lives on, five failures cost five requests; the sixth task
// learns when to run again without a request. The code is the same.
func TestLoadWhileTheModelIsDown(t *testing.T) {
	c, server, _ := embedded(t)
	server.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	for range 5 {
		assert.Equal(t, 75, exitCode(load(t.Context(), c, "a", "A long text.")))
	}
	for range 100 {
		err := load(t.Context(), c, "a", "A long text.")
		require.ErrorIs(t, err, resilience.ErrOpen)
		assert.Equal(t, 75, exitCode(err))
	}
	assert.Equal(t, 5, server.Stats().Requests)
}
