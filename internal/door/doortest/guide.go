package doortest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testNames = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+(?:/[\w-]+)?(?:…)?`)
	namesTest = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]`)
)

// Guide fails the test unless each test that a guide names exists in the Go
// files of the folders, and each row of the guide's tables that begin with one
// of heads names a test. A name may have a subtest after a slash, and an … for
// all that begin so.
func Guide(t testing.TB, guide string, folders []string, heads ...string) {
	t.Helper()
	text := read(t, guide)
	var code strings.Builder
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			code.WriteString(read(t, file))
		}
	}
	names := testNames.FindAllString(text, -1)
	if len(names) == 0 {
		t.Fatalf("%s names no tests", guide)
	}
	for _, name := range names {
		if !exists(code.String(), name) {
			t.Errorf("%s names %s, which does not exist", guide, name)
		}
	}
	for _, head := range heads {
		rows := table(text, head)
		if len(rows) == 0 {
			t.Errorf("%s has no table that begins with %s", guide, head)
		}
		for _, row := range rows {
			if !namesTest.MatchString(row) {
				t.Errorf("%s: a row without a test: %s", guide, row)
			}
		}
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(code, name string) bool {
	name, part, _ := strings.Cut(name, "/")
	start, many := strings.CutSuffix(name, "…")
	if !many {
		start += "("
	}
	spaced := strings.ReplaceAll(part, "_", " ")
	return strings.Contains(code, "func "+start) && (part == "" ||
		strings.Contains(code, `"`+part+`"`) || strings.Contains(code, `"`+spaced+`"`))
}

// table is the rows below a head.
func table(guide, head string) (rows []string) {
	_, after, _ := strings.Cut(guide, "\n"+head)
	lines := strings.Split(after, "\n")
	for _, line := range lines[1:] {
		switch {
		case strings.HasPrefix(line, "|---"):
		case !strings.HasPrefix(line, "|"):
			return rows
		default:
			rows = append(rows, line)
		}
	}
	return rows
}
