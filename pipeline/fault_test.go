package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
)

// However many callers there are and however the doomed calls interleave, no
// more than FailMax of them are sent.
func TestGateLetsNoMoreThanFailMaxDoomedCallsThrough(t *testing.T) {
	for seed := range 200 {
		synctest.Test(t, func(t *testing.T) {
			breaker := resilience.MustNew("llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
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
		breaker := resilience.MustNew("llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
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
			breaker := resilience.MustNew("llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
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
		g := newGate(resilience.MustNew("llm", resilience.Config{}), llm.Classify, 1, closed)
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
	b := resilience.MustNew("llm", resilience.Config{Trip: resilience.CountWindow{Size: 10, MinCalls: 10, FailureRate: 0.5}, Logger: slog.New(slog.DiscardHandler)})
	g := newGate(b, llm.Classify, 3, nil)
	assert.Equal(t, 3, g.room(b.Snapshot(), 2))
	b.ForceOpen("test")
	assert.Equal(t, 1, g.room(b.Snapshot(), 0))
}

// One text that the server always answers with an error is found and is a dead
// letter alone; the breaker stays closed.
func TestPoisonIsFoundAlone(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadRequest} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w := newWorld(t, llmtest.Options{})
			w.corpus(60)
			w.write("poison.txt", "This one holds arsenic in it.")
			w.model.Script(llmtest.Poison("arsenic", llmtest.Status(status)))
			summary, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 60, summary.Ingested)
			assert.Equal(t, 1, summary.DeadLetters)
			poison := w.reports["docs/poison.txt"]
			assert.Equal(t, DeadLetter, poison.Result)
			assert.Equal(t, "embed", poison.Stage)
			assert.Equal(t, "refused by upstream", poison.Kind)
			assert.Zero(t, w.config.LLMGuard.Breaker.Snapshot().Opened)
			w.requireComplete(60)

			again, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 1, again.KnownDeadLetters)
		})
	}
}

// A server that is too slow for large batches gets smaller ones; nothing is
// called poison for being slow.
func TestTimeoutsShrinkBatchesAndKillNothing(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(40)
	w.write("slow.txt", "This one takes for ever.")
	w.model.Script(llmtest.Poison("for ever", llmtest.Hang()))
	embeddings, err := llm.NewClient(llm.Config{BaseURL: w.model.URL, Timeout: 300 * time.Millisecond})
	require.NoError(t, err)
	summary, err := w.run(func(c *Config) { c.Embeddings = embeddings })
	assert.Equal(t, StopDeferred, stopOf(t, err).Kind)
	assert.Equal(t, 40, summary.Ingested)
	assert.Zero(t, summary.DeadLetters)
	assert.Equal(t, Deferred, w.reports["docs/slow.txt"].Result)
	assert.Zero(t, w.config.LLMGuard.Breaker.Snapshot().Opened)

	w.model.Script()
	rest, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, rest.Ingested)
	w.requireComplete(41)
}

// A refusal that the canary gets too is no fault of the documents.
func TestRefusalOfEverythingIsConfiguration(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(10)
	w.model.Script(llmtest.From(2, llmtest.Status(http.StatusBadRequest)))
	summary, err := w.run()
	assert.Equal(t, StopConfiguration, stopOf(t, err).Kind)
	assert.Zero(t, summary.DeadLetters)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusBadRequest)))
	_, err = w.run()
	assert.Equal(t, StopConfiguration, stopOf(t, err).Kind)
}

func TestDeniedAndUnknownModel(t *testing.T) {
	for status, kind := range map[int]StopKind{
		http.StatusUnauthorized: StopDenied, http.StatusForbidden: StopDenied, http.StatusNotFound: StopConfiguration,
	} {
		w := newWorld(t, llmtest.Options{})
		w.corpus(10)
		w.model.Script(llmtest.All(llmtest.Status(status)))
		_, err := w.run()
		assert.Equal(t, kind, stopOf(t, err).Kind, status)
		assert.Equal(t, 1, w.model.Stats().Requests)
		w.model.Script(llmtest.From(2, llmtest.Status(status)))
		_, err = w.run()
		assert.Equal(t, kind, stopOf(t, err).Kind, status)
	}
}

// A batch that the server finds too large is halved, and the size remembered.
func TestBatchesShrink(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge} {
		w := newWorld(t, llmtest.Options{MaxBatch: 5, BatchError: status})
		w.corpus(60)
		summary, err := w.run()
		require.NoError(t, err)
		assert.Equal(t, 60, summary.Ingested)
		w.requireComplete(60)
	}
}

func TestShortRateLimitIsWaitedOut(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(30)
	w.model.Script(llmtest.Rule{First: 2, Last: 3, Fault: llmtest.RateLimit("1")})
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 30, summary.Ingested)

	w.loseJournal()
	w.write("note000.txt", "A new text.")
	before := w.model.Stats().Requests
	w.model.Script(llmtest.From(2, llmtest.RateLimit("600")))
	began := time.Now()
	_, err = w.run()
	stop := stopOf(t, err)
	assert.Equal(t, StopDeferred, stop.Kind)
	assert.Equal(t, before+2, w.model.Stats().Requests, "a long one ends the run")
	assert.WithinRange(t, stop.RetryAt, began.Add(10*time.Minute), time.Now().Add(10*time.Minute))
}

// A server that changes its mind about the dimensions ends the run.
func TestDimensionsChangeInTheMiddle(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1)
	_, err := w.run(func(c *Config) { c.Dimensions = 128 })
	assert.Equal(t, StopConfiguration, stopOf(t, err).Kind)
	w.model.Script(llmtest.From(2, llmtest.Dimensions(128)))
	_, err = w.run()
	assert.Equal(t, StopConfiguration, stopOf(t, err).Kind)
}

func TestMissingBucketAndForeignCollection(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1)
	_, err := w.run(func(c *Config) { c.CreateBucket = false })
	stop := stopOf(t, err)
	assert.Equal(t, StopConfiguration, stop.Kind)
	assert.ErrorContains(t, stop, "does not exist")

	schema := entity.NewSchema().WithName("foreign").WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
		WithMaxLength(64).WithIsPrimaryKey(true)).WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(256))
	require.NoError(t, w.store.CreateCollection(t.Context(), schema, 1))
	_, err = w.run(func(c *Config) { c.Collection = "foreign" })
	assert.ErrorContains(t, err, "not made by penstock")
	_, err = CollectionRecord(t.Context(), vectorstore.Guard{}, w.store, "foreign")
	assert.ErrorContains(t, err, "not made by penstock")
}

func TestDoctor(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	p, err := New(w.config)
	require.NoError(t, err)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusUnauthorized)))
	findings := p.Doctor(t.Context())
	require.Len(t, findings, 3)
	assert.True(t, findings[0].OK)
	assert.Contains(t, findings[0].Detail, "will be made")
	assert.True(t, findings[1].OK)
	assert.Contains(t, findings[1].Detail, "will be made")
	assert.False(t, findings[2].OK)
	assert.Equal(t, StopDenied, findings[2].Stop.Kind)

	without := w.config
	without.CreateBucket = false
	foreign, err := New(without)
	require.NoError(t, err)
	findings = foreign.Doctor(t.Context())
	assert.False(t, findings[0].OK, "the bucket was not made by looking, and will not be")
	assert.Equal(t, StopConfiguration, findings[0].Stop.Kind)

	w.corpus(1)
	w.model.Script()
	_, err = w.run()
	require.NoError(t, err)
	for _, finding := range p.Doctor(t.Context()) {
		assert.True(t, finding.OK, finding.Detail)
	}
	other := w.config
	other.Model = "another"
	p, err = New(other)
	require.NoError(t, err)
	assert.ErrorContains(t, p.Doctor(t.Context())[1].Stop, "another")
}

// crashing is a vector store that dies after some calls: from then on nothing
// is written, as if the process had been killed there.
type crashing struct {
	vectorstore.Store
	left atomic.Int64
}

var errCrash = errors.New("crashed")

func (c *crashing) alive() error {
	if c.left.Add(-1) < 0 {
		return errCrash
	}
	return nil
}

func (c *crashing) Upsert(ctx context.Context, collection, partition string, columns ...entity.Column) (entity.Column, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	return c.Store.Upsert(ctx, collection, partition, columns...)
}

func (c *crashing) DeleteByPks(ctx context.Context, collection, partition string, ids entity.Column) error {
	if err := c.alive(); err != nil {
		return err
	}
	return c.Store.DeleteByPks(ctx, collection, partition, ids)
}

// Wherever the writing stops, each document is as it was or complete, the next
// run mends the rest, and no text is embedded twice.
func TestStopAtEveryWrite(t *testing.T) {
	version := func(v, i int) string {
		var text strings.Builder
		for section := range 3 {
			text.WriteString("# Part " + strconv.Itoa(section) + "\n\nDocument " + strconv.Itoa(i) + " part " + strconv.Itoa(section) + " version " + strconv.Itoa(v*section) + ".\n\n")
		}
		return text.String()
	}
	for writes := range 8 {
		w := newWorld(t, llmtest.Options{})
		for i := range 6 {
			w.write("d"+strconv.Itoa(i)+".md", version(1, i))
		}
		_, err := w.run()
		require.NoError(t, err)
		before := w.requireComplete(6)
		for i := range 6 {
			w.write("d"+strconv.Itoa(i)+".md", version(2, i))
		}
		store := &crashing{Store: w.store}
		store.left.Store(int64(writes))
		_, err = w.run(func(c *Config) { c.Vectors = store })
		if err == nil {
			w.requireComplete(6)
			continue
		}
		if writes == 0 {
			assert.Equal(t, before, w.requireComplete(6), "nothing was written")
		}
		w.loseJournal()
		_, err = w.run()
		require.NoError(t, err)
		w.requireComplete(6)
		assert.LessOrEqual(t, w.model.Stats().Repeated, 2+12, "the checks, and what no store had kept yet")
	}
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

func TestRateIsKept(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(20)
	start := time.Now()
	_, err := w.run(func(c *Config) { c.Rate = 20; c.Batch.Items = 5 })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond, "the check and four batches")
}
