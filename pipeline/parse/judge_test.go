package parse_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// judge is a well-known program that reads the same files, and how much of what
// it finds must be found here, as the mean over files.
type judge struct {
	program       string
	ext           string
	command       func(path string) *exec.Cmd
	recall, order float64
}

var judges = []judge{
	{"pdftotext", "pdf", func(path string) *exec.Cmd { return exec.Command("pdftotext", "-q", path, "-") }, 0.98, 0.90},
	{"pandoc", "docx", pandoc("docx"), 0.99, 0.99},
	{"pandoc", "odt", pandoc("odt"), 0.99, 0.98},
	{
		"unrtf", "rtf", func(path string) *exec.Cmd { return exec.Command("unrtf", "--text", "--nopict", path) }, 0.99,
		0.97,
	},
	{"pandoc", "epub", pandoc("epub"), 0.97, 0.96}, // the rest is the navigation on every page of these books
	{"pandoc", "md", pandoc("gfm"), 0.99, 0.99},
	{"pandoc", "html", ownWords(pandoc("html")), 0.99, 0.98},
	{"html2text", "html", ownWords(func(path string) *exec.Cmd {
		return exec.Command("html2text", "-utf8", "-nobs", "-width", "1000000", path)
	}), 0.98, 0.95},
}

// pandoc is bounded: there are files of a few kilobytes with which it takes all
// the memory there is.
func pandoc(format string) func(string) *exec.Cmd {
	return func(path string) *exec.Cmd {
		return exec.Command("pandoc", "+RTS", "-M256m", "-RTS", "--sandbox", "-f", format, "-t", "plain", "--wrap=none",
			path)
	}
}

var notOwnWords = regexp.MustCompile(`(?is)<(nav|canvas|svg|button|select)\b.*?</(nav|canvas|svg|button|select)>|` +
	`<div class="sphinxsidebar".*|<a class="headerlink"[^>]*>[^<]*</a>|<p style="display: ?none">[^<]*</p>`)

// ownWords gives a judge the page without its navigation, which is left out
// here by design.
func ownWords(judge func(string) *exec.Cmd) func(string) *exec.Cmd {
	return func(path string) *exec.Cmd {
		command := judge("-")
		if page, err := os.ReadFile(path); err == nil {
			if _, body, ok := bytes.Cut(page, []byte(`role="main">`)); ok {
				page = append([]byte("<html><body><div>"), body...)
			}
			command.Stdin = bytes.NewReader(notOwnWords.ReplaceAll(page, nil))
		}
		return command
	}
}

// misjudged are samples on which the judge cannot be one.
var misjudged = map[string]string{
	"pypdf-7.1.1/resources/toy.pdf":               "pdftotext takes letters that are set apart for words",
	"pypdf-7.1.1/resources/indirect-rotation.pdf": "a scan of which both take letters for words",
	"pypdf-7.1.1/resources/issue-301.pdf":         "a scan of specks",
	"pypdf-7.1.1/resources/FormTestFromOo.pdf":    "pdftotext reads all choices of a list",

	"kreuzberg-3.8.0/tests/test_source_files/non-ascii-text.pdf": "both print the codes of its fonts",

	"html-text-0.7.0/tests/test_webpages/Scrapinghub Enterprise Solutions.html":        "menus that are not marked as such",
	"html-text-0.7.0/tests/test_webpages/IANA — IANA-managed Reserved Domains.html":    "a site's header and footer",
	"html-text-0.7.0/tests/test_webpages/Webstruct — Webstruct 0.6 documentation.html": "a site's header and footer",
	"html-text-0.7.0/tests/test_webpages/Tutorial — Webstruct 0.6 documentation.html":  "a site's header and footer",

	"trafilatura-2.3.1/tests/resources/mozilla.org.firefox.developer.html": "a site's header and footer",

	"PyRTF3-0.47.5/tests/sources/rtfng/pictures.rtf":    "unrtf gives pictures names",
	"PyRTF3-0.47.5/tests/sources/rtfng/charUnicode.rtf": "unrtf prints question marks",

	"html2text-2025.4.15/test/images_as_html.html":    "html2text prints the addresses of pictures",
	"html2text-2025.4.15/test/images_with_size.html":  "html2text prints the addresses of pictures",
	"html2text-2025.4.15/test/single_line_break.html": "html2text prints the XML declaration",
	"html2text-2025.4.15/test/invalid_unicode.html":   "entities of characters that there are not",

	"python-docx-1.2.0/docs/_themes/armstrong/layout.html": "a template of a page",
}

// judged are the files for a judge: samples that were read, and for the formats
// of books the published ones.
func judged(t *testing.T, ext string) []sample {
	var files []sample
	for _, s := range readSamples(t) {
		if s.err == nil && s.ext() == ext && misjudged[s.name] == "" {
			files = append(files, s)
		}
	}
	if ext == "md" && wholeCorpus { // a third of the many
		files = slices.Collect(every(files, 3))
	}
	reg := newRegistry(t, parse.Limits{})
	for _, pattern := range map[string][]string{
		"epub": {filepath.Join(upstreams.Manuals(t), "*", "usr", "share", "doc", "*", "*.epub")},
		"html": {
			filepath.Join(upstreams.PythonDocs(t), "library", "[de]*.html"),
			filepath.Join(upstreams.PythonDocs(t), "tutorial", "*.html"),
		},
	}[ext] {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for path := range every(paths, 1+len(paths)/10) {
			one, err := readSample(reg, path)
			require.NoError(t, err)
			files = append(files, one)
		}
	}
	return files
}

// every gives each nth.
func every[T any](all []T, n int) func(func(T) bool) {
	return func(yield func(T) bool) {
		for i := 0; i < len(all); i += n {
			if !yield(all[i]) {
				return
			}
		}
	}
}

// fewestWords a judge must find to have a say.
const fewestWords = 5

// TestCorpusAgainstJudges compares the words of what is read, and their order,
// with what well-known programs find in the same files. The table in
// docs/formats.md is from here.
func TestCorpusAgainstJudges(t *testing.T) {
	for _, j := range judges {
		upstreams.Program(t, j.program)
	}
	t.Logf("| %-6s | %-9s | %5s | %6s | %5s |", "format", "judge", "files", "recall", "order")
	for _, j := range judges {
		var recall, order, files float64
		for _, s := range judged(t, j.ext) {
			text, err := hear(j.command(s.path))
			theirs := wordsOf(notText.ReplaceAllString(string(text), ""))
			if err != nil || len(theirs) < fewestWords {
				continue
			}
			ours := wordsOf(textOf(s.blocks))
			r, o := shared(theirs, ours), shared(pairs(theirs), pairs(ours))
			if r < 0.95 {
				t.Logf("recall %.3f, order %.3f: %s", r, o, s.path)
			}
			recall, order, files = recall+r, order+o, files+1
		}
		t.Logf("| %-6s | %-9s | %5.0f | %6.3f | %5.3f |", j.ext, j.program, files, recall/files, order/files)
		assert.GreaterOrEqual(t, recall/files, j.recall, "recall of %s", j.ext)
		assert.GreaterOrEqual(t, order/files, j.order, "order of %s", j.ext)
	}
	for _, name := range slices.Sorted(maps.Keys(misjudged)) {
		t.Logf("not judged: %s: %s", name, misjudged[name])
	}
}

// hear runs a judge, who has no say if it does not come to an end.
func hear(judge *exec.Cmd) ([]byte, error) {
	limit := time.AfterFunc(20*time.Second, func() { _ = judge.Process.Kill() })
	defer limit.Stop()
	return judge.Output()
}

func textOf(blocks []block.Block) string {
	var text strings.Builder
	for _, b := range blocks {
		if b.Kind != block.Title && b.Kind != block.Note {
			fmt.Fprintln(&text, b.Header, "\n", b.Text)
		}
	}
	return text.String()
}

// notText is what the judges add: numbers before items, and what unrtf says of
// a file.
var notText = regexp.MustCompile(`(?m)^\s*(?:[0-9]+|[a-z]|[ivx]+)[.)] |(?s:^###.*?^-{17}$)`)

// wordsOf are the words of a text, in lower case, ligatures and raised digits
// made plain.
func wordsOf(s string) []string {
	return strings.FieldsFunc(strings.ToLower(norm.NFKC.String(s)),
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// pairs are the words with their successors.
func pairs(words []string) []string {
	var all []string
	for i := 1; i < len(words); i++ {
		all = append(all, words[i-1]+" "+words[i])
	}
	return all
}

// shared is the part of theirs, counted with repetitions, that is among ours.
func shared(theirs, ours []string) float64 {
	left := map[string]int{}
	for _, w := range ours {
		left[w]++
	}
	found := 0
	for _, w := range theirs {
		if left[w] > 0 {
			left[w]--
			found++
		}
	}
	return float64(found) / float64(max(1, len(theirs)))
}
