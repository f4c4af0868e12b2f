package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/llm/staticmodel"
)

// Embedder computes the vectors of the answers. *openai.Client and
// *staticmodel.Model implement it.
type Embedder interface {
	CreateEmbeddings(context.Context, openai.EmbeddingRequestConverter) (openai.EmbeddingResponse, error)
	ListModels(context.Context) (openai.ModelsList, error)
}

// Options configure a server. The zero value serves the static model without
// limits or delay.
type Options struct {
	Embedder   Embedder      // default: the static model
	MaxBatch   int           // most texts per request, more are refused with BatchError; 0 means unlimited
	BatchError int           // 400 (default) or 413
	Delay      time.Duration // before each answer
	Key        string        // when set, requests need this bearer token, or get 401
	Reply      string        // what chat answers; default: an echo of the last message
	// ReplyTo answers a chat request in place of Reply. It is called for each
	// request without a fault, from many goroutines.
	ReplyTo func(openai.ChatCompletionRequest) string
}

// Stats counts what the server saw.
type Stats struct {
	Requests    int            // all requests, including refused and failed ones
	ByPath      map[string]int // the same by path
	Texts       int            // texts embedded and sent
	Repeated    int            // of these, texts that had been sent before
	InFlight    int            // requests being answered now
	MaxInFlight int            // the most at any time
}

// Handler is the server without a listener. It is safe for concurrent use.
type Handler struct {
	options  Options
	seed     maphash.Seed
	released chan struct{}

	mu     sync.Mutex
	stats  Stats
	seen   map[uint64]struct{}
	rules  []Rule
	number int // of the last request since Script
}

// NewHandler returns a Handler without a script: every request succeeds.
func NewHandler(o Options) *Handler {
	if o.Embedder == nil {
		o.Embedder = staticmodel.New()
	}
	if o.BatchError == 0 {
		o.BatchError = http.StatusBadRequest
	}
	return &Handler{
		options: o, seed: maphash.MakeSeed(), released: make(chan struct{}), seen: map[uint64]struct{}{},
		stats: Stats{ByPath: map[string]int{}},
	}
}

// Script replaces the rules and counts requests from 1 again. Without rules
// every request succeeds.
func (h *Handler) Script(rules ...Rule) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules, h.number = rules, 0
}

// Stats returns a copy of the counts.
func (h *Handler) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.ByPath = make(map[string]int, len(h.stats.ByPath))
	maps.Copy(s.ByPath, h.stats.ByPath)
	return s
}

// Release ends every Hang, now and later, by closing the connection.
func (h *Handler) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.released:
	default:
		close(h.released)
	}
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left
	}
	texts, err := textsOf(r.URL.Path, body)
	fault := h.arrive(r.URL.Path, texts)
	defer h.leave()
	if !h.wait(r.Context(), h.options.Delay+fault.Delay) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case fault.After == 0 && h.strike(w, r, &fault):
	case h.options.Key != "" && r.Header.Get("Authorization") != "Bearer "+h.options.Key:
		refuse(w, http.StatusUnauthorized, "invalid_api_key", "incorrect API key provided")
	case err != nil:
		refuse(w, http.StatusBadRequest, "invalid_json", err.Error())
	default:
		h.answer(w, r, body, &fault)
	}
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, body []byte, f *Fault) {
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/embeddings":
		h.embeddings(w, r, body, f)
	case "POST /v1/chat/completions":
		h.chat(w, r, body, f)
	case "GET /v1/models":
		h.models(w, r)
	default:
		refuse(w, http.StatusNotFound, "unknown_url", "unknown request URL: "+r.Method+" "+r.URL.Path)
	}
}

// arrive counts a request and finds its fault.
func (h *Handler) arrive(path string, texts []string) Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Requests++
	h.stats.ByPath[path]++
	h.stats.InFlight++
	h.stats.MaxInFlight = max(h.stats.MaxInFlight, h.stats.InFlight)
	h.number++
	for i := range h.rules {
		if h.rules[i].fits(path, h.number, texts) {
			return h.rules[i].Fault
		}
	}
	return Fault{}
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.InFlight--
}

// wait returns false if the client left, or the server closed, within d.
func (h *Handler) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-h.released:
	}
	return false
}

// strike applies the fault in place of an answer, and reports whether there was
// anything to apply.
func (h *Handler) strike(w http.ResponseWriter, r *http.Request, f *Fault) bool {
	switch {
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-h.released:
		}
		panic(http.ErrAbortHandler)
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		w.Header().Set("Content-Type", "application/json")
		maps.Copy(w.Header(), f.Header)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.body())
		return true
	}
	return false
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	reply := openai.ErrorResponse{Error: &openai.APIError{Code: code, Message: message, Type: "invalid_request_error"}}
	_ = json.NewEncoder(w).Encode(reply)
}

// refuseWith passes on the embedder's error.
func refuseWith(w http.ResponseWriter, err error) {
	var api *openai.APIError
	if !errors.As(err, &api) {
		refuse(w, http.StatusInternalServerError, "embedder", err.Error())
		return
	}
	refuse(w, api.HTTPStatusCode, fmt.Sprint(api.Code), api.Message)
}

func (h *Handler) models(w http.ResponseWriter, r *http.Request) {
	list, err := h.options.Embedder.ListModels(r.Context())
	if err != nil {
		refuseWith(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": list.Models})
}

// textsOf returns the texts that rules with a Text match: the texts to embed,
// or the messages.
func textsOf(path string, body []byte) ([]string, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if strings.HasSuffix(path, "/embeddings") {
		r, err := embeddingRequest(body)
		return inputTexts(r.Input), err
	}
	var chat openai.ChatCompletionRequest
	err := json.Unmarshal(body, &chat)
	texts := make([]string, len(chat.Messages))
	for i, m := range chat.Messages {
		texts[i] = m.Content
	}
	return texts, err
}
