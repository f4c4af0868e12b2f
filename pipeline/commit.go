package pipeline

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// committers is how many groups are committed at the same time: while one
// waits for vectors, another is written and a third verified.
const committers = 4

// committer takes groups of parts into the vector store.
type committer struct {
	*scope
	existing  *existing
	writer    *writer
	embedding *embedding
	enriching *enriching
	vectors   *vectors
	notes     *notes
	confirm   *confirmer
	discard   *discarder
	settler   *settler
	replaced  chan *document // whose stale rows are gone
}

// commit takes a group into the vector store. The order is what makes a kill at
// any instant harmless: notes of what begins, new rows, then the commit marks,
// then verification, then the stale rows and the notes, then the journal.
func (c *committer) commit(group []*part) {
	c.Metrics.Queue("upsert", -len(group))
	c.existing.list(group)
	c.enriching.enrich(group)
	list := newRows(group)
	noted := c.notes.begin(group, list)
	c.embedding.fill(list)
	c.reopen(list)
	noted()
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return w.row.IsMark() }))
	for _, p := range group {
		p.collect()
		p.doc.written.Done()
	}
	ended := endings(group)
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return !w.row.IsMark() }))
	c.confirm.written(group, list)
	c.embedding.forget(list)
	for _, p := range group {
		p.doc.verified.Done()
	}
	for _, d := range ended {
		d.verified.Wait() // for the parts that other groups verify
	}
	c.replace(ended)
}

// replace removes what documents that have ended replace. Those that replace
// something are settled later: they are read once more.
func (c *committer) replace(ended []*document) {
	c.confirm.current(ended)
	c.notes.complete(ended)
	stale, marks := staleRows(ended)
	c.vectors.removeStale(stale)
	c.notes.outdate(ended)
	c.vectors.removeStale(slices.DeleteFunc(marks, func(m staleRow) bool { return m.doc.failure() != nil }))
	var done []*document
	for _, d := range ended {
		if d.failure() == nil && !d.adopted && (d.removed > 0 || d.large) {
			c.replaced <- d
		} else {
			done = append(done, d)
		}
	}
	c.finish(done)
}

const (
	// replacedDocuments is how many documents may wait for their last look.
	replacedDocuments = committers * groupDocuments
	// replacedRows is about how many rows one such look reads.
	replacedRows = 4 * wholeRows
)

// settle looks once more at documents that have replaced others, many at a
// time, and settles them, until there are no more. It has one call in flight:
// the committers need not wait for it.
func (c *committer) settle() {
	for d := range c.replaced {
		documents := []*document{d}
		for n := len(d.own) + len(d.existing); n < replacedRows && len(documents) < groupDocuments; {
			next, more := c.waiting()
			if !more {
				break
			}
			documents, n = append(documents, next), n+len(next.own)+len(next.existing)
		}
		c.confirm.alone(documents)
		c.finish(documents)
	}
}

// waiting is another document that waits for its last look, if there is one.
func (c *committer) waiting() (d *document, more bool) {
	select {
	case d, more = <-c.replaced:
		return d, more
	default:
		return nil, false
	}
}

// finish ends documents: none of their versions is left half.
func (c *committer) finish(documents []*document) {
	if len(documents) == 0 {
		return
	}
	c.discard.failed(documents)
	c.notes.close(documents)
	c.record(documents)
}

// newRows are the rows of the group that the store does not hold.
func newRows(group []*part) []writing {
	var list []writing
	for _, p := range group {
		if p.doc.failure() != nil || p.doc.adopted {
			continue
		}
		for _, row := range p.rows {
			if !p.doc.keep(hashed(row.ID)) {
				list = append(list, writing{doc: p.doc, row: row})
			}
		}
	}
	return list
}

// reopen has the journal no longer call documents complete whose rows are about
// to be replaced: should the process be killed, the next run looks at the
// store, whatever it is to make of them.
func (c *committer) reopen(list []writing) {
	var ids []string
	for _, w := range list {
		if w.doc.failure() == nil && w.doc.unrecord() {
			ids = append(ids, w.doc.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	if err := c.Journal.Reopen(c.lasting(), c.Destination, ids...); err != nil {
		_ = c.end.Fault(err) // the documents in flight are settled as they are
	}
}

// endings are the documents whose last part is in this group. Each waits for
// its other parts, which are in groups before this one.
func endings(group []*part) (ended []*document) {
	for _, p := range group {
		if !p.last {
			continue
		}
		d := p.doc
		d.written.Wait()
		if n := len(p.rows); n > 0 && p.rows[n-1].IsMark() && !d.adopted {
			d.mark = p.rows[n-1].ID
			d.markHeld = slices.Contains(d.marks, d.mark)
			if !d.large {
				d.own[d.mark] = true
			}
		}
		ended = append(ended, d)
	}
	return ended
}

// staleRows are the rows of documents that the store holds and that are not in
// this version. The commit marks go after the others: until then they tell
// which version these are of.
func staleRows(documents []*document) (stale, marks []staleRow) {
	for _, d := range documents {
		if d.failure() != nil {
			continue
		}
		texts := map[hash]hash{} // of rows, by id
		for text, id := range d.byText {
			texts[id] = text
		}
		for id, was := range d.existing {
			one := staleRow{doc: d, id: id.String(), text: texts[id].String()}
			switch {
			case was == kept:
			case slices.Contains(d.marks, one.id):
				marks = append(marks, one)
			default:
				stale = append(stale, one)
			}
		}
		for _, id := range d.foreign {
			stale = append(stale, staleRow{doc: d, id: id})
		}
	}
	return stale, marks
}

// record writes the complete documents of a group to the journal and settles
// them all.
func (c *committer) record(documents []*document) {
	defer c.timed("commit")()
	var done []journal.Document
	for _, d := range documents {
		if d.failure() == nil {
			done = append(done, d.record(time.Now()))
		}
	}
	if err := c.Journal.Complete(c.lasting(), c.Destination, done...); err != nil {
		_ = c.end.Fault(err) // the documents say so as well
		failAll(documents, stop.Defer("journal", "fault", err))
	}
	for _, d := range documents {
		if d.gone && d.discarded {
			c.settler.pass(d, removed())
			continue
		}
		c.settler.settle(d, d.failure())
	}
}
