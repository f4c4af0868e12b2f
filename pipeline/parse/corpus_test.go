package parse_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// sample is a document of the corpus, and what became of it.
type sample struct {
	name   string // slash path from the root of the samples
	path   string
	blocks []block.Block
	err    error
}

func (s sample) ext() string { return strings.TrimPrefix(strings.ToLower(path.Ext(s.name)), ".") }

// library holds the samples, which are read once for all tests.
var library struct {
	once    sync.Once
	samples []sample
	err     error
}

// wholeCorpus says whether tests read every document that there is, as they do
// at full length (PENSTOCK_LONG=1), or one of each few.
var wholeCorpus = os.Getenv("PENSTOCK_LONG") == "1"

// few is one of how many documents tests read otherwise.
const few = 8

// readSamples reads the documents out of source packages, or one of each few.
func readSamples(t testing.TB) []sample {
	root := upstreams.Samples(t)
	library.once.Do(func() { library.samples, library.err = readAll(root) })
	require.NoError(t, library.err)
	return library.samples
}

func readAll(root string) ([]sample, error) {
	reg := parse.New(parse.Limits{})
	defer reg.Close()
	var all []sample
	files := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Dir(file) == root {
			return err
		}
		if files++; !wholeCorpus && files%few != 0 {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		one, err := readSample(reg, file)
		one.name = filepath.ToSlash(name)
		all = append(all, one)
		return err
	})
	return all, err
}

func readSample(reg *parse.Registry, file string) (sample, error) {
	content, err := os.ReadFile(file)
	one := sample{path: file}
	for b, err := range reg.Blocks(context.Background(), parse.FromBytes(filepath.ToSlash(file), content)) {
		one.err = err
		if err == nil {
			one.blocks = append(one.blocks, b)
		}
	}
	return one, err
}

// TestCorpus reads the samples. What is refused, and why, is in
// testdata/refused.txt, where somebody has looked at each; the table in
// docs/formats.md is this one, at full length.
func TestCorpus(t *testing.T) {
	samples := readSamples(t)
	refused := map[string]string{}
	for _, s := range samples {
		if s.err == nil {
			continue
		}
		var known *parse.Error
		if assert.ErrorAs(t, s.err, &known, s.name) {
			refused[s.name] = known.Kind
			assert.NotEqual(t, "parser crashed", known.Kind, "%s\n%s", s.err, known.Stack)
			assert.NotEqual(t, "timed out", known.Kind, "%s", s.err)
		}
	}
	reviewed := reviewedRefusals(t)
	maps.DeleteFunc(reviewed, func(name, _ string) bool {
		return !slices.ContainsFunc(samples, func(s sample) bool { return s.name == name })
	})
	if wholeCorpus {
		assert.Len(t, reviewed, len(reviewedRefusals(t)), "testdata/refused.txt has files that the corpus lacks")
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		assert.Equal(t, reviewed[name], refused[name], "%s is refused, and testdata/refused.txt says otherwise", name)
	}
	for _, name := range slices.Sorted(maps.Keys(reviewed)) {
		assert.Contains(t, refused, name, "testdata/refused.txt has it, but it is read")
	}
	if !wholeCorpus {
		return
	}
	table := corpusTable(samples)
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "formats.md"))
	require.NoError(t, err)
	assert.Contains(t, string(docs), table, "the table of the corpus in docs/formats.md should be\n%s", table)
}

// reviewedRefusals maps names to reasons.
func reviewedRefusals(t *testing.T) map[string]string {
	content, err := os.ReadFile(filepath.Join("testdata", "refused.txt"))
	require.NoError(t, err)
	reviewed, kind := map[string]string{}, ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			kind, _, _ = strings.Cut(line[1:], "]")
		default:
			reviewed[line] = kind
		}
	}
	return reviewed
}

// corpusTable counts by extension.
func corpusTable(all []sample) string {
	type row struct {
		files   int
		refused map[string]int
	}
	rows := map[string]*row{}
	for _, s := range all {
		r := rows[s.ext()]
		if r == nil {
			r = &row{refused: map[string]int{}}
			rows[s.ext()] = r
		}
		r.files++
		if known, ok := errors.AsType[*parse.Error](s.err); ok {
			r.refused[known.Kind]++
		}
	}
	var b strings.Builder
	b.WriteString("| files | of these | read | refused |\n|---|---|---|---|\n")
	order := slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
		return cmp.Or(cmp.Compare(rows[b].files, rows[a].files), cmp.Compare(a, b))
	})
	for _, ext := range order {
		var reasons []string
		read := rows[ext].files
		for _, reason := range slices.Sorted(maps.Keys(rows[ext].refused)) {
			reasons = append(reasons, fmt.Sprintf("%d %s", rows[ext].refused[reason], reason))
			read -= rows[ext].refused[reason]
		}
		fmt.Fprintf(&b, "| .%s | %d | %d | %s |\n", ext, rows[ext].files, read, strings.Join(reasons, ", "))
	}
	return b.String()
}

// TestManualsAreRead reads books and manuals as they are published, or one of
// each few pages: not one may be refused.
func TestManualsAreRead(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	read := map[string]int{}
	for _, folder := range []string{upstreams.Manuals(t), upstreams.PythonDocs(t)} {
		require.NoError(t, filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
			ext := strings.ToLower(filepath.Ext(file))
			if err != nil || !slices.Contains([]string{".pdf", ".html", ".epub"}, ext) {
				return err
			}
			if read[ext]++; !wholeCorpus && ext == ".html" && read[ext]%few != 0 {
				return nil
			}
			one, err := readSample(reg, file)
			assert.NoError(t, one.err, file)
			return err
		}))
	}
	t.Log(read)
	assert.GreaterOrEqual(t, read[".html"], 400)
	assert.GreaterOrEqual(t, read[".epub"], 10)
	assert.GreaterOrEqual(t, read[".pdf"], 1)
}
