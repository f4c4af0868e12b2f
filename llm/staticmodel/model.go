package staticmodel

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"

	"github.com/sashabaranov/go-openai"
)

// Name is the model's name in requests and answers. It changes whenever a
// vector would.
const Name = "penstock-static-256-v1"

// dimensions is the length of every vector.
const dimensions = 256

// Model is the embedded model. The zero value is ready to use. A Model is safe
// for concurrent use.
type Model struct{}

// New returns the model. The vocabulary is decoded on first use (about 5 ms, 3
// MB), once per process.
func New() *Model { return &Model{} }

// Dimensions returns the length of the vectors, 256.
func (m *Model) Dimensions() int { return dimensions }

// Tokens returns the number of tokens in text, including unknown words, without
// the markers that a transformer adds.
func (m *Model) Tokens(text string) int {
	n := 0
	t := tokenizer{data: load(), emit: func(int32, []byte) { n++ }}
	t.text(text)
	return n
}

// Embed returns the vector of text, of length one, and the number of tokens.
// See the package comment for texts without a known token.
func (m *Model) Embed(text string) (vector []float32, tokens int) {
	var known sum
	var lost unknown
	t := tokenizer{data: load()}
	t.emit = func(id int32, word []byte) {
		tokens++
		switch id {
		case padID, unknownID, clsID, sepID, maskID:
			lost.add(word)
		default:
			known.add(t.data, id)
		}
	}
	t.text(text)
	if vector = known.unit(); vector == nil {
		vector = lost.direction(text)
	}
	return vector, tokens
}

// unknown adds up hashes of words that are not tokens.
type unknown struct{ words []uint64 }

func (u *unknown) add(word []byte) {
	if len(word) > 0 {
		u.words = append(u.words, hash(word))
	}
}

// direction returns the direction of these words or, without any, of the
// text's bytes. Equal words have equal directions; different ones are nearly
// orthogonal to each other and to everything else.
func (u *unknown) direction(text string) []float32 {
	if len(u.words) == 0 {
		u.words = append(u.words, hash([]byte(text)))
	}
	var s sum
	for _, seed := range u.words {
		r := rand.New(rand.NewPCG(seed, 0))
		for i := range s {
			s[i] += float64(int64(r.Uint64())) / (1 << 63)
		}
	}
	return s.unit()
}

func hash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// ListModels lists this model.
func (m *Model) ListModels(ctx context.Context) (openai.ModelsList, error) {
	if err := ctx.Err(); err != nil {
		return openai.ModelsList{}, err
	}
	return openai.ModelsList{Models: []openai.Model{{ID: Name, Object: "model", OwnedBy: "penstock", Root: Name}}}, nil
}

// CreateEmbeddings answers like an OpenAI-compatible server: one vector for
// each text of the request's Input, a string or a list of strings, in the same
// order.
//
// Invalid requests return an *[openai.APIError], like a server's: 404 (code
// model_not_found) for another model, 400 for no input, an empty text, token
// lists, or dimensions other than 256. If ctx is done, its error is returned.
func (m *Model) CreateEmbeddings(
	ctx context.Context, request openai.EmbeddingRequestConverter,
) (openai.EmbeddingResponse, error) {
	r := request.Convert()
	texts, err := check(r)
	if err != nil {
		return openai.EmbeddingResponse{}, err
	}
	response := openai.EmbeddingResponse{Object: "list", Model: Name, Data: make([]openai.Embedding, len(texts))}
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return openai.EmbeddingResponse{}, err
		}
		vector, tokens := m.Embed(text)
		response.Data[i] = openai.Embedding{Object: "embedding", Embedding: vector, Index: i}
		response.Usage.PromptTokens += tokens
	}
	response.Usage.TotalTokens = response.Usage.PromptTokens
	return response, nil
}

func check(r openai.EmbeddingRequest) ([]string, error) {
	if r.Model != Name {
		message := fmt.Sprintf("the model %q does not exist; this server has %q", r.Model, Name)
		return nil, refusal(http.StatusNotFound, "model_not_found", "model", message)
	}
	if r.Dimensions != 0 && r.Dimensions != dimensions {
		message := fmt.Sprintf("%s has vectors of %d dimensions, not %d", Name, dimensions, r.Dimensions)
		return nil, refusal(http.StatusBadRequest, "invalid_value", "dimensions", message)
	}
	texts, ok := input(r.Input)
	if !ok {
		return nil, refusal(http.StatusBadRequest, "invalid_type", "input",
			"input must be a string or a list of strings")
	}
	if len(texts) == 0 {
		return nil, refusal(http.StatusBadRequest, "invalid_value", "input", "input must not be empty")
	}
	for i, text := range texts {
		if text == "" {
			message := fmt.Sprintf("input[%d] must not be an empty string", i)
			return nil, refusal(http.StatusBadRequest, "invalid_value", "input", message)
		}
	}
	return texts, nil
}

// input accepts the Go types and their forms after encoding/json.
func input(in any) ([]string, bool) {
	switch in := in.(type) {
	case string:
		return []string{in}, true
	case []string:
		return in, true
	case []any:
		texts := make([]string, len(in))
		for i, v := range in {
			text, ok := v.(string)
			if !ok {
				return nil, false
			}
			texts[i] = text
		}
		return texts, true
	}
	return nil, false
}

func refusal(status int, code, param, message string) error {
	return &openai.APIError{
		Code: code, Message: message, Param: &param, Type: "invalid_request_error",
		HTTPStatusCode: status, HTTPStatus: fmt.Sprintf("%d %s", status, http.StatusText(status)),
	}
}
