package llm

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/plain"
)

// ContractError is a response that is not the answer, although its status is a
// success: from a server that sends no vectors, from one that fails in the
// middle of its answer, or from another kind of server. It counts as a failure
// of the upstream; but where the server says in the answer what is wrong, it
// wraps an *openai.APIError, whose code or type decides.
type ContractError struct {
	// Operation is the call, such as create_embeddings.
	Operation string
	// Problem says what is wrong with the answer.
	Problem string

	cause error
}

// Unwrap is what the server said, or nil.
func (e *ContractError) Unwrap() error { return e.cause }

// Error names the operation, the problem and where to look.
func (e *ContractError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("llm: %s: the server gave its answer up: %s", e.Operation, e.Problem)
	}
	return fmt.Sprintf("llm: %s: not an OpenAI answer: %s; check the base URL and the server's log",
		e.Operation, e.Problem)
}

func broken(operation, format string, args ...any) error {
	return &ContractError{Operation: operation, Problem: fmt.Sprintf(format, args...)}
}

// checkChat looks at an answer to a request for n choices, 0 being the
// server's own number.
func checkChat(n int, r *openai.ChatCompletionResponse, keys []string) error {
	if len(r.Choices) == 0 {
		return broken(opChat, "no choices under status 200")
	}
	whole := 0
	for _, c := range r.Choices {
		if err := reasonOf(opChat, c.FinishReason, keys); err != nil {
			return err
		}
		if ends(c.FinishReason) {
			whole++
		}
	}
	if n > 1 && whole > 0 && whole < len(r.Choices) {
		return broken(opChat, "%d of %d choices have no finish reason: they were cut off",
			len(r.Choices)-whole, len(r.Choices))
	}
	return nil
}

func checkModels(r *openai.ModelsList) error {
	if r.Models == nil {
		return broken(opModels, "no list of models under status 200")
	}
	return nil
}

// checkEmbeddings looks at an answer to request and brings its vectors into the
// order of the texts.
func checkEmbeddings(request *openai.EmbeddingRequest, r *openai.EmbeddingResponse) error {
	want := inputs(request.Input)
	if want < 0 {
		want = len(r.Data)
	}
	if len(r.Data) != want {
		return broken(opEmbeddings, "%d vectors for %d texts", len(r.Data), want)
	}
	if err := order(r.Data); err != nil {
		return err
	}
	length := request.Dimensions
	for i := range r.Data {
		if length == 0 {
			length = len(r.Data[i].Embedding)
		}
		if err := checkVector(i, r.Data[i].Embedding, length); err != nil {
			return err
		}
	}
	return nil
}

// inputs is how many vectors an input asks for, or -1 where that cannot be told
// from its type. A list of numbers is one text of tokens, whatever holds them.
func inputs(in any) int {
	if _, own := in.(json.Marshaler); own {
		return -1
	}
	v := reflect.ValueOf(in)
	switch {
	case v.Kind() == reflect.String:
		return 1
	case v.Kind() != reflect.Slice && v.Kind() != reflect.Array:
		return -1
	case tokens(v):
		return 1
	}
	return v.Len()
}

var numberType = reflect.TypeFor[json.Number]()

// tokens reports whether a list is one of numbers.
func tokens(list reflect.Value) bool {
	if of := list.Type().Elem(); of.Kind() != reflect.Interface {
		return of == numberType || of.ConvertibleTo(reflect.TypeFor[float64]())
	}
	for i := range list.Len() {
		v := list.Index(i).Elem()
		if !v.IsValid() || v.Type() != numberType && !v.CanConvert(reflect.TypeFor[float64]()) {
			return false
		}
	}
	return list.Len() > 0
}

// order sorts by index. A server that leaves the index out decodes to zeros:
// then the position is the index.
func order(data []openai.Embedding) error {
	if zeros(data) {
		for i := range data {
			data[i].Index = i
		}
		return nil
	}
	sorted, seen := make([]openai.Embedding, len(data)), make([]bool, len(data))
	for _, e := range data {
		if e.Index < 0 || e.Index >= len(data) || seen[e.Index] {
			return broken(opEmbeddings, "index %d twice or out of range among %d vectors", e.Index, len(data))
		}
		sorted[e.Index], seen[e.Index] = e, true
	}
	copy(data, sorted)
	return nil
}

func zeros(data []openai.Embedding) bool {
	for i := range data {
		if data[i].Index != 0 {
			return false
		}
	}
	return true
}

func checkVector(i int, v []float32, length int) error {
	if len(v) != length || length == 0 {
		return broken(opEmbeddings, "vector %d has %d values instead of %d", i, len(v), length)
	}
	some := false
	for _, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return broken(opEmbeddings, "vector %d has values that are not finite", i)
		}
		some = some || x != 0
	}
	if !some {
		return broken(opEmbeddings, "vector %d is all zeros", i)
	}
	return nil
}

// redirected is what a client of NewClient makes of status 3xx, which the SDK
// would decode as an answer.
func redirected(r *http.Response, keys []string) error {
	if to := r.Header.Get("Location"); to != "" {
		return broken("request", "status %d, moved to %q, which is not followed: set it as the base URL",
			r.StatusCode, plain.Shorten(mask(to, keys), mostWords))
	}
	return broken("request", "status %d without a Location", r.StatusCode)
}
