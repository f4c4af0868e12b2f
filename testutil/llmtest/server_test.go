package llmtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func client(s *llmtest.Server) *openai.Client {
	cfg := openai.DefaultConfig("key")
	cfg.BaseURL = s.URL
	return openai.NewClientWithConfig(cfg)
}

func texts(in ...string) openai.EmbeddingRequestStrings {
	return openai.EmbeddingRequestStrings{Model: staticmodel.Name, Input: in}
}

func TestServesTheStaticModel(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	want, err := staticmodel.New().CreateEmbeddings(t.Context(), texts("one", "two"))
	require.NoError(t, err)
	for _, format := range []openai.EmbeddingEncodingFormat{
		"", openai.EmbeddingEncodingFormatFloat,
		openai.EmbeddingEncodingFormatBase64,
	} {
		request := texts("one", "two")
		request.EncodingFormat = format
		got, err := client(s).CreateEmbeddings(t.Context(), request)
		require.NoError(t, err, format)
		assert.Equal(t, want.Data, got.Data, "every bit arrives, format %q", format)
		assert.Equal(t, want.Usage, got.Usage)
	}
	models, err := client(s).ListModels(t.Context())
	require.NoError(t, err)
	assert.Equal(t, staticmodel.Name, models.Models[0].ID)
	assert.Equal(t, map[string]int{"/v1/embeddings": 3, "/v1/models": 1}, s.Stats().ByPath)
	assert.Equal(t, 6, s.Stats().Texts)
	assert.Equal(t, 4, s.Stats().Repeated)
}

func TestChatEchoes(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	request := openai.ChatCompletionRequest{
		Model:    "m",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hello out there"}},
	}
	resp, err := client(s).CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, "echo: hello out there", resp.Choices[0].Message.Content)

	stream, err := client(s).CreateChatCompletionStream(t.Context(), request)
	require.NoError(t, err)
	defer stream.Close()
	var got strings.Builder
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got.WriteString(part.Choices[0].Delta.Content)
	}
	assert.Equal(t, "echo: hello out there", got.String())
}

func TestScript(t *testing.T) {
	for _, row := range []struct {
		name  string
		rules []llmtest.Rule
		want  []int // status of each request in turn; 0 for a connection that ends
	}{
		{"none", nil, []int{200, 200}},
		{"from", []llmtest.Rule{llmtest.From(2, llmtest.Status(500))}, []int{200, 500, 500}},
		{"first", []llmtest.Rule{llmtest.First(2, llmtest.RateLimit("7"))}, []int{429, 429, 200}},
		{
			"first that fits wins",
			[]llmtest.Rule{llmtest.First(1, llmtest.Status(503)), llmtest.All(llmtest.Status(400))},
			[]int{503, 400},
		},
		{"other path", []llmtest.Rule{{Path: "/v1/models", Fault: llmtest.Status(500)}}, []int{200}},
		{"poison", []llmtest.Rule{llmtest.Poison("tox", llmtest.Status(422))}, []int{200}},
		{"poisoned", []llmtest.Rule{llmtest.Poison("hell", llmtest.Status(422))}, []int{422}},
		{"drop", []llmtest.Rule{llmtest.All(llmtest.Drop())}, []int{0}},
	} {
		s := llmtest.NewServer(t, llmtest.Options{})
		s.Script(row.rules...)
		for i, want := range row.want {
			resp, err := http.Post(s.URL+"/embeddings", "application/json",
				strings.NewReader(`{"model":"`+staticmodel.Name+`","input":"hello"}`))
			if want == 0 {
				require.Error(t, err, row.name)
				continue
			}
			require.NoError(t, err, row.name)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, want, resp.StatusCode, "%s, request %d", row.name, i+1)
		}
	}
}

func TestSpoiltVectors(t *testing.T) {
	for name, row := range map[string]struct {
		fault llmtest.Fault
		check func(*testing.T, []openai.Embedding)
	}{
		"shuffled": {llmtest.Shuffled(), func(t *testing.T, d []openai.Embedding) { assert.Equal(t, 1, d[0].Index) }},
		"no index": {llmtest.NoIndex(), func(t *testing.T, d []openai.Embedding) { assert.Equal(t, 0, d[1].Index) }},
		"same":     {llmtest.SameIndex(4), func(t *testing.T, d []openai.Embedding) { assert.Equal(t, 4, d[1].Index) }},
		"missing":  {llmtest.Missing(), func(t *testing.T, d []openai.Embedding) { assert.Len(t, d, 1) }},
		"null": {
			llmtest.NullVector(),
			func(t *testing.T, d []openai.Embedding) { assert.Empty(t, d[1].Embedding) },
		},
		"zero": {
			llmtest.ZeroVector(),
			func(t *testing.T, d []openai.Embedding) { assert.Zero(t, d[1].Embedding[7]) },
		},
		"short": {
			llmtest.Dimensions(3),
			func(t *testing.T, d []openai.Embedding) { assert.Len(t, d[1].Embedding, 3) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewServer(t, llmtest.Options{})
			s.Script(llmtest.All(row.fault))
			resp, err := client(s).CreateEmbeddings(t.Context(), texts("one", "two"))
			require.NoError(t, err)
			row.check(t, resp.Data)
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, row := range []struct {
		name    string
		options llmtest.Options
		request openai.EmbeddingRequestStrings
		status  int
	}{
		{"batch", llmtest.Options{MaxBatch: 1}, texts("a", "b"), 400},
		{"batch 413", llmtest.Options{MaxBatch: 1, BatchError: 413}, texts("a", "b"), 413},
		{"model", llmtest.Options{}, openai.EmbeddingRequestStrings{Model: "x", Input: []string{"a"}}, 404},
		{"key", llmtest.Options{Key: "other"}, texts("a"), 401},
	} {
		_, err := client(llmtest.NewServer(t, row.options)).CreateEmbeddings(t.Context(), row.request)
		var api *openai.APIError
		require.ErrorAs(t, err, &api, row.name)
		assert.Equal(t, row.status, api.HTTPStatusCode, row.name)
	}
}

func TestHangEndsWithTheClient(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Hang()))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := client(s).CreateEmbeddings(ctx, texts("a"))
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	require.Eventually(t, func() bool { return s.Stats().InFlight == 3 }, waitLong, waitStep)
	cancel()
	wg.Wait()
	assert.Equal(t, 3, s.Stats().MaxInFlight)
}

const (
	waitLong = 10 * time.Second
	waitStep = time.Millisecond
)
