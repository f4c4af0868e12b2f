package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func lyingDocuments() int { return atLength(100, 2000) }

// A model server that begins to lie in the middle: no more than five bad
// answers are asked for in a row, the run says when to come again, nothing
// wrong is stored, and the next run completes.
func TestModelLiesInTheMiddle(t *testing.T) {
	halfVectors := llmtest.Fault{Spoil: func(v *llmtest.Vectors) {
		for i := range v.Data {
			v.Data[i].Embedding = v.Data[i].Embedding[:128]
		}
	}}
	for _, row := range []struct {
		name  string
		fault llmtest.Fault
		codes []int
	}{
		{"wrong dimension", halfVectors, []int{exitConfiguration}},
		{"one wrong dimension", llmtest.Dimensions(128), []int{exitTemporary, exitConfiguration}},
		{"partial", llmtest.Missing(), []int{exitTemporary}},
		{"null", llmtest.NullVector(), []int{exitTemporary}},
		{"zeros", llmtest.ZeroVector(), []int{exitTemporary}},
		{"no answer", llmtest.Drop(), []int{exitTemporary}},
		{"silence", llmtest.Hang(), []int{exitTemporary}},
		{"no JSON", llmtest.Answer(http.StatusOK, "<html>all is well</html>"), []int{exitTemporary}},
		{"nothing", llmtest.Answer(http.StatusOK, ""), []int{exitTemporary}},
		{"rate limit without end", llmtest.RateLimit("3600"), []int{exitTemporary}},
		{"denied", llmtest.Status(http.StatusUnauthorized), []int{exitDenied}},
	} {
		t.Run(row.name, func(t *testing.T) {
			model, url := newLiar(t, row.fault)
			c := newCommand(t, append(atModel(url), "PENSTOCK_TIMEOUT=2s")...)
			corpus(t, c, lyingDocuments())
			model.behave(func(n int) bool { return n > 3 })
			o := c.ingest(t, "docs")
			require.Contains(t, row.codes, o.code, o.summary.Stopped)
			require.NotNil(t, o.summary.Stopped)
			assert.Equal(t, "llm", o.summary.Stopped.Upstream)
			lies, _ := model.lied()
			assert.LessOrEqual(t, lies, 5)
			if o.code == exitTemporary {
				require.NotNil(t, o.summary.Stopped.RetryAt)
			}
			assert.Zero(t, o.summary.DeadLetters)

			model.behave(nil)
			rest := c.ingest(t, "docs", "--now")
			require.Zero(t, rest.code, rest.stderr)
			assert.Equal(t, lyingDocuments(), rest.summary.Documents)
			require.Len(t, c.stored(t, "documents"), 4*lyingDocuments())
		})
	}
}

// Answers whose order differs and whose indexes are right are right answers.
func TestShuffledAnswersAreTakenByIndex(t *testing.T) { requireNearest(t, llmtest.Shuffled(), 60) }

// A server that numbers every vector 0 is right about one text at a time.
func TestServerThatCannotCount(t *testing.T) { requireNearest(t, llmtest.SameIndex(0), 20) }

// requireNearest checks that documents that were embedded by such answers are
// found by their text.
func requireNearest(t *testing.T, fault llmtest.Fault, documents int) {
	t.Helper()
	model, url := newLiar(t, fault)
	c := newCommand(t, atModel(url)...)
	corpus(t, c, documents)
	model.behave(func(int) bool { return true })
	require.Zero(t, c.ingest(t, "docs").code)
	found := c.run(t, "search", "-n1", "how long did pump 35 run in chapter 0 of report 5?")
	assert.Contains(t, found.stdout, "docs/report005.md")
	assert.Regexp(t, `similarity 0\.[6-9]`, found.stdout)
}

// A server that comes and goes, or is slow, makes no dead letters and gets no
// more than five doomed requests in a row; once it is well one run completes.
func TestModelFlaps(t *testing.T) {
	for name, row := range map[string]struct {
		fault llmtest.Fault
		lies  func(int) bool
	}{
		"each second":  {llmtest.Status(http.StatusInternalServerError), func(n int) bool { return n%2 == 0 }},
		"three of ten": {llmtest.Status(http.StatusBadGateway), func(n int) bool { return n*7919%10 < 3 }},
		"four of five": {llmtest.Drop(), func(n int) bool { return n%5 != 0 }},
		"slow":         {llmtest.Delay(300 * time.Millisecond), func(n int) bool { return n%3 == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			model, url := newLiar(t, row.fault)
			c := newCommand(t, atModel(url)...)
			documents := atLength(100, 2000)
			corpus(t, c, documents)
			model.behave(row.lies)
			runs, o := 1, c.ingest(t, "docs")
			for ; o.code == exitTemporary && runs < 4; runs++ {
				require.NotNil(t, o.summary.Stopped.RetryAt)
				require.Equal(t, pipeline.StopDeferred, o.summary.Stopped.Kind)
				o = c.ingest(t, "docs")
			}
			ill := o.code
			model.behave(nil)
			o = c.ingest(t, "docs")
			_, longest := model.lied()
			t.Logf("%d runs, the last ended with %d; at most %d bad answers in a row", runs, ill, longest)
			require.Zero(t, o.code, o.summary)
			assert.Zero(t, o.summary.DeadLetters+o.summary.KnownDeadLetters)
			assert.LessOrEqual(t, longest, 5)
			require.Len(t, c.stored(t, "documents"), 4*documents)
		})
	}
}
