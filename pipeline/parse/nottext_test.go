package parse_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// Files that never are text are told from those that no parser reads.
func TestContentThatNeverIsText(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	noise := "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e"
	for _, row := range []struct{ name, content, kind string }{
		{"__init__.py", "", "empty"},
		{"a.pdf", "", "empty"},
		{"a.md", " \r\n\t\n", "empty"},
		{"a.txt", "\xEF\xBB\xBF\n", "empty"},
		{"a.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01", "image"},
		{"a.txt", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01", "image"},
		{"a.jpg", "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01", "image"},
		{"a.gif", "GIF89a\x01\x00\x01\x00\x00\x00\x00", "image"},
		{"a.jpg", noise, "image"},
		{"a.mp3", "ID3\x03\x00\x00\x00\x00\x00\x00", "audio"},
		{"a.wav", "RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00", "audio"},
		{"a.mp4", "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom", "video"},
		{"a.woff2", "wOF2\x00\x01\x00\x00\x00\x00\x00\x00", "font"},
		{"a.ttf", "\x00\x01\x00\x00\x00\x0f\x00\x80\x00\x03\x00\x70", "font"},
		{"program", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00>\x00\x01\x00\x00\x00", "executable"},
		{"a.o", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00>\x00\x01\x00\x00\x00", "object file"},
		{"a.so", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00>\x00\x01\x00\x00\x00", "object file"},
		{"a.exe", "MZ\x90\x00\x03\x00\x00\x00\x04\x00\x00\x00\xff\xff\x00\x00", "executable"},
		{"a.pyc", "\xa7\x0d\x0d\x0a\x00\x00\x00\x00" + noise, "object file"},
		{"A.class", "\xca\xfe\xba\xbe\x00\x00\x00\x41\x00\x1d", "object file"},
		{"a.wasm", "\x00asm\x01\x00\x00\x00", "executable"},
		{"Thumbs.db", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1" + strings.Repeat("\x00", 600), "image"},

		{"a.doc", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1" + strings.Repeat("\x00", 600), ""},
		{"a.bin", noise, ""},
		{"a.djvu", "AT&TFORM\x00\x00\x00\x10DJVMDIRM", ""},
		{"a.sqlite", "SQLite format 3\x00" + noise, ""},
	} {
		_, err := reg.Detect(parse.FromBytes(row.name, []byte(row.content)))
		refused, ok := errors.AsType[*parse.Error](err)
		require.True(t, ok, "%s %.10q", row.name, row.content)
		assert.Equal(t, row.kind, refused.NotText, "%s %.10q: %v", row.name, row.content, err)
	}
	for _, name := range []string{"a.png", "a.o", "a.obj", "a.svg"} {
		_, err := reg.Detect(parse.FromBytes(name, []byte("<svg><text>This is text.</text></svg>")))
		assert.NoError(t, err, name)
	}
}

func TestLikelyText(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	reg.Register(funcParser(nil), ".gif")
	for name, want := range map[string]bool{
		"a.md": true, "noname": true, "a.svg": true, "a.gif": true, "A.PNG": false,
		"s3://b/docs/a.jpg": false, "a.pyc": false,
	} {
		assert.Equal(t, want, reg.LikelyText(name, 10), name)
		assert.Equal(t, want, reg.LikelyText(name, -1), name)
		assert.False(t, reg.LikelyText(name, 0), name)
	}
}
