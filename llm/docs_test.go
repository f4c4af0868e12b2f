package llm_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each test that the guide names exists, and each row of its table of traps names one.
func TestGuideNamesRealTests(t *testing.T) {
	guide, err := os.ReadFile("../docs/llm.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(content)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(guide), -1)
	assert.Greater(t, len(names), 20)
	for _, name := range names {
		assert.Contains(t, code.String(), "func "+name+"(", name)
	}
	_, table, found := strings.Cut(string(guide), "| the SDK | here | test |\n|---|---|---|\n")
	require.True(t, found)
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "|") {
			break
		}
		assert.Contains(t, row, "`Test")
	}
}
