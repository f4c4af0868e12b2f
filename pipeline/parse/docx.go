package parse

import (
	"context"
	"encoding/xml"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseDOCX reads Word documents: headings by style or outline level, list
// items, tables, charts, footnotes and endnotes. Deleted text, comments, and
// the headers and footers of pages are left out.
func parseDOCX(_ context.Context, in Input, emit func(block.Block) error) error {
	p, err := openPackage(in)
	if err != nil {
		return err
	}
	if err := p.title("docProps/core.xml", emit); err != nil {
		return err
	}
	styles, err := docxStyles(p)
	if err != nil {
		return err
	}
	for i, part := range []string{"word/document.xml", "word/footnotes.xml", "word/endnotes.xml"} {
		w := &docxWalker{emit: emit, styles: styles}
		if err := p.walk(part, i > 0, w.token); err != nil {
			return err
		}
		if err := p.drawings(part, 0, emit); err != nil {
			return err
		}
	}
	return nil
}

var headingStyle = regexp.MustCompile(`^heading ([1-9])$`)

// docxStyles maps the ids of styles to their heading level. Ids are in the
// language of the author, the names of the built-in styles are not.
func docxStyles(p *zipPackage) (map[string]int, error) {
	levels := map[string]int{}
	content, err := p.read("word/styles.xml")
	if errors.Is(err, errNoMember) {
		return levels, nil
	}
	if err != nil {
		return nil, err
	}
	id := ""
	err = p.budget.walkXML(stylesThatMatter(content), func(t xml.Token) error {
		start, ok := t.(xml.StartElement)
		if !ok {
			return nil
		}
		switch start.Name.Local {
		case "style":
			id = attr(start, "styleId")
		case "name":
			name := strings.ToLower(attr(start, "val"))
			if m := headingStyle.FindStringSubmatch(name); m != nil {
				levels[id], _ = strconv.Atoi(m[1])
			} else if name == "title" {
				levels[id] = 1
			}
		case "outlineLvl":
			if n, err := strconv.Atoi(attr(start, "val")); err == nil && n < 9 && levels[id] == 0 {
				levels[id] = n + 1
			}
		}
		return nil
	})
	return levels, err
}

// stylesThatMatter leaves out the styles that cannot be headings, and all that
// is no style: reading them takes longer than reading most documents. What does
// not look as Word writes it stays whole.
func stylesThatMatter(content []byte) []byte {
	const begin, end = "<w:style ", "</w:style>"
	styles := strings.Split(string(content), end)
	if len(styles) == 1 {
		return content
	}
	kept := []string{"<w:styles>"}
	for _, style := range styles[:len(styles)-1] {
		at := strings.LastIndex(style, begin)
		if at < 0 {
			return content
		}
		if lower := strings.ToLower(style[at:]); strings.Contains(lower, "heading") ||
			strings.Contains(lower, "title") || strings.Contains(lower, "outlinelvl") {
			kept = append(kept, style[at:]+end)
		}
	}
	return []byte(strings.Join(kept, "") + "</w:styles>")
}

// docxWalker turns the paragraphs of a part into blocks.
type docxWalker struct {
	emit   func(block.Block) error
	styles map[string]int

	skip    int // how deep we are in what is left out
	text    strings.Builder
	level   int // of the paragraph, if it is a heading
	list    int // depth of the paragraph, if it is in a list
	inText  bool
	tables  int
	table   tableWriter
	cells   []string
	cell    strings.Builder
	head    bool // the row is a header
	headRow bool // the table says that its first row is a header
}

func (w *docxWalker) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		if w.skip > 0 || t.Name.Local == "Fallback" || t.Name.Local == "del" &&
			strings.Contains(t.Name.Space, "wordprocessingml") {
			w.skip++
			return nil
		}
		return w.start(t)
	case xml.EndElement:
		if w.skip > 0 {
			w.skip--
			return nil
		}
		return w.end(t.Name.Local)
	case xml.CharData:
		if w.inText && w.skip == 0 {
			w.text.Write(t)
		}
	}
	return nil
}

func (w *docxWalker) start(e xml.StartElement) error {
	switch e.Name.Local {
	case "p":
		w.level, w.list = 0, 0
	case "t":
		w.inText = true
	case "tab":
		w.text.WriteByte('\t')
	case "br", "cr":
		w.text.WriteByte('\n')
	case "noBreakHyphen":
		w.text.WriteByte('-')
	case "pStyle":
		w.level = w.styles[attr(e, "val")]
	case "outlineLvl":
		if n, err := strconv.Atoi(attr(e, "val")); err == nil && n < 9 {
			w.level = n + 1
		}
	case "ilvl":
		n, _ := strconv.Atoi(attr(e, "val"))
		w.list = n + 1
	case "numId":
		if w.list = max(1, w.list); attr(e, "val") == "0" {
			w.list = 0
		}
	case "tbl":
		w.openTable()
	case "tblHeader":
		w.head = !strings.HasPrefix(attr(e, "val"), "f") && attr(e, "val") != "0"
	case "tblLook":
		w.headRow = w.tables == 1 && isOn(attr(e, "firstRow"))
	}
	return nil
}

func (w *docxWalker) openTable() {
	if w.tables++; w.tables == 1 {
		w.table = tableWriter{emit: w.emit}
		w.cells, w.head, w.headRow = nil, false, false
	}
}

func (w *docxWalker) end(name string) error {
	switch name {
	case "t":
		w.inText = false
	case "p":
		return w.paragraph()
	case "tc":
		if w.tables == 1 {
			w.cells = append(w.cells, w.cell.String())
			w.cell.Reset()
		}
	case "tr":
		if w.tables == 1 {
			return w.row()
		}
	case "tbl":
		if w.tables--; w.tables == 0 {
			return w.table.close()
		}
	}
	return nil
}

func (w *docxWalker) row() error {
	cells, isFirst := w.cells, w.table.header == "" && len(w.table.rows) == 0 && w.table.first == 0
	isHead := w.head || w.headRow
	w.cells, w.head = nil, false
	if isFirst && isHead {
		w.table.header = tableLine(cells)
		return nil
	}
	return w.table.row(cells)
}

func (w *docxWalker) paragraph() error {
	text := w.text.String()
	w.text.Reset()
	switch {
	case w.tables > 0:
		w.cell.WriteString(text + "\n")
		return nil
	case strings.TrimSpace(text) == "":
		return nil
	case w.level > 0:
		return w.emit(block.Block{Kind: block.Heading, Level: w.level, Text: squeeze(text)})
	case w.list > 0:
		return w.emit(block.Block{Kind: block.ListItem, Level: w.list, Text: text})
	}
	return w.emit(block.Block{Kind: block.Paragraph, Text: text})
}
