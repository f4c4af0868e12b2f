package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each verb says more than its name, with an example, and each example is a
// command line that the parser takes.
func TestExamplesOfTheHelpAreCommandLines(t *testing.T) {
	parser := grammar(t)
	for _, node := range append([]*kong.Node{parser.Model.Node}, parser.Model.Children...) {
		text, found := node.Help+"\n\n"+node.Detail, 0
		for line := range strings.Lines(text) {
			example, ok := strings.CutPrefix(line, "    ")
			at := strings.Index(example, "ingest ")
			if !ok || at < 0 {
				continue
			}
			found++
			_, err := grammar(t).Parse(shellWords(t, example[at:]))
			assert.NoError(t, err, example)
		}
		if node.Name != "version" {
			assert.Positive(t, found, "%s has no example", node.Name)
		}
	}
}

// shellWords are the arguments of the first command of a line.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	for _, end := range []string{" > ", " | ", " && "} {
		line, _, _ = strings.Cut(line, end)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `ingest() { printf '%s\n' "$@"; }; `+line).Output()
	require.NoError(t, err, line)
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// The overview is in groups: what a new user needs comes first.
func TestHelpIsGrouped(t *testing.T) {
	c := newCommand(t)
	overview := c.run(t, "help").stdout
	at := -1
	for _, part := range []string{
		"Usage: ingest", "ingest README.md docs/", "\nDocuments:\n", "\n  run ", "\nOperation:\n", "\n  doctor ",
		"\nThis command:\n", "\n  completion ", "\nFlags:\n", "\nState, output and logs:\n", "\nObject store:\n",
		"\nVector store:\n", "\nEmbedding model:\n", "\nEnrichment:\n", "\nMonitoring:\n",
	} {
		next := strings.Index(overview, part)
		assert.Greater(t, next, at, "%q is missing or comes too early", part)
		at = next
	}
	search := c.run(t, "help", "search").stdout
	assert.Less(t, strings.Index(search, "--limit"), strings.Index(search, "--config"), "its own flags come first")
}

// What describes the command itself needs no setting, so none can stop it.
func TestWrongSettingsDoNotHideTheHelp(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		env  []string
	}{
		"a time without a unit": {file: "timeout: 5"},
		"a list for a text":     {file: "collection: [a, b]"},
		"no such level":         {file: "log-level: loud"},
		"no YAML":               {file: "a: [\nb"},
		"a variable":            {env: []string{"PENSTOCK_TIMEOUT=5"}},
		"both":                  {file: "json: 7", env: []string{"PENSTOCK_COLOR=blue"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, tt.env...)
			c.write(t, "penstock.yaml", tt.file)
			for _, args := range [][]string{
				{"help"},
				{"help", "environment"},
				{"help", "search"},
				{"help", "--man"},
				{"version"},
				{"completion", "bash"},
				{"--help"},
				{"--version"},
			} {
				o := c.run(t, args...)
				assert.Zero(t, o.code, "%v: %s", args, o.stderr)
				assert.NotEmpty(t, o.stdout, args)
			}
			o := c.run(t, "status")
			assert.Contains(t, []int{exitUsage, exitConfiguration}, o.code, o.stderr)
		})
	}
}
