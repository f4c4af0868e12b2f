package resilience_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every rule of docs/breaker.md has a test that names it, in its name or in the
// comment above it: "Rule 7", "TestRule7…", "Rules 2 to 8, 14".
func TestEveryRuleIsNamedByATest(t *testing.T) {
	named := map[int]bool{}
	for _, dir := range []string{".", "fallback"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?:func TestRule|// Rule |rule )(\d+)`).FindAllSubmatch(text, -1) {
				n, err := strconv.Atoi(string(m[1]))
				require.NoError(t, err)
				named[n] = true
			}
		}
	}
	for rule := 1; rule <= 33; rule++ {
		assert.True(t, named[rule], "no test names rule %d", rule)
	}
}

// The rules that the tests name are the ones that the manual numbers.
func TestManualNumbersTheRules(t *testing.T) {
	text, err := os.ReadFile("../docs/breaker.md")
	require.NoError(t, err)
	for rule := 1; rule <= 33; rule++ {
		assert.True(
			t,
			strings.Contains(string(text), "\n"+strconv.Itoa(rule)+". "),
			"docs/breaker.md has no rule %d",
			rule,
		)
	}
}
