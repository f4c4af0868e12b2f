package staticmodel

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func embed(text string) []float32 {
	v, _ := New().Embed(text)
	return v
}

func TestRelatedTextsAreNear(t *testing.T) {
	question := embed("how do I open a file for reading?")
	near, far := embed("Opening files: read the contents of a document from disk"),
		embed("The orchestra played Mozart in the garden")
	assert.Greater(t, cosine(question, near), cosine(question, far)+0.2)
}

func TestTextWithoutKnownTokenGetsADirectionOfItsOwn(t *testing.T) {
	texts := []string{"🙂🙂", "🙃", " ", "\u200b", "\x00", "[CLS]", "\u0301"}
	for i, a := range texts {
		assert.InDelta(t, 1, cosine(embed(a), embed(a)), 1e-5, "%q", a)
		for _, b := range texts[i+1:] {
			assert.Less(t, math.Abs(cosine(embed(a), embed(b))), 0.35, "%q %q", a, b)
		}
	}
	assert.Greater(t, cosine(embed("🙂🙂 🙃🙃"), embed("🙃🙃")), 0.5, "a word in common")
	assert.InDelta(t, 1, cosine(embed("breaker"), embed("breaker 🙂")), 1e-6,
		"beside a known token, unknown ones do not count")
}

func TestCreateEmbeddings(t *testing.T) {
	m := New()
	for name, request := range map[string]openai.EmbeddingRequestConverter{
		"strings": openai.EmbeddingRequestStrings{Model: Name, Input: []string{"one text", "another"}, Dimensions: 256},
		"decoded": openai.EmbeddingRequest{Model: Name, Input: []any{"one text", "another"}},
	} {
		resp, err := m.CreateEmbeddings(t.Context(), request)
		require.NoError(t, err, name)
		require.Len(t, resp.Data, 2, name)
		assert.Equal(t, embed("another"), resp.Data[1].Embedding)
		assert.Equal(t, 1, resp.Data[1].Index)
		assert.Equal(t, openai.Usage{PromptTokens: 3, TotalTokens: 3}, resp.Usage)
		assert.Equal(t, openai.EmbeddingModel(Name), resp.Model)
	}
	resp, err := m.CreateEmbeddings(t.Context(), openai.EmbeddingRequest{Model: Name, Input: "one"})
	require.NoError(t, err)
	assert.Len(t, resp.Data, 1)
}

func TestCreateEmbeddingsRefusesAsAServerDoes(t *testing.T) {
	for _, row := range []struct {
		name   string
		r      openai.EmbeddingRequest
		status int
		param  string
	}{
		{"no model", openai.EmbeddingRequest{Input: "x"}, 404, "model"},
		{"another model", openai.EmbeddingRequest{Model: "gpt", Input: "x"}, 404, "model"},
		{"no input", openai.EmbeddingRequest{Model: Name}, 400, "input"},
		{"empty list", openai.EmbeddingRequest{Model: Name, Input: []string{}}, 400, "input"},
		{"empty text", openai.EmbeddingRequest{Model: Name, Input: []string{"a", ""}}, 400, "input"},
		{"tokens", openai.EmbeddingRequest{Model: Name, Input: [][]int{{1}}}, 400, "input"},
		{"mixed", openai.EmbeddingRequest{Model: Name, Input: []any{"a", 1}}, 400, "input"},
		{"dimensions", openai.EmbeddingRequest{Model: Name, Input: "a", Dimensions: 128}, 400, "dimensions"},
	} {
		_, err := New().CreateEmbeddings(t.Context(), row.r)
		var api *openai.APIError
		require.ErrorAs(t, err, &api, row.name)
		assert.Equal(t, row.status, api.HTTPStatusCode, row.name)
		assert.Equal(t, row.param, *api.Param, row.name)
	}
}

func TestDoneContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("why"))
	_, err := New().CreateEmbeddings(ctx, openai.EmbeddingRequest{Model: Name, Input: "x"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = New().ListModels(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestListModels(t *testing.T) {
	list, err := New().ListModels(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Models, 1)
	assert.Equal(t, Name, list.Models[0].ID)
	assert.Equal(t, 256, New().Dimensions())
}

func TestManyGoroutines(t *testing.T) {
	want := embed("the same text")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				assert.Equal(t, want, embed("the same text"))
			}
		})
	}
	wg.Wait()
}
