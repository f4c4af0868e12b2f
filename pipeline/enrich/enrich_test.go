package enrich_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// kept are answers in memory. It fails on demand.
type kept struct {
	mu         sync.Mutex
	answers    map[string]string
	read, keep error
}

func (k *kept) Answers(_ context.Context, keys ...string) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := map[string]string{}
	for _, key := range keys {
		if text, ok := k.answers[key]; ok {
			found[key] = text
		}
	}
	return found, k.read
}

func (k *kept) KeepAnswers(ctx context.Context, answers map[string]string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.answers, answers)
	return errors.Join(k.keep, ctx.Err())
}

// world is an enricher in front of a real server, through the real door.
type world struct {
	t      *testing.T
	model  *llmtest.Server
	guard  llm.Guard
	ending *stop.Ending
	kept   *kept
	config enrich.Config
}

func newWorld(t *testing.T, answer func(prompt string) string, client llm.Config) *world {
	t.Helper()
	w := &world{t: t, kept: &kept{answers: map[string]string{}}}
	w.model = llmtest.NewServer(t, llmtest.Options{ReplyTo: func(r openai.ChatCompletionRequest) string {
		return answer(r.Messages[len(r.Messages)-1].Content)
	}})
	client.BaseURL = w.model.URL
	chat, err := llm.NewClient(client)
	require.NoError(t, err)
	w.guard.Breaker = testutil.NewBreaker(t, "llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	w.config = enrich.Config{
		Client: chat, Model: "scribe", Concurrency: 5, Answers: w.kept,
		Wanted: enrich.Wanted{Title: true, Summary: true, Context: true},
	}
	return w
}

func always(answer string) func(string) string { return func(string) string { return answer } }

// enricher makes one for a run of its own.
func (w *world) enricher() *enrich.Enricher {
	w.ending = stop.NewEnding(w.t.Context())
	config := w.config
	config.Guard = w.guard
	config.Server = modelserver.New(modelserver.Config{
		Service: service.Models(w.guard), Ending: w.ending, MaxPause: time.Second,
	})
	return enrich.New(config)
}

// chunks are questions about n chunks.
func chunks(e *enrich.Enricher, n int) []*enrich.Question {
	var list []*enrich.Question
	for i := range n {
		list = append(list, e.AboutChunk("Pumps.", "", "", fmt.Sprintf("Pump %d ran for hours.", i), ""))
	}
	return list
}

func TestAsk(t *testing.T) {
	w := newWorld(t, func(prompt string) string {
		if strings.HasPrefix(prompt, "<document>") {
			return "```json\n{\"title\": \"Pumps\", \"summary\": \"They ran.\"}\n```"
		}
		return "It is about a pump."
	}, llm.Config{})
	e := w.enricher()
	about := e.AboutDocument("Pumps ran.", false)
	questions := append(chunks(e, 10), about)
	require.True(t, e.Open())
	e.Ask(t.Context(), questions)
	spent := 0
	for _, q := range questions {
		require.NoError(t, q.Err)
		assert.NotEmpty(t, q.Text)
		assert.Positive(t, q.Spent)
		assert.Equal(t, q.Key, q.Receipt())
		spent += q.Spent
	}
	title, summary := about.Description()
	assert.Equal(t, [2]string{"Pumps", "They ran."}, [2]string{title, summary})
	assert.Greater(t, e.Spent(), spent, "the check costs as well")
	assert.Len(t, w.kept.answers, 11)
	assert.Equal(t, 12, w.model.Stats().Requests)

	again := w.enricher()
	questions = append(chunks(again, 10), again.AboutDocument("Pumps ran.", false))
	again.Ask(t.Context(), questions)
	for _, q := range questions {
		require.NoError(t, q.Err)
		assert.NotEmpty(t, q.Receipt())
	}
	assert.Zero(t, again.Spent())
	assert.Equal(t, 12, w.model.Stats().Requests, "everything was found, and nothing checked")
}

// Equal questions at the same time are one; only the one that is sent has spent
// anything.
func TestEqualQuestionsAreOne(t *testing.T) {
	w := newWorld(t, always("It is about a pump."), llm.Config{})
	e := w.enricher()
	var questions []*enrich.Question
	for range 50 {
		questions = append(questions, chunks(e, 1)...)
	}
	var callers sync.WaitGroup
	for _, q := range questions {
		callers.Go(func() { e.Ask(t.Context(), []*enrich.Question{q}) })
	}
	callers.Wait()
	paid := 0
	for _, q := range questions {
		require.NoError(t, q.Err)
		assert.Equal(t, "It is about a pump.", q.Text)
		assert.True(t, q.Kept)
		if q.Spent > 0 {
			paid++
		}
	}
	assert.Equal(t, 1, paid)
	assert.Equal(t, 2, w.model.Stats().Requests)
}

// What the budget does not allow is not asked. Once it has refused a question
// it refuses all, however small they are.
func TestBudget(t *testing.T) {
	w := newWorld(t, always("It is about a pump."), llm.Config{})
	w.config.Budget = 1000
	e := w.enricher()
	questions := chunks(e, 100)
	e.Ask(t.Context(), questions)
	answered := 0
	for _, q := range questions {
		if q.Err == nil {
			answered++
			continue
		}
		require.ErrorIs(t, q.Err, enrich.ErrBudget)
		assert.False(t, q.Kept)
	}
	assert.Positive(t, answered)
	assert.Less(t, answered, 100)
	assert.LessOrEqual(t, e.Spent(), 1000)
	assert.True(t, e.SpentUp())
	assert.False(t, e.Open())
	assert.Nil(t, w.ending.Reason())

	w.config.Budget, w.config.Wanted = 0, enrich.Wanted{}
	assert.False(t, w.enricher().Open(), "nothing is wanted")
}

func TestModelIsCheckedBeforeTheFirstQuestion(t *testing.T) {
	for status, want := range map[int]stop.Kind{
		http.StatusUnauthorized: stop.Denied, http.StatusNotFound: stop.Configuration,
		http.StatusBadRequest: stop.Configuration, http.StatusInternalServerError: stop.Deferred,
	} {
		w := newWorld(t, always("Yes."), llm.Config{})
		w.model.Script(llmtest.All(llmtest.Status(status)))
		e := w.enricher()
		questions := chunks(e, 20)
		e.Ask(t.Context(), questions)
		for _, q := range questions {
			var f *stop.Failure
			require.ErrorAs(t, q.Err, &f)
			assert.True(t, f.Deferred)
		}
		require.NotNil(t, w.ending.Reason())
		assert.Equal(t, want, w.ending.Reason().Kind)
		assert.Contains(t, w.ending.Reason().Error(), `chat model "scribe"`)
		assert.Equal(t, 1, w.model.Stats().Requests)
		assert.Zero(t, e.Spent())
		require.Error(t, e.Check(t.Context()))
	}
}

// checked is an enricher whose model is known to work.
func (w *world) checked() *enrich.Enricher {
	w.t.Helper()
	e := w.enricher()
	require.NoError(w.t, e.Check(w.t.Context()))
	return e
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t, always("It is about a pump."), llm.Config{})
	e := w.checked()
	w.model.Script(llmtest.First(3, llmtest.Fault{Status: 429, Header: http.Header{"Retry-After-Ms": {"5"}}}))
	questions := chunks(e, 10)
	e.Ask(t.Context(), questions)
	for _, q := range questions {
		require.NoError(t, q.Err)
	}

	e = w.checked()
	w.model.Script(llmtest.All(llmtest.RateLimit("3600")))
	began := time.Now()
	e.Ask(t.Context(), []*enrich.Question{e.AboutDocument("New.", false)})
	require.NotNil(t, w.ending.Reason())
	assert.Equal(t, stop.Deferred, w.ending.Reason().Kind)
	assert.WithinRange(t, w.ending.Reason().RetryAt, began.Add(time.Hour), time.Now().Add(time.Hour+time.Second))
}

// A text that the model fails on each time has no answer, and is not asked
// about again. One that it refuses has none either.
func TestPoison(t *testing.T) {
	for name, row := range map[string]struct {
		fault llmtest.Fault
		kept  bool
	}{
		"500":        {llmtest.Status(500), true},
		"no choices": {llmtest.Answer(200, `{"choices":[]}`), true},
		"400":        {llmtest.Status(400), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, always("It is about a pump."), llm.Config{})
			w.model.Script(llmtest.Poison("arsenic", row.fault))
			e := w.enricher()
			poison := e.AboutChunk("", "", "", "This one holds arsenic in it.", "")
			questions := append(chunks(e, 10), poison)
			e.Ask(t.Context(), questions)
			for _, q := range questions {
				require.NoError(t, q.Err)
				assert.Equal(t, q == poison, q.Text == "")
			}
			assert.Equal(t, row.kept, poison.Kept)
			assert.Zero(t, w.guard.Breaker.Snapshot().Opened)
			assert.Nil(t, w.ending.Reason())
		})
	}
}

// A question that is refused costs one request, and no document.
func TestRefusalOfEverything(t *testing.T) {
	w := newWorld(t, always("It is about a pump."), llm.Config{})
	e := w.checked()
	w.model.Script(llmtest.All(llmtest.Status(http.StatusBadRequest)))
	before := w.model.Stats().Requests
	questions := chunks(e, 10)
	e.Ask(t.Context(), questions)
	for _, q := range questions {
		require.NoError(t, q.Err)
		assert.Empty(t, q.Text)
		assert.False(t, q.Kept)
	}
	assert.Nil(t, w.ending.Reason())
	assert.Equal(t, before+10, w.model.Stats().Requests)
}

// A text that only takes too long is asked about by a later run, and so is one
// that fails while the model comes and goes.
func TestLater(t *testing.T) {
	w := newWorld(t, always("It is about a pump."), llm.Config{ChatTimeout: 100 * time.Millisecond})
	w.model.Script(llmtest.Poison("arsenic", llmtest.Hang()))
	e := w.enricher()
	slow := e.AboutChunk("", "", "", "This one holds arsenic in it.", "")
	e.Ask(t.Context(), append(chunks(e, 3), slow))
	require.ErrorIs(t, slow.Err, enrich.ErrLater)
	assert.False(t, slow.Kept)

	e = w.checked()
	w.model.Script(
		llmtest.Poison("arsenic", llmtest.Status(500)),
		llmtest.Rule{First: 6, Last: 6, Fault: llmtest.Status(500)}, // the second witness
	)
	flaky := e.AboutChunk("", "", "", "This one holds arsenic in it.", "")
	e.Ask(t.Context(), []*enrich.Question{flaky})
	require.ErrorIs(t, flaky.Err, enrich.ErrLater)
	assert.False(t, flaky.Kept)
	assert.Nil(t, w.ending.Reason())
}

func TestOutage(t *testing.T) {
	w := newWorld(t, always("It is about a pump."), llm.Config{})
	w.config.Concurrency = 1
	e := w.checked()
	w.model.Script(llmtest.From(3, llmtest.Status(500)))
	sent := w.model.Stats().Requests
	questions := chunks(e, 30)
	e.Ask(t.Context(), questions)
	require.NoError(t, questions[1].Err)
	var f *stop.Failure
	require.ErrorAs(t, questions[29].Err, &f)
	assert.Equal(t, sent+2+5, w.model.Stats().Requests)
	assert.Equal(t, stop.Deferred, w.ending.Reason().Kind)
	assert.Equal(t, resilience.Open, w.guard.Breaker.State())
}

func TestOpenBreakerSendsNothing(t *testing.T) {
	w := newWorld(t, always("Yes."), llm.Config{})
	w.guard.Breaker.ForceOpen("test")
	e := w.enricher()
	e.Ask(t.Context(), chunks(e, 10))
	require.ErrorIs(t, w.ending.Reason(), resilience.ErrOpen)
	assert.Zero(t, w.model.Stats().Requests)
}

func TestAnswersCannotBeKept(t *testing.T) {
	full := errors.New("the disk is full")
	w := newWorld(t, always("It is about a pump."), llm.Config{})
	w.kept.keep = full
	e := w.enricher()
	questions := chunks(e, 1)
	e.Ask(t.Context(), questions)
	require.NoError(t, questions[0].Err)
	require.ErrorIs(t, w.ending.Reason(), full)
	assert.Equal(t, stop.Fault, w.ending.Reason().Kind)

	w.kept.keep, w.kept.read = nil, full
	e = w.enricher()
	sent := w.model.Stats().Requests
	questions = chunks(e, 5)
	e.Ask(t.Context(), questions)
	require.ErrorIs(t, questions[4].Err, stop.ErrEnded)
	require.ErrorIs(t, w.ending.Reason(), full)
	assert.Equal(t, sent, w.model.Stats().Requests, "nothing is paid for again")
}

// Answers that lie or are garbage are useless, or are cut to size. They are
// kept, so that they are paid for once.
func TestGarbageAnswers(t *testing.T) {
	type texts struct{ title, summary, context string }
	for name, row := range map[string]struct {
		answer string
		want   texts
	}{
		"empty":       {"  \n", texts{}},
		"dots":        {"…", texts{}},
		"broken JSON": {`{"title": "A`, texts{}},
		"1 MB":        {strings.Repeat("many words ", 100_000), texts{}},
		"plain text":  {"It is about valves.", texts{"", "It is about valves.", "It is about valves."}},
		"control characters": {
			"It\x1b[31m is\x00 \u202eabout\nvalves.", texts{"", "It [31m is about valves.", "It [31m is about valves."},
		},
		"thoughts": {"<think>hm {}</think> {\"summary\": \"Valves.\"}", texts{"", "Valves.", "Valves."}},
		"words around it": {
			`Sure: {"title": "A", "summary": "B."}!`, texts{"A", "B.", `Sure: {"title": "A", "summary": "B."}!`},
		},
		"other fields": {`{"titel": "x", "summary": 3}`, texts{}},
		"too long": {strings.Repeat("word ", 1000), texts{
			"", strings.TrimSpace(strings.Repeat("word ", 160)), strings.TrimSpace(strings.Repeat("word ", 80)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, always(row.answer), llm.Config{})
			e := w.enricher()
			about, chunk := e.AboutDocument("A valve was opened.", false), chunks(e, 1)[0]
			e.Ask(t.Context(), []*enrich.Question{about, chunk})
			title, summary := about.Description()
			assert.Equal(t, row.want, texts{title, summary, chunk.Text})
			assert.True(t, about.Kept && chunk.Kept)
		})
	}
}

// An answer that was cut off is useless. Where the server does not say what
// it cost, that is estimated.
func TestTruncatedAnswer(t *testing.T) {
	w := newWorld(t, always("Yes."), llm.Config{})
	e := w.checked()
	body, err := json.Marshal(openai.ChatCompletionResponse{Choices: []openai.ChatCompletionChoice{{
		FinishReason: openai.FinishReasonLength, Message: openai.ChatCompletionMessage{Content: "It continues and"},
	}}})
	require.NoError(t, err)
	w.model.Script(llmtest.All(llmtest.Answer(200, string(body))))
	about, chunk := e.AboutDocument("A valve was opened.", false), chunks(e, 1)[0]
	e.Ask(t.Context(), []*enrich.Question{about, chunk})
	for _, q := range []*enrich.Question{about, chunk} {
		require.NoError(t, q.Err)
		assert.Empty(t, q.Text)
		assert.True(t, q.Kept)
		assert.Positive(t, q.Spent)
	}
}
