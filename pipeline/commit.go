package pipeline

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
)

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
	seen := c.confirm.written(group, list)
	c.embedding.forget(list)
	for _, p := range group {
		p.doc.verified.Done()
	}
	for _, d := range ended {
		d.verified.Wait() // for the parts that other groups verify
	}
	c.replace(ended, seen)
	c.finish(ended)
}

// replace removes what documents that have ended replace.
func (c *committer) replace(ended []*document, seen look) {
	c.confirm.current(ended)
	c.notes.complete(ended)
	stale, marks := staleRows(ended)
	c.vectors.removeStale(stale)
	c.notes.outdate(ended)
	c.vectors.removeStale(slices.DeleteFunc(marks, func(m staleRow) bool { return m.doc.failure() != nil }))
	c.confirm.alone(ended, seen)
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
		c.settler.settle(d, d.failure())
	}
}
