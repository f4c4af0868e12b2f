package vectorstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each test that the guide names exists, and each row of its table of traps
// names one.
func TestGuideNamesRealTests(t *testing.T) {
	guide, err := os.ReadFile("../docs/vectorstore.md")
	require.NoError(t, err)
	var code strings.Builder
	for _, folder := range []string{".", "sqlitestore", "vectorstoretest"} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			code.Write(content)
		}
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+(?:/\w+)?`).FindAllString(string(guide), -1)
	assert.Greater(t, len(names), 25)
	for _, name := range names {
		name, part, isPart := strings.Cut(name, "/")
		assert.Contains(t, code.String(), "func "+name+"(", name)
		if isPart {
			assert.Contains(t, code.String(), `t.Run("`+strings.ReplaceAll(part, "_", " ")+`", s.`, name)
		}
	}
	_, table, found := strings.Cut(string(guide), "| the SDK | the door | test |\n|---|---|---|\n")
	require.True(t, found)
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		assert.Contains(t, line, "Test", "a row without a test")
	}
}
