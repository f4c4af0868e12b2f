//go:build unix

package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pipe in the place of a document keeps no verb waiting for a writer.
func TestPipeIsNoDocument(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.json", "{")
	require.Equal(t, exitData, c.ingest(t, "docs").code)
	c.rename(t, "docs/a.json", "a.json")
	require.NoError(t, syscall.Mkfifo(filepath.Join(c.dir, "docs/a.json"), 0o600))
	for _, verb := range []string{"parse", "chunk"} {
		o := c.run(t, verb, "docs/a.json")
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, "docs/a.json: not a regular file")
	}
	assert.Equal(t, "unreadable", c.ingest(t, "retry").documents["docs/a.json"].Kind)
}
