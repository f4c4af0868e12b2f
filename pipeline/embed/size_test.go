package embed_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// narrow is a model server that refuses large requests in words of its own.
type narrow struct {
	items, bytes int // most of a request; zero means unlimited
	status       int
	body         string
	poison       string // a text with these words is refused too
	model        http.Handler

	mu       sync.Mutex
	refusals int
	largest  int // request that was answered, in items
}

func (n *narrow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var request struct{ Input []string }
	_ = json.Unmarshal(body, &request)
	if n.refuses(request.Input) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(n.status)
		_, _ = io.WriteString(w, n.body)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	n.model.ServeHTTP(w, r)
}

func (n *narrow) refuses(texts []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := len(strings.Join(texts, ""))
	bad := n.poison != "" && strings.Contains(strings.Join(texts, "\n"), n.poison)
	if n.items > 0 && len(texts) > n.items || n.bytes > 0 && size > n.bytes || bad {
		n.refusals++
		return true
	}
	n.largest = max(n.largest, len(texts))
	return false
}

// count returns how many requests were refused until now.
func (n *narrow) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refusals
}

// narrowWorld is a world whose server is a narrow one.
func narrowWorld(t *testing.T, n *narrow) *world {
	t.Helper()
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	n.model = llmtest.NewHandler(llmtest.Options{})
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	client, err := llm.NewClient(llm.Config{BaseURL: server.URL + "/v1"})
	require.NoError(t, err)
	w.config.Client = client
	w.config.Limits = embed.Limits{Items: 64, Tokens: 32_768, Bytes: 256 << 10}
	return w
}

// together embeds the texts by several callers at a time, as the committers of
// a run do.
func together(t *testing.T, e *embed.Embedder, all map[string]embed.Text) map[string]embed.Answer {
	t.Helper()
	const callers = 4
	parts := make([]map[string]embed.Text, callers)
	i := 0
	for hash, text := range all {
		if parts[i%callers] == nil {
			parts[i%callers] = map[string]embed.Text{}
		}
		parts[i%callers][hash] = text
		i++
	}
	var calls sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]embed.Answer{}
	for _, part := range parts {
		calls.Go(func() {
			got := e.Vectors(t.Context(), part)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(answers, got)
		})
	}
	calls.Wait()
	return answers
}

// A server that took one input a request, and said so in words that no list
// has, refused 1,178 requests of one run.
func TestUnknownWordsForATooLargeBatchCostFewRefusals(t *testing.T) {
	const ( // statuses
		bad           = http.StatusBadRequest
		unprocessable = http.StatusUnprocessableEntity
	)
	for _, row := range []struct {
		items, status int
		body          string
	}{
		{1, bad, `{"error":{"message":"input array too long"}}`},
		{1, unprocessable, `{"detail":"only one input is supported"}`},
		{1, bad, `Bad Request`},
		{2, bad, ``},
		{10, unprocessable, `{"detail":[{"msg":"zu viele Eingaben"}]}`},
		{33, bad, `{"error":{"message":"rejected"}}`},
		{63, unprocessable, `{"error":{"message":"rejected"}}`},
	} {
		t.Run(fmt.Sprintf("%d items, %d, %s", row.items, row.status, row.body), func(t *testing.T) {
			server := &narrow{items: row.items, status: row.status, body: row.body}
			w := narrowWorld(t, server)
			e, all := w.embedder(), texts(600)
			requireVectors(t, all, together(t, e, all))
			first := server.count()
			assert.LessOrEqual(t, first, 12)
			assert.Nil(t, w.ending.Reason())
			assert.Zero(t, w.guard.Breaker.Snapshot().Failures)
			assert.GreaterOrEqual(t, server.largest, max(1, row.items/2), "batches stay as large as the server takes")

			more := texts(900)
			for hash := range all {
				delete(more, hash)
			}
			requireVectors(t, more, together(t, e, more))
			assert.Equal(t, first, server.count(), "the size is kept for the run")
		})
	}
}

// A limit of bytes or tokens is met by some batches only.
func TestUnknownWordsForTooManyBytesCostFewRefusals(t *testing.T) {
	server := &narrow{bytes: 4000, status: http.StatusBadRequest, body: `{"error":{"message":"payload rejected"}}`}
	w := narrowWorld(t, server)
	all := map[string]embed.Text{}
	for hash, text := range texts(600) {
		long := strings.Repeat(text.Text+" ", 1+len(all)%12)
		all[hash] = embed.Text{Text: long, Tokens: len(long) / 4}
	}
	requireVectors(t, all, together(t, w.embedder(), all))
	assert.LessOrEqual(t, server.count(), 12)
	assert.Nil(t, w.ending.Reason())
}

// A text that the server refuses is found in batches that it refuses for their
// size as well, and no other text is blamed.
func TestPoisonIsFoundWhereBatchesAreTooLarge(t *testing.T) {
	for _, items := range []int{1, 10, 64} {
		t.Run(fmt.Sprint(items, " items"), func(t *testing.T) {
			server := &narrow{
				items: items, status: http.StatusUnprocessableEntity, body: `{"detail":"no"}`, poison: "arsenic",
			}
			w := narrowWorld(t, server)
			all := texts(400)
			all["poison"] = embed.Text{Text: "This one holds arsenic in it.", Tokens: 7}
			answers := together(t, w.embedder(), all)
			requireVectors(t, all, answers, "poison")
			f := failureOf(t, answers["poison"])
			assert.False(t, f.Deferred)
			assert.Equal(t, "refused by upstream", f.Kind)
			assert.LessOrEqual(t, server.count(), 20, "12 for the size, and the search for the text")
			assert.Nil(t, w.ending.Reason())
		})
	}
}

// Refusals for a text say nothing about the size of a batch.
func TestPoisonLeavesTheSizeOfBatches(t *testing.T) {
	server := &narrow{status: http.StatusBadRequest, body: `{"error":{"message":"no"}}`, poison: "arsenic"}
	w := narrowWorld(t, server)
	e, all := w.embedder(), texts(200)
	all["poison"] = embed.Text{Text: "This one holds arsenic in it.", Tokens: 7}
	requireVectors(t, all, together(t, e, all), "poison")
	server.mu.Lock()
	server.largest = 0
	server.mu.Unlock()
	more := map[string]embed.Text{}
	for i := range 64 {
		more[fmt.Sprint("more", i)] = embed.Text{Text: fmt.Sprintf("Pump %d was closed.", i), Tokens: 5}
	}
	requireVectors(t, more, e.Vectors(t.Context(), more))
	assert.Equal(t, 64, server.largest)
}
