//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

// terminal runs the command with a terminal as stdout and stderr.
func (c *command) terminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	return c.narrow(t, 120, args...)
}

// narrow is terminal with a number of columns.
func (c *command) narrow(t *testing.T, columns int, args ...string) *terminal {
	t.Helper()
	cmd := c.start(t.Context(), args...)
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: uint16(columns)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	return &terminal{screen: screen, wait: cmd.Wait, signal: cmd.Process.Signal, code: func() int {
		return cmd.ProcessState.ExitCode()
	}}
}

// terminal is a command whose output goes to a terminal.
type terminal struct {
	screen *os.File
	wait   func() error
	signal func(os.Signal) error
	code   func() int
	text   bytes.Buffer
}

// await reads until the screen shows a match.
func (s *terminal) await(t *testing.T, pattern string) {
	t.Helper()
	match, part := regexp.MustCompile(pattern), make([]byte, 4096)
	for !match.Match(s.text.Bytes()) {
		n, err := s.screen.Read(part)
		s.text.Write(part[:n])
		require.NoError(t, err, "no %s in %.300q", pattern, s.text.String())
	}
}

// rest reads until the command ends, and returns all that it wrote.
func (s *terminal) rest() string {
	_, _ = io.Copy(&s.text, s.screen) // it ends with an error on Linux
	_ = s.wait()
	return s.text.String()
}

// The bar shows the total once the documents are listed, and the time left
// once one is done.
func TestProgressShowsTheTotal(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 41)
	model.Script(llmtest.From(2, llmtest.Hang()))
	s := c.terminal(t, "docs", "docs/report000.md")
	s.await(t, `\(0/41\)`)
	require.NoError(t, s.signal(os.Interrupt))
	assert.NotContains(t, s.rest(), "documents/hr")
	assert.Equal(t, 128+int(syscall.SIGINT), s.code())
}

// A bar wider than the terminal wraps, and each step of it is a new line.
func TestBarIsNoWiderThanTheTerminal(t *testing.T) {
	c := newCommand(t)
	corpus(t, c, 41)
	for _, columns := range []int{1, 5, 20, 44, 60, 80, 120} {
		c.env = []string{"TERM=xterm", "PENSTOCK_STATE=" + t.TempDir()}
		s := c.narrow(t, columns, "docs")
		text := s.rest()
		require.Zero(t, s.code(), text)
		drawn := regexp.MustCompile(`\r[^\r\n]*`).FindAllString(text[:strings.LastIndex(text, "\r\n")], -1)
		for _, line := range drawn[:len(drawn)-1] { // the last one is the summary
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimPrefix(line, "\r")), columns, "%q", line)
		}
	}
	c.env = []string{"TERM=dumb", "PENSTOCK_STATE=" + t.TempDir()}
	s := c.terminal(t, "docs")
	assert.NotContains(t, s.rest(), "%", "a terminal that cannot draw over a line")
}

// A line of the log is not written over the bar.
func TestLogIsClearOfTheBar(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 100)
	model.Script(llmtest.From(3, inOwnWords(http.StatusInternalServerError)))
	s := c.terminal(t, "docs", "--log-level=info")
	text := s.rest()
	require.Equal(t, exitTemporary, s.code(), text)
	assert.Contains(t, text, "level=INFO")
	assert.NotRegexp(t, `\] *time=`, text)
}

// On a terminal, where log and results are side by side, a stop said the same
// four times, and an empty folder was reported twice.
func TestATerminalIsToldOnce(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 4)
	require.NoError(t, os.Mkdir(c.path("empty"), 0o755))
	s := c.terminal(t, "empty")
	text := s.rest()
	require.Zero(t, s.code(), text)
	assert.Equal(t, 1, strings.Count(text, "nothing to ingest"), text)
	assert.Contains(t, c.run(t, "empty").stderr, "nothing to ingest", "a log of its own has it")

	model.Script(llmtest.All(inOwnWords(http.StatusUnauthorized)))
	s = c.terminal(t, "docs")
	text = s.rest()
	require.Equal(t, exitDenied, s.code(), text)
	assert.Equal(t, 1, strings.Count(text, ownWords), text)
	assert.Contains(t, c.run(t, "docs").stderr, "run stopped", "a log of its own has it")
	assert.Equal(t, 1, strings.Count(c.run(t, "status").stdout, ownWords))
}

func TestColorsOnATerminal(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.pdf", "%PDF-1.7 and nothing else")
	for _, tt := range []struct {
		args []string
		env  string
		want bool
	}{
		{nil, "TERM=xterm", true},
		{nil, "TERM=dumb", false},
		{nil, "NO_COLOR=1", false},
		{[]string{"--color=never"}, "TERM=xterm", false},
		{[]string{"--color=always"}, "TERM=dumb", true},
	} {
		c.env = []string{tt.env, "PENSTOCK_STATE=" + t.TempDir()}
		s := c.terminal(t, append(tt.args, "docs")...)
		text := s.rest()
		require.Equal(t, exitData, s.code(), text)
		colored := regexp.MustCompile("\x1b\\[[0-9;]*mdead letter\x1b\\[0m")
		assert.Equal(t, tt.want, colored.MatchString(text), "%v %s: %q", tt.args, tt.env, text)
		assert.Contains(t, text, "dead letter")
	}
}
