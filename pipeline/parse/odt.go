package parse

import (
	"context"
	"encoding/xml"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseODT reads OpenDocument texts, sheets and slides: headings, list items,
// tables. Tracked deletions and comments are left out.
func parseODT(_ context.Context, in Input, emit func(block.Block) error) error {
	p, err := openPackage(in)
	if err != nil {
		return err
	}
	if manifest, err := p.read("META-INF/manifest.xml"); err == nil &&
		strings.Contains(string(manifest), "encryption-data") {
		return refuse(passwordProtected, nil)
	}
	if err := p.title("meta.xml", emit); err != nil {
		return err
	}
	w := &odtWalker{emit: emit}
	return p.walk("content.xml", false, w.token)
}

// odtWalker turns the content into blocks.
type odtWalker struct {
	emit  func(block.Block) error
	skip  int
	text  strings.Builder
	depth int // of paragraphs within paragraphs (text frames, notes)
	level int
	list  int
	page  int

	tables int
	table  tableWriter
	head   bool
	cells  []string
	cell   strings.Builder
	repeat int
}

// maxRepeat bounds how often an empty or equal cell is written: sheets end with
// one cell repeated to the edge.
const maxRepeat = 64

func (w *odtWalker) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		if w.skip > 0 || t.Name.Local == "annotation" || t.Name.Local == "tracked-changes" || t.Name.Local == "notes" {
			w.skip++
			return nil
		}
		w.start(t)
	case xml.EndElement:
		if w.skip > 0 {
			w.skip--
			return nil
		}
		return w.end(t.Name.Local)
	case xml.CharData:
		if w.depth > 0 && w.skip == 0 {
			w.text.WriteString(strings.ReplaceAll(string(t), "\n", " "))
		}
	}
	return nil
}

func (w *odtWalker) start(e xml.StartElement) {
	switch e.Name.Local {
	case "h", "p":
		w.startParagraph(e)
	case "s":
		n, _ := strconv.Atoi(attr(e, "c"))
		w.text.WriteString(strings.Repeat(" ", min(max(1, n), maxRepeat)))
	case "tab":
		w.text.WriteByte('\t')
	case "line-break":
		w.text.WriteByte('\n')
	case "list":
		w.list++
	case "page":
		w.page++
	case "table":
		if w.tables++; w.tables == 1 {
			w.table = tableWriter{emit: w.emit, page: w.page}
			w.cells, w.head = nil, false
			if name := attrIn(e, "", "name"); strings.HasSuffix(e.Name.Space, "table:1.0") && w.depth == 0 {
				w.table.section = sheetName(name)
			}
		}
	case "table-header-rows":
		w.head = true
	case "table-cell", "covered-table-cell":
		n, _ := strconv.Atoi(attr(e, "number-columns-repeated"))
		w.repeat = min(max(1, n), maxRepeat)
	}
}

// sheetName leaves out the names that tables in a text have of themselves.
func sheetName(name string) string {
	if strings.HasPrefix(name, "Table") || plainSheet.MatchString(name) {
		return ""
	}
	return name
}

func (w *odtWalker) startParagraph(e xml.StartElement) {
	if w.depth++; w.depth > 1 {
		w.text.WriteByte(' ')
		return
	}
	if e.Name.Local == "h" {
		n, _ := strconv.Atoi(attr(e, "outline-level"))
		w.level = max(1, n)
	}
}

func (w *odtWalker) end(name string) error {
	switch name {
	case "h", "p":
		if w.depth--; w.depth == 0 {
			return w.paragraph()
		}
		w.text.WriteByte(' ')
	case "title", "desc", "frame": // of a picture, in the midst of words
		w.text.WriteByte(' ')
	case "list":
		w.list--
	case "table-header-rows":
		w.head = false
	case "table-cell", "covered-table-cell":
		if w.tables == 1 {
			for range w.repeat {
				w.cells = append(w.cells, w.cell.String())
			}
			w.cell.Reset()
			w.repeat = 1
		}
	case "table-row":
		return w.row()
	case "table":
		if w.tables--; w.tables == 0 {
			return w.table.close()
		}
	}
	return nil
}

func (w *odtWalker) row() error {
	if w.tables != 1 {
		return nil
	}
	cells := w.cells
	w.cells = nil
	if w.head && w.table.header == "" {
		w.table.header = tableLine(cells)
		return nil
	}
	return w.table.row(cells)
}

func (w *odtWalker) paragraph() error {
	b := block.Block{Kind: block.Paragraph, Text: w.text.String(), Page: w.page}
	w.text.Reset()
	level := w.level
	w.level = 0
	switch {
	case w.tables > 0:
		w.cell.WriteString(b.Text + "\n")
		return nil
	case strings.TrimSpace(b.Text) == "":
		return nil
	case level > 0:
		b.Kind, b.Level, b.Text = block.Heading, level, squeeze(b.Text)
	case w.list > 0:
		b.Kind, b.Level = block.ListItem, w.list
	}
	return w.emit(b)
}
