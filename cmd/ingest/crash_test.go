package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

// atLength is how much of something a test does: little by default, all at full
// length, which is PENSTOCK_LONG=1.
func atLength(few, all int) int {
	if os.Getenv("PENSTOCK_LONG") == "1" {
		return all
	}
	return few
}

// A kill at any moment leaves each document unchanged or complete, and the next
// run continues from there.
func TestKilledAtAnyInstant(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		paid, url := newTill(t)
		c := newCommand(t, atModel(url)...)
		killAgainAndAgain(t, c, paid, "documents", atLength(15, 200))
	})
	t.Run("real", func(t *testing.T) {
		paid, url := newTill(t)
		c := newCommand(t, real(t, url)...)
		killAgainAndAgain(t, c, paid, collectionName(t), atLength(3, 20))
	})
}

const crashDocuments = 60

// edit writes new versions of some documents.
func edit(t *testing.T, c *command, random *rand.Rand, documents, version int) {
	t.Helper()
	for range documents {
		n := random.IntN(crashDocuments)
		var text strings.Builder
		for section := range 2 + random.IntN(8) {
			fmt.Fprintf(&text, "# Chapter %d of report %d\n\nIn version %d of report %d, chapter %d says that pump %d ran.\n\n",
				section, n, version, n, section, random.IntN(1000))
		}
		c.write(t, fmt.Sprintf("docs/report%03d.md", n), text.String())
	}
}

func killAgainAndAgain(t *testing.T, c *command, paid *till, collection string, times int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range crashDocuments {
		c.write(t, fmt.Sprintf("docs/report%03d.md", i),
			fmt.Sprintf("# Report %d\n\nThe first version of report %d.\n", i, i))
	}
	paid.nextRun()
	require.Zero(t, c.ingest(t, "docs").code)
	edit(t, c, random, crashDocuments/3, -1)
	paid.nextRun()
	start := time.Now()
	require.Zero(t, c.ingest(t, "docs").code)
	whole := time.Since(start)

	killed := 0
	for i := range times {
		edit(t, c, random, crashDocuments/3, i)
		paid.nextRun()
		cmd := c.start(t.Context(), "docs")
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(random.Float64()*float64(whole)), func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			killed++
		}
		timer.Stop()
	}
	paid.nextRun()
	last := c.ingest(t, "docs")
	require.Zero(t, last.code, last.stdout+last.stderr)
	ids := c.stored(t, collection)
	texts, again := paid.requirePaidOnce(t)
	t.Logf("%d runs, %d of them killed within %s; %d texts embedded, %d of them again after a kill", times, killed,
		whole.Round(time.Millisecond), texts, again)

	verify := c.run(t, "verify")
	require.Zero(t, verify.code, verify.stdout)
	require.Equal(t, ids, freshIDs(t, c), "what is there is what one run over the same documents makes")
}

// freshIDs are the ids of the rows that one undisturbed run makes of the
// command's documents.
func freshIDs(t *testing.T, c *command) []string {
	t.Helper()
	fresh, _ := withModel(t, llmtest.Options{})
	c.copyDocs(t, fresh)
	require.Zero(t, fresh.ingest(t, "docs").code)
	ids := fresh.stored(t, "documents")
	require.NotEmpty(t, ids)
	return ids
}

func TestCorruptJournal(t *testing.T) {
	c := newCommand(t)
	corpus(t, c, 20)
	require.Zero(t, c.ingest(t, "docs").code)
	journal := c.path(".penstock", "journal.db")
	require.NoError(t, os.WriteFile(journal, bytes.Repeat([]byte("no database"), 1000), 0o644))
	o := c.run(t, "docs")
	assert.Equal(t, exitFault, o.code)
	assert.Contains(t, o.stderr, "journal.db cannot be read")
	assert.Contains(t, o.stderr, "move it away and run again")

	require.NoError(t, os.Remove(journal))
	again := c.ingest(t, "docs")
	require.Zero(t, again.code, again.stderr)
	assert.Equal(t, 20, again.summary.Ingested)
	assert.Zero(t, again.summary.Embedded, "nothing is embedded again")
}

// Of two runs at once the second says who holds the journal.
func TestTwoRunsAtOnce(t *testing.T) {
	url, asked, release := gatedModel(t)
	c := newCommand(t, atModel(url)...)
	corpus(t, c, 5)
	first := c.start(t.Context(), "docs")
	require.NoError(t, first.Start())
	<-asked
	second := c.run(t, "docs")
	assert.Equal(t, exitTemporary, second.code)
	assert.Contains(t, second.stdout, fmt.Sprintf("held by another run (process %d on ", first.Process.Pid))
	assert.Zero(t, c.run(t, "status").code, "one may look on")
	release()
	require.NoError(t, first.Wait())
}
