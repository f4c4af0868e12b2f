package parse

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseHTML reads HTML as a stream of tags: headings, paragraphs, list items,
// tables and preformatted text. It drops what is not the page's own text:
// scripts, styles, templates, drawings, forms' controls, navigation, and the
// header and footer of a site.
func parseHTML(_ context.Context, in Input, emit func(block.Block) error) error {
	content, err := readAll(in)
	if err != nil {
		return err
	}
	return in.budget.walkHTML(decodeText(content, declaredInHTML(content)), emit)
}

// declaredInHTML is the encoding in a meta tag, or nil.
func declaredInHTML(content []byte) encoding.Encoding {
	enc, name, _ := charset.DetermineEncoding(content[:min(1024, len(content))], "")
	if name == "windows-1252" || name == "utf-8" { // also what it says of pages without one
		return nil
	}
	return enc
}

// walkHTML emits the blocks of a page. If dropping the furniture leaves
// nothing, the furniture is the text.
func (b *budget) walkHTML(text string, emit func(block.Block) error) error {
	w := &htmlWalker{emit: emit, furniture: true}
	if err := w.walk(b.passing(strings.NewReader(text))); err != nil || w.emitted {
		return err
	}
	w = &htmlWalker{emit: emit}
	return w.walk(b.passing(strings.NewReader(text)))
}

// htmlWalker turns tags into blocks.
type htmlWalker struct {
	emit      func(block.Block) error
	emitted   bool
	err       error
	furniture bool // drop it

	tags    *html.Tokenizer
	text    []byte // of the block at hand
	space   bool   // a space is due before the next word
	lang    string // that the page declares
	heading int    // level of the heading we are in
	lists   int    // how many lists we are in
	item    bool   // the next block is the first of a list item
	pre     int    // how many preformatted elements we are in
	code    string // language for the next preformatted element
	content int    // how many elements of main content we are in
	header  int    // how many site headers we are in
	title   bool
	tables  []*htmlTable
}

// htmlTable is a table that is open.
type htmlTable struct {
	tableWriter
	cells  []string
	inCell bool
	heads  int  // how many of cells are head cells
	layout bool // its cells hold blocks: it is there to place things
}

func (w *htmlWalker) walk(text io.Reader) error {
	w.tags = html.NewTokenizer(text)
	for w.err == nil {
		switch w.tags.Next() {
		case html.ErrorToken:
			if err := w.tags.Err(); err != io.EOF { //nolint:errorlint // the very value
				return err
			}
			return w.end()
		case html.TextToken:
			w.write(w.tags.Text())
		case html.StartTagToken:
			w.start(false)
		case html.SelfClosingTagToken:
			w.start(true)
		case html.EndTagToken:
			name, _ := w.tags.TagName()
			w.close(string(name))
		case html.CommentToken, html.DoctypeToken:
		}
	}
	return w.err
}

// end flushes what is open at the end of the page.
func (w *htmlWalker) end() error {
	for len(w.tables) > 0 {
		w.closeTable()
	}
	w.flush()
	return w.err
}

// htmlRole is what a tag means to us.
type htmlRole uint8

const (
	inline htmlRole = iota
	box             // begins and ends a block
	dropped
	headingRole
	list
	listItem
	pre
	mainContent
	siteHeader
	siteFooter
	navigation
	tableRole
	tableRow
	tableCell
	lineBreak
	image
	titleRole
	rootRole
)

var htmlRoles = map[string]htmlRole{
	"script": dropped, "style": dropped, "template": dropped, "svg": dropped, "noscript": dropped,
	"iframe": dropped, "object": dropped, "canvas": dropped, "audio": dropped, "video": dropped,
	"button": dropped, "select": dropped, "datalist": dropped, "textarea": dropped, "annotation": dropped,
	"noembed": dropped, "noframes": dropped, "nav": navigation,
	"h1": headingRole, "h2": headingRole, "h3": headingRole, "h4": headingRole, "h5": headingRole, "h6": headingRole,
	"ul": list, "ol": list, "menu": list, "li": listItem, "pre": pre, "listing": pre, "xmp": pre,
	"main": mainContent, "article": mainContent, "section": mainContent, "header": siteHeader, "footer": siteFooter,
	"table": tableRole, "tr": tableRow, "td": tableCell, "th": tableCell,
	"br": lineBreak, "img": image, "title": titleRole, "html": rootRole,
	"p": box, "div": box, "dl": box, "dt": box, "dd": box, "blockquote": box, "figure": box,
	"figcaption": box, "caption": box, "body": box, "head": box, "hr": box, "form": box,
	"fieldset": box, "legend": box, "address": box, "aside": box, "details": box, "summary": box,
	"center": box, "dialog": box, "hgroup": box, "option": box, "thead": box, "tbody": box, "tfoot": box,
}

// start handles a start tag.
func (w *htmlWalker) start(selfClosing bool) {
	name, hasAttr := w.tags.TagName()
	role := htmlRoles[string(name)]
	tag := htmlTag{role: role}
	if hasAttr && (role != inline || string(name) == "a" || string(name) == "span") {
		tag.read(w.tags)
	}
	if selfClosing && role != lineBreak && role != image && role != box {
		return
	}
	if w.drops(tag) {
		if !selfClosing {
			w.skip(string(name))
		}
		return
	}
	w.open(string(name), tag)
}

// htmlTag is a start tag with the attributes that matter.
type htmlTag struct {
	role                   htmlRole
	class, part, lang, alt string
	hidden                 bool
}

func (t *htmlTag) read(tags *html.Tokenizer) {
	for more := true; more; {
		var key, value []byte
		key, value, more = tags.TagAttr()
		switch string(key) {
		case "class":
			t.class = string(value)
		case "role":
			t.part = string(value)
		case "lang":
			t.lang = string(value)
		case "alt":
			t.alt = string(value)
		case "hidden":
			t.hidden = !bytes.Equal(value, []byte("until-found"))
		case "aria-hidden":
			t.hidden = t.hidden || string(value) == "true"
		case "style":
			t.hidden = t.hidden || bytes.Contains(value, []byte("display:none")) ||
				bytes.Contains(value, []byte("display: none"))
		}
	}
}

var furnitureParts = []string{"navigation", "search", "banner", "contentinfo", "menu", "menubar", "toolbar"}

// drops reports whether an element and all in it is left out.
func (w *htmlWalker) drops(t htmlTag) bool {
	switch {
	case t.role == dropped, t.hidden && t.role != rootRole, strings.Contains(t.class, "headerlink"):
		return true
	case !w.furniture:
		return false
	case t.role == navigation, w.content == 0 && (t.role == siteFooter || t.class == "footer"):
		return true
	}
	return slices.Contains(furnitureParts, t.part)
}

// skip passes over an element.
func (w *htmlWalker) skip(name string) {
	if isVoid(name) {
		return
	}
	for depth := 1; depth > 0; {
		switch w.tags.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken:
			if tag, _ := w.tags.TagName(); string(tag) == name {
				depth++
			}
		case html.EndTagToken:
			if tag, _ := w.tags.TagName(); string(tag) == name {
				depth--
			}
		default:
		}
	}
}

func isVoid(name string) bool {
	return slices.Contains([]string{
		"img", "br", "hr", "input", "link", "meta", "area", "base", "col", "embed",
		"source", "track", "wbr",
	}, name)
}

// open begins an element.
func (w *htmlWalker) open(name string, t htmlTag) {
	switch t.role {
	case inline, dropped:
	case rootRole:
		w.lang = t.lang
	case titleRole:
		w.flush()
		w.title = true
	case lineBreak:
		w.breakLine()
	case image:
		w.write([]byte(" " + t.alt + " "))
	case headingRole:
		w.openHeading(int(name[1] - '0'))
	case list:
		w.flush()
		w.lists++
		w.item = false
	case listItem:
		w.flush()
		w.item = true
	case pre:
		w.openPre(t)
	case mainContent:
		w.flush()
		w.content++
	case siteHeader:
		w.flush()
		if w.content == 0 && w.furniture {
			w.header++
		}
	default:
		w.openBlock(name, t)
	}
}

// openBlock begins a block that has no other role, or a part of a table.
func (w *htmlWalker) openBlock(name string, t htmlTag) {
	switch t.role {
	case tableRole:
		w.openTable()
	case tableRow:
		w.closeRow()
	case tableCell:
		w.openCell(name == "th")
	default:
		w.flush()
		if lang := codeLanguage(t.class); lang != "" {
			w.code = lang
		}
	}
}

// close ends an element.
func (w *htmlWalker) close(name string) {
	switch htmlRoles[name] {
	case inline, dropped, image, lineBreak, rootRole:
	case titleRole:
		w.closeTitle()
	case headingRole:
		w.flush()
		w.heading = 0
	case list:
		w.flush()
		w.lists = max(0, w.lists-1)
		w.item = false
	case pre:
		w.closePre()
	case mainContent:
		w.flush()
		w.content = max(0, w.content-1)
	case siteHeader:
		w.flush()
		w.header = max(0, w.header-1)
	case tableRole:
		w.closeTable()
	case tableRow:
		w.closeRow()
	case tableCell:
		w.closeCell()
	default:
		w.flush()
	}
}

func (w *htmlWalker) openHeading(level int) {
	w.layOut()
	w.flush()
	w.heading = level
}

func (w *htmlWalker) openPre(t htmlTag) {
	w.layOut()
	if w.pre == 0 {
		w.flush()
	}
	w.pre++
	if lang := codeLanguage(t.class); lang != "" {
		w.code = lang
	}
}

func (w *htmlWalker) closePre() {
	if w.pre == 1 {
		w.flush()
		w.code = ""
	}
	w.pre = max(0, w.pre-1)
}

func (w *htmlWalker) closeTitle() {
	if !w.title {
		return
	}
	w.title = false
	w.send(block.Block{Kind: block.Title, Text: string(w.text), Lang: w.lang})
	w.reset()
}

// codeLanguage finds a language in a class, as "language-go" or Sphinx's
// "highlight-python3".
func codeLanguage(class string) string {
	for name := range strings.FieldsSeq(class) {
		for _, prefix := range []string{"language-", "lang-", "highlight-", "highlight-source-"} {
			if lang, ok := strings.CutPrefix(name, prefix); ok && lang != "" && lang != "default" && lang != "none" &&
				lang != "text" {
				return strings.TrimPrefix(lang, "source-")
			}
		}
	}
	return ""
}

// write adds text to the block at hand, white space squeezed unless it is
// preformatted.
func (w *htmlWalker) write(text []byte) {
	if w.pre > 0 {
		w.text = append(w.text, text...)
		return
	}
	for len(text) > 0 {
		n := 0
		for n < len(text) && !isHTMLSpace(text[n]) {
			n++
		}
		if n == 0 {
			w.space = true
			text = text[1:]
			continue
		}
		if w.space && len(w.text) > 0 && w.text[len(w.text)-1] != '\n' {
			w.text = append(w.text, ' ')
		}
		w.space = false
		w.text = append(w.text, text[:n]...)
		text = text[n:]
	}
}

func isHTMLSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' }

func (w *htmlWalker) breakLine() {
	if len(w.text) > 0 || w.pre > 0 {
		w.text = append(w.text, '\n')
	}
	w.space = false
}

func (w *htmlWalker) reset() {
	w.text, w.space = w.text[:0], false
}

// flush ends the block at hand. In a cell of a table it only ends a word.
func (w *htmlWalker) flush() {
	if w.inCell() {
		w.space = true
		return
	}
	text := string(w.text)
	w.reset()
	if strings.TrimSpace(text) == "" {
		return
	}
	w.send(w.blockOf(text))
}

func (w *htmlWalker) blockOf(text string) block.Block {
	switch {
	case w.heading > 0:
		return block.Block{Kind: block.Heading, Level: w.heading, Text: squeeze(text)}
	case w.pre > 0:
		return block.Block{Kind: block.Code, Text: text, Lang: w.code}
	case w.item:
		w.item = false
		return block.Block{Kind: block.ListItem, Level: max(1, w.lists), Text: text}
	}
	return block.Block{Kind: block.Paragraph, Text: text}
}

// send emits a block. A site's header has nothing for us but the page's name.
func (w *htmlWalker) send(b block.Block) {
	if w.err != nil || w.header > 0 && (b.Kind != block.Heading || b.Level > 1) {
		return
	}
	w.emitted = w.emitted || b.Kind != block.Title
	w.err = w.emit(b)
}
