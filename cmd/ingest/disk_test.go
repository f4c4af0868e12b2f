package main

import (
	"cmp"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// readOnly is a state folder on a file system that is mounted read-only, with
// ten documents. A run that was killed has left its changes in the logs.
func readOnly(t *testing.T, killed bool) (c *command, state string) {
	t.Helper()
	c = newCommand(t)
	corpus(t, c, 10)
	state = c.path("state")
	smallDisk(t, state, 64<<20)
	require.Zero(t, c.ingest(t, "docs", "--state", state).code)
	if killed {
		before := c.path("logs")
		keepLogs(t, state, before, func() {
			c.write(t, "docs/late.md", "A late note about a sluice.")
			require.Zero(t, c.ingest(t, "docs", "--state", state).code)
		})
	}
	require.NoError(t, exec.Command("mount", "-o", "remount,ro", state).Run())
	return c, state
}

// keepLogs leaves the databases as they are before their last changes are moved
// from the logs into them, which is at the end of the process.
func keepLogs(t *testing.T, state, copies string, change func()) {
	t.Helper()
	var readers []io.Closer
	names := []string{"journal.db", "vectors.db"}
	require.NoError(t, os.MkdirAll(copies, 0o755))
	for _, name := range names { // a reader keeps the log
		db, err := sql.Open("sqlite", "file:"+filepath.Join(state, name)+"?mode=ro")
		require.NoError(t, err)
		rows, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_schema")
		require.NoError(t, err)
		require.True(t, rows.Next())
		readers = append(readers, rows, db)
	}
	change()
	for _, name := range names {
		for _, end := range []string{"", "-wal"} {
			content, err := os.ReadFile(filepath.Join(state, name+end))
			require.NoError(t, err)
			require.NotEmpty(t, content)
			require.NoError(t, os.WriteFile(filepath.Join(copies, name+end), content, 0o600))
		}
	}
	for _, reader := range readers {
		require.NoError(t, reader.Close())
	}
	for _, name := range names {
		for _, end := range []string{"", "-wal"} {
			content, err := os.ReadFile(filepath.Join(copies, name+end))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(state, name+end), content, 0o600))
		}
		require.NoError(t, os.RemoveAll(filepath.Join(state, name+"-shm")))
	}
}

// status, search and verify could not look at a state folder that is mounted
// read-only: SQLite needs a file beside its own to read it.
func TestReadOnlyStateCanBeLookedAt(t *testing.T) {
	for name, killed := range map[string]bool{"closed": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			c, state := readOnly(t, killed)
			documents := 10
			if killed {
				documents = 11
			}
			o := c.run(t, "status", "--state", state)
			require.Zero(t, o.code, o.stderr)
			assert.Contains(t, o.stdout, fmt.Sprintf("%d documents,", documents))
			o = c.run(t, "search", "which sluice?", "--state", state)
			require.Zero(t, o.code, o.stderr)
			assert.Equal(t, killed, strings.Contains(o.stdout, "late note"), o.stdout)
			o = c.run(t, "verify", "--state", state)
			require.Zero(t, o.code, o.stderr+o.stdout)
			assert.Contains(t, o.stdout, fmt.Sprintf("%d documents,", documents))
			o = c.run(t, "docs", "--dry-run", "--state", state)
			require.Zero(t, o.code, o.stderr)
			o = c.run(t, "doctor", "--state", state)
			require.Equal(t, exitFault, o.code, o.stderr)
			assert.Regexp(t, `(?m)^FAIL +state (.*\n)+ok +s3 (.*\n)+ok +milvus (.*\n)+ok +llm `, o.stdout)

			for _, verb := range [][]string{{"docs"}, {"retry"}, {"delete", "docs/a.md"}, {"verify", "--repair"}} {
				o := c.run(t, append(verb, "--state", state)...)
				assert.Equal(t, exitFault, o.code, "%v: %s", verb, o.stdout+o.stderr)
				assert.Contains(t, o.stderr, "state folder "+state+" cannot be written")
			}
		})
	}
}

// obeying runs the command without the right of root to write where permissions
// forbid it.
func (c *command) obeying(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	cmd := c.start(t.Context(), args...)
	if os.Geteuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("root obeys no permissions without setpriv, of util-linux")
		}
		cmd.Args = append([]string{setpriv, "--bounding-set=-dac_override,-dac_read_search", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = setpriv
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// It is the same where permissions forbid to write.
func TestStateWithoutPermissionToWriteCanBeLookedAt(t *testing.T) {
	c := newCommand(t)
	corpus(t, c, 10)
	require.Zero(t, c.ingest(t, "docs").code)
	modes := func(folder, file os.FileMode) {
		require.NoError(t, filepath.WalkDir(c.path(defaultState), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, folder)
			}
			return cmp.Or(err, os.Chmod(path, file))
		}))
	}
	modes(0o555, 0o444)
	defer modes(0o755, 0o644)
	for _, verb := range [][]string{{"status"}, {"search", "which pump?"}, {"verify"}} {
		code, text := c.obeying(t, verb...)
		assert.Zero(t, code, "%v: %s", verb, text)
	}
	code, text := c.obeying(t, "docs")
	assert.Equal(t, exitFault, code)
	assert.Contains(t, text, "cannot be written")
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
