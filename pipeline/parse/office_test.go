package parse_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/xuri/excelize/v2"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// zipOf packs name, content, name, content, …
func zipOf(t testing.TB, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		w, err := z.Create(parts[i])
		require.NoError(t, err)
		_, err = w.Write([]byte(parts[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

const (
	wordNS  = `xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"`
	slideNS = `xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"`
	odfNS   = `xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"`
)

func docx(t testing.TB) string {
	return zipOf(
		t,
		"docProps/core.xml",
		`<cp:coreProperties xmlns:cp="c" xmlns:dc="d"><dc:title>Plan</dc:title><dc:creator>x</dc:creator></cp:coreProperties>`,
		"word/styles.xml",
		`<w:styles `+wordNS+`><w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style></w:styles>`,
		"word/document.xml",
		`<w:document `+wordNS+`><w:body>
<w:p><w:pPr><w:pStyle w:val="berschrift2"/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p>
<w:p><w:r><w:t xml:space="preserve">One </w:t></w:r><w:del><w:r><w:delText>no</w:delText></w:r></w:del><w:ins><w:r><w:t>two</w:t><w:br/><w:t>three</w:t></w:r></w:ins></w:p>
<w:p><w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="4"/></w:numPr></w:pPr><w:r><w:t>item</w:t></w:r></w:p>
<w:tbl><w:tr><w:trPr><w:tblHeader/></w:trPr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>
<w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl></w:body></w:document>`,
		"word/footnotes.xml",
		`<w:footnotes `+wordNS+`><w:footnote><w:p><w:r><w:t>Foot.</w:t></w:r></w:p></w:footnote></w:footnotes>`,
	)
}

func TestDOCX(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.docx", docx(t))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"title Plan", "heading2 Head", "paragraph One two\nthree", "list item2 item",
		"table {a | b} 1 x", "paragraph Foot.",
	}, outline(blocks))
}

// Only the styles of headings are read, and styles as no Word writes them are
// read whole.
func TestDOCXStyles(t *testing.T) {
	for _, row := range []struct{ name, styles, kind string }{
		{"heading after latent styles", `<w:styles ` + wordNS +
			`><w:latentStyles><w:lsdException w:name="heading 3"/></w:latentStyles>` +
			`<w:style w:styleId="n"><w:name w:val="Normal"/></w:style><w:style w:styleId="s"><w:name w:val="Heading 3"/></w:style></w:styles>`, "heading3"},
		{"outline level", `<w:styles ` + wordNS +
			`><w:style w:styleId="s"><w:name w:val="Mine"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style></w:styles>`, "heading2"},
		{
			"title", `<w:styles ` + wordNS + `><w:style w:styleId="s"><w:name w:val="Title"/></w:style></w:styles>`,
			"heading1",
		},
		{"other prefix", `<x:styles xmlns:x="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><x:style x:styleId="s"><x:name x:val="heading 4"/></x:style></x:styles>`, "heading4"},
		{
			"none", `<w:styles ` + wordNS + `><w:style w:styleId="s"><w:name w:val="Quote"/></w:style></w:styles>`,
			"paragraph",
		},
		{"odd", `</w:style>`, "paragraph"},
	} {
		blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.docx", zipOf(
			t,
			"word/styles.xml",
			row.styles,
			"word/document.xml",
			`<w:document `+wordNS+
				`><w:p><w:pPr><w:pStyle w:val="s"/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p></w:document>`,
		))
		if row.name == "odd" {
			assert.Equal(t, "malformed", kindOf(err), row.name)
			continue
		}
		require.NoError(t, err, row.name)
		assert.Equal(t, []string{row.kind + " Head"}, outline(blocks), row.name)
	}
}

func shape(holder, text string) string {
	return `<p:sp><p:nvSpPr><p:nvPr>` + holder + `</p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>` + text +
		`</a:t></a:r></a:p></p:txBody></p:sp>`
}

func pptx(t testing.TB) string {
	return zipOf(
		t,
		"ppt/presentation.xml",
		`<p:presentation `+slideNS+
			`><p:sldIdLst><p:sldId id="256" r:id="rB"/><p:sldId id="257" r:id="rA"/></p:sldIdLst></p:presentation>`,
		"ppt/_rels/presentation.xml.rels",
		`<Relationships><Relationship Id="rA" Type="x/slide" Target="slides/slide1.xml"/><Relationship Id="rB" Type="x/slide" Target="/ppt/slides/slide2.xml"/></Relationships>`,
		"ppt/slides/slide1.xml",
		`<p:sld `+slideNS+`>`+shape(
			"",
			"Box",
		)+`<a:tbl><a:tblPr firstRow="1"/><a:tr><a:tc><a:p><a:r><a:t>h</a:t></a:r></a:p></a:tc><a:tc/></a:tr><a:tr><a:tc><a:p><a:r><a:t>v</a:t></a:r></a:p></a:tc><a:tc/></a:tr></a:tbl></p:sld>`,
		"ppt/slides/slide2.xml",
		`<p:sld `+slideNS+`>`+shape(`<p:ph type="ctrTitle"/>`,
			"Hello")+shape(`<p:ph idx="1"/>`, "Point")+shape(`<p:ph type="sldNum"/>`, "1")+`</p:sld>`,
		"ppt/slides/_rels/slide2.xml.rels",
		`<Relationships><Relationship Id="r1" Type="x/notesSlide" Target="../notesSlides/n.xml"/></Relationships>`,
		"ppt/notesSlides/n.xml",
		`<p:notes `+slideNS+`>`+shape(`<p:ph type="body"/>`, "Say hi")+`</p:notes>`,
	)
}

func TestPPTX(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.pptx", pptx(t))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"heading1 p1 Hello", "list item1 p1 Point", "paragraph p1 Say hi", "paragraph p2 Box", "table p2 {h} v",
	}, outline(blocks))
}

const chartXML = `<c:chartSpace xmlns:c="c" xmlns:a="a"><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Rain in </a:t></a:r><a:r><a:t>mm</a:t></a:r></a:p></c:rich></c:tx></c:title>
<c:plotArea><c:barChart><c:ser><c:tx><c:strRef><c:f>S!$B$1</c:f><c:strCache><c:pt idx="0"><c:v>2024</c:v></c:pt></c:strCache></c:strRef></c:tx>
<c:cat><c:strRef><c:f>S!$A$2</c:f><c:strCache><c:pt idx="0"><c:v>May</c:v></c:pt><c:pt idx="2"><c:v>July</c:v></c:pt></c:strCache></c:strRef></c:cat>
<c:val><c:numRef><c:numCache><c:formatCode>General</c:formatCode><c:pt idx="0"><c:v>31</c:v></c:pt><c:pt idx="2"><c:v>4.5</c:v></c:pt><c:pt idx="99999999"><c:v>9</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser>
<c:ser><c:tx><c:v>2025</c:v></c:tx><c:val><c:numLit><c:pt idx="2"><c:v>7</c:v></c:pt></c:numLit></c:val></c:ser></c:barChart>
<c:valAx><c:title><c:tx><c:strRef><c:strCache><c:pt idx="0"><c:v>Axis</c:v></c:pt></c:strCache></c:strRef></c:tx></c:title></c:valAx></c:plotArea></c:chart></c:chartSpace>`

// Decks of charts were refused for having no text.
func TestChartsAndDiagramsAreText(t *testing.T) {
	parts := []string{
		"ppt/presentation.xml", `<p:presentation ` + slideNS +
			`><p:sldIdLst><p:sldId id="256" r:id="rA"/></p:sldIdLst></p:presentation>`,
		"ppt/_rels/presentation.xml.rels",
		`<Relationships><Relationship Id="rA" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/slides/slide1.xml", `<p:sld ` + slideNS + `/>`,
		"ppt/slides/_rels/slide1.xml.rels",
		`<Relationships><Relationship Id="r1" Type="x/chart" Target="../charts/c.xml"/><Relationship Id="r2" Type="x/diagramData" Target="../diagrams/d.xml"/></Relationships>`,
		"ppt/charts/c.xml", chartXML,
		"ppt/diagrams/d.xml",
		`<dgm:dataModel xmlns:dgm="d" xmlns:a="a"><dgm:pt><dgm:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p></dgm:t></dgm:pt><dgm:pt><dgm:t><a:p><a:r><a:t>Do</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:dataModel>`,
	}
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.pptx", zipOf(t, parts...))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"paragraph p1 Rain in mm", "paragraph p1 Axis", "table p1 { | 2024 | 2025} May | 31\nJuly | 4.5 | 7",
		"paragraph p1 Plan", "paragraph p1 Do",
	}, outline(blocks))

	blocks, err = read(t, newRegistry(t, parse.Limits{}), "a.docx", zipOf(
		t,
		"word/document.xml",
		`<w:document `+wordNS+`/>`,
		"word/_rels/document.xml.rels",
		`<Relationships><Relationship Id="r1" Type="x/chart" Target="charts/c.xml"/></Relationships>`,
		"word/charts/c.xml",
		chartXML,
	))
	require.NoError(t, err)
	assert.Len(t, blocks, 3)
}

func xlsx(t testing.TB) string {
	t.Helper()
	f := excelize.NewFile()
	defer f.Close()
	_, err := f.NewSheet("Prices")
	require.NoError(t, err)
	for cell, value := range map[string]any{
		"A1": "name", "B1": "price", "A2": "tea", "B2": 2.5, "A3": "milk",
		"B3": 1,
	} {
		require.NoError(t, f.SetCellValue("Prices", cell, value))
	}
	require.NoError(t, f.SetCellValue("Sheet1", "A1", "alone"))
	var b bytes.Buffer
	require.NoError(t, f.Write(&b))
	return b.String()
}

func TestXLSX(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.xlsx", xlsx(t))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"table @Sheet1 alone", "heading1 @Prices Prices", "table @Prices {name | price} tea | 2.5\nmilk | 1",
	}, outline(blocks))
}

func epub(t testing.TB) string {
	return zipOf(
		t,
		"mimetype",
		"application/epub+zip",
		"META-INF/container.xml",
		`<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>`,
		"OEBPS/book.opf",
		`<package xmlns:dc="d"><metadata><dc:title>The Book</dc:title></metadata><manifest>
<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/><item id="b" href="b%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="n"/><itemref idref="b"/><itemref idref="a"/><itemref idref="c"/></spine></package>`,
		"OEBPS/a.xhtml",
		`<html><head><title>no</title></head><body><h1>Two</h1><p>Last.</p></body></html>`,
		"OEBPS/b b.xhtml",
		`<html><body><h1>One</h1><p>First.</p></body></html>`,
		"OEBPS/nav.xhtml",
		`<nav>Contents</nav>`,
	)
}

func TestEPUB(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.epub", epub(t))
	require.NoError(t, err)
	assert.Equal(t, []string{"title The Book", "heading1 One", "paragraph First.", "heading1 Two", "paragraph Last."},
		outline(blocks))
}

func odt(t testing.TB) string {
	return zipOf(t, "mimetype", "application/vnd.oasis.opendocument.text",
		"meta.xml", `<office:document-meta `+odfNS+` xmlns:dc="d"><dc:title>Paper</dc:title></office:document-meta>`,
		"content.xml", `<office:document-content `+odfNS+`><office:body><office:text>
<text:tracked-changes><text:p>no</text:p></text:tracked-changes><text:h text:outline-level="2">Head</text:h>
<text:p>One<text:s text:c="2"/>two<text:line-break/>three<text:note><text:note-body><text:p>foot</text:p></text:note-body></text:note></text:p>
<text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>
<table:table table:name="Table1"><table:table-header-rows><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell></table:table-row></table:table-header-rows>
<table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>1</text:p></table:table-cell></table:table-row></table:table></office:text></office:body></office:document-content>`)
}

func TestODT(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.odt", odt(t))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"title Paper", "heading2 Head", "paragraph One  two\nthree foot", "list item1 item", "table {a} 1 | 1",
	}, outline(blocks))
}

func TestODTWordsAroundAPictureStayApart(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.odt",
		zipOf(
			t,
			"mimetype",
			"application/vnd.oasis.opendocument.text",
			"content.xml",
			`<office:document-content `+odfNS+
				` xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" xmlns:svg="svg"><office:body><office:text><text:p>Before`+
				`<draw:frame><draw:text-box><text:p>Caption</text:p></draw:text-box><svg:title>Error</svg:title><svg:desc>A sign</svg:desc></draw:frame>after</text:p></office:text></office:body></office:document-content>`,
		))
	require.NoError(t, err)
	require.Len(t, blocks, 1)
	assert.Equal(t, []string{"Before", "Caption", "Error", "A", "sign", "after"}, strings.Fields(blocks[0].Text))
}

const rtf = `{\rtf1\ansi\ansicpg1252\uc1{\fonttbl{\f0 Times;}}{\info{\title Letter}{\author no}}{\*\generator no;}
{\pard\outlinelevel0 Head\par}\pard Gr\'fc\'dfe \u8364?\emdash {\b bold}\line next\par
\trowd\intbl a\cell b\cell\row\intbl 1\cell 2\cell\row\pard {\field{\*\fldinst HYPERLINK "x"}{\fldrslt link}} \{end\}\par}`

func TestRTF(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.rtf", rtf)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"title Letter", "heading1 Head", "paragraph Grüße €—bold\nnext", "table a | b\n1 | 2", "paragraph link {end}",
	}, outline(blocks))
}

const mailText = "From: =?utf-8?q?J=C3=BCrgen?= <j@example.com>\r\nTo: a@example.com\r\nSubject: =?iso-8859-1?q?Gr=FC=DFe?=\r\nMIME-Version: 1.0\r\n" +
	"Content-Type: multipart/mixed; boundary=X\r\n\r\n--X\r\nContent-Type: multipart/alternative; boundary=Y\r\n\r\n" +
	"--Y\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nHall=F6chen,=\r\n Welt.\r\n\r\nBye.\r\n" +
	"--Y\r\nContent-Type: text/html\r\n\r\n<p>no</p>\r\n--Y--\r\n" +
	"--X\r\nContent-Type: text/markdown; name=notes.md\r\nContent-Disposition: attachment; filename=notes.md\r\nContent-Transfer-Encoding: base64\r\n\r\nIyBOb3RlcwoKVGV4dC4K\r\n" +
	"--X\r\nContent-Type: image/png\r\nContent-Disposition: attachment; filename=a.png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgoAAAANSUhEUg==\r\n" +
	"--X\r\nContent-Type: message/rfc822\r\n\r\nSubject: Inner\r\n\r\nDeep.\r\n--X--\r\n"

func TestEML(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.eml", mailText)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"title Grüße",
		"record From: Jürgen <j@example.com>\nTo: a@example.com\nSubject: Grüße",
		"paragraph Hallöchen, Welt.", "paragraph Bye.",
		"heading1 @notes.md Notes", "paragraph @notes.md Text.",
		"note @a.png unsupported format: the content is image/png",
		"title @message.eml Inner", "record @message.eml Subject: Inner", "paragraph @message.eml Deep.",
	}, outline(blocks))
}

func tarGz(t testing.TB, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	w := tar.NewWriter(packed)
	for i := 0; i < len(parts); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{
			Name: parts[i], Size: int64(len(parts[i+1])), Mode: 0o600,
			Typeflag: tar.TypeReg,
		}))
		_, err := w.Write([]byte(parts[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "link.txt", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}))
	require.NoError(t, w.Close())
	require.NoError(t, packed.Close())
	return b.String()
}

func TestArchives(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	parts := []string{
		"b.txt", "Two.", "../../a.md", "# One", "__MACOSX/x.txt", "no", "empty.txt", "", "x.bin",
		"\x00\x01\x02\x03\x04\x05\x06\x07",
	}
	want := []string{
		"paragraph @b.txt Two.", "heading1 @a.md One",
		"note @x.bin unsupported format: the content is application/octet-stream",
	}
	for _, row := range []struct{ name, content string }{
		{"a.zip", zipOf(t, parts...)}, {"a.tar.gz", tarGz(t, parts...)}, {"a.tgz", tarGz(t, parts...)}, {
			"noname",
			tarGz(t, parts...),
		},
	} {
		blocks, err := read(t, reg, row.name, row.content)
		require.NoError(t, err, row.name)
		assert.Equal(t, want, outline(blocks), row.name)
	}
	blocks, err := read(t, reg, "outer.zip", zipOf(t, "in/inner.zip", zipOf(t, "b.txt", "Deep."), "m.docx", docx(t)))
	require.NoError(t, err)
	assert.Equal(t, "paragraph @in/inner.zip!b.txt Deep.", outline(blocks)[0])
	assert.Contains(t, outline(blocks), "heading2 @m.docx Head")
}

func TestContainersHaveOneBudget(t *testing.T) {
	zeros := strings.Repeat("0 ", 2<<20)
	nested := "deep"
	for range 6 {
		nested = zipOf(t, "a.zip", nested)
	}
	many := make([]string, 0, 60)
	for range 30 {
		many = append(many, "a.txt", "x")
	}
	for _, row := range []struct {
		name, content, says string
		limits              parse.Limits
	}{
		{"ratio", zipOf(t, "a.txt", zeros), "MaxRatio", parse.Limits{MaxRatio: 50}},
		{"bytes", zipOf(t, "a.txt", "aaaa bbbb", "b.txt", "cccc dddd"), "MaxUnpacked", parse.Limits{MaxUnpacked: 12}},
		{
			"bytes in an inner archive", zipOf(t, "a.zip", zipOf(t, "b.txt", strings.Repeat("0", 5000))), "MaxUnpacked",
			parse.Limits{MaxUnpacked: 4000},
		},
		{"member", zipOf(t, "a.txt", zeros), "MaxSize", parse.Limits{MaxSize: 2 << 20, MaxRatio: 10_000}},
		{"entries", zipOf(t, many...), "MaxEntries", parse.Limits{MaxEntries: 20}},
		{"entries of a tar", tarGz(t, many...), "MaxEntries", parse.Limits{MaxEntries: 20}},
		{"depth", nested, "MaxDepth", parse.Limits{}},
		{"office", docx(t), "MaxUnpacked", parse.Limits{MaxUnpacked: 100}},
		{"workbook", xlsx(t), "MaxUnpacked", parse.Limits{MaxUnpacked: 5000}},
		{
			"workbook in an archive", zipOf(t, "a.xlsx", xlsx(t)), "MaxUnpacked",
			parse.Limits{MaxUnpacked: int64(len(xlsx(t))) + 1000},
		},
		{
			"part of a workbook", zipOf(t, "xl/workbook.xml", zeros), "MaxSize",
			parse.Limits{MaxSize: 2 << 20, MaxRatio: 10_000},
		},
		{"workbook as a whole", zipOf(t, "xl/workbook.xml", zeros, "xl/a.xml", zeros, "xl/b.xml", zeros, "xl/c.xml",
			zeros), "3 × MaxSize", parse.Limits{MaxSize: 4 << 20, MaxRatio: 10_000}},
	} {
		_, err := read(t, newRegistry(t, row.limits), "a.zip", row.content)
		require.Equal(t, "too large", kindOf(err), row.name)
		assert.ErrorContains(t, err, row.says, row.name)
	}
}

func TestRecordsAndRows(t *testing.T) {
	reg := newRegistry(t, parse.Limits{MaxSize: 1000})
	for _, row := range []struct {
		name, content string
		want          []string
	}{
		{"a.csv", "name,size\r\n\"a, b\",\"1\n2\"\r\n\r\nc,\r\n", []string{"table {name | size} a, b | 1 2\nc"}},
		{"a.csv", "name;size\ra;1\rb;2", []string{"table {name | size} a | 1\nb | 2"}},
		{"a.tsv", "a\tb\n1\t2\n", []string{"table {a | b} 1 | 2"}},
		{"a.csv", "alone\n", []string{"table alone"}},
		{"a.json", `{"b":{"c":[1,"x"]},"a":null,"t":true}`, []string{"record b.c: 1\nb.c: x\nt: true"}},
		{"a.json", `[{"n":1},{"n":2}]`, []string{"record n: 1", "record n: 2"}},
		{"noname", "{\"n\":1}\n{\"n\":2}\n", []string{"record n: 1", "record n: 2"}},
		{"a.jsonl", "{\"n\":1.50}\r\n\r\n\"text\"\n", []string{"record n: 1.50", "record text"}},
		{"a.xml", `<?xml version="1.0" encoding="iso-8859-1"?><r><title>T</title><p>Gr` + "\xfc" +
			`n <b>und</b> &amp; blau</p><q><![CDATA[x]]></q></r>`, []string{
			"heading1 T", "paragraph Grün und & blau",
			"paragraph x",
		}},
		{"a.xml", `<r><i k="v" n="1"/></r>`, []string{"record i.k: v\ni.n: 1"}},
		{
			"main.go", "package main\n\nfunc a() {\n\n\tx()\n}\n",
			[]string{"code [go] package main\n\nfunc a() {\n\n\tx()\n}"},
		},
		{"Makefile", "all:\n\tgo build\n", []string{"code [makefile] all:\n\tgo build"}},
	} {
		blocks, err := read(t, reg, row.name, row.content)
		require.NoError(t, err, row.content)
		assert.Equal(t, row.want, outline(blocks), row.content)
	}
	big, err := read(t, reg, "a.csv", "h\n"+strings.Repeat("row\n", 120))
	require.NoError(t, err)
	require.Len(t, big, 3)
	assert.Equal(t, []int{1, 51, 101}, []int{big[0].Row, big[1].Row, big[2].Row})
	code, err := read(t, reg, "a.py", strings.Repeat("def f():\n    return 1\n\n\n", 100))
	require.NoError(t, err)
	assert.Greater(t, len(code), 1)
	assert.Equal(t, strings.Count(code[0].Text, "def")*4+1, code[1].Row)
}

func TestMalformedDocuments(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	for _, row := range []struct{ name, content string }{
		{"a.docx", "\x01\x02\x00\x00\x00\x00\x00\x00\x03"},
		{"a.docx", docx(t)[:400]},
		{"a.epub", zipOf(t, "mimetype", "application/epub+zip", "META-INF/container.xml", "<container/>")},
		{"a.json", `{"a":`},
		{"a.json", strings.Repeat(`{"a":`, 5000)},
		{"a.jsonl", "{\"a\":1}\nnot json\n"},
		{"a.xml", "<a><b"},
		{"a.gz", "\x1f\x8b\x08\x00\x00"},
		{"a.csv", "a,b\n\"" + strings.Repeat("never closed, ", 600_000)},
	} {
		_, err := read(t, reg, row.name, row.content)
		assert.Equal(t, "malformed", kindOf(err), "%s %.30q", row.name, row.content)
	}
}
