//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// hungUp runs a command that gets SIGHUP while its model answers slowly, and
// then calls then.
func hungUp(t *testing.T, wrap func(*exec.Cmd), then func(*llmtest.Server)) (c *command, code int, s pipeline.Summary) {
	t.Helper()
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 200)
	model.Script(llmtest.From(3, llmtest.Fault{Delay: 100 * time.Millisecond}))
	cmd := c.start(t.Context(), "--json", "docs")
	wrap(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return model.Stats().Requests >= 5 }, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	then(model)
	_ = cmd.Wait()
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var last struct{ Summary pipeline.Summary }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last), stdout.String()+stderr.String())
	return c, cmd.ProcessState.ExitCode(), last.Summary
}

// SIGHUP, of a terminal that was closed, killed the run with all that it had
// not saved.
func TestHangupSavesTheState(t *testing.T) {
	c, code, s := hungUp(t, func(*exec.Cmd) {}, func(*llmtest.Server) {})
	assert.Equal(t, 128+int(syscall.SIGHUP), code)
	require.NotNil(t, s.Stopped)
	assert.Equal(t, pipeline.StopInterrupted, s.Stopped.Kind)
	assert.Equal(t, "interrupted by SIGHUP", s.Stopped.Reason)
	rest := c.ingest(t, "docs")
	require.Zero(t, rest.code, rest.stdout+rest.stderr)
	assert.Equal(t, 200, s.Ingested+rest.summary.Ingested)
}

// Under nohup the run continues.
func TestHangupIsIgnoredUnderNohup(t *testing.T) {
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	_, code, s := hungUp(t, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{shell, "-c", `trap "" HUP; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = shell
	}, func(model *llmtest.Server) { model.Script() })
	assert.Zero(t, code)
	assert.Nil(t, s.Stopped)
	assert.Equal(t, 200, s.Ingested)
}
