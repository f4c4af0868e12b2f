package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

const root = "../.."

// guides are the pages whose commands and snippets are tested here.
var guides = []string{"README.md", "docs/ingest.md"}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks are the fenced blocks of a page in one language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	var found []string
	for _, match := range fence.FindAllStringSubmatch(string(content), -1) {
		if match[1] == language {
			found = append(found, match[2])
		}
	}
	return found
}

// Every Go snippet of the guides is part of a file that is compiled and tested.
func TestSnippetsAreOfTheExamples(t *testing.T) {
	var sources strings.Builder
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		content, err := os.ReadFile(path)
		sources.WriteString(unindented(string(content)))
		return err
	})
	require.NoError(t, err)
	count := 0
	for _, page := range guides {
		for _, snippet := range blocks(t, page, "go") {
			count++
			assert.Contains(t, sources.String(), unindented(snippet), page)
		}
	}
	assert.Positive(t, count)
}

// unindented drops the tabs at the beginning of lines, and blank lines.
func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// Every command of the guides succeeds, in the order of the page, in a copy of
// the module. The addresses are replaced by those of real upstreams.
func TestCommandsOfTheGuides(t *testing.T) {
	model := llmtest.NewServer(t, llmtest.Options{})
	s3 := upstreams.SeaweedFS(t)
	real := strings.NewReplacer(
		"http://127.0.0.1:8333", s3.Endpoint, "127.0.0.1:19530", upstreams.Milvus(t),
		"http://127.0.0.1:8080/v1", model.URL,
		"AWS_ACCESS_KEY_ID=penstock", "AWS_ACCESS_KEY_ID="+s3.AccessKey,
		"AWS_SECRET_ACCESS_KEY=penstock-secret", "AWS_SECRET_ACCESS_KEY="+s3.SecretKey,
		"AWS_REGION=us-east-1", "AWS_REGION="+s3.Region,
	)
	for _, page := range guides {
		t.Run(page, func(t *testing.T) {
			dir := guideFolder(t)
			script := real.Replace(strings.Join(blocks(t, page, "sh"), "\n"))
			script = strings.ReplaceAll(script, "make test\n", "make --dry-run test\n") // it is what runs this
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-x", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			if page == "README.md" {
				assert.Contains(t, string(out), "docs/breaker.md")
				assert.Contains(t, string(out), "FailMax counted failures in a row open it")
			}
		})
	}
}

// guideFolder is a folder in which the commands of the guides work: the module
// with a state of its own, and the command on the path.
func guideFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	entries, err := os.ReadDir(absolute)
	require.NoError(t, err)
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, ".") && name != "bin" &&
			name != "docs" && name != "README.md" {
			require.NoError(t, os.Symlink(filepath.Join(absolute, name), filepath.Join(dir, name)))
		}
	}
	require.NoError(t, os.CopyFS(filepath.Join(dir, "docs"), os.DirFS(filepath.Join(absolute, "docs"))))
	readme, err := os.ReadFile(filepath.Join(absolute, "README.md"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), readme, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "path"), 0o755))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "path", "ingest"), ".")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

const operations = "docs/operations.md"

// The DAG of the guide is the one that TestAirflow runs.
func TestGuideShowsTheDAG(t *testing.T) {
	dag, err := os.ReadFile(filepath.Join(root, "examples", "airflow", "documents.py"))
	require.NoError(t, err)
	assert.Equal(t, []string{string(dag)}, blocks(t, operations, "python"))
}

// The Job of the guide is restarted for temporary failures only.
func TestGuideJobFailsForTheRightCodes(t *testing.T) {
	var job struct {
		Spec struct {
			JobTemplate struct {
				Spec struct {
					PodFailurePolicy struct {
						Rules []struct {
							Action      string
							OnExitCodes struct{ Values []int } `yaml:"onExitCodes"`
						}
					} `yaml:"podFailurePolicy"`
				}
			} `yaml:"jobTemplate"`
		}
	}
	manifests := blocks(t, operations, "yaml")
	require.Len(t, manifests, 1)
	require.NoError(t, yaml.Unmarshal([]byte(manifests[0]), &job))
	rules := job.Spec.JobTemplate.Spec.PodFailurePolicy.Rules
	require.NotEmpty(t, rules)
	assert.Equal(t, "FailJob", rules[0].Action)
	assert.Equal(t, []int{exitFault, exitUsage, exitData, exitDenied, exitConfiguration}, rules[0].OnExitCodes.Values)
}

// The script for cron is silent if all is well, and reports what needs a
// person.
func TestGuideScriptForCron(t *testing.T) {
	c := newCommand(t, beCommand+"=1")
	c.write(t, "docs/page.md", "# Pumps\n\nThe second pump ran for three hours.\n")
	require.NoError(t, os.Symlink(os.Args[0], c.path("ingest")))
	var scripts []string
	for _, block := range blocks(t, operations, "sh") {
		if strings.Contains(block, "/etc/cron.hourly/") {
			scripts = append(scripts, block)
		}
	}
	require.Len(t, scripts, 1)
	script := strings.NewReplacer("/var/lib/penstock", "state", "/srv/docs", "docs", "/var/log/ingest.jsonl",
		"ingest.jsonl").Replace(scripts[0])
	cron := func() (string, int) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Dir, cmd.Env = c.dir, append([]string{"PATH=" + c.dir + ":" + os.Getenv("PATH"), "HOME=" + c.dir}, c.env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, string(out))
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	said, code := cron()
	assert.Zero(t, code, said)
	assert.Empty(t, said)
	c.write(t, "docs/broken.pdf", "%PDF-1.7 and nothing else")
	said, code = cron()
	assert.Equal(t, exitData, code, said)
	assert.Contains(t, said, `"dead_letters":1`)
}
