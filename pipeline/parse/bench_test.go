package parse_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// BenchmarkParse reads one document of each format; MB/s is of the file.
func BenchmarkParse(b *testing.B) {
	reg := newRegistry(b, parse.Limits{})
	prose := strings.Repeat("The breaker opens after five failures in a row, and stays open for half a minute. Then one call may try.\n\n", 1000)
	for _, row := range []struct{ name, content string }{
		{"a.txt", prose},
		{"a.md", "# Title\n\n" + strings.ReplaceAll(prose, "five", "*five* `n`")},
		{"a.html", strings.Repeat(page, 100)},
		{"a.pdf", minimalPDF(strings.Split(strings.TrimSpace(strings.ReplaceAll(prose[:20_000], "\n\n", "|")), "|")...)},
	} {
		b.Run(strings.TrimPrefix(filepath.Ext(row.name), "."), func(b *testing.B) {
			b.SetBytes(int64(len(row.content)))
			for b.Loop() {
				_, err := read(b, reg, row.name, row.content)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkCorpusHTML reads the HTML files below PENSTOCK_CORPUS/html.
func BenchmarkCorpusHTML(b *testing.B) {
	root := corpus(b, "html")
	reg := newRegistry(b, parse.Limits{})
	var contents []string
	total := 0
	require.NoError(b, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".html" {
			return err
		}
		content, err := os.ReadFile(path)
		contents = append(contents, string(content))
		total += len(content)
		return err
	}))
	b.SetBytes(int64(total))
	for b.Loop() {
		for _, content := range contents {
			_, err := read(b, reg, "a.html", content)
			require.NoError(b, err)
		}
	}
}
