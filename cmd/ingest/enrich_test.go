package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

const chatPath = "/v1/chat/completions"

// enriching is a command whose documents are enriched by a chat model.
func enriching(t *testing.T, env ...string) (*command, *llmtest.Server, *prompts) {
	t.Helper()
	p := &prompts{asked: map[string]int{}}
	model := llmtest.NewServer(t, llmtest.Options{ReplyTo: p.reply, Delay: time.Millisecond})
	c := newCommand(t, append([]string{
		"PENSTOCK_CHAT_BASE_URL=" + model.URL, "PENSTOCK_ENRICH=title,summary,context", "PENSTOCK_ENRICH_MODEL=chat",
	}, env...)...)
	return c, model, p
}

// metaOf is what a hit of "search --json" says of its enrichment.
type metaOf struct {
	Title, Summary, Context string
}

func searchMeta(t *testing.T, c *command, question string) metaOf {
	t.Helper()
	found := c.run(t, "--json", "search", "-n1", question)
	require.Zero(t, found.code, found.stderr)
	var hit struct{ Meta metaOf }
	require.NoError(t, json.Unmarshal([]byte(found.stdout), &hit), found.stdout)
	return hit.Meta
}

func TestEnrichedDocumentsAreFound(t *testing.T) {
	for name, env := range map[string]func(*testing.T) []string{
		"embedded": func(*testing.T) []string { return nil },
		"real": func(t *testing.T) []string {
			return real(t, llmtest.NewServer(t, llmtest.Options{}).URL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, model, p := enriching(t, env(t)...)
			corpus(t, c, 3)
			c.write(t, "docs/note.txt", "A note without a title says that the sluice is shut.")
			first := c.ingest(t, "docs")
			require.Zero(t, first.code, first.stdout+first.stderr)
			assert.Positive(t, first.summary.ChatTokens)
			meta := searchMeta(t, c, "A note without a title says that the sluice is shut.")
			assert.Regexp(t, `^Title \d+$`, meta.Title)
			assert.Regexp(t, `^Summary \d+\.$`, meta.Summary)
			assert.Regexp(t, `^Context \d+\.$`, meta.Context)
			distinct, again := p.paid()
			assert.Equal(t, 4+13, distinct)
			assert.Zero(t, again)

			require.NoError(t, os.Remove(c.path(".penstock", "journal.db")))
			requests := model.Stats().ByPath[chatPath]
			lost := c.ingest(t, "docs")
			require.Zero(t, lost.code, lost.stderr)
			assert.Zero(t, lost.summary.Embedded)
			assert.Equal(t, requests, model.Stats().ByPath[chatPath], "a lost journal costs no answer")
			collection := "documents"
			if name == "real" {
				collection = collectionName(t)
			}
			c.stored(t, collection)
		})
	}
}

// A process that is killed in the middle loses no more answers than were on
// their way.
func TestKilledWhileEnriching(t *testing.T) {
	c, model, p := enriching(t)
	corpus(t, c, 60)
	for _, after := range []int{1, 20, 90, 180} {
		cmd := c.start(t.Context(), "docs")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return model.Stats().ByPath[chatPath] >= after },
			time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	o := c.ingest(t, "docs")
	require.Zero(t, o.code, o.stdout+o.stderr)
	distinct, again := p.paid()
	assert.Equal(t, 60+240, distinct)
	assert.LessOrEqual(t, again, 4*5)
	require.Len(t, c.stored(t, "documents"), 240)
	assert.Equal(t, 60, c.ingest(t, "docs").summary.Unchanged)
}

func TestChatModelFailsInTheMiddle(t *testing.T) {
	c, model, p := enriching(t)
	corpus(t, c, 40)
	const good = 50
	model.Script(llmtest.From(good+1, llmtest.Status(http.StatusInternalServerError)))
	o := c.ingest(t, "docs")
	requireRetry(t, o, "llm")
	assert.LessOrEqual(t, model.Stats().Requests-good, 5)
	assert.Equal(t, "open", o.summary.Breakers["llm"])
	assert.Positive(t, o.summary.Deferred)

	model.Script()
	rest := c.ingest(t, "docs", "--now")
	require.Zero(t, rest.code, rest.stdout+rest.stderr)
	distinct, again := p.paid()
	assert.Equal(t, 40+160, distinct)
	assert.Zero(t, again)
	require.Len(t, c.stored(t, "documents"), 160)
}

func TestEnrichmentWithinABudget(t *testing.T) {
	c, _, p := enriching(t)
	corpus(t, c, 20)
	first := c.ingest(t, "--enrich-budget=5000", "docs")
	require.Zero(t, first.code, first.stderr)
	assert.Equal(t, 20, first.summary.Ingested)
	assert.Positive(t, first.summary.Unenriched)
	assert.LessOrEqual(t, first.summary.ChatTokens, 5000)
	waiting := 0
	for _, d := range first.documents {
		if d.Unenriched {
			waiting++
		}
	}
	assert.Equal(t, first.summary.Unenriched, waiting)

	said := c.run(t, "--enrich-budget=1", "docs")
	require.Zero(t, said.code, said.stderr)
	assert.Contains(t, said.stdout, fmt.Sprintf("%d documents are not fully enriched", waiting))

	rest := c.ingest(t, "docs")
	require.Zero(t, rest.code, rest.stderr)
	assert.Equal(t, waiting, rest.summary.Ingested)
	assert.Zero(t, rest.summary.Unenriched)
	distinct, again := p.paid()
	assert.Equal(t, 20+80, distinct)
	assert.Zero(t, again)
	c.stored(t, "documents")
}

func TestChatModelDoesNotFit(t *testing.T) {
	for status, code := range map[int]int{http.StatusNotFound: exitConfiguration, http.StatusUnauthorized: exitDenied} {
		c, model, _ := enriching(t)
		corpus(t, c, 3)
		model.Script(llmtest.All(llmtest.Status(status)))
		o := c.ingest(t, "docs")
		assert.Equal(t, code, o.code, o.stdout+o.stderr)
		assert.Contains(t, o.summary.Stopped.Reason, `chat model "chat"`)
		assert.Equal(t, 1, model.Stats().Requests)
		assert.Zero(t, o.summary.ChatTokens)
		doctor := c.run(t, "doctor")
		assert.Equal(t, code, doctor.code)
		assert.Contains(t, doctor.stdout, `chat model "chat"`)
	}
}

// A real model, and a small one: what it says is not worth much, and must fit.
func TestLlamaEnriches(t *testing.T) {
	c := newCommand(t, "PENSTOCK_CHAT_BASE_URL="+upstreams.Llama(t))
	c.write(t, "docs/pump.txt",
		"The pump in the north tunnel was shut down at noon. Its bearing had run hot for three hours before anybody saw it.")
	args := []string{"--enrich=context", "--enrich-model=smollm2", "docs"}
	o := c.ingest(t, args...)
	require.Zero(t, o.code, o.stdout+o.stderr)
	require.Equal(t, 1, o.summary.Ingested)
	assert.Positive(t, o.summary.ChatTokens)
	meta := searchMeta(t, c, "pump in the north tunnel")
	t.Logf("%d tokens, %d of no use: %+v", o.summary.ChatTokens, o.summary.Unanswered, meta)
	assert.Equal(t, meta.Context == "", o.summary.Unanswered == 1)
	assert.LessOrEqual(t, len(meta.Context), 400)
	assert.Equal(t, 1, c.ingest(t, args...).summary.Unchanged)
}

// serving is the address of a server that answers like this.
func serving(t *testing.T, answer http.HandlerFunc) string {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

// The key of one server is not told to another.
func TestKeyStaysWithItsServer(t *testing.T) {
	for _, row := range []struct {
		name string
		env  []string
		want string
	}{
		{"another server", nil, ""},
		{"its own key", []string{"PENSTOCK_CHAT_API_KEY=sk-chat"}, "Bearer sk-chat"},
	} {
		t.Run(row.name, func(t *testing.T) {
			told := make(chan string, 1)
			chat := serving(t, func(w http.ResponseWriter, r *http.Request) {
				told <- r.Header.Get("Authorization")
				w.WriteHeader(http.StatusUnauthorized)
			})
			c := newCommand(t, append(row.env, "PENSTOCK_LLM_API_KEY=sk-embeddings", "PENSTOCK_ENRICH=summary",
				"PENSTOCK_ENRICH_MODEL=chat", "PENSTOCK_CHAT_BASE_URL="+chat+"/v1")...)
			corpus(t, c, 1)
			o := c.ingest(t, "docs")
			assert.Equal(t, exitDenied, o.code, o.stdout+o.stderr)
			assert.Equal(t, row.want, <-told)
		})
	}
}
