package parse_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	textunicode "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/penstock-go/penstock/pipeline/parse"
)

const page = `<!doctype html><html lang="en"><head><title>The
 guide</title><style>p { }</style><script>var x = "<p>no</p>"</script></head>
<body><header><a href=/>Site</a><h1>Guide</h1></header><nav>Home | Away</nav>
<div role="navigation">More</div><main>
<h2>Set up<a class="headerlink" href="#s" title="Permalink">¶</a></h2>
<p>Run   <code>make</code>&nbsp;now &amp; <b>wait</b>.<br>Then rest.
<p>Second
<ul><li>One<ul><li>Deep</li></ul></li><li><p>Two</p><p>more</p></li></ul>
<div class="highlight-python3 notranslate"><div class="highlight"><pre><span></span>def f():
    return "&lt;"
</pre></div></div>
<table><thead><tr><th>Name</th><th>Size</th></tr></thead><tbody><tr><td>a</td><td><p>1</p>
<p>KB</p></td></tr><tr><td>b</td><td></td></tr></tbody></table>
<dl><dt>Term</dt><dd>Meaning</dd></dl>
<template>no</template><svg><title>no</title><text>no</text></svg>
<p hidden>no</p><p style="display: none">no</p><img alt="A chart">
</main><footer>Imprint</footer></body></html>`

func TestHTMLKeepsStructureAndDropsFurniture(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.html", page)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"title [en] The guide",
		"heading1 Guide",
		"heading2 Set up",
		"paragraph Run make\u00a0now & wait.\nThen rest.",
		"paragraph Second",
		"list item1 One",
		"list item2 Deep",
		"list item1 Two",
		"paragraph more",
		"code [python3] def f():\n    return \"<\"",
		"table {Name | Size} a | 1 KB\nb",
		"paragraph Term",
		"paragraph Meaning",
		"paragraph A chart",
	}, outline(blocks))
}

func TestHTMLTables(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	for _, row := range []struct {
		name, content string
		want          []string
	}{
		{"without a head", "<table><tr><td>a<td>b<tr><td>c<td>d</table>", []string{"table a | b\nc | d"}},
		{"head alone", "<table><tr><th>a<th>b</table>", []string{"table a | b"}},
		{
			"head in the first row", "<table><tr><th>a<th>b</th></tr><tr><td>c<td>d</table>",
			[]string{"table {a | b} c | d"},
		},
		{"for layout", "<table><tr><td>side<td><h1>Title</h1><p>text<td>end</table>after", []string{
			"paragraph side", "heading1 Title", "paragraph text", "paragraph end", "paragraph after",
		}},
		{"nested", "<table><tr><td>out<td><table><tr><td>in</table><tr><td>last</table>", []string{
			"paragraph out", "table in", "paragraph last",
		}},
		{"never closed", "<p>a<table><tr><td>b", []string{"paragraph a", "table b"}},
		{"only furniture", "<nav>Home</nav>", []string{"paragraph Home"}},
		{"deep", strings.Repeat("<div>", 100_000) + "x", []string{"paragraph x"}},
	} {
		blocks, err := read(t, reg, "a.html", row.content)
		require.NoError(t, err, row.name)
		assert.Equal(t, row.want, outline(blocks), row.name)
	}
}

func TestMarkdown(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "README.md", "---\ntitle: \"Notes\"\ntags: [a, b]\n---\n"+
		"# A *b* `c`\n\nOne [link](http://x) &amp; \\*star\\*\nnext <b>bold</b>.\n\n> quoted\n\n- one\n  - deep\n\n  more\n- [ ] two\n\n1. first\n\n"+
		"```go title=x\nfunc main() {}\n\n\tx\n```\n\n    indented\n\n| a | b |\n|---|---|\n| 1 | `2` |\n\n<div>\n<p>html &lt;</p></div>\n\nSee ![alt](x.png) <http://y>[^1].\n\n[^1]: Foot.\n\nSetext\n---\n\n***\n")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"title Notes",
		"record title: \"Notes\"\ntags: [a, b]",
		"heading1 A b c",
		"paragraph One link & *star*\nnext bold.",
		"paragraph quoted",
		"list item1 one",
		"list item2 deep",
		"paragraph more",
		"list item1 two",
		"list item1 first",
		"code [go] func main() {}\n\n\tx",
		"code indented",
		"table {a | b} 1 | 2",
		"paragraph html <",
		"paragraph See alt http://y.",
		"heading2 Setext",
		"paragraph Foot.",
	}, outline(blocks))
}

func TestEncodings(t *testing.T) {
	const german, russian = "Größe und Maße der Brücke in Köln, über den Fluß",
		"Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация южных губерний даст мощный толчок"
	const japan, chinese = "これは日本語の文章です。吾輩は猫である。名前はまだ無い。どこで生れたか", "这是一个中文句子。我们在这里测试编码的检测。北京是中华人民共和国的首都"
	le, be := textunicode.LittleEndian, textunicode.BigEndian
	reg := newRegistry(t, parse.Limits{})
	for _, row := range []struct {
		name, text string
		encode     func(string) (string, error)
	}{
		{"utf-8", german, func(s string) (string, error) { return s, nil }},
		{"utf-8 with mark", german, func(s string) (string, error) { return "\ufeff" + s, nil }},
		{"utf-16le with mark", german, textunicode.UTF16(le, textunicode.UseBOM).NewEncoder().String},
		{"utf-16be with mark", japan, textunicode.UTF16(be, textunicode.UseBOM).NewEncoder().String},
		{"utf-16le", german, textunicode.UTF16(le, textunicode.IgnoreBOM).NewEncoder().String},
		{"utf-16be", german, textunicode.UTF16(be, textunicode.IgnoreBOM).NewEncoder().String},
		{"utf-32le", german, utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM).NewEncoder().String},
		{"utf-32be", russian, utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM).NewEncoder().String},
		{"latin-1", german, charmap.ISO8859_1.NewEncoder().String},
		{"windows-1251", russian, charmap.Windows1251.NewEncoder().String},
		{"koi8-r", russian, charmap.KOI8R.NewEncoder().String},
		{"shift-jis", japan, japanese.ShiftJIS.NewEncoder().String},
		{"euc-jp", japan, japanese.EUCJP.NewEncoder().String},
		{"iso-2022-jp", japan, japanese.ISO2022JP.NewEncoder().String},
		{"gb18030", chinese, simplifiedchinese.GB18030.NewEncoder().String},
	} {
		encoded, err := row.encode(row.text)
		require.NoError(t, err, row.name)
		for _, name := range []string{"a.txt", "a.md"} {
			blocks, err := read(t, reg, name, encoded)
			if assert.NoError(t, err, row.name) && assert.NotEmpty(t, blocks, row.name) {
				assert.Equal(t, row.text, blocks[0].Text, row.name+" "+name)
			}
		}
	}
	blocks, err := read(t, reg, "a.html", "<meta charset=iso-8859-7><p>\xc1\xe2")
	require.NoError(t, err)
	assert.Equal(t, "Αβ", blocks[0].Text)
}

func TestOneWrongByteDoesNotCostAnXMLDocument(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.xml", "\ufeff<a><b>\u0431 Espa\xf1a</b></a>")
	require.NoError(t, err)
	assert.Equal(t, "\u0431 Espa\ufffda", blocks[0].Text)
}

func TestXMLOfWhichOnlyTheVeryEndIsMissingIsRead(t *testing.T) {
	for content, whole := range map[string]bool{
		"<a><b>x</b></a": true, "<a><b>x</b></a\n": true, "<a>x</": true,
		"<a><b>x</b>": false, "<a><b>x</b": false, "<a>x": false, "<a><b>x</b></a<": false,
	} {
		_, err := read(t, newRegistry(t, parse.Limits{}), "a.xml", content)
		if whole {
			assert.NoError(t, err, content)
		} else {
			assert.Equal(t, "malformed", kindOf(err), content)
		}
	}
}

func TestManyReadersOfMarkdownAtOnce(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				blocks, err := read(t, reg, "a.md",
					fmt.Sprintf("# Head\n\nText %d[^1] [a]\n\n[a]: b\n\n[^1]: Foot %d", i, i))
				if assert.NoError(t, err) {
					assert.Equal(t, fmt.Sprintf("paragraph Foot %d", i), outline(blocks)[2])
				}
			}
		})
	}
	group.Wait()
}

func TestMarkdownKeepsAlternativeTextsOfPicturesInHTML(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.md",
		`See <img src="a" alt="the &lt;map"> and <b>more</b><br>here.`)
	require.NoError(t, err)
	assert.Equal(t, []string{"paragraph See the <map and more\nhere."}, outline(blocks))
}

func TestOneControlCharacterDoesNotMakeATextBinary(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.csv", "a,b,c\n\x00,2,3")
	require.NoError(t, err)
	assert.Equal(t, []string{"table {a | b | c} | 2 | 3"}, outline(blocks))
}

func TestFilesThatAreNotWhatTheirNameSays(t *testing.T) {
	reg := newRegistry(t, parse.Limits{})
	pdf, png := minimalPDF("Hello there"), "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01"
	for _, row := range []struct {
		name, content, parser string
		kind                  string
	}{
		{"a.txt", pdf, "pdf", ""},
		{"a.pdf", "just words", "text", ""},
		{"a.pdf", "<!doctype html><p>x", "html", ""},
		{"a.txt", "<!doctype html><p>x", "html", ""},
		{"a.md", "<h1>x</h1>\n\n# y", "markdown", ""},
		{"https://example.com/x.html?a=b.pdf#c", "<p>x", "html", ""},
		{"noname", "plain", "text", ""},
		{"a.txt", png, "", "unsupported format"},
		{"a.md", "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e", "", "unsupported format"},
		{"a.pdf", "", "", "no text"},
		{"a.doc", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1" + strings.Repeat("\x00", 600), "", "unsupported format"},
		{"a.docx", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1E\x00n\x00c\x00r\x00y\x00p\x00t\x00e\x00d\x00P\x00a\x00c\x00k\x00a\x00g\x00e\x00", "", "password protected"},
	} {
		format, err := reg.Detect(parse.FromBytes(row.name, []byte(row.content)))
		assert.Equal(t, row.parser, format.Parser, "%s %q", row.name, row.content[:min(10, len(row.content))])
		assert.Equal(t, row.kind, kindOf(err), row.name)
	}
}

func TestDocumentsWithoutText(t *testing.T) {
	reg := newRegistry(t, parse.Limits{MaxSize: 5000})
	for _, row := range []struct {
		name, content string
		kind          string
	}{
		{"a.txt", " \r\n\t\n", "no text"},
		{"a.html", "<title>x</title><body> </body>", "no text"},
		{"a.pdf", minimalPDF(""), "no text layer"},
		{"a.pdf", "%PDF-1.7\nnothing here", "malformed"},
		{"a.md", strings.Repeat("large ", 1000), "too large"},
	} {
		_, err := read(t, reg, row.name, row.content)
		assert.Equal(t, row.kind, kindOf(err), "%s %.20q", row.name, row.content)
	}
}

func TestPDFKeepsPages(t *testing.T) {
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.pdf", minimalPDF("First page.", "Second page."))
	require.NoError(t, err)
	assert.Equal(t, []string{"paragraph p1 First page.", "paragraph p2 Second page."}, outline(blocks))
}

// A value that a program filled in has no look until a viewer gives it one.
func TestPDFFormValuesAreText(t *testing.T) {
	form := `<</Type/Annot/Subtype/Widget/FT/Tx/T(Name)/V(Alice Liddell)/Rect[72 600 300 620]>>` +
		`<</Type/Annot/Subtype/Widget/FT/Tx/T(Shown)/V(First page.)/Rect[72 600 300 620]>>` +
		`<</Type/Annot/Subtype/Widget/FT/Btn/T(Box)/V/Yes/Rect[72 600 300 620]>>` +
		`<</Type/Annot/Subtype/Link/T(no)/V(no)/Rect[72 600 300 620]>>`
	withForm := strings.Replace(minimalPDF("First page.", "Second."), "/Type/Page/Parent",
		"/Type/Page/Annots["+form+"]/Parent", 1)
	blocks, err := read(t, newRegistry(t, parse.Limits{}), "a.pdf", withForm)
	require.NoError(t, err)
	assert.Equal(t, []string{"paragraph p1 First page.", "paragraph p1 Name: Alice Liddell", "paragraph p2 Second."},
		outline(blocks))
}

func TestPDFWithPassword(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "password.pdf"))
	require.NoError(t, err)
	_, err = read(t, newRegistry(t, parse.Limits{}), "a.pdf", string(content))
	require.Equal(t, "password protected", kindOf(err))
}
