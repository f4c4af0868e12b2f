package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// scribe answers as a chat model does. No two of its answers are alike, so that
// a question that is asked again shows.
type scribe struct {
	mu     sync.Mutex
	asked  map[string]int // by prompt, the check of the model left out
	answer func(prompt string, n int) string
}

func (s *scribe) reply(r openai.ChatCompletionRequest) string {
	prompt := r.Messages[len(r.Messages)-1].Content
	if !strings.HasPrefix(prompt, "<") { // the check of the model
		return "It does."
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[prompt]++
	n := 0
	for _, times := range s.asked {
		n += times
	}
	if s.answer != nil {
		return s.answer(prompt, n)
	}
	if strings.HasPrefix(prompt, "<document>") {
		return fmt.Sprintf("```json\n{\"title\": \"Title %d\", \"summary\": \"Summary %d.\"}\n```", n, n)
	}
	return fmt.Sprintf("Context %d.", n)
}

// total is how many questions were asked. It requires that none was asked
// twice.
func (s *scribe) total(t *testing.T) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for prompt, n := range s.asked {
		require.Equal(t, 1, n, "asked and paid for more than once: %s", prompt)
	}
	return len(s.asked)
}

// newScribe is a world whose chat model is a scribe.
func newScribe(t *testing.T) (*world, *scribe) {
	t.Helper()
	s := &scribe{asked: map[string]int{}}
	w := newWorld(t, llmtest.Options{ReplyTo: s.reply})
	w.config.Enrich = pipeline.Enrichment{
		Client: w.client(llm.Config{}), Model: "scribe", Title: true, Summary: true, Context: true,
	}
	return w, s
}

// enrichedMeta is what enrichment leaves in the metadata of a row.
type enrichedMeta struct {
	Title, Summary, Context string
	Enrichment              struct{ Pending bool }
}

func readMeta(t testing.TB, encoded json.RawMessage) (meta enrichedMeta) {
	t.Helper()
	require.NoError(t, json.Unmarshal(encoded, &meta))
	return meta
}

// metas are the metadata of a document's rows, in order.
func (w *world) metas(source string) (list []enrichedMeta) {
	w.t.Helper()
	for _, row := range w.rowsOf(source) {
		list = append(list, readMeta(w.t, row.Meta))
	}
	return list
}

func plainly(c *pipeline.Config) { c.Enrich = pipeline.Enrichment{} }

func within(tokens int) func(*pipeline.Config) {
	return func(c *pipeline.Config) { c.Enrich.Budget = tokens }
}

const chatPath = "/v1/chat/completions"

// sections is a document of n sections, each a chunk.
func sections(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "# Chapter %d\n\nChapter %d tells of pump %d, which ran for %d hours.\n\n", i, i, i*3, i*17)
	}
	return text.String()
}

func TestEnrichmentIsStoredAndFound(t *testing.T) {
	w, s := newScribe(t)
	w.write("note.txt", "The valve of the old pump was opened at noon.")
	w.write("book.md", sections(3))
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 2, summary.Ingested)
	assert.Equal(t, 2+1+3, s.total(t), "one question a document, one a chunk")
	assert.Positive(t, summary.ChatTokens)
	assert.Zero(t, summary.Unanswered+summary.Unenriched)
	note := w.metas("docs/note.txt")
	require.Len(t, note, 1)
	assert.Regexp(t, `^Title \d$`, note[0].Title)
	assert.Regexp(t, `^Summary \d\.$`, note[0].Summary)
	assert.Regexp(t, `^Context \d\.$`, note[0].Context)
	for _, meta := range w.metas("docs/book.md") {
		assert.Equal(t, "Chapter 0", meta.Title, "a document keeps a title of its own")
		assert.Regexp(t, `^Summary \d\.$`, meta.Summary)
	}

	list := w.rowsOf("docs/note.txt")
	assert.Equal(t, "The valve of the old pump was opened at noon.", list[0].Text, "the stored text is the document's")
	assert.Equal(t, rows.TextHash(note[0].Context+"\n\n"+list[0].Text), list[0].TextSHA, "the context is embedded")

	hits, err := w.pipeline().Search(t.Context(), "old pump valve", pipeline.SearchOptions{Limit: 1})
	require.NoError(t, err)
	require.Len(t, hits, 1)
	assert.Equal(t, note[0], readMeta(t, hits[0].Meta))

	requests := w.model.Stats().Requests
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 2, again.Unchanged)
	assert.Equal(t, requests, w.model.Stats().Requests, "no work, no check, no call")
}

func TestWithoutEnrichmentNothingIsAsked(t *testing.T) {
	w, s := newScribe(t)
	w.write("book.md", sections(2))
	_, err := w.run(func(c *pipeline.Config) { c.Enrich.Summary, c.Enrich.Context = false, false })
	require.NoError(t, err)
	assert.Zero(t, s.total(t), "it has a title")
	assert.Zero(t, w.model.Stats().ByPath[chatPath], "no question, no check of the chat model")
}

// Only what changed is asked about, and the rest of the rows stay.
func TestChangedDocumentPaysForWhatChanged(t *testing.T) {
	w, s := newScribe(t)
	w.config.Enrich.Title, w.config.Enrich.Summary = false, false
	w.write("book.md", sections(120))
	_, err := w.run()
	require.NoError(t, err)
	require.Equal(t, 120, s.total(t))

	w.write("book.md", strings.Replace(sections(120), "pump 300", "no pump", 1))
	changed, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 123, s.total(t), "the chunk and its neighbours")
	assert.Equal(t, 3, changed.Embedded)
	w.requireComplete(1)

	w.loseJournal()
	w.write("book.md", strings.Replace(sections(120), "pump 300", "two pumps", 1))
	changed, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 126, s.total(t), "the answers to the rest are found in the rows")
	assert.Equal(t, 3, changed.Embedded)
	w.requireComplete(1)
}

// The stores are the truth: with the journal lost, nothing is asked again.
func TestEnrichmentSurvivesALostJournal(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(10)
	w.write("large.md", sections(700)) // in parts
	_, err := w.run()
	require.NoError(t, err)
	ids, asked := w.requireComplete(11), s.total(t)
	assert.Equal(t, 10+10+1+700, asked)
	w.loseJournal()
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 11, again.Ingested)
	assert.Zero(t, again.Embedded+again.ChatTokens)
	assert.Equal(t, asked, s.total(t))
	assert.Equal(t, ids, w.requireComplete(11), "the same ids")

	third, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 11, third.Unchanged)
}

// A run that does not enrich leaves enriched documents as they are, with a
// journal and without; one that has changed is ingested as it says.
func TestRunWithoutEnrichmentUndoesNothing(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(5)
	w.write("large.md", sections(700))
	_, err := w.run()
	require.NoError(t, err)
	ids, asked := w.requireComplete(6), s.total(t)

	without, err := w.run(plainly)
	require.NoError(t, err)
	assert.Equal(t, 6, without.Unchanged)

	w.loseJournal()
	without, err = w.run(plainly)
	require.NoError(t, err)
	assert.Equal(t, 6, without.Ingested)
	assert.Zero(t, without.Embedded+without.Removed)
	assert.Equal(t, ids, w.requireComplete(6))

	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 6, again.Unchanged, "what was found is known to be enriched")

	w.write("note003.txt", "Note 3 has changed.")
	changed, err := w.run(plainly)
	require.NoError(t, err)
	assert.Equal(t, 1, changed.Ingested)
	assert.Equal(t, []enrichedMeta{{}}, w.metas("docs/note003.txt"))
	w.requireComplete(6)
	back, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, back.Ingested)
	assert.Equal(t, asked+2, s.total(t))
	assert.NotEmpty(t, w.metas("docs/note003.txt")[0].Context)
}

// Another model, or something more to ask for, enriches again.
func TestAnotherEnrichment(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(3)
	_, err := w.run(func(c *pipeline.Config) { c.Enrich.Context = false })
	require.NoError(t, err)
	require.Equal(t, 3, s.total(t))
	more, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 3, more.Ingested)
	assert.Equal(t, 6, s.total(t), "the contexts alone")
	w.requireComplete(3)

	other, err := w.run(func(c *pipeline.Config) { c.Enrich.Model = "other" })
	require.NoError(t, err)
	assert.Equal(t, 3, other.Ingested)
	s.mu.Lock()
	defer s.mu.Unlock()
	for prompt, n := range s.asked {
		assert.Equal(t, 2, n, prompt)
	}
}

// A budget that is spent leaves the rest without enrichment, and says so; the
// runs after it continue where it ended, and pay for nothing twice.
func TestBudget(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(40)
	w.write("large.md", sections(300))
	first, err := w.run(within(8000))
	require.NoError(t, err)
	assert.Equal(t, 41, first.Ingested, "all are ingested")
	assert.LessOrEqual(t, first.ChatTokens, 8000)
	assert.Positive(t, first.ChatTokens)
	assert.Positive(t, first.Unenriched)
	marked := 0
	for _, d := range w.reports {
		if d.Unenriched {
			marked++
		}
	}
	assert.Equal(t, first.Unenriched, marked)
	w.requireComplete(41)
	asked := s.total(t)
	assert.Less(t, asked, 381)

	tiny, err := w.run(within(1))
	require.NoError(t, err)
	assert.Equal(t, first.Unenriched, tiny.Unenriched, "what waits is counted again")
	assert.Zero(t, tiny.Embedded+tiny.ChatTokens+tiny.Removed, "and nothing is done over")
	assert.Equal(t, asked, s.total(t))

	without, err := w.run(plainly)
	require.NoError(t, err)
	assert.Equal(t, 41, without.Unchanged)

	for left := first.Unenriched; left > 0; {
		before := s.total(t)
		next, err := w.run(within(8000))
		require.NoError(t, err)
		assert.LessOrEqual(t, next.Unenriched, left)
		require.Greater(t, s.total(t), before, "each run proceeds")
		left = next.Unenriched
		w.requireComplete(41)
	}
	assert.Equal(t, 40+40+1+300, s.total(t))
	for _, row := range w.rows() {
		meta := readMeta(t, row.Meta)
		assert.NotEmpty(t, meta.Summary, row.Source)
		assert.NotEmpty(t, meta.Context, row.Source)
		assert.False(t, meta.Enrichment.Pending)
	}
	verification, faults := w.verified(false)
	assert.True(t, verification.Consistent(), "%v", faults)
	done, err := w.run(within(1))
	require.NoError(t, err)
	assert.Equal(t, 41, done.Unchanged)
	assert.Zero(t, done.Unenriched)
}

// A run with another model and no budget leaves what is enriched as it is.
func TestAnotherModelWithoutBudgetUndoesNothing(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(20)
	w.write("large.md", sections(300))
	_, err := w.run()
	require.NoError(t, err)
	ids, asked := w.requireComplete(21), s.total(t)
	other := func(c *pipeline.Config) { c.Enrich.Model, c.Enrich.Budget = "other", 1 }
	for range 2 {
		summary, err := w.run(other)
		require.NoError(t, err)
		assert.Equal(t, 21, summary.Unenriched)
		assert.Equal(t, 21, summary.Unchanged)
		assert.Equal(t, ids, w.requireComplete(21))
	}
	w.loseJournal()
	summary, err := w.run(other)
	require.NoError(t, err)
	assert.Equal(t, 21, summary.Ingested)
	assert.Equal(t, ids, w.requireComplete(21), "nor where the journal is lost")
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 21, again.Unchanged, "and known to be enriched by the first")
	assert.Equal(t, asked, s.total(t))
}

// A read that fails does not make the run pay again for what it would have
// found.
func TestAnswersThatCannotBeReadBack(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(5)
	_, err := w.run()
	require.NoError(t, err)
	asked := s.total(t)
	w.loseJournal()
	_, err = w.run(w.hooked(on("Query", func(_ context.Context, c call) error {
		if slices.Contains(c.fields, rows.Field.Meta) {
			return status.Error(codes.Unavailable, "gone")
		}
		return nil
	}), nil))
	require.Error(t, err)
	assert.Equal(t, asked, s.total(t))
	_, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, asked, s.total(t))
}

// A process is killed when documents are enriched and their plain rows not
// deleted yet; the run after it, which enriches nothing, repairs them.
func TestKilledBetweenPlainAndEnriched(t *testing.T) {
	for calls := range 3 {
		t.Run(strconv.Itoa(calls), func(t *testing.T) {
			t.Parallel()
			w, _ := newScribe(t)
			for i := range 10 {
				w.write(fmt.Sprintf("book%d.md", i), fmt.Sprintf("# Book %d\n\n", i)+sections(3))
			}
			_, err := w.run(plainly)
			require.NoError(t, err)
			_, err = w.run(w.dies(calls))
			require.Error(t, err)
			_, err = w.run(plainly)
			require.NoError(t, err)
			w.requireComplete(10)
			again, err := w.run(plainly)
			require.NoError(t, err)
			assert.Equal(t, 10, again.Unchanged)
		})
	}
}

// A journal that is lost while documents wait for their enrichment: they still
// do.
func TestPendingSurvivesALostJournal(t *testing.T) {
	w, s := newScribe(t)
	w.write("large.md", sections(300))
	first, err := w.run(within(6000))
	require.NoError(t, err)
	require.Equal(t, 1, first.Unenriched)
	asked := s.total(t)
	w.loseJournal()
	adopted, err := w.run(plainly)
	require.NoError(t, err)
	assert.Zero(t, adopted.Embedded)
	rest, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, rest.Ingested)
	assert.Equal(t, 301, s.total(t))
	assert.Less(t, asked, 301)
	w.requireComplete(1)
}

// The chat model fails in the middle: five doomed calls, and the next run pays
// for nothing twice.
func TestChatFailsInTheMiddle(t *testing.T) {
	for name, fault := range map[string]llmtest.Fault{
		"500": llmtest.Status(500), "dropped": llmtest.Drop(), "no choices": llmtest.Answer(200, `{"choices":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := newScribe(t)
			w.corpus(30)
			rule := llmtest.From(12, fault)
			w.model.Script(rule)
			began := time.Now()
			summary, err := w.run()
			stop := stopOf(t, err)
			assert.Equal(t, pipeline.StopDeferred, stop.Kind)
			assert.Equal(t, "llm", stop.Upstream)
			assert.WithinRange(t, stop.RetryAt, began.Add(time.Minute), time.Now().Add(time.Minute+time.Second))
			assert.LessOrEqual(t, w.model.Stats().Requests-11, 5)
			assert.Positive(t, summary.Deferred)
			assert.Zero(t, summary.DeadLetters)
			asked := s.total(t)
			assert.Positive(t, asked)

			w.model.Script()
			rest, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 30, summary.Ingested+rest.Ingested)
			assert.Equal(t, 60, s.total(t))
			w.requireComplete(30)
		})
	}
}

// Both models share a breaker, and "the GPU node is on fire" did not say whose.
func TestCauseNamesTheModelThatFailed(t *testing.T) {
	for path, want := range map[string]string{
		chatPath:         `chat model "scribe": error, status code: 500`,
		"/v1/embeddings": `": error, status code: 500`,
	} {
		for name, rule := range map[string]llmtest.Rule{
			"the first call": {Path: path, Fault: llmtest.Status(http.StatusInternalServerError)},
			"later calls":    {Path: path, First: 4, Fault: llmtest.Status(http.StatusInternalServerError)},
		} {
			w, _ := newScribe(t)
			w.corpus(20)
			w.model.Script(rule)
			summary, err := w.run()
			require.Error(t, err, name)
			require.NotNil(t, summary.Stopped, name)
			assert.Contains(t, summary.Stopped.Cause, want, name)
			assert.Equal(t, path == chatPath, strings.HasPrefix(summary.Stopped.Cause, "chat model "), name)
			assert.Equal(t, path != chatPath, strings.HasPrefix(summary.Stopped.Cause, "embedding model "), name)
		}
	}
}

func TestChatModelIsCheckedBeforeTheFirstQuestion(t *testing.T) {
	for status, want := range map[int]pipeline.StopKind{
		http.StatusUnauthorized: pipeline.StopDenied, http.StatusNotFound: pipeline.StopConfiguration,
		http.StatusBadRequest: pipeline.StopConfiguration, http.StatusInternalServerError: pipeline.StopDeferred,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			w, s := newScribe(t)
			w.corpus(20)
			w.model.Script(llmtest.Rule{Path: chatPath, Fault: llmtest.Status(status)})
			summary, err := w.run()
			stop := stopOf(t, err)
			assert.Equal(t, want, stop.Kind, status)
			assert.Contains(t, stop.Error(), `chat model "scribe"`)
			assert.Positive(t, summary.Deferred)
			assert.Zero(t, summary.Ingested+summary.DeadLetters)
			assert.Equal(t, 1, w.model.Stats().ByPath[chatPath])
			assert.Equal(t, 1, w.model.Stats().Texts, "nothing was paid for but the check of the embedding model")
			assert.Zero(t, s.total(t))
		})
	}
}

func TestChatRateLimit(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(5)
	w.model.Script(llmtest.Rule{Path: chatPath, First: 2, Last: 4, Fault: llmtest.Fault{
		Status: 429, Header: http.Header{"Retry-After-Ms": {"5"}},
	}})
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 5, summary.Ingested)
	assert.Equal(t, 10, s.total(t))

	w.write("more.txt", "One more.")
	w.model.Script(llmtest.Rule{Path: chatPath, Fault: llmtest.RateLimit("3600")})
	began := time.Now()
	_, err = w.run()
	stop := stopOf(t, err)
	assert.Equal(t, pipeline.StopDeferred, stop.Kind)
	assert.WithinRange(t, stop.RetryAt, began.Add(time.Hour), time.Now().Add(time.Hour+time.Second))
}

// One text that the chat model cannot stand leaves its document without the
// field. The breaker stays closed, and it is not asked about again.
func TestChatPoison(t *testing.T) {
	for name, fault := range map[string]llmtest.Fault{
		"500": llmtest.Status(500), "400": llmtest.Status(400), "no choices": llmtest.Answer(200, `{"choices":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := newScribe(t)
			w.corpus(20)
			w.write("poison.txt", "This one holds arsenic in it.")
			w.model.Script(llmtest.Rule{Path: chatPath, Text: "arsenic", Fault: fault})
			summary, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 21, summary.Ingested)
			assert.Equal(t, 2, summary.Unanswered)
			assert.Equal(t, 2, w.reports["docs/poison.txt"].Unanswered)
			assert.Zero(t, w.config.LLMGuard.Breaker.Snapshot().Opened)
			poison := w.metas("docs/poison.txt")[0]
			assert.Empty(t, poison.Title+poison.Summary+poison.Context)
			w.requireComplete(21)
			again, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 21, again.Unchanged)
		})
	}
}

// A server that comes and goes leaves nothing out for good.
func TestFlakyChatModel(t *testing.T) {
	w, _ := newScribe(t)
	w.corpus(40)
	var rules []llmtest.Rule
	for n := 2; n < 1000; n += 2 { // every other question, the check left out
		rules = append(rules, llmtest.Rule{Path: chatPath, First: n, Last: n, Fault: llmtest.Status(500)})
	}
	w.model.Script(rules...)
	_, err := w.run()
	if err != nil {
		require.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
	}
	w.model.Script()
	_, err = w.run()
	require.NoError(t, err)
	w.requireComplete(40)
	for _, row := range w.rows() {
		meta := readMeta(t, row.Meta)
		assert.NotEmpty(t, meta.Title, row.Source)
		assert.NotEmpty(t, meta.Context, row.Source)
	}
}

// A text that only takes too long is asked about again by the next run.
func TestChatIsSlowOnOneText(t *testing.T) {
	w, _ := newScribe(t)
	w.config.Enrich.Client = w.client(llm.Config{ChatTimeout: 100 * time.Millisecond})
	w.corpus(3)
	w.write("slow.txt", "This one holds arsenic in it.")
	w.model.Script(llmtest.Rule{Path: chatPath, Text: "arsenic", Fault: llmtest.Hang()})
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 4, summary.Ingested)
	assert.Equal(t, 1, summary.Unenriched)
	w.model.Script()
	again, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, again.Ingested)
	assert.NotEmpty(t, w.metas("docs/slow.txt")[0].Context)
	w.requireComplete(4)
}

// Answers that lie or are garbage leave the field out or are cut to size; no
// document fails for it, and none is asked about again.
func TestGarbageAnswers(t *testing.T) {
	long := strings.Repeat("many words ", 100_000)
	both := func(text string) enrichedMeta { return enrichedMeta{Summary: text, Context: text} }
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for name, row := range map[string]struct {
		answer  string
		want    enrichedMeta
		useless int
	}{
		"empty":              {"  \n", enrichedMeta{}, 2},
		"dots":               {"…", enrichedMeta{}, 2},
		"broken JSON":        {`{"title": "A`, enrichedMeta{}, 2},
		"1 MB":               {long, enrichedMeta{}, 2},
		"plain text":         {"It is about valves.", both("It is about valves."), 0},
		"control characters": {"It\x1b[31m is\x00 \u202eabout\nvalves.", both("It [31m is about valves."), 0},
		"thoughts":           {"<think>hm {}</think> {\"summary\": \"Valves.\"}", both("Valves."), 0},
		"other fields":       {`{"titel": "x", "summary": 3}`, enrichedMeta{}, 2},
		"too long": {
			strings.Repeat("word ", 1000),
			enrichedMeta{Summary: words(160), Context: words(80)},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := newScribe(t)
			s.answer = func(string, int) string { return row.answer }
			w.write("a.txt", "A valve was opened.")
			summary, err := w.run()
			require.NoError(t, err)
			assert.Equal(t, 1, summary.Ingested)
			assert.Equal(t, row.useless, summary.Unanswered)
			assert.Equal(t, row.want, w.metas("docs/a.txt")[0])
			w.requireComplete(1)

			require.NoError(t, w.config.Journal.Forget(t.Context(), "test", "docs/a.txt"))
			_, err = w.run()
			require.NoError(t, err)
			assert.Equal(t, 2, s.total(t), "garbage is paid for once, too")
		})
	}
}

// An answer that was cut off is not used.
func TestTruncatedAnswer(t *testing.T) {
	w, _ := newScribe(t)
	w.write("a.txt", "A valve was opened.")
	body, err := json.Marshal(openai.ChatCompletionResponse{Choices: []openai.ChatCompletionChoice{{
		FinishReason: openai.FinishReasonLength, Message: openai.ChatCompletionMessage{Content: "It is about the"},
	}}})
	require.NoError(t, err)
	w.model.Script(llmtest.Rule{Path: chatPath, Fault: llmtest.Answer(200, string(body))})
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Ingested)
	assert.Equal(t, 2, summary.Unanswered)
	assert.Positive(t, summary.ChatTokens, "estimated: the server does not say")
}

// A context that the embedding model does not take is dropped, and the document
// is kept.
func TestContextThatCannotBeEmbedded(t *testing.T) {
	w, s := newScribe(t)
	s.answer = func(prompt string, n int) string {
		if strings.Contains(prompt, "valve 13 ") {
			return "This is arsenic."
		}
		return fmt.Sprintf("Answer %d", n)
	}
	w.corpus(10)
	w.model.Script(llmtest.Rule{Path: "/v1/embeddings", Text: "arsenic", Fault: llmtest.Status(400)})
	for range 2 {
		summary, err := w.run()
		require.NoError(t, err)
		assert.Equal(t, 10, summary.Ingested)
		assert.Empty(t, w.metas("docs/note001.txt")[0].Context)
		assert.NotEmpty(t, w.metas("docs/note002.txt")[0].Context)
		w.requireComplete(10)
		w.loseJournal()
	}
}

// Equal texts are asked about once, whichever documents they are in.
func TestEqualTextsAreAskedAboutOnce(t *testing.T) {
	w, s := newScribe(t)
	for i := range 50 {
		w.write(fmt.Sprintf("copy%02d.txt", i), "The same words in every file.")
	}
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 50, summary.Ingested)
	assert.Equal(t, 2, s.total(t))
}

// Calls in flight when the run is interrupted are kept.
func TestInterruptKeepsAnswers(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(40)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.answer = func(_ string, n int) string {
		if n == 20 {
			cancel(errors.New("enough"))
		}
		return fmt.Sprintf("Answer %d", n)
	}
	_, err := w.pipeline().Run(ctx, w.documents())
	assert.Equal(t, pipeline.StopInterrupted, stopOf(t, err).Kind)
	_, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, 80, s.total(t))
	w.requireComplete(40)
}

func TestEnrichmentConfig(t *testing.T) {
	w, _ := newScribe(t)
	for field, change := range map[string]func(*pipeline.Config){
		"Enrich.Client": func(c *pipeline.Config) { c.Enrich.Client = nil },
		"Enrich.Model":  func(c *pipeline.Config) { c.Enrich.Model = "" },
		"Enrich.Budget": func(c *pipeline.Config) { c.Enrich.Budget = -1 },
		"Meta":          func(c *pipeline.Config) { c.Meta = map[string]string{"summary": "mine"} },
	} {
		config := w.config
		change(&config)
		_, err := pipeline.New(config)
		var wrong *pipeline.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
		config.Enrich = pipeline.Enrichment{}
		_, err = pipeline.New(config)
		assert.NoError(t, err, "without enrichment it is nobody's business")
	}
}

// A breaker that is open from the start: nothing is asked.
func TestChatUnderAnOpenBreaker(t *testing.T) {
	w, s := newScribe(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	w.write("new.txt", "A new note.")
	asked := s.total(t)
	p := w.pipeline()
	w.config.LLMGuard.Breaker.ForceOpen("test")
	_, err = p.Run(t.Context(), w.documents())
	stop := stopOf(t, err)
	require.ErrorIs(t, stop, resilience.ErrOpen)
	assert.Equal(t, asked, s.total(t))
}
