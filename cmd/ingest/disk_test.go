package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	state := c.path("state")
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
	state := c.path("state")
	smallDisk(t, state, 8<<20)
	require.Zero(t, c.ingest(t, "docs", "--state", state).code)
	require.NoError(t, exec.Command("mount", "-o", "remount,ro", state).Run())
	o := c.run(t, "docs", "--state", state)
	assert.Equal(t, exitFault, o.code)
	assert.Contains(t, o.stderr, "state folder")
	assert.Contains(t, o.stderr, "read-only file system")
}
