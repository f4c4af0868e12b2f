package main

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reader that has seen enough, as head, ends a command without a word.
func TestHeadEndsEveryVerbQuietly(t *testing.T) {
	c := newCommand(t)
	text := strings.Repeat("The third pump was opened by an operator at noon.\n\n", 8_000) // more than a pipe holds
	c.write(t, "docs/long.md", text)
	require.Zero(t, c.ingest(t, "docs").code)
	for _, args := range [][]string{
		{"parse", "docs/long.md"},
		{"parse", "docs/long.md", "--json"},
		{"chunk", "docs/long.md"},
		{"chunk", "docs/long.md", "--json"},
		{"search", "pump", "--full", "--limit=2000"},
		{"search", "pump", "--json", "--limit=2000"},
	} {
		code, stderr := c.head(t, args...)
		assert.Equal(t, 128+int(syscall.SIGPIPE), code, "%v", args)
		assert.Empty(t, stderr, "%v", args)
	}
}

// A pipe whose reader has left before the first word is the same.
func TestNobodyReadsTheResults(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A pump.")
	require.Zero(t, c.ingest(t, "docs").code)
	for _, args := range [][]string{
		{"status"}, {"config"}, {"version"}, {"help"}, {"doctor"}, {"search", "pump"}, {"chunk", "docs/a.md"}, {"docs"},
	} {
		code, stderr := c.piped(t, func(read *os.File) { require.NoError(t, read.Close()) }, args...)
		assert.Equal(t, 128+int(syscall.SIGPIPE), code, "%v", args)
		assert.Empty(t, stderr, "%v", args)
	}
}

// head runs the command, reads one line of its results and leaves.
func (c *command) head(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	return c.piped(t, func(read *os.File) {
		_, err := bufio.NewReader(read).ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, read.Close())
	}, args...)
}

func (c *command) piped(t *testing.T, reader func(*os.File), args ...string) (code int, stderr string) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd := c.start(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = write, &said
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	reader(read)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), said.String()
}
