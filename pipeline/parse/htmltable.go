package parse

import (
	"cmp"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// tableRows is how many rows go into one block.
const tableRows = 50

const cellSeparator = " | "

// tableWriter makes blocks of rows.
type tableWriter struct {
	section string
	page    int
	header  string
	rows    []string
	bytes   int
	first   int // row number of rows[0], from 1
	emit    func(block.Block) error
}

// row adds a row of cells.
func (t *tableWriter) row(cells []string) error {
	line := tableLine(cells)
	if line == "" {
		return nil
	}
	t.rows = append(t.rows, line)
	t.bytes += len(line)
	if len(t.rows) < tableRows && t.bytes < maxBlock {
		return nil
	}
	return t.flush()
}

// flush emits the rows so far.
func (t *tableWriter) flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	b := block.Block{
		Kind: block.Table, Text: strings.Join(t.rows, "\n"), Header: t.header,
		Page: t.page, Section: t.section, Row: max(1, t.first),
	}
	t.first = b.Row + len(t.rows)
	t.rows, t.bytes = nil, 0
	return t.emit(b)
}

// close emits what is left: a header without rows is a row itself.
func (t *tableWriter) close() error {
	if len(t.rows) == 0 && t.first == 0 && t.header != "" {
		t.rows, t.header = []string{t.header}, ""
	}
	return t.flush()
}

// tableLine is a row as text; empty if all its cells are.
func tableLine(cells []string) string {
	empty := true
	clean := make([]string, len(cells))
	for i, cell := range cells {
		clean[i] = squeeze(cell)
		empty = empty && clean[i] == ""
	}
	if empty {
		return ""
	}
	return strings.TrimRight(strings.Join(clean, cellSeparator), " |")
}

func (w *htmlWalker) table() *htmlTable {
	if len(w.tables) == 0 {
		return nil
	}
	return w.tables[len(w.tables)-1]
}

// inCell reports whether text goes into a cell.
func (w *htmlWalker) inCell() bool {
	t := w.table()
	return t != nil && t.inCell && !t.layout
}

func (w *htmlWalker) openTable() {
	w.layOut()
	w.flush()
	t := &htmlTable{}
	t.emit = func(b block.Block) error { w.send(b); return w.err }
	w.tables = append(w.tables, t)
}

// layOut is called when a table turns out to hold more than words: its cells
// are then read as a page would be.
func (w *htmlWalker) layOut() {
	t := w.table()
	if t == nil || t.layout {
		return
	}
	cells, text := t.cells, string(w.text)
	t.layout, t.cells = true, nil
	w.err = cmp.Or(w.err, t.close())
	for _, cell := range cells {
		w.reset()
		w.text = append(w.text, cell...)
		w.flush()
	}
	w.text = append(w.text[:0], text...)
}

func (w *htmlWalker) openCell(head bool) {
	t := w.table()
	if t == nil || t.layout {
		w.flush()
		return
	}
	if t.inCell {
		w.closeCell()
	} else {
		w.flush()
	}
	t.inCell = true
	if head {
		t.heads++
	}
}

func (w *htmlWalker) closeCell() {
	t := w.table()
	if t == nil || t.layout || !t.inCell {
		w.flush()
		return
	}
	t.inCell = false
	t.cells = append(t.cells, string(w.text))
	w.reset()
}

func (w *htmlWalker) closeRow() {
	t := w.table()
	if t == nil || t.layout {
		w.flush()
		return
	}
	if t.inCell {
		w.closeCell()
	}
	w.flush()
	cells, isHead := t.cells, t.heads > 0 && t.heads == len(t.cells)
	t.cells, t.heads = nil, 0
	if isHead && t.header == "" && len(t.rows) == 0 && t.first == 0 {
		t.header = tableLine(cells)
		return
	}
	w.err = cmp.Or(w.err, t.row(cells))
}

func (w *htmlWalker) closeTable() {
	t := w.table()
	if t == nil {
		w.flush()
		return
	}
	w.closeRow()
	w.tables = w.tables[:len(w.tables)-1]
	if !t.layout {
		w.err = cmp.Or(w.err, t.close())
	}
}
