package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/vectorstore"
)

// confirmer holds what was written against what is there, and finds out whether
// another run has written the same documents meanwhile: runs without a common
// journal do not know of each other.
type confirmer struct {
	*scope
	vectors *vectors
}

// wholeRows is the number of rows up to which a document is read back by its
// hash, all its rows at once.
const wholeRows = 4096

// whole reports whether a part is a document that is read back at once.
func (p *part) whole() bool { return p.first && p.last && len(p.doc.existing) <= wholeRows }

// written reads back the rows of a group. What is missing fails its document.
func (c *confirmer) written(group []*part, list []writing) {
	defer c.timed("verify")()
	var whole []*part
	apart := map[*document]bool{}
	for _, p := range group {
		switch {
		case p.doc.failure() != nil || p.doc.adopted:
		case p.whole():
			whole = append(whole, p)
		default:
			apart[p.doc] = true
		}
	}
	c.rows(slices.DeleteFunc(slices.Clone(list), func(w writing) bool {
		return !apart[w.doc] || w.doc.failure() != nil
	}))
	c.readBack(whole)
}

// rows reads rows back by key.
func (c *confirmer) rows(written []writing) {
	for batch := range slices.Chunk(written, writeRows) {
		ids := make([]string, len(batch))
		for i, one := range batch {
			ids[i] = one.row.ID
		}
		found, err := c.vectors.query(vectorstore.In(rows.Field.ID, ids), []string{rows.Field.ID})
		there := make(map[hash]bool, len(found))
		for _, row := range found {
			there[hashed(row.ID)] = true
		}
		for _, one := range batch {
			if err != nil {
				one.doc.fail(err)
			} else if !there[hashed(one.row.ID)] {
				one.doc.fail(incomplete(&one.row.Row))
			}
		}
	}
}

func incomplete(row *rows.Row) error {
	return stop.Defer("verify", "incomplete", fmt.Errorf(
		"the vector store accepted chunk %d but does not return it; run again", row.Ordinal))
}

// readBack reads documents by their hash. Rows that are neither of this version
// nor were there before are another run's.
func (c *confirmer) readBack(parts []*part) {
	if len(parts) == 0 {
		return
	}
	found := map[*document]map[string]bool{}
	documents := make([]*document, len(parts))
	for i, p := range parts {
		documents[i], found[p.doc] = p.doc, map[string]bool{}
	}
	err := c.vectors.rowsOf(documents, []string{rows.Field.ID, rows.Field.Doc}, func(d *document, row rows.Row) {
		found[d][row.ID] = true
	})
	if err != nil {
		failAll(documents, err)
		return
	}
	for _, p := range parts {
		there := found[p.doc]
		for _, row := range p.rows {
			if !there[row.ID] {
				p.doc.fail(incomplete(&row.Row))
			}
			delete(there, row.ID)
		}
		for id := range there {
			if _, was := p.doc.existing[hashed(id)]; !was {
				p.doc.foreign = append(p.doc.foreign, id)
			}
		}
	}
}

// current gives up documents that their source has no longer, and those that
// another run has written while the source changed: the other run may have the
// newer content. Rows of an older one are stale.
func (c *confirmer) current(ended []*document) {
	for _, d := range ended {
		if d.failure() != nil || d.adopted || d.current == nil {
			continue
		}
		same, err := d.current(c.ctx)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.giveUp(errors.New("its source was removed while it was ingested"))
		case err != nil || same || len(d.foreign) == 0: // where nothing is known, its content counts
		default:
			d.giveUp(errors.New("another run wrote it meanwhile, and its source has changed since it was read"))
		}
	}
}

// giveUp defers a document whose version is not to stay.
func (d *document) giveUp(why error) {
	d.givenUp = true
	d.fail(stop.Defer("verify", "overtaken", fmt.Errorf("%w; run again", why)))
}

// again gives the documents of a group that are to be looked at again, since
// stale rows of theirs were removed: another run may have kept some of these,
// or written others. The rows of large documents are counted at once.
func (c *confirmer) again(group []*part) (list []*part) {
	for _, p := range group {
		switch d := p.doc; {
		case !p.last || d.failure() != nil || d.adopted:
		case !p.whole():
			if err := c.counted(d); err != nil {
				d.fail(err)
			}
		case d.removed > 0:
			list = append(list, p)
		}
	}
	return list
}

// alone checks that documents have the rows of one version and no others.
func (c *confirmer) alone(parts []*part, found map[*document][]rows.Row) {
	for _, p := range parts {
		there := map[string]bool{}
		for _, row := range found[p.doc] {
			there[row.ID] = true
		}
		own := 0
		for _, row := range p.rows {
			if there[row.ID] {
				own++
			}
		}
		if p.doc.failure() == nil && (own != len(p.rows) || own != len(there)) {
			p.doc.fail(contended())
		}
	}
}

func contended() error {
	return stop.Defer("verify", "overtaken", errors.New(
		"another run writes this document at the same time, and what is there is not what was written; run again"))
}

// counted checks that a large document has the rows of one version and no
// others.
func (c *confirmer) counted(d *document) error {
	doc := rows.Field.Doc + " == " + vectorstore.Quote(rows.DocumentHash(d.id))
	n, err := c.vectors.count(doc)
	if err != nil {
		return err
	}
	marks, err := c.vectors.query(doc+" and "+rows.Field.Chunks+" != 0", []string{rows.Field.ID})
	if err != nil {
		return err
	}
	if n != d.chunks || len(marks) != 1 || marks[0].ID != d.mark {
		return contended()
	}
	return nil
}
