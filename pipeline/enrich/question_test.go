package enrich

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

func asking(t *testing.T, wanted Wanted) *Enricher {
	t.Helper()
	breaker := testutil.NewBreaker(t, "llm", resilience.Config{})
	return New(Config{Model: "scribe", Wanted: wanted, Server: modelserver.New(modelserver.Config{
		Service: service.Models(llm.Guard{Breaker: breaker}), Ending: stop.NewEnding(t.Context()),
	})})
}

// Answers are kept by these keys, and policies are made of these words: where
// they change, everything is paid for again. Then promptVersion must rise.
func TestPromptsAreThoseThatWerePaidFor(t *testing.T) {
	head := "The valve was opened.\n\nIt was closed."
	for key, row := range map[string]struct {
		wanted Wanted
		fields string
		tokens int
		policy []string
	}{
		"181be56ea76f8937df5ccb58e4644e33": {
			Wanted{Title: true, Summary: true, Context: true},
			`"title" (at most 12 words) and "summary" (two or three sentences, at most 60 words).`, 300,
			[]string{"enrich", "1", "scribe", "title", "summary", "context"},
		},
		"e240513e458f6d5e88bd88f8ffde2fa1": {
			Wanted{Title: true}, `"title" (at most 12 words).`, 60, []string{"enrich", "1", "scribe", "title"},
		},
		"fe1aa5d48c876168c3c3e8ca81ae27e5": {
			Wanted{Summary: true},
			`"summary" (two or three sentences, at most 60 words).`, 240,
			[]string{"enrich", "1", "scribe", "summary"},
		},
	} {
		q := asking(t, row.wanted).AboutDocument(head, false)
		assert.Equal(t, key, q.Key)
		assert.Equal(t, row.tokens, q.tokens)
		assert.Equal(t, "<document>\n"+head+"\n</document>\n\nDescribe the document. "+
			"Answer with one JSON object and nothing else. Its fields are texts: "+row.fields, q.prompt)
		assert.Equal(t, row.policy, row.wanted.Policy("scribe"))
	}
	e := asking(t, Wanted{Title: true, Summary: true, Context: true})
	assert.Equal(t, "fe1aa5d48c876168c3c3e8ca81ae27e5", e.AboutDocument(head, true).Key, "it has a title")
	assert.Nil(t, asking(t, Wanted{Title: true}).AboutDocument(head, true), "nothing to ask")

	q := e.AboutChunk("Head.", "", "", "T.", "")
	assert.Equal(t, "436ce8c5a754befe47da02b58169e57a", q.Key)
	assert.Equal(t, "<beginning>\nHead.\n</beginning>\n\n<chunk>\nT.\n</chunk>\n\n"+
		"Say in one short sentence what the chunk is about and where in the document it stands, "+
		"so that a search finds it. Answer with the sentence and nothing else.", q.prompt)
	before, after := strings.Repeat("à", 1000), strings.Repeat("ü", 1000)
	q = e.AboutChunk(strings.Repeat("é", 1500), "A > B", before, "Some text.", after)
	assert.Equal(t, "dfdc216289fa3021dd570727f11ad91b", q.Key)
	sum := sha256.Sum256([]byte(q.prompt))
	assert.Equal(t, "b29d8ce63d797a80464376c0a9692c886cfc6af50ec29f3b11e720ebc63ddd4c", hex.EncodeToString(sum[:]))
}

func TestPromptsAreBounded(t *testing.T) {
	e := asking(t, Wanted{Title: true, Summary: true, Context: true})
	var b Beginning
	for range 100 {
		b.Add(chunk.Chunk{Text: strings.Repeat("é", 100)})
	}
	assert.Less(t, len(e.AboutDocument(b.Head(), false).prompt), aboutBytes+500)
	long := strings.Repeat("é", 5000)
	q := e.AboutChunk(b.Head(), strings.Repeat("h", 2048), long, strings.Repeat("t", 8192), long)
	assert.Less(t, len(q.prompt), placeBytes+beforeBytes+afterBytes+8192+2048+500)
	assert.True(t, utf8.ValidString(q.prompt))
}

func TestBeginning(t *testing.T) {
	var b Beginning
	assert.Empty(t, b.Head())
	b.Add(chunk.Chunk{Heading: "One", Text: " First. "})
	b.Add(chunk.Chunk{Heading: "One", Text: "First. Second.", Repeated: 7})
	assert.False(t, b.Titled())
	b.Add(chunk.Chunk{Heading: "Two", Text: "Third.", Title: "Pumps"})
	assert.True(t, b.Titled())
	assert.Equal(t, "One\n\nFirst.\n\nSecond.\n\nTwo\n\nThird.", b.Head())
}

func TestChatRequestForModelsThatThink(t *testing.T) {
	usual := chatRequest("gpt-4o-mini", "p", 100)
	assert.Zero(t, usual.MaxCompletionTokens)
	assert.Positive(t, usual.Temperature)
	thinks := chatRequest("o3-mini", "p", 100)
	assert.Equal(t, 800, thinks.MaxCompletionTokens)
	require.NoError(t, openai.NewReasoningValidator().Validate(thinks))
	q := &Question{prompt: "p", tokens: 100}
	assert.Equal(t, 700, q.estimate("o3-mini")-q.estimate("gpt-4o-mini"))
}

func TestBudgetCountsWhatTheServerDoesNot(t *testing.T) {
	q := &Question{prompt: strings.Repeat("word ", 100), tokens: 50}
	choices := []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Content: "some words"}}}
	says := func(usage openai.Usage) int {
		return spentOn(q, openai.ChatCompletionResponse{Choices: choices, Usage: usage})
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

func TestMeta(t *testing.T) {
	assert.Equal(t, Meta{Context: "c"},
		ReadMeta(json.RawMessage(`{"summary":3,"TITLE":"x","context":"c","enrichment":"mine"}`)), "fields of the user")
	assert.Equal(t, Meta{}, ReadMeta(nil))

	m := Meta{Summary: "s", Context: "c", Enrichment: Receipt{Document: "d", Context: "k", Plain: "p", Pending: true}}
	encoded, err := m.AddTo(json.RawMessage(`{"page":12345678901234567890,"title":"own"}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"page":12345678901234567890,"title":"own","summary":"s","context":"c",
		"enrichment":{"document":"d","context":"k","plain":"p","pending":true}}`, string(encoded))
	m.Title = "own"
	assert.Equal(t, m, ReadMeta(encoded))
	assert.Equal(t, map[string]string{"d": `{"title":"own","summary":"s"}`, "k": "c"}, m.Answers())
	assert.Empty(t, Meta{Title: "own"}.Answers())

	bare, err := WithoutContext(encoded)
	require.NoError(t, err)
	m.Context = ""
	assert.Equal(t, m, ReadMeta(bare), "the receipt stays")
	for _, broken := range []string{"", "[]", "{"} {
		_, err := m.AddTo(json.RawMessage(broken))
		require.ErrorContains(t, err, "metadata: ")
		_, err = WithoutContext(json.RawMessage(broken))
		require.ErrorContains(t, err, "metadata: ")
	}
	plain, err := Meta{}.AddTo(json.RawMessage(`{"page":1}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"page":1}`, string(plain))
	assert.True(t, OwnsKey("summary") && OwnsKey("context") && OwnsKey("enrichment") && !OwnsKey("title"))
}

func TestQuestionThatWasNotAsked(t *testing.T) {
	var none *Question
	title, summary := none.Description()
	assert.Empty(t, title+summary+none.Receipt())
	assert.Empty(t, (&Question{Key: "k"}).Receipt(), "not kept")
}

// Whatever a model says, what is taken of it is short, clean, and reads back as
// it was kept.
func FuzzReadAnswer(f *testing.F) {
	for _, said := range []string{
		"", "It is about valves.", `{"title": "A", "summary": "B."}`, "```json\n{\"title\": \"A\"}\n```",
		`{"title": "A`, `<think>hm {}</think> {"summary": "Valves."}`, `{{{{{{{{{{{"title":"x"}`,
		"\x1b[31m\x00\u202eabout\xff", `{"a":"\ud800"}`,
	} {
		f.Add(said, false)
		f.Add(said, true)
	}
	f.Fuzz(func(t *testing.T, said string, cut bool) {
		answer := reply{text: said, cut: cut}
		clean := func(text string, limit int) {
			if len(text) > limit || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\n\r\t\x1b\u202e") {
				t.Errorf("%q became %q", said, text)
			}
		}
		for _, wanted := range [][2]bool{{true, true}, {true, false}, {false, true}} {
			d := parseDescription(answer, wanted[0], wanted[1])
			clean(d.Title, titleBytes)
			clean(d.Summary, summaryBytes)
			if d.Title != "" && !wanted[0] || d.Summary != "" && !wanted[1] {
				t.Errorf("%q gave %+v, which was not asked for", said, d)
			}
			if again := readDescription(d.encode()); again != d {
				t.Errorf("%q gave %+v, kept as %+v", said, d, again)
			}
		}
		clean(parseContext(answer), contextBytes)
	})
}
