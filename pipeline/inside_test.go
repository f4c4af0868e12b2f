package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// However many callers there are and however the doomed calls interleave, no
// more than FailMax of them are sent.
func TestGateLetsNoMoreThanFailMaxDoomedCallsThrough(t *testing.T) {
	for seed := range 200 {
		synctest.Test(t, func(t *testing.T) {
			breaker := testutil.NewBreaker(t, "llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
			g := newGate(breaker, llm.Classify, 5, make(chan struct{}))
			var sent atomic.Int64
			var callers sync.WaitGroup
			for range 20 + seed%30 {
				callers.Go(func() {
					for range 5 {
						err := g.do(t.Context(), "call", func() error {
							return breaker.Do(t.Context(), func(context.Context) error {
								sent.Add(1)
								return errors.New("down")
							})
						})
						assert.Error(t, err)
					}
				})
			}
			callers.Wait()
			assert.Equal(t, int64(5), sent.Load())
		})
	}
}

// Calls that were in flight when an outage began, and end well in the middle of
// it, clear the breaker's streak; they do not buy more doomed calls.
func TestLateGoodAnswersBuyNoDoomedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaker := testutil.NewBreaker(t, "llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
		g := newGate(breaker, llm.Classify, 5, make(chan struct{}))
		doomed := 0
		call := func(wait <-chan struct{}, err error) {
			_ = g.do(t.Context(), "call", func() error {
				return breaker.Do(t.Context(), func(context.Context) error {
					if err != nil {
						doomed++
					}
					<-wait
					return err
				})
			})
		}
		now, late := make(chan struct{}), make(chan struct{})
		close(now)
		go call(late, nil)
		synctest.Wait()
		for range 3 {
			call(now, errors.New("down"))
		}
		close(late) // one good answer from before the outage
		synctest.Wait()
		assert.Zero(t, breaker.Snapshot().Streak)
		for range 10 {
			call(now, errors.New("down"))
		}
		assert.Equal(t, 5, doomed)
		assert.Equal(t, resilience.Open, breaker.State())
	})
}

// Behind one breaker one operation fails and another is answered well, as where
// a chat model is down and the embedding model is another server: the good
// answers buy no doomed calls.
func TestGoodAnswersToAnotherOperationBuyNoDoomedCalls(t *testing.T) {
	for seed := range 200 {
		synctest.Test(t, func(t *testing.T) {
			breaker := testutil.NewBreaker(t, "llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
			g := newGate(breaker, llm.Classify, 5, make(chan struct{}))
			var doomed atomic.Int64
			call := func(operation string, fn func() error) {
				_ = g.do(t.Context(), operation, func() error {
					return breaker.Do(t.Context(), func(context.Context) error { return fn() })
				})
			}
			var callers sync.WaitGroup
			for range 1 + seed%12 {
				callers.Go(func() {
					for range 20 {
						call("create_chat_completion", func() error { doomed.Add(1); return errors.New("down") })
					}
				})
				callers.Go(func() {
					for range 20 {
						call("create_embeddings", func() error { return nil })
					}
				})
			}
			callers.Wait()
			assert.Equal(t, int64(5), doomed.Load())
			assert.Equal(t, resilience.Open, breaker.State())
		})
	}
}

func TestGateClosedAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		g := newGate(testutil.NewBreaker(t, "llm", resilience.Config{}), llm.Classify, 1, closed)
		hold := make(chan struct{})
		go func() { assert.NoError(t, g.do(t.Context(), "call", func() error { <-hold; return nil })) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 2)
		go func() { waiting <- g.do(ctx, "call", func() error { return nil }) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waiting, context.Canceled)
		go func() { waiting <- g.do(t.Context(), "call", func() error { return nil }) }()
		synctest.Wait()
		close(closed)
		require.ErrorIs(t, <-waiting, errStopped)
		close(hold)
	})
}

// A window has no streak: the gate's own limit holds.
func TestGateUnderAWindow(t *testing.T) {
	b := testutil.NewBreaker(t, "llm", resilience.Config{Trip: trip.CountWindow{Size: 10, MinCalls: 10, FailureRate: 0.5}, Logger: slog.New(slog.DiscardHandler)})
	g := newGate(b, llm.Classify, 3, nil)
	assert.Equal(t, 3, g.room(b.Snapshot(), 2))
	b.ForceOpen("test")
	assert.Equal(t, 1, g.room(b.Snapshot(), 0))
}

func TestPacer(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	p := pacer{rate: 4}
	for i, row := range []struct{ now, want time.Duration }{
		{0, 0},
		{0, 250 * time.Millisecond},
		{100 * time.Millisecond, 400 * time.Millisecond},
		{time.Second, 0},
		{time.Second, 250 * time.Millisecond},
		{0, 1500 * time.Millisecond},
	} {
		assert.Equal(t, row.want, p.next(at.Add(row.now)), "row %d: %v", i, row)
	}
	assert.Zero(t, (&pacer{}).next(at))
}

func TestMetadataOfTheUser(t *testing.T) {
	assert.Equal(t, enrichedMeta{Context: "c"}, readMeta(json.RawMessage(`{"summary":3,"TITLE":"x","context":"c","enrichment":"mine"}`)))
	assert.Equal(t, enrichedMeta{}, readMeta(nil))
}

func TestBudgetCountsWhatTheServerDoesNot(t *testing.T) {
	q := &question{prompt: strings.Repeat("word ", 100), tokens: 50}
	says := func(usage openai.Usage) int {
		return spentOn(q, openai.ChatCompletionResponse{
			Choices: []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Content: "some words"}}}, Usage: usage,
		})
	}
	assert.Equal(t, 7, says(openai.Usage{PromptTokens: 3, CompletionTokens: 4}))
	for _, usage := range []openai.Usage{{}, {PromptTokens: -5}} {
		assert.Greater(t, says(usage), 100)
		assert.Less(t, says(usage), 300)
	}
	assert.Equal(t, 1<<30, says(openai.Usage{TotalTokens: 1 << 62}))
}

func TestBudgetWaitsForWhatMayCostLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		require.True(t, b.take(80))
		got := make(chan bool)
		go func() { got <- b.take(30) }()
		synctest.Wait()
		b.settle(80, 50)
		assert.True(t, <-got)
		go func() { got <- b.take(30) }()
		synctest.Wait()
		b.settle(30, 30)
		assert.False(t, <-got, "80 are spent")
		assert.True(t, b.spentUp())
		assert.False(t, b.take(1), "spent is spent")
		assert.Equal(t, 80, b.total())
		assert.True(t, newBudget(0).take(1<<40))
	})
}

func TestChatRequestForModelsThatThink(t *testing.T) {
	usual := chatRequest("gpt-4o-mini", "p", 100)
	assert.Zero(t, usual.MaxCompletionTokens)
	assert.Positive(t, usual.Temperature)
	thinks := chatRequest("o3-mini", "p", 100)
	assert.Equal(t, 800, thinks.MaxCompletionTokens)
	assert.NoError(t, openai.NewReasoningValidator().Validate(thinks))
	q := &question{prompt: "p", tokens: 100}
	assert.Equal(t, 700, q.estimate("o3-mini")-q.estimate("gpt-4o-mini"))
}

func TestQuestionsAreBounded(t *testing.T) {
	p, err := New(Config{
		Collection: "docs", Embeddings: staticmodel.New(), Model: staticmodel.Name, Destination: "test", DryRun: true,
		Enrich: Enrichment{Model: "scribe", Title: true, Summary: true, Context: true},
	})
	require.NoError(t, err)
	r := newRun(t.Context(), p)
	defer r.cancel(nil)
	d := newDocument("docs/huge.jsonl", "")
	d.more = newEnriched()
	d.more.head = strings.Repeat("é", aboutBytes/2)
	row := &pending{before: strings.Repeat("b", beforeBytes), after: strings.Repeat("a", afterBytes)}
	row.Text, row.Heading = strings.Repeat("t", 8192), strings.Repeat("h", 2048)
	assert.Less(t, len(r.enrich.aboutChunk(d, row).prompt), placeBytes+beforeBytes+afterBytes+8192+2048+500)
	about := r.enrich.aboutDocument(d)
	assert.Less(t, len(about.prompt), aboutBytes+500)
	last := &pending{}
	last.Ordinal = contextChunks
	assert.Empty(t, r.enrich.questions([]*part{{doc: d, rows: []*pending{last}}}), "the first chunks alone")
}

func TestFrontAndBackKeepRunes(t *testing.T) {
	for limit := range 8 {
		assert.Equal(t, strings.Repeat("é", limit/2), front("ééé", min(limit, 6)))
		assert.Equal(t, strings.Repeat("é", min(limit, 6)/2), back("ééé", limit))
	}
	assert.Equal(t, "", sentence("\xff\x00", 10))
	assert.Equal(t, "one", sentence(`"one two"`, 6))
}
