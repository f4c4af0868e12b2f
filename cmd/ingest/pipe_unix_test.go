//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
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
	require.NoError(t, syscall.Mkfifo(c.path("docs/a.json"), 0o600))
	for _, verb := range []string{"parse", "chunk"} {
		o := c.run(t, verb, "docs/a.json")
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, "docs/a.json: not a regular file")
	}
	assert.Equal(t, "unreadable", c.ingest(t, "retry").documents["docs/a.json"].Kind)
}

// The reader of the results leaves, as head does: the run ends as by a signal,
// saves its state and gives up its lock, and says nothing of it. There is more
// to say than a pipe holds, so the run cannot have ended before.
func TestReaderOfTheResultsLeaves(t *testing.T) {
	c := newCommand(t)
	folder := "docs/" + strings.Repeat("f", 200)
	for i := range 600 {
		c.write(t, fmt.Sprintf("%s/%03d.md", folder, i), fmt.Sprintf("Pump %d ran for %d hours.", i, i*31))
	}
	read, write, err := os.Pipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd := c.start(t.Context(), "--json", "docs")
	cmd.Stdout, cmd.Stderr = write, &stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	first, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, first, `"result":"ingested"`)
	require.NoError(t, read.Close())
	_ = cmd.Wait()
	assert.Equal(t, 128+int(syscall.SIGPIPE), cmd.ProcessState.ExitCode(), stderr.String())
	assert.Empty(t, stderr.String())
	rest := c.ingest(t, "docs")
	require.Zero(t, rest.code, rest.stdout+rest.stderr)
	assert.Equal(t, 600, rest.summary.Documents)
	const pipeHolds = 64 << 10 // by default on Linux, which has the largest
	assert.Greater(t, len(rest.stdout), 2*pipeHolds)
}
