package parse_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// corpus is a folder of real documents, which scripts/corpus fetches.
func corpus(t testing.TB, folder string) string {
	t.Helper()
	root := os.Getenv("PENSTOCK_CORPUS")
	if root == "" {
		t.Skip("PENSTOCK_CORPUS is not set: run scripts/corpus FOLDER, and set it to FOLDER")
	}
	return filepath.Join(root, folder)
}

// formatsInCorpus are the extensions that are read; source code is left out of
// the table, since packages are full of it.
var formatsInCorpus = []string{
	".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".odt", ".ods", ".odp", ".rtf", ".eml", ".html", ".htm", ".md", ".txt", ".rst",
	".csv", ".json", ".jsonl", ".xml", ".zip",
}

// tally is what became of the files of one format.
type tally struct {
	files, parsed int
	bytes         int64
	took          time.Duration
	refused       map[string]int
	recall        []float64 // by word, against the judge
}

// TestCorpus reads every document of the corpus: each is parsed, or refused for
// a reason. It prints the table of docs/formats.md.
func TestCorpus(t *testing.T) {
	root := corpus(t, "")
	reg := newRegistry(t, parse.Limits{})
	tallies := map[string]*tally{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		ext := strings.ToLower(filepath.Ext(path))
		if err != nil || d.IsDir() || !slices.Contains(formatsInCorpus, ext) {
			return err
		}
		if tallies[ext] == nil {
			tallies[ext] = &tally{refused: map[string]int{}}
		}
		tallies[ext].add(t, reg, path)
		return nil
	}))
	t.Logf("%-6s %6s %7s %8s %7s  %s", "format", "files", "parsed", "MB/s", "recall", "refused") // the median
	for _, ext := range formatsInCorpus {
		if tallies[ext] != nil {
			t.Log(tallies[ext].row(ext))
		}
	}
}

func (a *tally) add(t *testing.T, reg *parse.Registry, path string) {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	a.files++
	started := time.Now()
	blocks, err := read(t, reg, path, string(content))
	a.took += time.Since(started)
	a.bytes += int64(len(content))
	var refused *parse.Error
	if errors.As(err, &refused) {
		a.refused[refused.Kind.String()]++
		assert.NotEqual(t, parse.Crashed, refused.Kind, "%v\n%s", err, refused.Stack)
		assert.NotEqual(t, parse.TimedOut, refused.Kind, "%v", err)
		t.Logf("refused: %v", err)
		return
	}
	require.NoError(t, err, path)
	a.parsed++
	if judged, ok := judge(t, path); ok {
		recall := wordRecall(judged, blocks)
		if recall < 0.95 {
			t.Logf("recall %.3f: %s", recall, path)
		}
		a.recall = append(a.recall, recall)
	}
}

func (a *tally) row(ext string) string {
	recall := "-"
	if len(a.recall) > 0 {
		slices.Sort(a.recall)
		recall = fmt.Sprintf("%.4f", a.recall[len(a.recall)/2])
	}
	reasons := make([]string, 0, len(a.refused))
	for reason, n := range a.refused {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(reasons)
	speed := float64(a.bytes) / 1e6 / max(a.took.Seconds(), 1e-9)
	return fmt.Sprintf("%-6s %6d %7d %8.1f %7s  %s", strings.TrimPrefix(ext, "."), a.files, a.parsed, speed, recall, strings.Join(reasons, ", "))
}

// judges read the same files with well-known programs.
var judges = map[string]func(path string) *exec.Cmd{
	".pdf":  func(path string) *exec.Cmd { return exec.Command("pdftotext", "-q", path, "-") },
	".docx": func(path string) *exec.Cmd { return exec.Command("pandoc", "-t", "plain", "--wrap=none", path) },
	".odt":  func(path string) *exec.Cmd { return exec.Command("pandoc", "-t", "plain", "--wrap=none", path) },
	".epub": func(path string) *exec.Cmd { return exec.Command("pandoc", "-t", "plain", "--wrap=none", path) },
	".rtf": func(path string) *exec.Cmd {
		return exec.Command("pandoc", "-f", "rtf", "-t", "plain", "--wrap=none", path)
	},
	".md": func(path string) *exec.Cmd {
		return exec.Command("pandoc", "-f", "gfm", "-t", "plain", "--wrap=none", path)
	},
	".html": judgeHTML,
}

// judgeHTML gives pandoc the page without what Sphinx puts around it, which we
// drop by design.
func judgeHTML(path string) *exec.Cmd {
	command := exec.Command("pandoc", "-f", "html", "-t", "plain", "--wrap=none")
	content, err := os.ReadFile(path)
	if err != nil {
		return command
	}
	page := string(content)
	if _, body, ok := strings.Cut(page, `role="main">`); ok {
		page, _, _ = strings.Cut(body, `<div class="sphinxsidebar"`)
	}
	command.Stdin = strings.NewReader(strings.ReplaceAll(page, "¶", ""))
	return command
}

// maxJudged bounds how many files of the large sets are judged: pandoc takes a
// second a page.
const maxJudged = 15

var judgedPages = 0

func judge(t *testing.T, path string) (string, bool) {
	ext := strings.ToLower(filepath.Ext(path))
	command, ok := judges[ext]
	if !ok || ext == ".html" && skipPage() {
		return "", false
	}
	out, err := command(path).Output()
	if err != nil || len(strings.Fields(string(out))) < 20 {
		return "", false
	}
	return string(out), true
}

// skipPage lets a sample of the pages through.
func skipPage() bool {
	judgedPages++
	return judgedPages%(530/maxJudged) != 0
}

// wordRecall is the share of the judge's words, counted with repetitions, that
// are among ours.
func wordRecall(judged string, blocks []parse.Block) float64 {
	ours := map[string]int{}
	for _, b := range blocks {
		for _, w := range wordsOf(b.Header + "\n" + b.Text) {
			ours[w]++
		}
	}
	found, all := 0, 0
	for _, w := range wordsOf(judged) {
		all++
		if ours[w] > 0 {
			ours[w]--
			found++
		}
	}
	return float64(found) / float64(cmp.Or(all, 1))
}

func wordsOf(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
