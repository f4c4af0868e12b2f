package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

const root = "../.."

// guides are the pages whose commands and snippets are held to be true here.
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

// Every Go snippet of the guides stands in a file that is compiled and tested.
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

// Every command of the guides runs and ends well, in the order of the page, in
// a copy of what it speaks of. The addresses are those of the real upstreams.
func TestCommandsOfTheGuides(t *testing.T) {
	model := llmtest.NewServer(t, llmtest.Options{})
	s3 := upstreams.SeaweedFS(t)
	real := strings.NewReplacer(
		"http://127.0.0.1:8333", s3.Endpoint, "127.0.0.1:19530", upstreams.Milvus(t), "http://127.0.0.1:8080/v1", model.URL,
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
		if name := entry.Name(); !strings.HasPrefix(name, ".") && name != "bin" && name != "docs" && name != "README.md" {
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
