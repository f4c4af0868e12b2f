package objectstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each test and fuzz target that the guide names exists, and each row of its
// tables of traps and promises names one.
func TestGuideNamesRealTests(t *testing.T) {
	guide, err := os.ReadFile("../docs/objectstore.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	more, err := filepath.Glob("filestore/*_test.go")
	require.NoError(t, err)
	suite, err := filepath.Glob("objectstoretest/*.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range append(append(files, more...), suite...) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(content)
	}
	names := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+(?:/[a-z-]+)?(?:…)?`).FindAllString(string(guide), -1)
	assert.Greater(t, len(names), 40)
	for _, name := range names {
		name, part, isPart := strings.Cut(name, "/")
		if begin, many := strings.CutSuffix(name, "…"); many {
			assert.Contains(t, code.String(), "func "+begin, name)
			continue
		}
		assert.Contains(t, code.String(), "func "+name+"(", name)
		if isPart {
			assert.Contains(t, code.String(), `{"`+part+`", (*suite)`, name)
		}
	}
	for _, row := range tables(string(guide), "| the SDK |", "| promise |") {
		assert.Regexp(t, "`(Test|Fuzz)", row)
	}
}

// tables are the rows of the tables that begin so.
func tables(guide string, heads ...string) (rows []string) {
	in := false
	for line := range strings.Lines(guide) {
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case in && !strings.HasPrefix(line, "|---"):
			rows = append(rows, line)
		}
		for _, head := range heads {
			in = in || strings.HasPrefix(line, head)
		}
	}
	return rows
}
