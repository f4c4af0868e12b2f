package chunk_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// pages reads the Python manual.
func pages(t testing.TB) (contents [][]byte, total int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(upstreams.PythonDocs(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".html" {
			return err
		}
		content, err := os.ReadFile(path)
		contents = append(contents, content)
		total += int64(len(content))
		return err
	}))
	return contents, total
}

// TestCorpusKeepsTheProperties holds the five properties against real pages.
func TestCorpusKeepsTheProperties(t *testing.T) {
	contents, _ := pages(t)
	reg := parse.New(parse.Limits{})
	for i := 0; i < len(contents); i += 10 {
		var blocks []block.Block
		for b, err := range reg.Blocks(t.Context(), parse.FromBytes("a.html", contents[i])) {
			require.NoError(t, err)
			blocks = append(blocks, b)
		}
		for _, mode := range []chunk.Mode{chunk.Structure, chunk.Fixed, chunk.Rows} {
			checkAll(t, chunk.Config{Mode: mode, Tokens: 256, Overlap: 32, MaxBytes: 8192, Count: chunk.EstimateTokens},
				blocks)
		}
	}
}

// BenchmarkCorpus parses and chunks every page; MB/s is of the files.
func BenchmarkCorpus(b *testing.B) {
	contents, total := pages(b)
	reg := parse.New(parse.Limits{})
	c, err := chunk.New(chunk.Config{})
	require.NoError(b, err)
	b.SetBytes(total)
	for b.Loop() {
		chunks := 0
		for _, content := range contents {
			for _, err := range c.Chunks(reg.Blocks(b.Context(), parse.FromBytes("a.html", content))) {
				if err != nil {
					b.Fatal(err)
				}
				chunks++
			}
		}
		b.ReportMetric(float64(chunks), "chunks")
	}
}
