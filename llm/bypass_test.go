package llm_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// 87 methods of the SDK have no door: files, batches, fine-tuning. Nothing
// stopped a caller from using them, or the others, without one.
func TestClientCannotGoAroundItsBreaker(t *testing.T) {
	var seen, status atomic.Int64
	status.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, `{"id":"file-1","object":"file","data":[]}`)
	}))
	defer server.Close()
	below := testutil.NewBreaker(t, "below", resilience.Config{})
	client := newClient(t, llm.Config{BaseURL: server.URL + "/v1", Breaker: below})
	upload := func() error {
		_, err := client.CreateFileBytes(t.Context(), openai.FileBytesRequest{
			Name: "lines.jsonl", Bytes: []byte("{}"), Purpose: openai.PurposeBatch,
		})
		return err
	}
	batch := func() error {
		_, err := client.CreateBatch(t.Context(), openai.CreateBatchRequest{
			InputFileID: "file-1", Endpoint: openai.BatchEndpointChatCompletions, CompletionWindow: "24h",
		})
		return err
	}
	require.NoError(t, upload())
	require.NoError(t, batch())
	assert.EqualValues(t, 2, below.Snapshot().Successes)

	guard := newGuard(resilience.Config{})
	_, err := guard.ListModels(t.Context(), client)
	require.NoError(t, err)
	assert.EqualValues(t, 2, below.Snapshot().Calls, "a door's own breaker is the only one that counts its call")
	assert.EqualValues(t, 1, guard.Breaker.Snapshot().Calls)

	for code, outcome := range map[int64]func(resilience.Snapshot) uint64{
		403: func(s resilience.Snapshot) uint64 { return s.Denied },
		404: func(s resilience.Snapshot) uint64 { return s.Ignored },
		429: func(s resilience.Snapshot) uint64 { return s.Throttled },
	} {
		before := outcome(below.Snapshot())
		status.Store(code)
		require.Error(t, batch())
		assert.Equal(t, before+1, outcome(below.Snapshot()), code)
	}
	status.Store(500)
	for range 5 {
		require.Error(t, upload())
	}
	sent := seen.Load()
	require.ErrorIs(t, upload(), resilience.ErrOpen)
	require.ErrorIs(t, batch(), resilience.ErrOpen)
	_, err = client.CreateChatCompletion(t.Context(), ask("hello"))
	require.ErrorIs(t, err, resilience.ErrOpen, "a method with a door, called without it")
	assert.Equal(t, sent, seen.Load())
}
