package pipeline_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
)

// One text that the server always answers with an error is found and is a dead
// letter alone; the breaker stays closed.
func TestPoisonIsFoundAlone(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadRequest} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, llmtest.Options{})
			w.corpus(60)
			w.write("poison.txt", "This one holds arsenic in it.")
			w.model.Script(llmtest.Poison("arsenic", llmtest.Status(status)))
			summary, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 60, summary.Ingested)
			assert.Equal(t, 1, summary.DeadLetters)
			poison := w.reports["docs/poison.txt"]
			assert.Equal(t, pipeline.DeadLetter, poison.Result)
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
	embeddings := w.client(llm.Config{Timeout: 300 * time.Millisecond})
	summary, err := w.run(func(c *pipeline.Config) { c.Embeddings = embeddings })
	assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
	assert.Equal(t, 40, summary.Ingested)
	assert.Zero(t, summary.DeadLetters)
	assert.Equal(t, pipeline.Deferred, w.reports["docs/slow.txt"].Result)
	assert.Zero(t, w.config.LLMGuard.Breaker.Snapshot().Opened)

	w.model.Script()
	rest, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, rest.Ingested)
	w.requireComplete(41)
}

// A refusal that the canary gets too is not the fault of the documents.
func TestRefusalOfEverythingIsConfiguration(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(10)
	w.model.Script(llmtest.From(2, llmtest.Status(http.StatusBadRequest)))
	summary, err := w.run()
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
	assert.Zero(t, summary.DeadLetters)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusBadRequest)))
	_, err = w.run()
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
}

func TestDeniedAndUnknownModel(t *testing.T) {
	for status, kind := range map[int]pipeline.StopKind{
		http.StatusUnauthorized: pipeline.StopDenied, http.StatusForbidden: pipeline.StopDenied,
		http.StatusNotFound: pipeline.StopConfiguration,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, llmtest.Options{})
			w.corpus(10)
			w.model.Script(llmtest.All(llmtest.Status(status)))
			_, err := w.run()
			assert.Equal(t, kind, stopOf(t, err).Kind)
			assert.Equal(t, 1, w.model.Stats().Requests)
			w.model.Script(llmtest.From(2, llmtest.Status(status)))
			_, err = w.run()
			assert.Equal(t, kind, stopOf(t, err).Kind)
		})
	}
}

// A batch that the server finds too large is halved, and the size remembered.
func TestBatchesShrink(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, llmtest.Options{MaxBatch: 5, BatchError: status})
			w.corpus(60)
			summary, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 60, summary.Ingested)
			w.requireComplete(60)
		})
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
	assert.Equal(t, pipeline.StopDeferred, stop.Kind)
	assert.Equal(t, before+2, w.model.Stats().Requests, "a long one ends the run")
	assert.WithinRange(t, stop.RetryAt, began.Add(10*time.Minute), time.Now().Add(10*time.Minute+time.Second))
}

// A server that changes its mind about the dimensions ends the run.
func TestDimensionsChangeInTheMiddle(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1)
	_, err := w.run(func(c *pipeline.Config) { c.Dimensions = 128 })
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
	w.model.Script(llmtest.From(2, llmtest.Dimensions(128)))
	_, err = w.run()
	assert.Equal(t, pipeline.StopConfiguration, stopOf(t, err).Kind)
}

func TestMissingBucketAndForeignCollection(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1)
	_, err := w.run(func(c *pipeline.Config) { c.CreateBucket = false })
	stop := stopOf(t, err)
	assert.Equal(t, pipeline.StopConfiguration, stop.Kind)
	assert.ErrorContains(t, stop, "does not exist")

	key := entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).WithMaxLength(64)
	key = key.WithIsPrimaryKey(true)
	vector := entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(256)
	schema := entity.NewSchema().WithName("foreign").WithField(key).WithField(vector)
	require.NoError(t, w.store.CreateCollection(t.Context(), schema, 1))
	_, err = w.run(func(c *pipeline.Config) { c.Collection = "foreign" })
	assert.ErrorContains(t, err, "not made by penstock")
	_, err = pipeline.CollectionRecord(t.Context(), vectorstore.Guard{}, w.store, "foreign")
	assert.ErrorContains(t, err, "not made by penstock")
}

func TestDoctor(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	p, err := pipeline.New(w.config)
	require.NoError(t, err)
	w.model.Script(llmtest.All(llmtest.Status(http.StatusUnauthorized)))
	findings := slices.Collect(p.Findings(t.Context()))
	require.Len(t, findings, 3)
	assert.True(t, findings[0].OK)
	assert.Contains(t, findings[0].Detail, "will be created")
	assert.True(t, findings[1].OK)
	assert.Contains(t, findings[1].Detail, "will be created")
	assert.False(t, findings[2].OK)
	assert.Equal(t, pipeline.StopDenied, findings[2].Stop.Kind)

	without := w.config
	without.CreateBucket = false
	foreign, err := pipeline.New(without)
	require.NoError(t, err)
	findings = slices.Collect(foreign.Findings(t.Context()))
	assert.False(t, findings[0].OK, "the bucket was not made by looking, and will not be")
	assert.Equal(t, pipeline.StopConfiguration, findings[0].Stop.Kind)

	w.corpus(1)
	w.model.Script()
	_, err = w.run()
	require.NoError(t, err)
	for finding := range p.Findings(t.Context()) {
		assert.True(t, finding.OK, finding.Detail)
	}
	other := w.config
	other.Model = "another"
	p, err = pipeline.New(other)
	require.NoError(t, err)
	assert.ErrorContains(t, slices.Collect(p.Findings(t.Context()))[1].Stop, "another")
}

// silent is a model server that accepts a call and says nothing.
type silent struct{}

func (silent) CreateEmbeddings(
	ctx context.Context, _ openai.EmbeddingRequestConverter,
) (answer openai.EmbeddingResponse, err error) {
	<-ctx.Done()
	return answer, ctx.Err()
}

func (silent) CreateChatCompletion(
	ctx context.Context, _ openai.ChatCompletionRequest,
) (answer openai.ChatCompletionResponse, err error) {
	<-ctx.Done()
	return answer, ctx.Err()
}

// A server that accepts the connection and says nothing kept doctor waiting for
// as long as its client would wait, ten minutes for a chat model.
func TestDoctorDoesNotWaitForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStillWorld(t)
		w.config.Embeddings = silent{}
		w.config.Places = map[string]stop.Place{"llm": {Address: "http://silent"}, "s3": {Address: "http://store"}}
		w.config.Enrich = pipeline.Enrichment{Title: true, Client: silent{}, Model: "chat"}
		p, err := pipeline.New(w.config)
		require.NoError(t, err)
		began := time.Now()
		findings := slices.Collect(p.Findings(t.Context()))
		assert.Equal(t, time.Minute, time.Since(began).Round(time.Second), "twice the default")
		require.Len(t, findings, 4)
		assert.True(t, findings[0].OK, findings[0].Detail)
		assert.Equal(t, "http://store", findings[0].Address)
		for i, chat := range []bool{false, true} {
			f := findings[2+i]
			assert.Equal(t, chat, f.Chat)
			assert.False(t, f.OK)
			assert.Equal(t, "no answer within 30s", f.Detail)
			assert.Equal(t, "http://silent", f.Address)
			require.ErrorAs(t, f.Stop, new(*pipeline.SilenceError))
			assert.Equal(t, pipeline.StopDeferred, f.Stop.Kind)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left := slices.Collect(p.Findings(ctx))[2]
		assert.NotErrorAs(t, left.Stop, new(*pipeline.SilenceError), "the caller has left")
		for f := range p.Findings(t.Context()) {
			assert.Equal(t, "s3", f.Upstream)
			break
		}
	})
}

// dies is a vector store that takes so many writes: from then on nothing is
// written, as if the process had been killed there.
func (w *world) dies(writes int) func(*pipeline.Config) {
	return w.hooked(crash(after(writes, isWrite)), nil)
}

// Wherever the writing stops, each document is as it was or complete, the next
// run repairs the rest, and no text is embedded twice.
func TestStopAtEveryWrite(t *testing.T) {
	version := func(v, i int) string {
		var text strings.Builder
		for section := range 3 {
			fmt.Fprintf(&text, "# Part %d\n\nDocument %d part %d version %d.\n\n", section, i, section, v*section)
		}
		return text.String()
	}
	for writes := range 8 {
		t.Run(strconv.Itoa(writes), func(t *testing.T) {
			t.Parallel()
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
			_, err = w.run(w.dies(writes))
			if err == nil {
				w.requireComplete(6)
				return
			}
			if writes == 0 {
				assert.Equal(t, before, w.requireComplete(6), "nothing was written")
			}
			w.loseJournal()
			_, err = w.run()
			require.NoError(t, err)
			w.requireComplete(6)
			assert.Empty(t, w.notes())
			assert.LessOrEqual(t, w.model.Stats().Repeated, 2+12, "the checks, and what no store had kept yet")
		})
	}
}

func TestRateIsKept(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(20)
	start := time.Now()
	_, err := w.run(func(c *pipeline.Config) { c.Rate = 20; c.Batch.Items = 5 })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond, "the check and four batches")
}
