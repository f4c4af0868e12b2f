package penstock_test

import (
	"bufio"
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// phrase is wording that must not come back, as a regular expression, and what
// to write instead. CONTRIBUTING.md has the same list for people.
type phrase struct {
	not string
	say string
}

var phrases = []phrase{
	{`(go|goes|went|going) on`, "continues, proceeds"},
	{`mend(s|ed|ing)?`, "repairs, fixes"},
	{`(is|are|was|were|be) away`, "is unavailable, is down"},
	{`there (is|are|was|were) none`, "nothing, no … found, does not exist"},
	{`whoever|whomever`, "anyone who, a caller that"},
	{`be it`, "whether … or …"},
	{`at the wish of`, "requested by"},
	{`(the|a) one who|those who|those only who|he who`, "a noun: the caller, readers"},
	{`what of an?`, "a noun: the part of the …"},
	{`(speak|speaks|spoke|spoken) of`, "mentions, names, is about"},
	{`(is|are|was|were|be|been) of (no |some |any )?use`, "useful, useless"},
	{`such as it stands|as they stand`, "as it is"},
	{`, for one|for one[.,:;)]`, "for example"},
	{`for want of`, "for lack of, without"},
	{`(come|comes|came) to pass`, "happens"},
	{`(come|comes|came) of (it|them|that|this)`, "the result, the outcome"},
	{`who asks`, "the caller"},
	{`anew`, "again, from scratch"},
	{
		`\w*[^e\W] is no (address|document|error|fault|file|folder|key|limit|name|number|object|reason|rest|row|success|text|time to \w+)`,
		"is not a …",
	},
	{`at rest`, "stable, unchanged"},
	{`time will not end`, "held open, without a time limit"},
	{`from the moment (someone|somebody|one) asks`, "on request"},
	{`upon|thereof|therein|whereby|hitherto|lest`, "a plain word"},
}

// spared are the places where a phrase is right, with the reason.
var spared = []struct{ file, text, why string }{
	{"english_test.go", "", "it holds the list"},
}

// words is the list as one expression a phrase, compiled once.
var words = func() (list []*regexp.Regexp) {
	for _, p := range phrases {
		list = append(list, regexp.MustCompile(`(?i)(^|[^"'\w-])(`+p.not+`)($|[^\w-])`))
	}
	return list
}()

// passage is a piece of text that people read, with its place.
type passage struct {
	file string
	line int
	text string
}

func TestEnglish(t *testing.T) {
	for _, p := range slices.Concat(passagesOfCode(t), passagesOfPages(t)) {
		for i, word := range words {
			if found := word.FindString(p.text); found != "" && !isSpared(p) {
				assert.Fail(t, "wording", "%s:%d: %q; say: %s", p.file, p.line,
					strings.TrimSpace(found), phrases[i].say)
			}
		}
	}
}

func isSpared(p passage) bool {
	for _, s := range spared {
		if p.file == s.file && strings.Contains(p.text, s.text) {
			return true
		}
	}
	return false
}

// passagesOfCode are the comments and string literals of the Go files. A
// comment is one passage a paragraph, since a phrase may cross the end of a
// line.
func passagesOfCode(t *testing.T) (all []passage) {
	for _, f := range files(t) {
		if f.generated() {
			continue
		}
		var previous int // line on which the last comment ended
		for tok := range tokensOf(f) {
			switch tok.kind { //nolint:exhaustive // other tokens hold no text for people
			case token.COMMENT:
				text := strings.Trim(strings.TrimPrefix(tok.literal, "//"), "/*")
				if last := len(all) - 1; tok.line == previous+1 && strings.TrimSpace(text) != "" &&
					all[last].file == f.path {
					all[last].text += " " + strings.TrimSpace(text)
				} else {
					all = append(all, passage{f.path, tok.line, strings.TrimSpace(text)})
				}
				previous = tok.line
			case token.STRING:
				all = append(all, passage{f.path, tok.line, tok.literal[1 : len(tok.literal)-1]})
			}
		}
	}
	return all
}

// tokenAt is a token of a Go file.
type tokenAt struct {
	kind    token.Token
	literal string
	line    int // on which it begins
}

func tokensOf(f file) func(yield func(tokenAt) bool) {
	return func(yield func(tokenAt) bool) {
		set := token.NewFileSet()
		positions := set.AddFile(f.path, -1, len(f.text))
		var s scanner.Scanner
		s.Init(positions, f.text, nil, scanner.ScanComments)
		for {
			at, kind, literal := s.Scan()
			if kind == token.EOF || !yield(tokenAt{kind, literal, positions.Line(at)}) {
				return
			}
		}
	}
}

// pages are the kinds of files, beside Go, whose text people read.
var pages = regexp.MustCompile(`\.(md|txtar|html|js|py|yml|yaml|sh)$|(^|/)Makefile$|^scripts/[^.]+$|^\.ci/`)

// passagesOfPages are the paragraphs of pages, scripts and templates.
func passagesOfPages(t *testing.T) (all []passage) {
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipUnread(name, entry)
		case !pages.MatchString(name):
			return nil
		}
		text, err := os.ReadFile(name)
		all = append(all, paragraphs(name, withoutWordList(string(text)))...)
		return err
	}))
	return all
}

// skipUnread leaves out hidden folders and the documents that tests read; the
// scripts of the command are testdata too.
func skipUnread(name string, entry fs.DirEntry) error {
	hidden := strings.HasPrefix(name, ".") && name != "." && name != ".ci"
	foreign := entry.Name() == "testdata" && name != "cmd/ingest/testdata"
	if hidden || foreign {
		return fs.SkipDir
	}
	return nil
}

// withoutWordList blanks the lines of CONTRIBUTING.md that hold the list.
func withoutWordList(text string) string {
	before, rest, ok := strings.Cut(text, "\n## English\n")
	if !ok {
		return text
	}
	list, after, _ := strings.Cut(rest, "\n## ")
	return before + strings.Repeat("\n", strings.Count(list, "\n")+2) + "\n## " + after
}

func paragraphs(name, text string) (all []passage) {
	fresh := true
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimLeft(line, "#/* \t"))
		switch {
		case line == "":
			fresh = true
		case fresh || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "- "):
			all, fresh = append(all, passage{name, i + 1, line}), false
		default:
			all[len(all)-1].text += " " + line
		}
	}
	return all
}

const (
	widestComment = 80
	widestCode    = 120
	tabWidth      = 4 // as gofmt's alignment reads best beside the 120 columns
)

// Comments fit in 80 columns, code in 120. What cannot be cut may be longer: a
// directive, an address, a struct tag, a message that is best found whole.
func TestWidths(t *testing.T) {
	for _, f := range files(t) {
		if f.generated() {
			continue
		}
		uncut := uncutLines(f)
		lines := bufio.NewScanner(bytes.NewReader(f.text))
		lines.Buffer(nil, 1<<20)
		output := false // what an example prints is as wide as it is
		for n := 1; lines.Scan(); n++ {
			line := lines.Text()
			output = strings.Contains(line, "// Output:") || output && strings.HasPrefix(strings.TrimSpace(line), "//")
			if limit, width := limitOf(line), columns(line); !output && width > limit && width-uncut[n] > widestCode/2 {
				assert.Fail(t, "width", "%s:%d: %d columns, and the limit is %d", f.path, n, width, limit)
			}
		}
	}
}

// limitOf is the limit of a line; text that a comment quotes is code.
func limitOf(line string) int {
	comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
	if !ok || strings.HasPrefix(comment, "\t") || strings.HasPrefix(comment, "  ") {
		return widestCode
	}
	return widestComment
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + strings.Count(line, "\t")*(tabWidth-1)
}

var address = regexp.MustCompile(`\bhttps?://\S+`)

// uncutLines gives, by line, the columns of the longest literal, address or
// directive on it. All lines of a literal with line breaks are of the literal.
func uncutLines(f file) map[int]int {
	uncut := map[int]int{}
	for tok := range tokensOf(f) {
		switch {
		case tok.kind == token.STRING:
			for i, line := range strings.Split(tok.literal, "\n") {
				uncut[tok.line+i] = max(uncut[tok.line+i], columns(line))
			}
		case strings.HasPrefix(tok.literal, "//go:") || strings.HasPrefix(tok.literal, "//nolint"):
			uncut[tok.line] = columns(tok.literal)
		case tok.kind == token.COMMENT:
			uncut[tok.line] = max(uncut[tok.line], columns(address.FindString(tok.literal)))
		}
	}
	return uncut
}
