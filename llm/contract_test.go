package llm_test

import (
	"context"
	"math"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func TestVectorsAreChecked(t *testing.T) {
	want, err := staticmodel.New().CreateEmbeddings(t.Context(), texts("one", "two", "three"))
	require.NoError(t, err)
	for _, row := range []struct {
		name       string
		fault      llmtest.Fault
		dimensions int
		ok         bool
	}{
		{"good", llmtest.Fault{}, 0, true},
		{"the length asked for", llmtest.Fault{}, 256, true},
		{"shuffled", llmtest.Shuffled(), 0, true},
		{"index left out", llmtest.NoIndex(), 0, true},
		{"index the same", llmtest.SameIndex(1), 0, false},
		{"index out of range", llmtest.SameIndex(3), 0, false},
		{"index negative", llmtest.SameIndex(-1), 0, false},
		{"one missing", llmtest.Missing(), 0, false},
		{"one null", llmtest.NullVector(), 0, false},
		{"one all zeros", llmtest.ZeroVector(), 0, false},
		{"one short", llmtest.Dimensions(255), 0, false},
		{"all of another length", llmtest.Fault{Spoil: func(v *llmtest.Vectors) {
			for i := range v.Data {
				v.Data[i].Embedding = v.Data[i].Embedding[:128]
			}
		}}, 256, false},
		{"one too many", llmtest.Fault{Spoil: func(v *llmtest.Vectors) {
			v.Data = append(v.Data, openai.Embedding{Embedding: v.Data[0].Embedding, Index: 3})
		}}, 0, false},
		{"error body under 200", llmtest.Answer(200, `{"error":{"message":"out of memory"}}`), 0, false},
		{"empty list", llmtest.Answer(200, `{"object":"list","data":[]}`), 0, false},
	} {
		for _, format := range []openai.EmbeddingEncodingFormat{
			openai.EmbeddingEncodingFormatFloat,
			openai.EmbeddingEncodingFormatBase64,
		} {
			t.Run(row.name+"/"+string(format), func(t *testing.T) {
				s := llmtest.NewServer(t, llmtest.Options{})
				s.Script(llmtest.All(row.fault))
				guard := newGuard(resilience.Config{})
				request := texts("one", "two", "three")
				request.Dimensions, request.EncodingFormat = row.dimensions, format
				got, err := guard.CreateEmbeddings(t.Context(), newClient(t, llm.Config{BaseURL: s.URL}), request)
				if row.ok {
					require.NoError(t, err)
					assert.Equal(t, want.Data, got.Data)
					return
				}
				var contract *llm.ContractError
				require.ErrorAs(t, err, &contract)
				assert.Equal(t, "create_embeddings", contract.Operation)
				assertOutcome(t, guard, resilience.Failure)
			})
		}
	}
}

// double answers what it holds.
type double openai.EmbeddingResponse

func (d double) CreateEmbeddings(context.Context, openai.EmbeddingRequestConverter) (openai.EmbeddingResponse, error) {
	return openai.EmbeddingResponse(d), nil
}

func TestNumbersThatAreNotFinite(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		answer := double{Data: []openai.Embedding{{Embedding: []float32{1, float32(x)}}}}
		_, err := newGuard(resilience.Config{}).CreateEmbeddings(t.Context(), answer, texts("a"))
		require.ErrorContains(t, err, "not finite", "%v", x)
	}
}

func TestEveryKindOfInputIsCounted(t *testing.T) {
	answer := double{Data: []openai.Embedding{{Embedding: []float32{1}}, {Embedding: []float32{1}}}}
	for _, row := range []struct {
		name  string
		input any
		ok    bool
	}{
		{"strings", []string{"a", "b"}, true},
		{"three strings", []string{"a", "b", "c"}, false},
		{"one string", "a", false},
		{"tokens", [][]int{{1}, {2}}, true},
		{"one text of tokens", []int{1, 2}, false},
		{"any", []any{"a", "b"}, true},
		{"unknown type", struct{}{}, true},
	} {
		_, err := newGuard(
			resilience.Config{},
		).CreateEmbeddings(t.Context(), answer, openai.EmbeddingRequest{Input: row.input})
		assert.Equal(t, row.ok, err == nil, "%s: %v", row.name, err)
	}
}

func TestGarbageProbeDoesNotClose(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.First(1, llmtest.NullVector()))
	client := newClient(t, llm.Config{BaseURL: s.URL})
	guard, clock := openBreaker(t)
	_, err := guard.CreateEmbeddings(t.Context(), client, texts("a", "b"))
	require.Error(t, err)
	assert.Equal(t, resilience.Open, guard.Breaker.State())
	clock.Advance(guard.Breaker.Config().ResetTimeout)
	_, err = guard.CreateEmbeddings(t.Context(), client, texts("a", "b"))
	require.NoError(t, err)
	assert.Equal(t, resilience.Closed, guard.Breaker.State())
}

func TestRedirectIsAContractError(t *testing.T) {
	for location, want := range map[string]string{
		"":                     "without a Location",
		"https://elsewhere/v1": `moved to "https://elsewhere/v1"`,
	} {
		s := llmtest.NewServer(t, llmtest.Options{})
		f := llmtest.Status(301)
		if location != "" {
			f.Header = map[string][]string{"Location": {location}}
		}
		s.Script(llmtest.All(f))
		for _, call := range operations(newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: s.URL})) {
			err := call.do(t.Context())
			var contract *llm.ContractError
			require.ErrorAs(t, err, &contract, call.name)
			assert.Contains(t, contract.Problem, want, call.name)
		}
		assert.Equal(t, 4, s.Stats().Requests)
	}
}
