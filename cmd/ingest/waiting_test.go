package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// behind is a command with 60 of 80 documents changed while its model is down.
func behind(t *testing.T) (*command, *llmtest.Server) {
	t.Helper()
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 80)
	require.Zero(t, c.ingest(t, "docs").code)
	for i := range 60 {
		c.write(t, fmt.Sprintf("docs/report%03d.md", i), fmt.Sprintf("Pump %d leaks.", i))
	}
	model.Script(llmtest.All(llmtest.Status(http.StatusInternalServerError)))
	return c, model
}

func (c *command) status(t *testing.T) (s destinationStatus) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(c.run(t, "status", "--json").stdout), &s))
	return s
}

// 60 documents changed while the model server was down, and summary and status
// said "7 deferred".
func TestWaitingDocumentsAreShown(t *testing.T) {
	c, model := behind(t)
	succeeded := c.status(t).LastSuccess
	require.NotNil(t, succeeded)
	o := c.ingest(t, "docs")
	require.Equal(t, exitTemporary, o.code)
	assert.Equal(t, 60, o.summary.Waiting)
	s := c.status(t)
	assert.Equal(t, 60, s.Waiting)
	assert.Equal(t, 60, s.Deferred)
	assert.Len(t, s.Problems, 60)
	assert.Equal(t, o.summary.WaitingSince, s.WaitingSince)
	assert.Equal(t, succeeded, s.LastSuccess)
	human := c.run(t, "docs")
	assert.Contains(t, human.stdout, "60 documents wait to be ingested, the oldest since ")
	status := c.run(t, "status").stdout
	assert.Contains(t, status, "60 documents wait to be ingested, the oldest since ")
	assert.Contains(t, status, "last run with nothing left to do: ")
	assert.Contains(t, status, "breaker llm: closed; the upstream is down\n")
	assert.Regexp(t, `deferred  \d+ documents were not begun`, status)

	model.Script()
	require.Zero(t, c.run(t, "retry").code)
	s = c.status(t)
	assert.Zero(t, s.Waiting)
	assert.Nil(t, s.WaitingSince)
	assert.True(t, s.LastSuccess.After(*succeeded))
}

// A run that finds the journal held says what waits all the same.
func TestWaitingDocumentsOfAHeldJournal(t *testing.T) {
	c, _ := behind(t)
	require.Equal(t, exitTemporary, c.ingest(t, "docs").code)
	j, err := journal.Open(t.Context(), c.path(defaultState))
	require.NoError(t, err)
	defer j.Close()
	o := c.ingest(t, "docs")
	require.Equal(t, exitTemporary, o.code)
	assert.Contains(t, o.summary.Stopped.Reason, "held by another run")
	assert.Equal(t, 60, o.summary.Waiting)
	assert.NotNil(t, o.summary.WaitingSince)
}

// A deletion and a comparison that had not begun said "0 documents in 0s: 0
// ingested".
func TestRefusalsOfAHeldJournalStandAlone(t *testing.T) {
	c, _ := behind(t)
	require.Equal(t, exitTemporary, c.ingest(t, "docs").code)
	j, err := journal.Open(t.Context(), c.path(defaultState))
	require.NoError(t, err)
	defer j.Close()
	for _, args := range [][]string{{"delete", "docs/"}, {"verify"}, {"verify", "--repair"}} {
		o := c.run(t, args...)
		assert.Equal(t, exitTemporary, o.code, args)
		assert.Regexp(t, `^stopped \(deferred\): .* is held by another run .*\n$`, o.stdout, args)
		assert.Equal(t, 1, strings.Count(o.stdout+o.stderr, "\n"), args)
		assert.Contains(t, c.ingest(t, args...).summary.Stopped.Reason, "held by another run", args)
	}
}

// A run without any document said "at least 0 documents wait".
func TestNothingWaitsForAnEmptyFolder(t *testing.T) {
	c := newCommand(t)
	require.NoError(t, os.Mkdir(c.path("empty"), 0o755))
	o := c.run(t, "empty")
	assert.NotContains(t, o.stdout, " wait")
	o = c.run(t, "empty", "nowhere")
	assert.NotContains(t, o.stdout, " wait")
}

// What waited and was deleted from the inputs waits no longer.
func TestDeletedDocumentsDoNotWait(t *testing.T) {
	c, model := behind(t)
	require.Equal(t, exitTemporary, c.ingest(t, "docs").code)
	for i := range 5 {
		require.NoError(t, os.Remove(c.path("docs", fmt.Sprintf("report%03d.md", i))))
	}
	model.Script()
	o := c.ingest(t, "docs")
	require.Zero(t, o.code, o.stdout)
	assert.Equal(t, 55, o.summary.Ingested)
	assert.Zero(t, o.summary.Waiting)
}

// A service counts as a run does, in each pass.
func TestServeShowsWhatWaits(t *testing.T) {
	c, model := behind(t)
	s := c.serve(t, "--interval=1h", "docs")
	s.await(t, "/readyz", "not ready")
	assert.Equal(t, 60, c.status(t).Waiting)
	s.await(t, "/problems?status=deferred", "report059.md")
	model.Script()
	s.stop(t, syscall.SIGTERM)
	assert.Contains(t, s.out(), "60 documents wait to be ingested, the oldest since ")
}

// The status of a journal of an earlier version did not know the last success
// that a run and its metrics know.
func TestStatusOfAJournalOfAnEarlierVersion(t *testing.T) {
	c := newCommand(t)
	at := time.UnixMilli(1_700_000_000_000).UTC()
	j, err := journal.Open(t.Context(), c.path(".penstock"))
	require.NoError(t, err)
	destination := c.status(t).Destination
	require.NoError(t, j.EndRun(t.Context(), destination, at, map[string]any{"documents": 3}))
	require.NoError(t, j.Close())
	s := c.status(t)
	require.NotNil(t, s.LastSuccess)
	assert.True(t, at.Equal(*s.LastSuccess))
	assert.Nil(t, s.WaitingSince)
}

// Status showed as exact what the last run knew to be a lower bound.
func TestStatusOfABacklogThatIsNotKnownWhole(t *testing.T) {
	c, _ := behind(t)
	require.Equal(t, exitTemporary, c.ingest(t, "docs").code)
	assert.False(t, c.status(t).WaitingAtLeast)
	j, err := journal.Open(t.Context(), c.path(defaultState))
	require.NoError(t, err)
	defer j.Close()
	last := c.status(t).LastRun
	last.WaitingAtLeast = true
	require.NoError(t, j.EndRun(t.Context(), last.Destination, time.Now(), last))
	assert.True(t, c.status(t).WaitingAtLeast)
	held := c.ingest(t, "docs")
	require.Equal(t, exitTemporary, held.code)
	assert.True(t, held.summary.WaitingAtLeast, "by a journal that another run holds")
}
