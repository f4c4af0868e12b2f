//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shells are those that complete for real, and what prepares each of them.
var shells = []struct {
	name  string
	args  []string
	needs string // a file, beside the shell
	setUp string
}{
	{
		"bash",
		[]string{"--norc", "--noprofile", "-i"},
		"/usr/share/bash-completion/bash_completion",
		"PS1='> '; bind 'set enable-bracketed-paste off'; . /usr/share/bash-completion/bash_completion; " +
			". <(ingest completion bash)",
	},
	{
		"zsh",
		[]string{"-f", "-i"},
		"",
		"PS1='> '; autoload -Uz compinit; compinit -u -D; source <(ingest completion zsh); " +
			"bindkey '^I' complete-word", // the key itself would expand the word
	},
	{"fish", []string{"--no-config", "-i"}, "", "ingest completion fish | source"},
}

// What is typed before the tab key, and the words that follow from it.
var completions = []struct {
	typed string
	words []string
}{
	{"ingest ser", []string{"ingest", "serve"}},
	{"ingest vers", []string{"ingest", "version"}},
	{"ingest search --lim", []string{"ingest", "search", "--limit"}},
	{"ingest --prune-l", []string{"ingest", "--prune-limit"}},
	{"ingest --log-level d", []string{"ingest", "--log-level", "debug"}},
	{"ingest --log-level=d", []string{"ingest", "--log-level=debug"}},
	{"ingest --json status --al", []string{"ingest", "--json", "status", "--all"}},
	{"ingest completion f", []string{"ingest", "completion", "fish"}},
	{"ingest help exit", []string{"ingest", "help", "exit-codes"}},
	{"ingest parse pum", []string{"ingest", "parse", "pumps.md"}},
	{"ingest pum", []string{"ingest", "pumps.md"}},
	{"ingest docs/on", []string{"ingest", "docs/one.md"}},
	{"ingest --state fol", []string{"ingest", "--state", "folder"}},
	{"ingest --enrich title,su", []string{"ingest", "--enrich", "title,summary"}},
	{`ingest chunk with\ sp`, []string{"ingest", "chunk", "with space.md"}},
}

// What the tab key must not run.
var evaluated = []string{
	"ingest run $(%s) ",
	"ingest run \"$(%s)\" se",
	"ingest $(%s)",
	"ingest --state=$(%s) --log-l",
	"ingest --log-level=$(%s)d",
	"ingest run `%s` ",
	"ingest run (%s) ",
	"$(%s)/ingest se",
}

// The completion scripts work in the shells that they are for.
func TestCompletionInShells(t *testing.T) {
	c := newCommand(t)
	for _, name := range []string{"pumps.md", "docs/one.md", "folder/x", "with space.md"} {
		c.write(t, name, "A pump.")
	}
	bin := t.TempDir()
	require.NoError(t, os.Symlink(os.Args[0], bin+"/ingest"))
	c.env = append(c.env, "PATH="+bin+":"+os.Getenv("PATH"), "TERM=xterm", "HISTFILE=", "LC_ALL=C.UTF-8")
	for _, shell := range shells {
		t.Run(shell.name, func(t *testing.T) {
			path, err := exec.LookPath(shell.name)
			if err == nil && shell.needs != "" {
				_, err = os.Stat(shell.needs)
			}
			if err != nil {
				t.Skipf("needs %s and its completion: %v", shell.name, err)
			}
			cmd := c.start(t.Context())
			cmd.Path, cmd.Args = path, append([]string{path}, shell.args...)
			cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
			screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
			require.NoError(t, err)
			s := &terminal{screen: screen, wait: cmd.Wait}
			s.enter(t, shell.setUp+"; printf '<%s>\\n' ready")
			s.await(t, "<ready>\r\n")
			for _, tt := range completions {
				s.text.Reset()
				const home, end = "\x01", "\x05"
				s.enter(t, tt.typed+"\t"+home+"printf '<%s>' "+end+" stop")
				s.await(t, "<stop>")
				shown := strings.ReplaceAll(s.text.String(), "/>", ">") // zsh takes the slash back
				assert.Contains(t, shown, fmt.Sprintf("<%s><stop>", strings.Join(tt.words, "><")), tt.typed)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			for i, typed := range evaluated {
				s.text.Reset()
				const home, kill = "\x01", "\x0b"
				s.enter(t, fmt.Sprintf(typed, "touch "+ran)+"\t"+home+kill+"printf '<%s>' "+strconv.Itoa(i))
				s.await(t, fmt.Sprintf("<%d>", i))
				assert.NoFileExists(t, ran, typed)
				_ = os.Remove(ran)
			}
			s.enter(t, "exit")
			s.rest()
		})
	}
}

func (s *terminal) enter(t *testing.T, keys string) {
	t.Helper()
	_, err := s.screen.WriteString(keys + "\r")
	require.NoError(t, err)
}
