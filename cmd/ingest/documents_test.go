package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline"
)

// Bad documents each get a clear line; the others are done.
func TestBadDocuments(t *testing.T) {
	c := newCommand(t)
	password, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "parse", "testdata", "password.pdf"))
	require.NoError(t, err)
	for name, content := range map[string]string{
		"good.md":     "# Pumps\n\nPump seven is loud.\n",
		"empty.txt":   "",
		"blank.md":    " \n\t\n",
		"latin1.txt":  "caf\xe9 cr\xe8me br\xfbl\xe9e, \xe0 la carte, na\xefve\n",
		"page.pdf":    "<html><body><h1>Not a PDF</h1><p>It is a page.</p></body></html>",
		"broken.pdf":  "%PDF-1.7\nthis is not one",
		"picture.txt": "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01",
		"locked.pdf":  string(password),
	} {
		c.write(t, "docs/"+name, content)
	}
	o := c.ingest(t, "docs", "nowhere")
	require.Equal(t, exitData, o.code, o.stdout+o.stderr)
	for id, kind := range map[string]string{
		"docs/broken.pdf": "malformed", "docs/locked.pdf": "password protected", "nowhere": "unreadable",
	} {
		assert.Equal(t, pipeline.DeadLetter, o.documents[id].Result, id)
		assert.Equal(t, kind, o.documents[id].Kind, id)
		assert.NotEmpty(t, o.documents[id].Reason, id)
		assert.False(t, strings.HasPrefix(o.documents[id].Reason, id), "the name is said once")
	}
	for id, kind := range map[string]string{
		"docs/empty.txt": "empty", "docs/blank.md": "empty", "docs/picture.txt": "image",
	} {
		assert.Equal(t, pipeline.Skipped, o.documents[id].Result, id)
		assert.Equal(t, kind, o.documents[id].Kind, id)
	}
	for _, id := range []string{"docs/good.md", "docs/latin1.txt", "docs/page.pdf"} {
		assert.Equal(t, pipeline.Ingested, o.documents[id].Result, id)
	}

	found := c.run(t, "search", "crème brûlée")
	assert.Contains(t, found.stdout, "café crème brûlée, à la carte, naïve")

	again := c.ingest(t, "docs")
	assert.Zero(t, again.code, "old dead letters do not fail a run again")
	assert.Equal(t, 2, again.summary.KnownDeadLetters)
	assert.Equal(t, exitData, c.ingest(t, "docs", "--strict").code)

	c.write(t, "docs/empty.txt", "No longer empty.")
	mended := c.ingest(t, "docs")
	assert.Zero(t, mended.code)
	assert.Equal(t, 1, mended.summary.Ingested)
	assert.Equal(t, 2, mended.summary.KnownDeadLetters)

	assert.Equal(t, exitUsage, c.run(t, "nowhere").code, "nothing to do at all")
}

func TestUnreadableFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root reads everything; package source tests a folder that vanishes")
		return
	}
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	c.write(t, "docs/locked/b.md", "Another.")
	locked := c.path("docs", "locked")
	require.NoError(t, os.Chmod(locked, 0))
	t.Cleanup(func() { assert.NoError(t, os.Chmod(locked, 0o755)) })
	o := c.ingest(t, "docs")
	assert.Equal(t, exitData, o.code)
	assert.Equal(t, 1, o.summary.Ingested)
}

// Memory does not grow with the number of documents.
func TestMemoryOnManySmallFiles(t *testing.T) {
	const limit = 200 << 20
	files := atLength(5_000, 50_000)
	c := newCommand(t)
	for i := range files {
		c.write(t, fmt.Sprintf("notes/%02d/note%05d.txt", i%100, i),
			fmt.Sprintf("Note %d: valve %d was opened by operator %d.\n", i, i*13, i*7))
	}
	o := c.ingest(t, "notes")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, files, o.summary.Ingested)
	t.Logf("%d files in %s, peak memory %d MB", files, o.summary.Elapsed, o.peak>>20)
	assert.Less(t, o.peak, int64(limit))

	again := c.ingest(t, "notes")
	require.Equal(t, files, again.summary.Unchanged)
	t.Logf("unchanged in %s, peak memory %d MB", again.summary.Elapsed, again.peak>>20)
}

// A few dozen chunks through a real model server.
func TestLlama(t *testing.T) {
	c := newCommand(t, "PENSTOCK_LLM_BASE_URL="+upstreams.Llama(t), "PENSTOCK_EMBEDDING_MODEL=smollm2")
	corpus(t, c, 6)
	o := c.ingest(t, "docs")
	require.Zero(t, o.code, o.stdout+o.stderr)
	require.Equal(t, 24, o.summary.Chunks)
	found := c.run(t, "search", "how long did pump 35 run?")
	require.Zero(t, found.code, found.stderr)
	require.Contains(t, found.stdout, "docs/report005.md")
	require.Equal(t, exitConfiguration, c.run(t, "--embedding-model=other", "docs/report001.md", "--id-prefix=x").code,
		"a collection holds vectors of one model")
}

// Results that nobody got are no success.
func TestResultsThatCannotBeWritten(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	require.Zero(t, c.ingest(t, "docs").code)
	for _, verb := range [][]string{
		{"docs"},
		{"--json", "docs"},
		{"search", "text"},
		{"status"},
		{"config"},
		{"doctor"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd := c.start(t.Context(), verb...)
		cmd.Stdout = full
		require.Error(t, cmd.Run())
		assert.Equal(t, exitFault, cmd.ProcessState.ExitCode(), "%v", verb)
		require.NoError(t, full.Close())
	}
}

// A name with a line break does not pass for a result.
func TestNamesKeepToTheirLine(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a\ndeleted  b.md", "A pump.")
	c.write(t, "docs/c\ndeleted  d.html", "<title>Nothing</title>")
	require.Equal(t, exitData, c.run(t, "docs").code)
	for _, verb := range [][]string{
		{"docs", "--dry-run", "--id-prefix=x"},
		{"search", "pump"},
		{"status"},
		{"retry"},
		{"delete", "docs/"},
	} {
		o := c.run(t, verb...)
		assert.Contains(t, o.stdout, " deleted  ", "%v", verb)
		assert.NotRegexp(t, `(?m)^deleted  [bd]\.md`, o.stdout, "%v", verb)
	}
}
