package parse_test

import (
	"archive/zip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/parse"
)

// fuzz gives mutations of the seeds to the parser that the name chooses: it
// must not panic or hang, and its blocks must be fit to be shown.
func fuzz(f *testing.F, name string, seeds ...string) {
	fuzzIn(f, name, func(_ testing.TB, content string) string { return content }, seeds...)
}

// fuzzIn mutates a part of a document: a whole package that is mutated is
// hardly ever one still.
func fuzzIn(f *testing.F, name string, pack func(t testing.TB, part string) string, seeds ...string) {
	reg := newRegistry(f, parse.Limits{
		MaxSize: 1 << 20, MaxUnpacked: 4 << 20, MaxEntries: 200,
		Timeout: 20 * time.Second,
	})
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		offset := int64(0)
		for b, err := range reg.Blocks(t.Context(), parse.FromBytes(name, []byte(pack(t, string(content))))) {
			if err != nil {
				var refused *parse.Error
				if !errors.As(err, &refused) || refused.Kind == "parser crashed" || refused.Kind == "timed out" {
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

func checkBlock(t *testing.T, b block.Block, offset *int64) {
	for _, s := range []string{b.Text, b.Header, b.Section, b.Lang} {
		if !utf8.ValidString(s) || strings.ContainsFunc(s,
			func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7F }) {
			t.Fatalf("not clean: %q", s)
		}
	}
	if strings.TrimSpace(b.Text) == "" || b.Kind == block.Heading && b.Level < 1 {
		t.Fatalf("says nothing: %+v", b)
	}
	if b.Kind == block.Title || b.Kind == block.Note {
		return
	}
	if b.Offset != *offset {
		t.Fatalf("offset %d, want %d", b.Offset, *offset)
	}
	*offset += int64(len(b.Text)) + 1
}

func FuzzText(f *testing.F) { fuzz(f, "a.txt", "One\r\n\r\nTwo\r", "\xff\xfea\x00b\x00", "caf\xe9") }

func FuzzMarkdown(f *testing.F) {
	fuzz(f, "a.md", "# A\n\n- b\n  - c\n\n```go\nx\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n<div>h</div>",
		"---\ntitle: x\n---\ny[^1]\n\n[^1]: z")
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

func FuzzDOCXDocument(f *testing.F) {
	pack := func(t testing.TB, part string) string {
		return zipOf(t, "word/document.xml", part, "word/styles.xml",
			`<w:styles `+wordNS+`><w:style w:styleId="h"><w:name w:val="heading 2"/></w:style></w:styles>`)
	}
	fuzzIn(
		f,
		"a.docx",
		pack,
		`<w:document `+wordNS+`><w:body><w:p><w:pPr><w:pStyle w:val="h"/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p>`+
			`<w:tbl><w:tblPr><w:tblLook w:firstRow="1"/></w:tblPr><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:body></w:document>`,
	)
}

func FuzzPPTXSlide(f *testing.F) {
	pack := func(t testing.TB, part string) string {
		return zipOf(
			t,
			"ppt/presentation.xml",
			`<p:presentation `+slideNS+`><p:sldIdLst><p:sldId id="256" r:id="rA"/></p:sldIdLst></p:presentation>`,
			"ppt/_rels/presentation.xml.rels",
			`<Relationships><Relationship Id="rA" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
			"ppt/slides/slide1.xml",
			part,
			"ppt/slides/_rels/slide1.xml.rels",
			`<Relationships><Relationship Id="r1" Type="x/chart" Target="slide1.xml"/><Relationship Id="r2" Type="x/notesSlide" Target="slide1.xml"/></Relationships>`,
		)
	}
	fuzzIn(f, "a.pptx", pack, chartXML, `<p:sld `+slideNS+`>`+shape(
		`<p:ph type="title"/>`,
		"Box",
	)+`<a:tbl><a:tblPr firstRow="1"/><a:tr><a:tc><a:p><a:r><a:t>h</a:t></a:r></a:p></a:tc></a:tr></a:tbl></p:sld>`)
}

func FuzzODTContent(f *testing.F) {
	pack := func(t testing.TB, part string) string {
		return zipOf(t, "mimetype", "application/vnd.oasis.opendocument.text", "content.xml", part, "meta.xml", part)
	}
	fuzzIn(
		f,
		"a.odt",
		pack,
		`<x `+odfNS+`><text:h text:outline-level="2">Head</text:h><text:list><text:list-item><text:p>item<text:s text:c="9"/></text:p></text:list-item></text:list>`+
			`<table:table table:name="T"><table:table-header-rows><table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>1</text:p></table:table-cell></table:table-row></table:table-header-rows></table:table></x>`,
	)
}

func FuzzEPUBPackage(f *testing.F) {
	pack := func(t testing.TB, part string) string {
		return zipOf(
			t,
			"META-INF/container.xml",
			`<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>`,
			"b.opf",
			part,
			"a.xhtml",
			part,
		)
	}
	fuzzIn(
		f,
		"a.epub",
		pack,
		`<package><metadata><title>T</title></metadata><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>`,
	)
}

func FuzzXLSXSheet(f *testing.F) {
	workbook := xlsx(f)
	pack := func(t testing.TB, part string) string {
		return withMember(t, workbook, "xl/worksheets/sheet1.xml", part)
	}
	fuzzIn(
		f,
		"a.xlsx",
		pack,
		`<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B9" t="inlineStr"><is><t>x</t></is></c></row></sheetData></worksheet>`,
	)
}

// withMember is a zip with another content for one of its members.
func withMember(t testing.TB, packed, name, content string) string {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(packed), int64(len(packed)))
	require.NoError(t, err)
	var parts []string
	for _, member := range z.File {
		r, err := member.Open()
		require.NoError(t, err)
		old, err := io.ReadAll(r)
		require.NoError(t, err)
		if member.Name == name {
			old = []byte(content)
		}
		parts = append(parts, member.Name, string(old))
	}
	return zipOf(t, parts...)
}
