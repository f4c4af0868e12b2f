package parse

import (
	"context"
	"encoding/xml"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

const presentation = "ppt/presentation.xml"

// parsePPTX reads PowerPoint slides in their order: the title as a heading,
// the points as a list, tables, charts and diagrams, and the speaker's notes
// after each slide.
func parsePPTX(_ context.Context, in Input, emit func(block.Block) error) error {
	p, err := openPackage(in)
	if err != nil {
		return err
	}
	if err := p.title("docProps/core.xml", emit); err != nil {
		return err
	}
	slides, err := slideOrder(p)
	if err != nil {
		return err
	}
	for i, slide := range slides {
		if err := readSlide(p, slide, i+1, emit); err != nil {
			return err
		}
	}
	return nil
}

func slideOrder(p *zipPackage) ([]string, error) {
	related, err := p.relations(presentation)
	if err != nil {
		return nil, err
	}
	var slides []string
	err = p.walk(presentation, false, func(t xml.Token) error {
		if start, ok := t.(xml.StartElement); ok && start.Name.Local == "sldId" {
			if slide, ok := related[attrIn(start, "relationships", "id")]; ok {
				slides = append(slides, slide.target)
			}
		}
		return nil
	})
	return slides, err
}

func readSlide(p *zipPackage, slide string, page int, emit func(block.Block) error) error {
	w := &slideWalker{emit: emit, page: page}
	if err := p.walk(slide, true, w.token); err != nil {
		return err
	}
	if err := p.drawings(slide, page, emit); err != nil {
		return err
	}
	related, err := p.relations(slide)
	if err != nil {
		return err
	}
	for _, r := range related {
		if r.kind == "notesSlide" {
			notes := &slideWalker{emit: emit, page: page, notes: true}
			if err := p.walk(r.target, true, notes.token); err != nil {
				return err
			}
		}
	}
	return nil
}

// slideWalker turns the shapes of a slide into blocks.
type slideWalker struct {
	emit  func(block.Block) error
	page  int
	notes bool

	holder  string // the type of the placeholder we are in; "" for others
	held    bool   // we are in a placeholder
	text    strings.Builder
	inText  bool
	level   int
	table   *tableWriter
	cells   []string
	cell    strings.Builder
	headRow bool
}

func (w *slideWalker) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		w.start(t)
	case xml.EndElement:
		return w.end(t.Name.Local)
	case xml.CharData:
		if w.inText {
			w.text.Write(t)
		}
	}
	return nil
}

func (w *slideWalker) start(e xml.StartElement) {
	switch e.Name.Local {
	case "sp":
		w.holder, w.held = "", false
	case "ph":
		w.holder, w.held = attr(e, "type"), true
	case "p":
		w.level = 0
	case "pPr":
		w.level, _ = strconv.Atoi(attr(e, "lvl"))
	case "t":
		w.inText = true
	case "br":
		w.text.WriteByte('\n')
	case "tbl":
		w.table = &tableWriter{emit: w.emit, page: w.page}
	case "tblPr":
		w.headRow = isOn(attr(e, "firstRow"))
	}
}

func (w *slideWalker) end(name string) error {
	switch name {
	case "t":
		w.inText = false
	case "p":
		return w.paragraph()
	case "tc":
		w.cells = append(w.cells, w.cell.String())
		w.cell.Reset()
	case "tr":
		return w.row()
	case "tbl":
		table := w.table
		w.table = nil
		if table != nil {
			return table.close()
		}
	}
	return nil
}

func (w *slideWalker) row() error {
	cells := w.cells
	w.cells = nil
	switch {
	case w.table == nil:
		return nil
	case w.headRow && w.table.header == "" && w.table.first == 0 && len(w.table.rows) == 0:
		w.table.header = tableLine(cells)
		return nil
	}
	return w.table.row(cells)
}

func (w *slideWalker) paragraph() error {
	text := w.text.String()
	w.text.Reset()
	if w.table != nil {
		w.cell.WriteString(text + "\n")
		return nil
	}
	if strings.TrimSpace(text) == "" {
		return nil
	}
	b := block.Block{Kind: block.Paragraph, Text: text, Page: w.page}
	switch {
	case w.holder == "sldNum", w.holder == "dt", w.holder == "ftr", w.holder == "hdr", w.notes && w.holder != "body":
		return nil
	case w.holder == "title", w.holder == "ctrTitle":
		b.Kind, b.Level, b.Text = block.Heading, 1, squeeze(text)
	case w.held && !w.notes && w.holder != "subTitle":
		b.Kind, b.Level = block.ListItem, w.level+1
	}
	return w.emit(b)
}
