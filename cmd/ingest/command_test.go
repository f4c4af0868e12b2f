package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// beCommand makes the test binary be the command itself, in a process of its
// own: breakers are singletons of a process.
const beCommand = "INGEST_TEST_BE_THE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) != "" {
		main()
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup: what is caught here, the commands of tests do not ignore
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	testscript.Main(m, map[string]func(){"ingest": main})
}

// command is one way of calling the command: a working folder and an
// environment.
type command struct {
	dir string
	env []string
}

func newCommand(t *testing.T, env ...string) *command {
	t.Helper()
	return &command{dir: t.TempDir(), env: env}
}

// atModel are the variables of a command that embeds with a model server.
func atModel(url string) []string {
	return []string{"PENSTOCK_LLM_BASE_URL=" + url, "PENSTOCK_EMBEDDING_MODEL=" + staticmodel.Name}
}

// withModel is a command with a model server of its own.
func withModel(t *testing.T, o llmtest.Options) (*command, *llmtest.Server) {
	t.Helper()
	model := llmtest.NewServer(t, o)
	return newCommand(t, atModel(model.URL)...), model
}

// keysOf are the variables that name an object store's region and keys.
func keysOf(s3 upstreams.S3) []string {
	return []string{
		"AWS_REGION=" + s3.Region, "AWS_ACCESS_KEY_ID=" + s3.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s3.SecretKey,
	}
}

// atS3 are the variables of a command whose originals are in a bucket.
func atS3(s3 upstreams.S3, bucket string) []string {
	return append(keysOf(s3), "PENSTOCK_S3_ENDPOINT="+s3.Endpoint, "PENSTOCK_S3_BUCKET="+bucket)
}

// path is that of a file below the working folder.
func (c *command) path(elem ...string) string {
	return filepath.Join(c.dir, filepath.Join(elem...))
}

// output is what a call left.
type output struct {
	code           int
	stdout, stderr string
	peak           int64     // resident set, bytes
	began, ended   time.Time // of the process

	documents map[string]pipeline.Document // of a run with --json
	summary   pipeline.Summary
}

// start prepares the command as a process.
func (c *command) start(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Dir = c.dir
	cmd.Env = append([]string{
		beCommand + "=1", "HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH"),
		"AWS_EC2_METADATA_DISABLED=true",
	}, c.env...)
	return cmd
}

// run calls the command and waits for it.
func (c *command) run(t *testing.T, args ...string) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.start(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%v", args)
	}
	o := output{
		code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(),
		began: began, ended: time.Now(),
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.peak = usage.Maxrss * 1024
	}
	return o
}

// ingest calls the command with --json and reads its output.
func (c *command) ingest(t *testing.T, args ...string) output {
	t.Helper()
	o := c.run(t, append([]string{"--json"}, args...)...)
	o.documents = map[string]pipeline.Document{}
	lines := bufio.NewScanner(strings.NewReader(o.stdout))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			pipeline.Document
			Summary *pipeline.Summary
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if line.Summary != nil {
			o.summary = *line.Summary
		} else {
			o.documents[line.ID] = line.Document
		}
	}
	require.NoError(t, lines.Err())
	return o
}

// write lays a file below the working folder, whole from the moment it is
// there: somebody may be watching.
func (c *command) write(t *testing.T, name, content string) {
	t.Helper()
	full := c.path(filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	half := filepath.Join(filepath.Dir(c.dir), "half")
	require.NoError(t, os.WriteFile(half, []byte(content), 0o644))
	require.NoError(t, os.Rename(half, full))
}

func (c *command) rename(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.Rename(c.path(from), c.path(to)))
}

// read is the content of a file below the working folder.
func (c *command) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(c.path(filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(content)
}
