package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

// till is a model server that writes down which texts each run had embedded.
type till struct {
	handler http.Handler

	mu   sync.Mutex
	runs [][][]string // run, request, text
}

func newTill(t *testing.T) (*till, string) {
	t.Helper()
	tl := &till{handler: llmtest.NewHandler(llmtest.Options{Delay: 3 * time.Millisecond})}
	server := httptest.NewServer(tl)
	t.Cleanup(server.Close)
	return tl, server.URL + "/v1"
}

func (tl *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was killed
	}
	var request struct{ Input []string }
	if err := json.Unmarshal(body, &request); err == nil {
		tl.mu.Lock()
		last := len(tl.runs) - 1
		tl.runs[last] = append(tl.runs[last], request.Input)
		tl.mu.Unlock()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	tl.handler.ServeHTTP(w, r)
}

func (tl *till) nextRun() {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	tl.runs = append(tl.runs, nil)
}

// requirePaidOnce checks that no text was embedded again but those of the five
// requests at most that were in flight when a run was killed, and says how many
// texts that were. They need not be the last five: one may be in flight while
// others come and go.
func (tl *till) requirePaidOnce(t *testing.T) (texts, again int) {
	t.Helper()
	tl.mu.Lock()
	defer tl.mu.Unlock()
	type payment struct{ run, request int }
	paid := map[string]payment{}
	lost := make([]map[int]bool, len(tl.runs)) // requests of a run that another paid for again
	for run, requests := range tl.runs {
		for n, request := range requests {
			for _, text := range request {
				if strings.HasPrefix(text, "penstock: does the model answer") {
					continue
				}
				texts++
				if before, ok := paid[text]; ok {
					again++
					require.NotEqual(t, run, before.run, "embedded twice in one run: %q", text)
					if lost[before.run] == nil {
						lost[before.run] = map[int]bool{}
					}
					lost[before.run][before.request] = true
					require.LessOrEqual(t, len(lost[before.run]), 5, "run %d kept less than what was not in flight: %q",
						before.run, text)
				}
				paid[text] = payment{run, n}
			}
		}
	}
	return texts, again
}

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
	require.NoError(t, os.CopyFS(filepath.Join(fresh.dir, "docs"), os.DirFS(filepath.Join(c.dir, "docs"))))
	require.Zero(t, fresh.ingest(t, "docs").code)
	ids := fresh.stored(t, "documents")
	require.NotEmpty(t, ids)
	return ids
}

// smallDisk mounts a file system of so many bytes at a folder.
func smallDisk(t *testing.T, folder string, size int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(folder, 0o755))
	if err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "tmpfs", folder).
		Run(); err != nil {
		t.Skip("a file system of its own needs root")
	}
	t.Cleanup(func() { assert.NoError(t, exec.Command("umount", "-l", folder).Run()) })
}

// A full disk ends the run with a clear error; once there is space again, the
// next run continues.
func TestFullDisk(t *testing.T) {
	c := newCommand(t)
	state := filepath.Join(c.dir, "state")
	smallDisk(t, state, 3<<20)
	corpus(t, c, 800)
	o := c.ingest(t, "docs", "--state", state)
	require.NotZero(t, o.code, o.stdout)
	assert.Equal(t, exitFault, o.code, o.stderr)
	assert.Regexp(t, `(?i)full|no space`, o.stdout+o.stderr)

	require.NoError(t, exec.Command("mount", "-o", "remount,size=200000000", state).Run())
	rest := c.ingest(t, "docs", "--state", state)
	require.Zero(t, rest.code, rest.stdout+rest.stderr)
	assert.Equal(t, 800, rest.summary.Ingested+rest.summary.Unchanged)
	verify := c.run(t, "verify", "--state", state)
	assert.Zero(t, verify.code, verify.stdout)
}

func TestReadOnlyState(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	state := filepath.Join(c.dir, "state")
	smallDisk(t, state, 8<<20)
	require.Zero(t, c.ingest(t, "docs", "--state", state).code)
	require.NoError(t, exec.Command("mount", "-o", "remount,ro", state).Run())
	o := c.run(t, "docs", "--state", state)
	assert.Equal(t, exitFault, o.code)
	assert.Contains(t, o.stderr, "state folder")
	assert.Contains(t, o.stderr, "read-only file system")
}

func TestCorruptJournal(t *testing.T) {
	c := newCommand(t)
	corpus(t, c, 20)
	require.Zero(t, c.ingest(t, "docs").code)
	journal := filepath.Join(c.dir, ".penstock", "journal.db")
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
	assert.Contains(t, second.stderr, fmt.Sprintf("held by another run (process %d on ", first.Process.Pid))
	assert.Zero(t, c.run(t, "status").code, "one may look on")
	release()
	require.NoError(t, first.Wait())
}
