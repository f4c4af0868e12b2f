package parse_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// breaking is content of which nothing can be read from a place on: there,
// reads end with err. With once it is a read that fails, and the next one is
// good.
type breaking struct {
	content string
	at      int
	err     error
	once    bool
	broke   atomic.Bool
}

func (b *breaking) ReadAt(p []byte, off int64) (int, error) {
	end := len(b.content)
	if off+int64(len(p)) > int64(b.at) && !(b.once && b.broke.Load()) {
		b.broke.Store(true)
		if off >= int64(b.at) {
			return 0, b.err
		}
		return copy(p, b.content[off:b.at]), b.err
	}
	if off >= int64(end) {
		return 0, io.EOF
	}
	n := copy(p, b.content[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// formats are a document of each format that is read, long ones of those that
// stream.
func formats(t *testing.T) map[string]string {
	return map[string]string{
		"a.txt": strings.Repeat("One line of text.\n\n", 20_000), "utf16.txt": "\xff\xfe" +
			strings.Repeat("a\x00\n\x00", 50_000),
		"a.md": "---\ntitle: x\n---\n# A\n\n- b\n\n```go\nx\n```\n", "a.html": page,
		"a.xml": `<?xml version="1.0"?><a><title>t</title>x<b>y</b></a>`,
		"a.csv": "name,value\n" + strings.Repeat("row,1\r\n", 50_000), "a.json": `[` +
			strings.Repeat(`{"a":[1,{"b":"c"}]},`, 20_000) + `{"a":2}]`,
		"a.jsonl": strings.Repeat(`{"a":"b"}`+"\n", 50_000), "a.go": "package a\n" +
			strings.Repeat("\nfunc b() {\n\tc()\n}\n", 10_000),
		"a.eml": mailText, "a.rtf": rtf, "a.pdf": minimalPDF("Hello", "World"),
		"a.docx": docx(t), "a.pptx": pptx(t), "a.xlsx": xlsx(t), "a.epub": epub(t), "a.odt": odt(t),
		"a.zip":    zipOf(t, "a.txt", "x", "b.zip", zipOf(t, "c.md", "# y"), "d.txt", "z"),
		"a.tar.gz": tarGz(t, "a.txt", "x", "b/c.html", "<p>y"), "a.tar": tarOf(t, "a.txt", "x", "b/c.html", "<p>y"),
		"old.x": "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1" + strings.Repeat("\x00", 3<<20),
	}
}

func tarOf(t *testing.T, parts ...string) string {
	packed, err := gzip.NewReader(strings.NewReader(tarGz(t, parts...)))
	require.NoError(t, err)
	text, err := io.ReadAll(packed)
	require.NoError(t, err)
	return string(text)
}

// Half a document was a whole one where its source broke off with an error that
// wraps io.EOF or is io.ErrUnexpectedEOF, or ended before its size, and where a
// parser notes a part that it cannot read.
func TestSourceThatBreaksOffIsNoWholeDocument(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	for name, content := range formats(t) {
		whole, refused := read(t, reg, name, content)
		for _, err := range []error{
			fmt.Errorf("broke off: %w", io.EOF), io.ErrUnexpectedEOF, fmt.Errorf("broke off: %w",
				io.ErrUnexpectedEOF), io.ErrClosedPipe,
			io.EOF, // of a file that is shorter by now
		} {
			for _, at := range []int{
				0, 1, 100, len(content) / 4, len(content) / 2, len(content) - 40,
				len(content) - 1,
			} {
				for _, once := range []bool{false, true} {
					if at >= len(content) || at < 0 {
						continue
					}
					row := fmt.Sprintf("%s, %v at %d of %d, once %v", name, err, at, len(content), once)
					source := &breaking{content: content, at: at, err: err, once: once}
					in := parse.Input{Name: name, Content: source, Size: int64(len(content))}
					_, detected := reg.Detect(in)
					requireBroken(t, source, refused == nil || detected != nil, detected, row+", detected")
					source.broke.Store(false)
					var blocks []block.Block
					var got error
					for b, err := range reg.Blocks(t.Context(), in) {
						if got = err; err == nil {
							blocks = append(blocks, b)
						}
					}
					requireBroken(t, source, true, got, row)
					if !source.broke.Load() {
						assert.Equal(t, whole, blocks, row)
					}
				}
			}
		}
	}
}

// requireBroken holds that a source that broke off is a failure to read, and
// says nothing about the document.
func requireBroken(t *testing.T, source *breaking, look bool, err error, row string) {
	t.Helper()
	if !source.broke.Load() || !look {
		return
	}
	want := source.err
	if want == io.EOF { //nolint:errorlint // the very value
		want = io.ErrUnexpectedEOF
	}
	require.ErrorIs(t, err, want, row)
	var refused *parse.Error
	require.NotErrorAs(t, err, &refused, row)
}
