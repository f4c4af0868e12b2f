package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
)

// unpack lays what an earlier version left in the working folder.
func (c *command) unpack(t *testing.T, commit string) {
	t.Helper()
	packed, err := os.Open(filepath.Join("testdata", "upgrade", commit+".tar.gz"))
	require.NoError(t, err)
	defer packed.Close()
	text, err := gzip.NewReader(packed)
	require.NoError(t, err)
	for entries := tar.NewReader(text); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(entry.Name), entry.Name)
		if entry.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(c.path(entry.Name), 0o755))
			continue
		}
		content, err := io.ReadAll(entries)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(c.path(entry.Name), content, 0o644))
	}
}

// search finds what a question finds: the IDs of rows, best first.
func (c *command) search(t *testing.T, question string) []string {
	t.Helper()
	found := c.run(t, "--json", "search", question)
	require.Zero(t, found.code, found.stderr)
	var ids []string
	for line := range strings.Lines(found.stdout) {
		var hit pipeline.Hit
		require.NoError(t, json.Unmarshal([]byte(line), &hit))
		ids = append(ids, hit.ID)
	}
	return ids
}

// recordedHits are what an earlier version found, by question.
func (c *command) recordedHits(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(c.path("hits.json"))
	require.NoError(t, err)
	var recorded map[string][]pipeline.Hit
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.NotEmpty(t, recorded)
	ids := map[string][]string{}
	for question, hits := range recorded {
		for _, hit := range hits {
			ids[question] = append(ids[question], hit.ID)
		}
	}
	return ids
}

// rewrite changes a document.
func (c *command) rewrite(t *testing.T, name string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(c.path(name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.path(name), []byte(change(string(text))), 0o644))
}

// TestUpgrade reads a state and stores that an earlier version made: they are
// found as before, nothing is embedded again, and what is deleted is gone.
func TestUpgrade(t *testing.T) {
	c := newCommand(t)
	c.unpack(t, "31f3dcc")
	requireSameHits := func() {
		t.Helper()
		for question, ids := range c.recordedHits(t) {
			require.Equal(t, ids, c.search(t, question), question)
		}
	}
	requireSameHits()
	verified := c.run(t, "verify")
	require.Zero(t, verified.code, verified.stdout+verified.stderr)
	before := c.stored(t, "documents")
	require.Len(t, before, 328)

	same := c.ingest(t, "docs")
	require.Zero(t, same.code, same.stdout+same.stderr)
	assert.Equal(t, 5, same.summary.Unchanged)
	assert.Equal(t, 1, same.summary.KnownDeadLetters)
	assert.Zero(t, same.summary.Embedded)
	require.Equal(t, before, c.stored(t, "documents"))
	requireSameHits()

	c.rewrite(t, "docs/large.md", func(text string) string { return text + "# Last\n\nThe weir was added.\n" })
	changed := c.ingest(t, "docs")
	require.Zero(t, changed.code, changed.stdout+changed.stderr)
	assert.Equal(t, 1, changed.summary.Ingested)
	assert.Equal(t, 321, changed.documents["docs/large.md"].Chunks)
	assert.Equal(t, 1, changed.summary.Embedded, "the other texts have vectors")
	after := c.stored(t, "documents")
	shared := slices.DeleteFunc(slices.Clone(after), func(id string) bool { return !slices.Contains(before, id) })
	assert.Len(t, shared, 328-1, "all rows but the commit mark of the version before")

	gone := c.run(t, "delete", "docs/enriched.md", "docs/large.md")
	require.Zero(t, gone.code, gone.stdout+gone.stderr)
	for _, file := range []string{"vectors.db", "journal.db"} {
		content, err := os.ReadFile(c.path(".penstock", file))
		require.NoError(t, err)
		for _, text := range []string{
			"Gate 2", "The turbine of this section", "The weir was added", "enriched.md", "is the first version",
		} {
			assert.False(t, bytes.Contains(content, []byte(text)), "%s has %q", file, text)
		}
	}
	verified = c.run(t, "verify")
	require.Zero(t, verified.code, verified.stdout+verified.stderr)
	assert.Len(t, c.stored(t, "documents"), 4)
}
