package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// served is "ingest serve" as a process.
type served struct {
	cmd  *exec.Cmd
	base string // http://host:port

	mu             sync.Mutex
	stdout, stderr strings.Builder
}

// serve starts the service and returns once it says where it serves.
func (c *command) serve(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{cmd: c.start(context.WithoutCancel(t.Context()),
		append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...)}
	s.cmd.Stderr = writerFunc(func(b []byte) { s.mu.Lock(); defer s.mu.Unlock(); s.stderr.Write(b) })
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // fails when it has ended, which is as well
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", s.out(), s.log())
		}
	})
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	require.NoError(t, err, "it did not begin to serve: %s", s.log())
	s.base = strings.TrimRight(first[strings.Index(first, "http://"):], "/\"}\n")
	go func() {
		_, _ = io.Copy(writerFunc(func(b []byte) { s.mu.Lock(); defer s.mu.Unlock(); s.stdout.Write(b) }), lines)
	}()
	return s
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func (s *served) out() string { s.mu.Lock(); defer s.mu.Unlock(); return s.stdout.String() }
func (s *served) log() string { s.mu.Lock(); defer s.mu.Unlock(); return s.stderr.String() }

// get asks for a path and returns status and body.
func (s *served) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+path, nil)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func (s *served) await(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, 50*time.Millisecond, func() bool { _, body := s.get(t, path); return strings.Contains(body, want) },
		"%s never showed %s", path, want)
}

// stop sends a signal and returns the exit code and how long it took.
func (s *served) stop(t *testing.T, signal syscall.Signal) (code int, took time.Duration) {
	t.Helper()
	start := time.Now()
	require.NoError(t, s.cmd.Process.Signal(signal))
	_ = s.cmd.Wait() // an exit code other than 0 is in the state
	return s.cmd.ProcessState.ExitCode(), time.Since(start)
}

// An input that was missing for a night was a line of results in each pass.
func TestServeSaysOnceThatAnInputIsMissing(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/0.md", "Pump 0.")
	c.write(t, "mount/a.md", "Pump a.")
	s := c.serve(t, "--interval=50ms", "docs", "mount")
	s.await(t, "/", "<dt>documents complete</dt><dd>2</dd>")
	complete := 2
	passes := func() { // three of them at least
		for range 3 {
			c.write(t, fmt.Sprintf("docs/%d.md", complete), fmt.Sprintf("Pump %d.", complete))
			complete++
			s.await(t, "/", fmt.Sprintf("<dt>documents complete</dt><dd>%d</dd>", complete))
		}
	}
	for range 2 {
		c.rename(t, "mount", "away")
		s.await(t, "/", "Some of the inputs have not been readable")
		passes()
		c.rename(t, "away", "mount")
		s.await(t, "/", "All is well")
	}
	s.stop(t, syscall.SIGTERM)
	assert.Equal(t, 2, strings.Count(s.out(), "cannot list mount"), "once for each time that it went missing")
}

// What a pass says of its inputs is remembered until the next one alone.
func TestLostInputsAreNewsWhenTheyChange(t *testing.T) {
	missing := func(id, reason string) pipeline.Document {
		return pipeline.Document{ID: id, Result: pipeline.DeadLetter, Stage: "list", Reason: reason}
	}
	var l lost
	assert.False(t, l.known(missing("a", "gone")))
	assert.Zero(t, l.pass())
	assert.True(t, l.known(missing("a", "gone")))
	assert.False(t, l.known(missing("b", "gone")))
	assert.False(t, l.known(pipeline.Document{ID: "c", Result: pipeline.DeadLetter, Stage: "parse"}))
	assert.Equal(t, 1, l.pass())
	assert.False(t, l.known(missing("a", "no permission")), "for another reason")
	assert.True(t, l.known(missing("b", "gone")))
	assert.Equal(t, 1, l.pass())
	assert.Zero(t, l.pass())
	assert.False(t, l.known(missing("b", "gone")), "it was there in between")
}

func TestServeIngestsWhatComes(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "# Valves\n\nValve nine leaks when it is cold.\n")
	c.write(t, "docs/<script>alert(1)<&>.pdf", "%PDF-1.7\nthis is not one")
	s := c.serve(t, "--interval=100ms", "--json", "docs")
	s.await(t, "/", "<dt>document complete</dt><dd>1</dd>")
	c.write(t, "docs/b.md", "# Pumps\n\nPump seven is loud at night.\n")
	s.await(t, "/", "<dt>documents complete</dt><dd>2</dd>")
	status, found := s.get(t, "/search?"+url.Values{"q": {"which pump is loud?"}}.Encode())
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, found, "Pump seven is loud at night.")
	_, page := s.get(t, "/")
	assert.Contains(t, page, "docs/&lt;script&gt;alert(1)&lt;&amp;&gt;.pdf")
	assert.NotContains(t, page, "<script>alert")

	status, ready := s.get(t, "/readyz")
	assert.Equal(t, http.StatusOK, status, ready)
	_, exposed := s.get(t, "/metrics")
	assert.Contains(t, exposed, `circuit_breaker_state{upstream="s3"} 0`)
	assert.Contains(t, exposed, `ingest_documents_total{result="ingested"} 2`)

	beside := c.run(t, "docs")
	assert.Equal(t, exitTemporary, beside.code, "the service holds the journal")
	assert.Contains(t, c.run(t, "status").stdout, "2 documents", "and others may look")

	code, _ := s.stop(t, syscall.SIGTERM)
	assert.Zero(t, code, "a signal is how a service ends")
	for line := range strings.Lines(s.out()) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	assert.LessOrEqual(t, strings.Count(s.out(), `"document":"docs/a.md"`), 1,
		"unchanged documents are not told each time")
	interrupted := strings.Count(s.out(), `"kind":"interrupted"`) // the pass that the signal met, if one was under way
	assert.Equal(t, 2, strings.Count(s.out(), `"summary"`)-interrupted, "nor are passes that did nothing")
}

// A stream that is open and a pass that hangs do not hold it up.
func TestServeStopsWithinSeconds(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			c, model := withModel(t, llmtest.Options{})
			model.Script(llmtest.From(2, llmtest.Hang()))
			corpus(t, c, 20)
			s := c.serve(t, "docs")
			response, err := http.Get(s.base + "/events")
			require.NoError(t, err)
			defer response.Body.Close()
			require.Eventually(t, func() bool { return model.Stats().Requests >= 2 }, time.Minute, 10*time.Millisecond)
			code, took := s.stop(t, signal)
			assert.Zero(t, code)
			assert.Less(t, took, time.Minute, "the model is given a minute, and is not waited for")
			_, err = io.ReadAll(response.Body)
			assert.NoError(t, err, "the stream is ended, not broken off")

			model.Script()
			rest := c.ingest(t, "docs")
			assert.Zero(t, rest.code, rest.stderr)
			assert.Equal(t, 20, rest.summary.Ingested+rest.summary.Unchanged)
		})
	}
}

func TestServeRefusesWhatMakesNoSense(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	c.write(t, "list", "docs\nnowhere\n")
	for _, row := range []struct {
		args []string
		env  string
		code int
		says string
	}{
		{[]string{"--listen=0.0.0.0:0", "docs"}, "", exitUsage, "needs a token"},
		{[]string{"--listen=:0", "docs"}, "", exitUsage, "needs a token"},
		{[]string{"--listen=0.0.0.0:0", "docs"}, "PENSTOCK_TOKEN=short", exitUsage, "16 characters"},
		{[]string{"--dry-run", "docs"}, "", exitUsage, "--dry-run"},
		{[]string{"--interval=0s", "docs"}, "", exitUsage, "--interval"},
		{[]string{"nowhere"}, "", exitUsage, "nowhere"},
		{[]string{"docs", "nowhere"}, "", exitUsage, "nowhere"},
		{[]string{"@list"}, "", exitUsage, "nowhere"},
		{[]string{"--listen=nothing", "docs"}, "", exitConfiguration, "--listen"},
		{[]string{"--breaker-reset=0s", "docs"}, "", exitUsage, "--breaker-reset"},
		{[]string{"--breaker-reset=99999h", "docs"}, "", exitUsage, "ResetTimeout"},
		{[]string{"--audit-log=nowhere/audit.jsonl", "docs"}, "", exitConfiguration, "--audit-log"},
	} {
		one := &command{dir: c.dir, env: []string{row.env}}
		o := one.run(t, append([]string{"serve"}, row.args...)...)
		assert.Equal(t, row.code, o.code, "%v", row.args)
		assert.Contains(t, o.stderr, row.says, "%v", row.args)
	}
}

func TestServeWithAToken(t *testing.T) {
	c := newCommand(t, "PENSTOCK_TOKEN=correct-horse-battery")
	c.write(t, "docs/a.md", "A text.")
	s := c.serve(t, "--listen=0.0.0.0:0", "docs")
	s.base = strings.Replace(s.base, "[::]", "127.0.0.1", 1)
	status, _ := s.get(t, "/metrics")
	assert.Equal(t, http.StatusUnauthorized, status)
	status, _ = s.get(t, "/healthz")
	assert.Equal(t, http.StatusOK, status)
	assert.NotContains(t, s.log()+s.out(), "correct-horse")
	assert.NotContains(t, c.run(t, "config").stdout, "correct-horse")
}

// If the inputs disappear while it serves, it reports that and continues.
func TestServeOutlivesItsInputs(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	s := c.serve(t, "--interval=100ms", "docs")
	s.await(t, "/", "<dt>document complete</dt><dd>1</dd>")
	c.rename(t, "docs", "elsewhere")
	s.await(t, "/", "cannot list docs")
	c.rename(t, "elsewhere", "docs")
	c.write(t, "docs/b.md", "Another text.")
	s.await(t, "/", "<dt>documents complete</dt><dd>2</dd>")
}

// A pass whose inputs were missing left the result of the pass before in the
// metrics, so that no alert fired.
func TestServeRecordsAPassWithoutItsInputs(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	s := c.serve(t, "--interval=20ms", "docs")
	s.await(t, "/metrics", `ingest_last_run_result{result="done"} 1`)
	c.rename(t, "docs", "unmounted")
	s.await(t, "/metrics", `ingest_last_run_result{result="configuration"} 1`)
	s.await(t, "/metrics", `ingest_last_run_result{result="done"} 0`)
	c.rename(t, "unmounted", "docs")
	s.await(t, "/metrics", `ingest_last_run_result{result="done"} 1`)
}

// servesTwoInputs starts a service of two folders, docs and notes, with a
// document each, and waits until it is ready.
func servesTwoInputs(t *testing.T) (*command, *served) {
	t.Helper()
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	c.write(t, "notes/b.md", "Another text.")
	s := c.serve(t, "--interval=100ms", "docs", "notes")
	s.await(t, "/", "<dt>documents complete</dt><dd>2</dd>")
	s.await(t, "/readyz", "ready\n")
	return c, s
}

// Where a volume was not mounted, the page said that all was well, and each
// pass logged a line and was a success.
func TestServeIsNotReadyOverAnInputThatHasBecomeEmpty(t *testing.T) {
	c, s := servesTwoInputs(t)
	c.rename(t, "docs/a.md", "elsewhere.md")
	s.await(t, "/readyz", "not ready: the last pass went without some of its inputs: nothing is left in docs")
	s.await(t, "/", "Some of the inputs have not been readable")
	succeeded := c.status(t).LastSuccess
	c.write(t, "notes/c.md", "A third text.")
	s.await(t, "/", "<dt>documents complete</dt><dd>3</dd>")
	assert.Equal(t, succeeded, c.status(t).LastSuccess)
	assert.Equal(t, 1, strings.Count(s.log(), "nothing to ingest was found"))
	assert.Equal(t, 1, strings.Count(s.log(), "nothing is left in docs"))
	c.rename(t, "elsewhere.md", "docs/a.md")
	s.await(t, "/readyz", "ready\n")
	s.stop(t, syscall.SIGTERM)
	assert.True(t, c.status(t).LastSuccess.After(*succeeded))
}

// While one of two folders was missing, the service was ready, and its page
// said that all was well.
func TestServeIsNotReadyWithoutOneOfItsInputs(t *testing.T) {
	c, s := servesTwoInputs(t)
	c.rename(t, "notes", "elsewhere")
	s.await(t, "/readyz", "not ready: the last pass went without some of its inputs: cannot list notes: no such file")
	s.await(t, "/", "Some of the inputs have not been readable")
	succeeded := c.status(t).LastSuccess
	c.write(t, "docs/c.md", "A third text.")
	s.await(t, "/", "<dt>documents complete</dt><dd>3</dd>")
	s.await(t, "/readyz", "not ready")
	status := c.status(t)
	assert.Equal(t, succeeded, status.LastSuccess, "no pass has gone through all inputs since")
	assert.Len(t, status.LastRun.Unlisted, 1)
	assert.Contains(t, s.log(), "cannot list notes: no such file")
	c.rename(t, "elsewhere", "notes")
	s.await(t, "/readyz", "ready\n")
	s.stop(t, syscall.SIGTERM)
	assert.True(t, c.status(t).LastSuccess.After(*succeeded))
}
