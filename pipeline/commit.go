package pipeline

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
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

// commit takes groups as they come. The documents of a group whose stale rows
// were removed are looked at again with the next group, which saves a read, or
// when none comes soon.
func (c *committer) commit(groups <-chan []*part) {
	var last []*part
	for {
		var soon <-chan time.Time
		if len(last) > 0 {
			soon = time.After(groupWait)
		}
		select {
		case group, more := <-groups:
			if !more {
				c.settle(last)
				return
			}
			last = c.group(group, last)
		case <-soon:
			c.settle(last)
			last = nil
		}
	}
}

// group takes a group into the vector store, and returns the documents that are
// to be looked at again. The order is what makes a kill at any instant
// harmless: notes of what begins, new rows, then the commit marks, then
// verification, then the stale rows and the notes, then the journal.
func (c *committer) group(group, last []*part) (again []*part) {
	c.Metrics.Queue("upsert", -len(group))
	c.alone(last, c.existing.list(group, last))
	c.enriching.enrich(group)
	list := newRows(group)
	noted := c.notes.begin(group, list)
	c.embedding.fill(list)
	c.reopen(list)
	noted()
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return w.row.IsMark() }))
	for _, p := range group {
		p.doc.written.Done()
	}
	ended := endings(group)
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return !w.row.IsMark() }))
	c.confirm.written(group, list)
	c.embedding.forget(list)
	for _, p := range group {
		p.doc.verified.Done()
	}
	return c.replace(group, ended)
}

// replace removes what documents that have ended replace, and settles those
// that need no further look.
func (c *committer) replace(group []*part, ended []*document) (again []*part) {
	for _, d := range ended {
		d.verified.Wait() // for the parts that other groups verify
	}
	c.confirm.current(ended)
	c.notes.complete(ended)
	stale, marks := staleRows(ended)
	c.vectors.removeStale(stale)
	c.notes.outdate(ended)
	c.vectors.removeStale(slices.DeleteFunc(marks, func(m staleRow) bool { return m.doc.failure() != nil }))
	again = c.confirm.again(group)
	c.finish(slices.DeleteFunc(ended, func(d *document) bool {
		return slices.ContainsFunc(again, func(p *part) bool { return p.doc == d })
	}))
	return again
}

// settle looks at documents again and settles them.
func (c *committer) settle(parts []*part) {
	if len(parts) > 0 {
		c.alone(parts, c.existing.list(nil, parts))
	}
}

// alone settles documents by what was found of them when they were looked at
// again.
func (c *committer) alone(parts []*part, found map[*document][]rows.Row) {
	c.confirm.alone(parts, found)
	documents := make([]*document, len(parts))
	for i, p := range parts {
		documents[i] = p.doc
	}
	c.finish(documents)
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
		for id, was := range d.existing {
			one := staleRow{doc: d, id: id.String()}
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
