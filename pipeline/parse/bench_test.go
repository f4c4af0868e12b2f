package parse_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// BenchmarkParse reads one document of each format that has no need of files;
// MB/s is of the document.
func BenchmarkParse(b *testing.B) {
	reg := newRegistry(b, parse.Limits{})
	prose := strings.Repeat(
		"The breaker opens after five failures in a row, and stays open for half a minute. Then one call may try.\n\n",
		1000,
	)
	var records strings.Builder
	for i := range 5000 {
		records.WriteString(`{"id":` + strconv.Itoa(i) + `,"name":"valve","tags":["a","b"],"at":{"x":1.5,"y":null}}` +
			"\n")
	}
	for _, row := range []struct{ name, content string }{
		{"a.txt", prose},
		{"a.md", "# Title\n\n" + strings.ReplaceAll(prose, "five", "*five* `n`")},
		{"a.html", strings.Repeat(page, 100)},
		{"a.pdf", minimalPDF(strings.Split(strings.TrimSpace(strings.ReplaceAll(prose[:20_000], "\n\n", "|")),
			"|")...)},
		{"a.csv", "name,price\n" + strings.Repeat("tea,2.5\n", 20_000)},
		{"a.jsonl", records.String()},
		{"a.go", strings.Repeat("func a() {\n\tx()\n}\n\n", 5000)},
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

// rival names a Python with LlamaIndex's readers; see bench/readers.py.
const rival = "PENSTOCK_LLAMAINDEX"

// measured are the formats of BenchmarkFormats.
var measured = []string{
	"pdf", "docx", "pptx", "xlsx", "odt", "epub", "rtf", "eml", "html", "md", "csv", "json", "xml",
	"txt",
}

// BenchmarkFormats reads the corpus by format, one file after the other; MB/s
// is of the files on disk. With a Python that has LlamaIndex it has its readers
// read the same files in the same run, and says how many times as long they
// took over those that both could read.
func BenchmarkFormats(b *testing.B) {
	files := filesByFormat(b)
	reg := newRegistry(b, parse.Limits{})
	for _, ext := range measured {
		if len(files[ext]) == 0 {
			continue
		}
		b.Run(ext, func(b *testing.B) {
			theirs := readByRival(b, ext, files[ext])
			b.SetBytes(sizeOf(b, files[ext]))
			ours := map[string]float64{} // the least, as theirs
			for b.Loop() {
				for _, file := range files[ext] {
					started := time.Now()
					_, err := readSample(reg, file)
					require.NoError(b, err)
					ours[file] = min(cmp.Or(ours[file], math.Inf(1)), time.Since(started).Seconds())
				}
			}
			b.ReportMetric(float64(len(files[ext])), "files")
			var mine, rivals float64
			for file, t := range theirs {
				if t != nil {
					mine, rivals = mine+ours[file], rivals+*t
				}
			}
			if rivals > 0 {
				b.ReportMetric(rivals/mine, "×")
			}
		})
	}
}

// filesByFormat are the samples that can be read, and manuals.
func filesByFormat(b *testing.B) map[string][]string {
	files := map[string][]string{}
	for _, s := range readSamples(b) {
		if s.err == nil {
			files[s.ext()] = append(files[s.ext()], s.path)
		}
	}
	for ext, pattern := range map[string]string{
		"html": filepath.Join(upstreams.PythonDocs(b), "library", "[a-d]*.html"),
		"epub": filepath.Join(upstreams.Manuals(b), "*", "usr", "share", "doc", "*", "*.epub"),
		"pdf":  filepath.Join(upstreams.Manuals(b), "bash-doc", "usr", "share", "doc", "bash", "*.pdf"),
	} {
		found, err := filepath.Glob(pattern)
		require.NoError(b, err)
		files[ext] = append(files[ext], found...)
	}
	return files
}

func sizeOf(b *testing.B, files []string) (total int64) {
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(b, err)
		total += info.Size()
	}
	return total
}

// readByRival is how long LlamaIndex took over each file; nothing if it is not
// there, nil for a file that it cannot read.
func readByRival(b *testing.B, ext string, files []string) map[string]*float64 {
	interpreter := os.Getenv(rival)
	if interpreter == "" {
		return nil
	}
	request, err := json.Marshal(map[string][]string{ext: files})
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, interpreter, filepath.Join("..", "..", "bench", "readers.py"))
	command.Stdin, command.Stderr = bytes.NewReader(request), os.Stderr
	out, err := command.Output()
	require.NoError(b, err)
	var took map[string]*float64
	require.NoError(b, json.Unmarshal(out, &took))
	return took
}
