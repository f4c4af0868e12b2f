package parse_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// fuzz gives mutations of the seeds to the parser that the name chooses: it must
// not panic or hang, and its blocks must be fit to be shown.
func fuzz(f *testing.F, name string, seeds ...string) {
	reg := newRegistry(f, parse.Limits{MaxSize: 1 << 20, MaxUnpacked: 4 << 20, MaxEntries: 200, Timeout: 20 * time.Second})
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		offset := int64(0)
		for b, err := range reg.Blocks(t.Context(), parse.FromBytes(name, content)) {
			if err != nil {
				var refused *parse.Error
				if !errors.As(err, &refused) || refused.Kind == parse.Crashed || refused.Kind == parse.TimedOut {
					t.Fatalf("%v\n%s", err, stackOf(refused))
				}
				return
			}
			checkBlock(t, b, &offset)
		}
	})
}

func stackOf(err *parse.Error) []byte {
	if err == nil {
		return nil
	}
	return err.Stack
}

func checkBlock(t *testing.T, b parse.Block, offset *int64) {
	for _, s := range []string{b.Text, b.Header, b.Section, b.Lang} {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7F }) {
			t.Fatalf("not clean: %q", s)
		}
	}
	if strings.TrimSpace(b.Text) == "" || b.Kind == parse.Heading && b.Level < 1 {
		t.Fatalf("says nothing: %+v", b)
	}
	if b.Kind == parse.Title || b.Kind == parse.Note {
		return
	}
	if b.Offset != *offset {
		t.Fatalf("offset %d, want %d", b.Offset, *offset)
	}
	*offset += int64(len(b.Text)) + 1
}

func FuzzText(f *testing.F) { fuzz(f, "a.txt", "One\r\n\r\nTwo\r", "\xff\xfea\x00b\x00", "caf\xe9") }

func FuzzMarkdown(f *testing.F) {
	fuzz(f, "a.md", "# A\n\n- b\n  - c\n\n```go\nx\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n<div>h</div>", "---\ntitle: x\n---\ny[^1]\n\n[^1]: z")
}

func FuzzHTML(f *testing.F) {
	fuzz(f, "a.html", page, "<table><tr><td><table><td><h1>x<pre>y", "<meta charset=big5><p>\xa4\xa4")
}
func FuzzPDF(f *testing.F) { fuzz(f, "a.pdf", minimalPDF("Hello", "World"), minimalPDF("")) }
func FuzzCSV(f *testing.F) { fuzz(f, "a.csv", "a,b\n\"1\n2\",3\r\n", "a;b\r1;2\r", "\"") }
func FuzzJSON(f *testing.F) {
	fuzz(f, "a.json", `{"a":[1,{"b":null}],"c":"\u00e9"}`, "[1,2]\n{}")
}

func FuzzXML(f *testing.F) {
	fuzz(f, "a.xml", `<?xml version="1.0"?><a k="v"><title>t</title>x<b>y</b>&lt;</a>`)
}
func FuzzCode(f *testing.F) { fuzz(f, "a.go", "package a\n\nfunc b() {}\n\n\tindented") }
func FuzzEML(f *testing.F)  { fuzz(f, "a.eml", mailText, "Subject: x\n\ny") }
func FuzzRTF(f *testing.F)  { fuzz(f, "a.rtf", rtf) }
func FuzzDOCX(f *testing.F) { fuzz(f, "a.docx", docx(f)) }
func FuzzPPTX(f *testing.F) { fuzz(f, "a.pptx", pptx(f)) }
func FuzzXLSX(f *testing.F) { fuzz(f, "a.xlsx", xlsx(f)) }
func FuzzEPUB(f *testing.F) { fuzz(f, "a.epub", epub(f)) }
func FuzzODT(f *testing.F)  { fuzz(f, "a.odt", odt(f)) }
func FuzzZip(f *testing.F) {
	fuzz(f, "a.zip", zipOf(f, "a.txt", "x", "b.zip", zipOf(f, "c.md", "# y")))
}
func FuzzTar(f *testing.F) { fuzz(f, "a.tar.gz", tarGz(f, "a.txt", "x", "b/c.html", "<p>y")) }
