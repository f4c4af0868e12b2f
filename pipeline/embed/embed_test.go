package embed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

const dimensions = 256 // of the static model

// world is an embedder in front of a real server, through the real door.
type world struct {
	t      *testing.T
	model  *llmtest.Server
	guard  llm.Guard
	ending *stop.Ending
	config embed.Config
}

func newWorld(t *testing.T, o llmtest.Options, client llm.Config) *world {
	t.Helper()
	w := &world{t: t, model: llmtest.NewServer(t, o)}
	client.BaseURL = w.model.URL
	embeddings, err := llm.NewClient(client)
	require.NoError(t, err)
	w.guard.Breaker = testutil.NewBreaker(t, "llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	w.config = embed.Config{
		Client: embeddings, Model: staticmodel.Name,
		Limits: embed.Limits{Items: 64, Tokens: 1000, Bytes: 10_000}, Logger: slog.New(slog.DiscardHandler),
	}
	return w
}

// embedder makes one for a run of its own.
func (w *world) embedder(change ...func(*embed.Config)) *embed.Embedder {
	w.ending = stop.NewEnding(w.t.Context())
	config := w.config
	config.Guard = w.guard
	config.Server = modelserver.New(modelserver.Config{
		Service: service.Models(w.guard), Ending: w.ending, MaxPause: time.Second,
	})
	for _, f := range change {
		f(&config)
	}
	return embed.New(config)
}

// texts are n different ones.
func texts(n int) map[string]embed.Text {
	list := map[string]embed.Text{}
	for i := range n {
		list["h"+strconv.Itoa(i)] = embed.Text{Text: fmt.Sprintf("Valve %d was opened.", i), Tokens: 5}
	}
	return list
}

// requireVectors checks that each text but those has the vector of the model.
func requireVectors(t *testing.T, texts map[string]embed.Text, got map[string]embed.Answer, but ...string) {
	t.Helper()
	require.Len(t, got, len(texts))
	var hashes, inputs []string
	for hash, text := range texts {
		if !slices.Contains(but, hash) {
			hashes, inputs = append(hashes, hash), append(inputs, text.Text)
		}
	}
	want, err := staticmodel.New().CreateEmbeddings(t.Context(), embed.Request(staticmodel.Name, 0, inputs...))
	require.NoError(t, err)
	for i, hash := range hashes {
		require.NoError(t, got[hash].Err, hash)
		require.Equal(t, want.Data[i].Embedding, got[hash].Vector, hash)
	}
}

func failureOf(t *testing.T, a embed.Answer) *stop.Failure {
	t.Helper()
	var f *stop.Failure
	require.ErrorAs(t, a.Err, &f)
	return f
}

func TestEachTextIsSentOnce(t *testing.T) {
	w := newWorld(t, llmtest.Options{Delay: time.Millisecond}, llm.Config{})
	e := w.embedder()
	all := texts(100)
	var callers sync.WaitGroup
	var mu sync.Mutex
	sent := map[string]int{}
	for range 8 {
		callers.Go(func() {
			answers := e.Vectors(t.Context(), all)
			mu.Lock()
			defer mu.Unlock()
			for hash, a := range answers {
				if a.Sent {
					sent[hash]++
				}
			}
			requireVectors(t, all, answers)
		})
	}
	callers.Wait()
	assert.Zero(t, w.model.Stats().Repeated)
	assert.Equal(t, 100, w.model.Stats().Texts)
	assert.Len(t, sent, 100)
	for hash, n := range sent {
		assert.Equal(t, 1, n, hash)
	}
	assert.Empty(t, e.Vectors(t.Context(), nil))
}

func TestBatchesKeepTheLimits(t *testing.T) {
	for name, row := range map[string]struct {
		limits   embed.Limits
		requests int
	}{
		"items":             {embed.Limits{Items: 10, Tokens: 1000, Bytes: 10_000}, 3},
		"tokens":            {embed.Limits{Items: 64, Tokens: 25, Bytes: 10_000}, 6},
		"bytes":             {embed.Limits{Items: 64, Tokens: 1000, Bytes: 199}, 4},
		"smaller than each": {embed.Limits{Items: 64, Tokens: 1, Bytes: 10_000}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, llmtest.Options{}, llm.Config{})
			all := texts(30)
			for hash, text := range all {
				all[hash] = embed.Text{Text: fmt.Sprintf("%-20.20s", text.Text), Tokens: 5}
			}
			e := w.embedder(func(c *embed.Config) { c.Limits = row.limits })
			requireVectors(t, all, e.Vectors(t.Context(), all))
			assert.Equal(t, row.requests, w.model.Stats().Requests)
		})
	}
}

// A batch that the server finds too large is halved, and the size remembered.
func TestBatchesShrink(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge} {
		w := newWorld(t, llmtest.Options{MaxBatch: 5, BatchError: status}, llm.Config{})
		e := w.embedder()
		requireVectors(t, texts(40), e.Vectors(t.Context(), texts(40)))
		refused := w.guard.Breaker.Snapshot().Ignored
		assert.Positive(t, refused)
		requireVectors(t, texts(40), e.Vectors(t.Context(), texts(40)))
		assert.Equal(t, refused, w.guard.Breaker.Snapshot().Ignored, "the size is remembered")
		assert.Nil(t, w.ending.Reason())
		assert.Zero(t, w.guard.Breaker.Snapshot().Failures)
	}
}

// The words that say so may come late in a long answer.
func TestBatchesShrinkAfterALongAnswer(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	body := fmt.Sprintf(`{"error":{"message":"%s: too many tokens"}}`, strings.Repeat("a gateway says ", 50))
	w.model.Script(llmtest.First(1, llmtest.Answer(http.StatusBadRequest, body)))
	e := w.embedder()
	requireVectors(t, texts(40), e.Vectors(t.Context(), texts(40)))
	assert.Equal(t, 3, w.model.Stats().Requests, "two halves, without a canary between them")
}

// One text that the server always answers with an error is found and fails
// alone; the breaker stays closed.
func TestPoisonIsFoundAlone(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadRequest} {
		w := newWorld(t, llmtest.Options{}, llm.Config{})
		all := texts(60)
		all["poison"] = embed.Text{Text: "This one holds arsenic in it."}
		w.model.Script(llmtest.Poison("arsenic", llmtest.Status(status)))
		answers := w.embedder().Vectors(t.Context(), all)
		requireVectors(t, all, answers, "poison")
		f := failureOf(t, answers["poison"])
		assert.False(t, f.Deferred)
		assert.Equal(t, [2]string{"embed", "refused by upstream"}, [2]string{f.Stage, f.Kind})
		assert.True(t, stop.IsRefusal(f))
		assert.Zero(t, w.guard.Breaker.Snapshot().Opened)
		assert.Nil(t, w.ending.Reason())
	}
}

// A server that is too slow for large batches gets smaller ones; no text is
// guilty of being slow.
func TestTimeoutsDefer(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{Timeout: 300 * time.Millisecond})
	all := texts(10)
	all["slow"] = embed.Text{Text: "This one takes for ever."}
	w.model.Script(llmtest.Poison("for ever", llmtest.Hang()))
	answers := w.embedder().Vectors(t.Context(), all)
	requireVectors(t, all, answers, "slow")
	assert.True(t, failureOf(t, answers["slow"]).Deferred)
	assert.Zero(t, w.guard.Breaker.Snapshot().Opened)
}

func TestStopsOfTheRun(t *testing.T) {
	for name, row := range map[string]struct {
		fault llmtest.Fault
		kind  stop.Kind
	}{
		"refuses everything": {llmtest.Status(http.StatusBadRequest), stop.Configuration},
		"model is gone":      {llmtest.Status(http.StatusNotFound), stop.Configuration},
		"credentials":        {llmtest.Status(http.StatusUnauthorized), stop.Denied},
		"outage":             {llmtest.Status(http.StatusInternalServerError), stop.Deferred},
		"dimensions":         {llmtest.Dimensions(128), stop.Configuration},
		"rate limit":         {llmtest.RateLimit("600"), stop.Deferred},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, llmtest.Options{}, llm.Config{})
			e := w.embedder()
			dims, err := e.Check(t.Context())
			require.NoError(t, err)
			assert.Equal(t, dimensions, dims)
			w.model.Script(llmtest.All(row.fault))
			answers := e.Vectors(t.Context(), texts(3))
			require.Len(t, answers, 3)
			for _, a := range answers {
				assert.True(t, failureOf(t, a).Deferred)
				assert.False(t, a.Sent)
			}
			require.NotNil(t, w.ending.Reason())
			assert.Equal(t, row.kind, w.ending.Reason().Kind)
			assert.Equal(t, "llm", w.ending.Reason().Upstream)
			assert.LessOrEqual(t, w.model.Stats().Requests, 1+5)
		})
	}
}

func TestCheckFails(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	w.model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	_, err := w.embedder().Check(t.Context())
	require.Error(t, err)
	assert.Equal(t, stop.Deferred, w.ending.Reason().Kind)
	assert.Equal(t, 1, w.model.Stats().Requests)
}

func TestOpenBreakerSendsNothing(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	w.guard.Breaker.ForceOpen("test")
	answers := w.embedder().Vectors(t.Context(), texts(10))
	require.ErrorIs(t, answers["h7"].Err, resilience.ErrOpen)
	assert.True(t, failureOf(t, answers["h7"]).Deferred)
	assert.Zero(t, w.model.Stats().Requests)
}

func TestShortRateLimitIsWaitedOut(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		w.model.Script(llmtest.First(2, llmtest.Fault{Status: status, Header: http.Header{"Retry-After-Ms": {"5"}}}))
		requireVectors(t, texts(30), w.embedder().Vectors(t.Context(), texts(30)))
	}
}

// cache is one in memory that fails on demand.
type cache struct {
	mu         sync.Mutex
	spaces     map[string]map[string][]float32
	read, keep error
}

func (c *cache) Vectors(_ context.Context, space string, hashes []string) (map[string][]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][]float32{}
	for _, hash := range hashes {
		if vector, ok := c.spaces[space][hash]; ok {
			found[hash] = vector
		}
	}
	return found, c.read
}

func (c *cache) KeepVectors(ctx context.Context, space string, vectors map[string][]float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spaces[space] == nil {
		c.spaces[space] = map[string][]float32{}
	}
	maps.Copy(c.spaces[space], vectors)
	return errors.Join(c.keep, ctx.Err())
}

func TestCache(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	kept := &cache{spaces: map[string]map[string][]float32{}}
	w.config.Cache = kept
	e := w.embedder()
	_, err := e.Check(t.Context())
	require.NoError(t, err)
	e.Vectors(t.Context(), texts(20))
	assert.Len(t, kept.spaces[e.Space()], 20, "the canary is not kept")

	sent := w.model.Stats().Texts
	answers := w.embedder().Vectors(t.Context(), texts(21))
	requireVectors(t, texts(21), answers)
	assert.Equal(t, sent+1, w.model.Stats().Texts)
	assert.True(t, answers["h20"].Sent)
	assert.False(t, answers["h7"].Sent)
	other := w.embedder(func(c *embed.Config) { c.Dimensions = dimensions })
	assert.NotEqual(t, e.Space(), other.Space())
	other.Vectors(t.Context(), texts(1))
	assert.Equal(t, sent+2, w.model.Stats().Texts)
}

// A cache that fails ends the run; what was embedded already is not lost to its
// caller.
func TestCacheFails(t *testing.T) {
	w := newWorld(t, llmtest.Options{}, llm.Config{})
	full := errors.New("the disk is full")
	kept := &cache{spaces: map[string]map[string][]float32{}, keep: full}
	w.config.Cache = kept
	requireVectors(t, texts(2), w.embedder().Vectors(t.Context(), texts(2)))
	require.ErrorIs(t, w.ending.Reason(), full)
	assert.Equal(t, stop.Fault, w.ending.Reason().Kind)

	kept.read = full
	sent := w.model.Stats().Requests
	answers := w.embedder().Vectors(t.Context(), texts(3))
	require.ErrorIs(t, w.ending.Reason(), full)
	require.ErrorIs(t, answers["h2"].Err, stop.ErrEnded)
	assert.Equal(t, sent, w.model.Stats().Requests, "nothing is paid for again")
}
