package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/ingest/internal/complete"
)

// What the scripts are told to offer: the words, and how the shell continues.
const (
	noFiles = ":4"
	files   = ":0"
	folders = ":16"
	open    = ":2" // no space after the word
)

func TestCompletionOffers(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"report.md", "read me.md", "colon:a.md", ".hidden"} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	require.NoError(t, os.Mkdir("docs", 0o700))
	for line, want := range map[string]string{
		// Verbs, and paths for the default verb.
		"re":        "retry report.md read\x00me.md " + files,
		"docu":      files,
		"do":        "doctor docs/ " + open,
		"docs/":     files,
		"colon":     files,
		"-- se":     files,
		"docs se":   files,
		"run re":    files,
		"--json co": "config completion colon:a.md " + files,
		// Arguments of verbs.
		"parse ":            files,
		"parse a.md ":       noFiles,
		"delete a.md ":      files,
		"search ":           noFiles,
		"status ":           noFiles,
		"help ex":           "exit-codes " + noFiles,
		"help search ":      noFiles,
		"completion ":       "bash zsh fish powershell " + noFiles,
		"completion bash z": noFiles,
		// Flags: of the verb, of all verbs, once unless they may be repeated.
		"search --w":            "--where " + noFiles,
		"search --where x --wh": noFiles,
		"--prun":                "--prune --prune-limit " + noFiles,
		"--meta a=b --met":      "--meta --metrics-addr --metrics-textfile " + noFiles,
		"status --dry":          noFiles,
		"--no-such":             noFiles,
		"-- --json":             files,
		// Their values.
		"--log-level ":          "debug info warn error " + noFiles,
		"--log-level=w":         "warn " + noFiles,
		"--log-level w":         "warn " + noFiles,
		"--json=t":              "true " + noFiles,
		"--json se":             "search serve " + files,
		"--color al":            "always " + noFiles,
		"--config ":             files,
		"--config=":             files,
		"--state ":              folders,
		"--milvus ":             noFiles,
		"--milvus search re":    "retry report.md read\x00me.md " + files,
		"--enrich title,":       "title,summary title,context :6",
		"search -n 5 --lo":      "--log-level --log-json " + noFiles,
		"search -n ":            noFiles,
		"--no-such=x":           noFiles,
		"status --all --log-l=": noFiles,
	} {
		words := strings.Split(line, " ")
		var out bytes.Buffer
		args := append([]string{complete.RequestNames}, words...)
		require.NoError(t, (&app{stdout: &out}).complete(grammar(t), args))
		names := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), " ", "\x00")), "\n")
		assert.ElementsMatch(t, strings.Fields(want), names, line)
	}
}

// With nothing typed, every verb is offered with what it does.
func TestCompletionOffersEveryVerb(t *testing.T) {
	var out bytes.Buffer
	parser := grammar(t)
	require.NoError(t, (&app{stdout: &out}).complete(parser, []string{complete.Request}))
	for _, verb := range verbs(parser.Model.Node) {
		assert.Regexp(t, `(?m)^`+verb+`\t[A-Z]`, out.String())
	}
}

func TestCompletionScriptOfEachShell(t *testing.T) {
	for _, shell := range complete.Shells {
		var out bytes.Buffer
		require.NoError(t, complete.Script(&out, shell, "ingest"), shell)
		assert.Contains(t, out.String(), complete.Request, shell)
	}
	assert.ErrorContains(t, complete.Script(&bytes.Buffer{}, "ksh", "ingest"), "choose from bash, zsh")
}
