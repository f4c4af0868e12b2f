package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersionNamesCommitAndGo(t *testing.T) {
	for _, tt := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{&debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.4.0"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "d381ee1"}},
		}, "ingest v1.4.0 (commit d381ee1; go1.26.8)"},
		{&debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.4.0"},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "d381ee1"}, {Key: "vcs.modified", Value: "true"},
			},
		}, "ingest v1.4.0 (commit d381ee1, modified; go1.26.8)"},
		{&debug.BuildInfo{GoVersion: "go1.26.8"}, "ingest unknown (commit unknown; go1.26.8)"},
	} {
		assert.Equal(t, tt.want, buildOf(tt.info).String())
	}
}

// grammar is the model of the command line.
func grammar(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := (&app{}).newParser(t.Context(), &cli{})
	require.NoError(t, err)
	return parser
}

// manualPages are all pages in roff, by topic; "" is the whole command.
func manualPages(t *testing.T) map[string]string {
	t.Helper()
	parser := grammar(t)
	pages := map[string]string{}
	for _, topic := range append([]string{""}, verbs(parser.Model.Node)...) {
		var page bytes.Buffer
		require.NoError(t, (&helpCmd{Topic: topic}).manual(&app{stdout: &page}, parser))
		pages[topic] = page.String()
	}
	return pages
}

// Each verb, flag, variable and exit code of the command is in its manual.
func TestManualIsComplete(t *testing.T) {
	pages, model := manualPages(t), grammar(t).Model
	plain := func(page string) string { return regexp.MustCompile(`\\f[BIR]`).ReplaceAllString(page, "") }
	hyphens := strings.NewReplacer("-", `\-`)
	for _, flag := range model.Flags {
		assert.Contains(t, plain(pages[""]), "\n"+flagLine(flag, hyphens), flag.Name)
		for _, variable := range flag.Envs {
			assert.Contains(t, plain(pages[""]), "\n"+variable+"\n", variable)
		}
	}
	for _, verb := range model.Children {
		assert.Contains(t, plain(pages[""]), "\n"+verb.Name, verb.Name)
		assert.Contains(t, pages[verb.Name], ".TH \"INGEST\\-"+strings.ToUpper(verb.Name), verb.Name)
		for _, flag := range verb.Flags {
			assert.Contains(t, plain(pages[verb.Name]), flagLine(flag, hyphens), "%s --%s", verb.Name, flag.Name)
		}
	}
	for _, m := range exitMeanings {
		assert.Contains(t, plain(pages[""]), "\n"+m.code+"\n")
	}
}

func flagLine(flag *kong.Flag, hyphens *strings.Replacer) string {
	line := hyphens.Replace("--" + flag.Name)
	if flag.Short != 0 {
		line = `\-` + string(flag.Short) + ", " + line
	}
	return line
}

// groff and mandoc have nothing to object to in the manual.
func TestManualIsValidRoff(t *testing.T) {
	checks := [][]string{
		{"groff", "-man", "-ww", "-z"}, {"mandoc", "-T", "lint", "-W", "error"}, {"man", "--warnings", "-l", "-"},
	}
	ran := false
	for _, check := range checks {
		if _, err := exec.LookPath(check[0]); err != nil {
			continue
		}
		ran = true
		for topic, page := range manualPages(t) {
			cmd := exec.CommandContext(t.Context(), check[0], check[1:]...)
			cmd.Env = append(os.Environ(), "MANROFFSEQ=", "MANWIDTH=80", "LC_ALL=C.UTF-8")
			cmd.Stdin = strings.NewReader(page)
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			assert.NoError(t, err, "%v %q: %.300s", check, topic, out)
			assert.Empty(t, said.String(), "%v %s", check, topic)
		}
	}
	if !ran {
		t.Skip("needs groff, mandoc or man")
	}
}

// The table of the guide and the help have the same codes.
func TestGuideHasTheExitCodesOfTheHelp(t *testing.T) {
	guide, err := os.ReadFile(root + "/" + operations)
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(guide), "## Exit codes")
	table, _, _ := strings.Cut(section, "If several apply")
	for _, m := range exitMeanings {
		assert.Regexp(t, `\b`+m.code+`\b`, table)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(table, -1) {
		found := false
		for _, m := range exitMeanings {
			found = found || m.code == row[1]
		}
		assert.True(t, found, row[1])
	}
}
