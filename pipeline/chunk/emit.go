package chunk

import (
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// emit makes a chunk of the overlap and as many of the fresh atoms as keep the
// limits, and returns the atoms that did not go in. It all but always takes
// them all: put has added up their tokens, but a tokenizer may count a whole
// differently from its parts.
func (p *packer) emit() (rest []atom) {
	n := len(p.fresh)
	for {
		text, repeated := render(p.repeated, p.fresh[:n])
		tokens := p.cfg.Count(embedText(p.outline.path, text))
		if tokens <= p.cfg.Tokens && len(text) <= p.cfg.MaxBytes || !p.shrink(&n) {
			p.send(text, repeated, tokens, p.fresh[:n])
			return p.fresh[n:]
		}
	}
}

// shrink takes something from a chunk that is too large; false means that
// there is nothing left to take.
func (p *packer) shrink(n *int) bool {
	switch {
	case *n > 1:
		*n -= 1 + *n/8
	case len(p.repeated) > 0:
		p.repeated = nil
	default:
		return p.cutFirst(n)
	}
	return true
}

// cutFirst replaces the first fresh atom by smaller ones.
func (p *packer) cutFirst(n *int) bool {
	first := p.fresh[0]
	for len(first.levels) > 0 {
		var pieces []atom
		for piece := range p.pieces(first) {
			piece.tokens = p.cfg.Count(piece.text)
			pieces = append(pieces, piece)
		}
		if len(pieces) > 1 {
			p.fresh = append(pieces, p.fresh[1:]...)
			*n = len(pieces) - 1
			return true
		}
		first.levels = first.levels[1:]
	}
	return false
}

// send hands on a chunk, unless it has nothing to say.
func (p *packer) send(text string, repeated, tokens int, fresh []atom) {
	if strings.TrimSpace(text[min(repeated, len(text)):]) == "" {
		return
	}
	first, last := fresh[0], fresh[len(fresh)-1]
	c := Chunk{
		Ordinal: p.ordinal, Text: text, Heading: p.outline.path, Title: p.outline.documentTitle(),
		Page: first.block.Page, Section: first.block.Section, Row: first.row(),
		Start: first.start(), End: last.end(),
		Lang: p.langOf(fresh), Tokens: tokens, Repeated: repeated,
	}
	if p.cfg.Mode == Fixed {
		c.Heading = ""
	}
	p.ordinal++
	p.outline.markShown()
	p.stopped = !p.yield(c)
}

// langOf is the language of the code in a chunk, or else of the document.
func (p *packer) langOf(atoms []atom) string {
	for _, a := range atoms {
		if a.block.Kind == block.Code && a.block.Lang != "" {
			return a.block.Lang
		}
	}
	return p.lang
}

// render writes a chunk's text, and says how many bytes of it are repeated.
func render(repeated, fresh []atom) (string, int) {
	var b strings.Builder
	var before *atom
	write := func(a *atom) {
		b.WriteString(separator(before, *a))
		if needsHeader(before, *a) {
			b.WriteString(a.header + "\n")
		}
		b.WriteString(a.text)
		before = a
	}
	for i := range repeated {
		write(&repeated[i])
	}
	first := b.Len() + headerRepeated(before, fresh)
	for i := range fresh {
		write(&fresh[i])
	}
	return trim(b.String(), first, len(repeated) == 0, fresh[0])
}

// headerRepeated is the length of a header above the first fresh atom that
// was in an earlier chunk already.
func headerRepeated(before *atom, fresh []atom) int {
	if needsHeader(before, fresh[0]) && !fresh[0].table {
		return len(fresh[0].header) + 1
	}
	return 0
}

// trim takes white space from both ends; code keeps its first indentation.
func trim(text string, repeated int, freshStart bool, first atom) (string, int) {
	cut := " \t\n"
	if freshStart && first.block.Kind == block.Code {
		cut = "\n"
	}
	trimmed := strings.TrimLeft(text, cut)
	repeated = max(0, repeated-(len(text)-len(trimmed)))
	return strings.TrimRight(trimmed, " \t\n"), repeated
}

// start is the offset of an atom in the extracted text.
func (a atom) start() int64 {
	blank := len(a.text) - len(strings.TrimLeft(a.text, " \t\n"))
	return a.block.Offset + int64(a.offset+blank)
}

// end is where an atom ends in the extracted text.
func (a atom) end() int64 {
	return a.block.Offset + int64(a.offset+len(strings.TrimRight(a.text, " \t\n")))
}

// row is the row, record or line that an atom starts in.
func (a atom) row() int {
	if a.block.Row == 0 || a.block.Kind == block.Record {
		return a.block.Row
	}
	return a.block.Row + strings.Count(a.block.Text[:a.offset], "\n")
}
