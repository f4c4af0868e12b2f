package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/version"
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

// A kill in the middle of a huge document: a search finds rows of one complete
// version, and nothing but the unfinished one is wrong with the rest.
func TestKilledInHugeDocuments(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		killInHugeDocuments(t, newCommand(t, smallChunks), "documents", atLength(15, 200))
	})
	t.Run("real", func(t *testing.T) {
		model := llmtest.NewServer(t, llmtest.Options{})
		killInHugeDocuments(t, newCommand(t, append(real(t, model.URL), smallChunks)...), collectionName(t),
			atLength(2, 20))
	})
}

// smallChunks makes many chunks of little text.
const smallChunks = "PENSTOCK_CHUNK_TOKENS=32"

// hugeVersions is how many versions the huge documents have.
const hugeVersions = 3

// hugeDocuments lays version v of two documents of several thousand chunks. The
// versions share two thirds of them.
func (c *command) hugeDocuments(t *testing.T, v int) {
	t.Helper()
	var lines, sections strings.Builder
	for i := range 4000 + 100*v {
		said := 0
		if i%3 == 0 {
			said = v
		}
		fmt.Fprintf(&lines, `{"weir":%d,"said":"Weir %d was closed %d times."}`+"\n", i, i, said)
		fmt.Fprintf(&sections, "# Weir %d\n\nThe report says that weir %d was closed %d times.\n\n", i, i, said)
	}
	c.write(t, "huge/lines.jsonl", lines.String())
	c.write(t, "huge/report.md", sections.String())
}

// rowSets are the rows, by id, of each version of each document.
type rowSets map[string][]map[string]bool

// undisturbed are the rows that runs make which come to their end.
func undisturbed(t *testing.T) rowSets {
	t.Helper()
	sets := rowSets{}
	for v := range hugeVersions {
		fresh := newCommand(t, smallChunks)
		fresh.hugeDocuments(t, v)
		require.Zero(t, fresh.ingest(t, "huge").code)
		list := storedRows(t, openStore(t, fresh), "documents")
		requireComplete(t, list)
		for _, row := range list {
			if len(sets[row.Source]) == v {
				sets[row.Source] = append(sets[row.Source], map[string]bool{})
			}
			sets[row.Source][v][row.ID] = true
		}
	}
	return sets
}

func killInHugeDocuments(t *testing.T, c *command, collection string, times int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	versions := undisturbed(t)
	c.hugeDocuments(t, 0)
	require.Zero(t, c.ingest(t, "huge").code)
	c.hugeDocuments(t, 1)
	start := time.Now()
	require.Zero(t, c.ingest(t, "huge").code)
	whole := time.Since(start)

	last, killed, unfinished := 1, 0, 0
	for range times {
		last = (last + 1 + random.IntN(hugeVersions-1)) % hugeVersions
		c.hugeDocuments(t, last)
		cmd := c.start(t.Context(), "huge")
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(random.Float64()*float64(whole)), func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			killed++
		}
		timer.Stop()
		c.requireOneVersion(t, versions)
		verify := c.run(t, "verify")
		require.Zero(t, verify.code, verify.stdout)
		require.Contains(t, verify.stdout, ": 0 missing, 0 stale, 0 orphaned, 0 unknown to the journal; 0 repaired\n")
		unfinished += strings.Count(verify.stdout, "unfinished  huge/")
	}
	t.Logf("%d runs, %d of them killed within %s; %d documents were unfinished then", times, killed,
		whole.Round(time.Millisecond), unfinished)

	require.Zero(t, c.ingest(t, "huge").code)
	list := storedRows(t, openStore(t, c), collection)
	requireComplete(t, list)
	for _, row := range list {
		require.NotEqual(t, version.Place, row.Doc)
		require.True(t, versions[row.Source][last][row.ID], row.Source)
	}
	verify := c.run(t, "verify")
	require.Zero(t, verify.code, verify.stdout)
	require.NotContains(t, verify.stdout, "unfinished")
}

// requireOneVersion searches, and requires that what is found of a document is
// of one version.
func (c *command) requireOneVersion(t *testing.T, versions rowSets) {
	t.Helper()
	bySource := map[string][]string{}
	for _, search := range [][]string{
		{"Weir 30 was closed 2 times."},
		{"Weir 30. The report says that weir 30 was closed 2 times."},
		// Close to the text: the index of fresh rows in Milvus looks at an
		// eighth of them, with a filter too.
		{"--where", `source == "huge/lines.jsonl"`, "weir: 30, said: Weir 30 was closed 2 times."},
		{"--where", `source == "huge/report.md"`, "Weir 30. The report says that weir 30 was closed 2 times."},
	} {
		found := c.run(t, append([]string{"--json", "search", "-n", "100"}, search...)...)
		require.Zero(t, found.code, found.stderr)
		for line := range strings.Lines(found.stdout) {
			var hit pipeline.Hit
			require.NoError(t, json.Unmarshal([]byte(line), &hit))
			bySource[hit.Source] = append(bySource[hit.Source], hit.ID)
		}
	}
	require.Len(t, bySource, len(versions))
	for source, ids := range bySource {
		ofOne := slices.ContainsFunc(versions[source], func(all map[string]bool) bool {
			return !slices.ContainsFunc(ids, func(id string) bool { return !all[id] })
		})
		require.True(t, ofOne, "what is found of %s is of no single version", source)
	}
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
	asked()
	second := c.run(t, "docs")
	assert.Equal(t, exitTemporary, second.code)
	assert.Contains(t, second.stdout, fmt.Sprintf("held by another run (process %d on ", first.Process.Pid))
	assert.Zero(t, c.run(t, "status").code, "one may look on")
	for _, args := range [][]string{{"docs"}, {"retry"}, {"verify"}, {"delete", "docs/"}} {
		assert.NotContains(t, c.run(t, args...).stdout, " ingested (", "%v: nothing was counted", args)
	}
	release()
	require.NoError(t, first.Wait())
}
