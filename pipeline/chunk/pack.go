package chunk

import (
	"iter"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// atom is a piece of a block that is not cut any further.
type atom struct {
	block  *block.Block
	text   string
	tokens int
	offset int     // of text in the block's Text
	levels []level // finer cuts, if it must come to that
	header string  // the table header that must stand above it
	opens  bool    // it begins a block
	table  bool    // it begins a table
}

// packer fills chunks with atoms.
type packer struct {
	cfg     Config
	yield   func(Chunk) bool
	stopped bool
	outline *outline
	lang    string // of the document
	ordinal int

	repeated []atom // the overlap with the chunk before
	fresh    []atom
	tokens   int // of both, headers included
	bytes    int
	last     *block.Block // the block before
}

func newPacker(cfg Config, yield func(Chunk) bool) *packer {
	return &packer{cfg: cfg, yield: yield, outline: newOutline(cfg)}
}

// add takes the next block; false means that nobody wants more chunks.
func (p *packer) add(b block.Block) bool {
	switch {
	case b.Kind == block.Note || strings.TrimSpace(b.Text) == "":
		return !p.stopped
	case b.Kind == block.Title:
		p.addTitle(b)
		return !p.stopped
	}
	p.breakBefore(b)
	if b.Kind == block.Heading && p.cfg.Mode != Fixed {
		p.addHeading(b)
	} else {
		p.addText(&b)
	}
	p.last = &b
	return !p.stopped
}

func (p *packer) addTitle(b block.Block) {
	if b.Lang != "" {
		p.lang = b.Lang
	}
	if p.cfg.Mode == Fixed {
		p.outline.title = oneLine(b.Text)
		return
	}
	p.flush(false)
	p.outline.setTitle(b.Text)
}

// breakBefore ends the chunk where the block begins a new part of the document.
func (p *packer) breakBefore(b block.Block) {
	switch {
	case p.last == nil || p.cfg.Mode == Fixed:
	case b.Section != p.last.Section:
		p.closeSections(0)
		title := p.outline.title
		p.outline = newOutline(p.cfg)
		p.outline.setTitle(title)
	case b.Page != p.last.Page:
		p.flush(true)
	}
}

// addHeading opens a section.
func (p *packer) addHeading(b block.Block) {
	level := max(1, b.Level)
	p.closeSections(len(p.outline.closing(level)))
	p.outline.open(level, b.Text)
	if p.outline.inPath == 0 { // it is too long for the path
		p.addText(&b)
		p.outline.sections[len(p.outline.sections)-1].shown = true
	}
}

// closeSections ends the chunk, and gives the headings that had no text below
// them a chunk of their own.
func (p *packer) closeSections(from int) {
	p.flush(false)
	lost := p.outline.unshown(from)
	if len(lost) == 0 {
		return
	}
	for i := range p.outline.sections[from:] {
		p.outline.sections[from+i].shown = true
	}
	b := block.Block{Kind: block.Paragraph, Text: strings.Join(lost, pathSeparator)}
	if p.last != nil {
		b.Page, b.Section, b.Offset = p.last.Page, p.last.Section, p.last.Offset
	}
	p.addText(&b)
	p.flush(false)
}

// finish ends the document.
func (p *packer) finish() { p.closeSections(0) }

// addText puts a block's text into chunks.
func (p *packer) addText(b *block.Block) {
	header := p.headerOf(b)
	levels := levelsOf(b.Kind)
	if p.cfg.Mode == Fixed {
		p.atoms(atom{block: b, text: b.Text, levels: fixedLevels}, header, true)
		return
	}
	if p.cfg.Mode == Rows && (b.Kind == block.Table || b.Kind == block.Record) {
		p.addRows(b, header, levels)
		return
	}
	p.atoms(atom{block: b, text: b.Text, levels: levels}, header, false)
}

// addRows makes a chunk of each row, or of a record.
func (p *packer) addRows(b *block.Block, header string, levels []level) {
	p.flush(false)
	if b.Kind == block.Record {
		p.atoms(atom{block: b, text: b.Text, levels: levels}, header, false)
		p.flush(false)
		return
	}
	offset := 0
	for row := range byLine(b.Text) {
		p.atoms(atom{block: b, text: row, offset: offset, levels: levels[1:]}, header, false)
		p.flush(false)
		offset += len(row)
	}
}

// headerOf is the header to be repeated above the rows of a block. A header
// that would take much of each chunk becomes a row at the beginning.
func (p *packer) headerOf(b *block.Block) string {
	if b.Header == "" {
		return ""
	}
	if p.cfg.Mode != Fixed && len(b.Header) <= p.cfg.MaxBytes/4 && p.cfg.Count(b.Header) <= p.cfg.Tokens/4 {
		return b.Header
	}
	if !p.continues(b) {
		p.addText(&block.Block{Kind: block.Table, Text: b.Header, Page: b.Page, Section: b.Section, Offset: b.Offset})
	}
	return ""
}

// continues reports whether a block continues the table before it.
func (p *packer) continues(b *block.Block) bool {
	return p.last != nil && p.last.Kind == block.Table && p.last.Header == b.Header && b.Row > 1
}

// room is what is left for a chunk's text when its headings are paid for.
func (p *packer) room() int { return p.cfg.Tokens - p.outline.tokens }

// atoms cuts a text until its pieces fit into a chunk, and adds them. With
// cut, a text is cut by its first level even if it fits.
func (p *packer) atoms(a atom, header string, cut bool) {
	a.header = header
	a.opens = a.offset == 0
	a.table = a.opens && a.block.Kind == block.Table && !p.continues(a.block)
	p.divide(a, cut)
}

func (p *packer) divide(a atom, cut bool) {
	if !cut {
		a.tokens = p.cfg.Count(a.text)
		tokens, bytes := p.headerCost(a)
		if a.tokens+tokens <= p.room() && len(a.text)+bytes <= p.cfg.MaxBytes || len(a.levels) == 0 {
			p.put(a)
			return
		}
	}
	for piece := range p.pieces(a) {
		p.divide(piece, false)
	}
}

// pieces cuts an atom by its first level.
func (p *packer) pieces(a atom) iter.Seq[atom] {
	return func(yield func(atom) bool) {
		offset := a.offset
		for text := range a.levels[0](a.text) {
			piece := a
			piece.text, piece.offset, piece.levels = text, offset, a.levels[1:]
			piece.opens, piece.table = a.opens && offset == a.offset, a.table && offset == a.offset
			offset += len(text)
			if text != "" && !yield(piece) {
				return
			}
		}
	}
}

// headerCost is what a table header above an atom takes.
func (p *packer) headerCost(a atom) (tokens, bytes int) {
	if a.header == "" {
		return 0, 0
	}
	return p.cfg.Count(a.header), len(a.header) + 1
}

// put adds an atom to the chunk, or to the next one if it does not fit.
func (p *packer) put(a atom) {
	if p.stopped {
		return
	}
	tokens, bytes := p.cost(a)
	if p.tokens+tokens > p.room() || p.bytes+bytes > p.cfg.MaxBytes {
		p.flush(true)
		if tokens, bytes = p.cost(a); p.tokens+tokens > p.room() || p.bytes+bytes > p.cfg.MaxBytes {
			p.setRepeated(nil)
			tokens, bytes = p.cost(a)
		}
	}
	p.fresh = append(p.fresh, a)
	p.tokens += tokens
	p.bytes += bytes
}

// cost is what an atom adds to the chunk as it is.
func (p *packer) cost(a atom) (tokens, bytes int) {
	before := p.lastAtom()
	bytes = len(a.text) + len(separator(before, a))
	if needsHeader(before, a) {
		tokens, n := p.headerCost(a)
		return tokens + a.tokens, bytes + n
	}
	return a.tokens, bytes
}

func (p *packer) lastAtom() *atom {
	if n := len(p.fresh); n > 0 {
		return &p.fresh[n-1]
	}
	if n := len(p.repeated); n > 0 {
		return &p.repeated[n-1]
	}
	return nil
}

// needsHeader reports whether the header must be written above an atom.
func needsHeader(before *atom, a atom) bool {
	return a.header != "" && (before == nil || a.table || before.header != a.header)
}

// separator is what stands between two atoms.
func separator(before *atom, a atom) string {
	switch {
	case before == nil:
		return ""
	case before.block == a.block && !a.opens:
		return ""
	case before.block.Kind != a.block.Kind:
		return "\n\n"
	case a.block.Kind == block.ListItem, a.block.Kind == block.Table && !a.table:
		return "\n"
	}
	return "\n\n"
}

// setRepeated begins a chunk with an overlap.
func (p *packer) setRepeated(atoms []atom) {
	p.repeated, p.fresh = nil, p.fresh[:0]
	p.tokens, p.bytes = 0, 0
	for _, a := range atoms {
		tokens, bytes := p.cost(a)
		p.tokens += tokens
		p.bytes += bytes
		p.repeated = append(p.repeated, a)
	}
}

// flush ends the chunk. With carry, the next one may begin with its last words.
func (p *packer) flush(carry bool) {
	for len(p.fresh) > 0 && !p.stopped {
		rest := p.emit()
		var overlap []atom
		if carry || len(rest) > 0 {
			overlap = p.overlap(p.fresh[:len(p.fresh)-len(rest)])
		}
		rest = append([]atom(nil), rest...)
		p.setRepeated(overlap)
		p.fresh = append(p.fresh, rest...)
		if len(rest) == 0 {
			return
		}
	}
	if !carry {
		p.setRepeated(nil)
	}
}

// overlap is the end of a chunk that the next one repeats: whole sentences or
// lines, or else words, as many as Config.Overlap allows. A chunk that is short
// itself, because a page ends, is not repeated.
func (p *packer) overlap(atoms []atom) []atom {
	if sum(atoms) <= 2*p.cfg.Overlap {
		return nil
	}
	from, room := len(atoms), p.cfg.Overlap
	for from > 0 && atoms[from-1].tokens <= room {
		from--
		room -= atoms[from].tokens
	}
	if from == len(atoms) {
		return p.tail(atoms[from-1])
	}
	return slices.Clone(atoms[from:])
}

func sum(atoms []atom) int {
	tokens := 0
	for _, a := range atoms {
		tokens += a.tokens
	}
	return tokens
}

// tail is the last pieces of an atom that fit into an overlap.
func (p *packer) tail(a atom) []atom {
	if len(a.levels) == 0 || p.cfg.Overlap == 0 {
		return nil
	}
	pieces := slices.Collect(p.pieces(a))
	from, room := len(pieces), p.cfg.Overlap
	for from > 0 {
		piece := &pieces[from-1]
		if piece.tokens = p.cfg.Count(piece.text); piece.tokens > room {
			break
		}
		from--
		room -= piece.tokens
	}
	if from == len(pieces) {
		return p.tail(pieces[from-1])
	}
	return pieces[from:]
}
