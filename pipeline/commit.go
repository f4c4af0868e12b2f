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
	writer    *writer
	embedding *embedding
	enriching *enriching
	vectors   *vectors
	settler   *settler
	fresh     func() bool // the collection holds nothing from before this run
}

// commit takes a group into the vector store. The order is what makes a kill at
// any instant harmless: new rows, then the commit marks, then verification,
// then the stale rows, then the journal.
func (c *committer) commit(group []*part) {
	c.Metrics.Queue("upsert", -len(group))
	c.listExisting(group)
	c.enriching.enrich(group)
	list := newRows(group)
	c.embedding.fill(list)
	c.reopen(list)
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return w.row.IsMark() }))
	for _, p := range group {
		p.doc.written.Done()
	}
	ending := c.endings(group)
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return !w.row.IsMark() }))
	c.writer.verify(list)
	c.embedding.forget(list)
	for _, p := range group {
		p.doc.verified.Done()
	}
	c.vectors.removeStale(staleRows(ending))
	c.record(ending)
}

// listExisting finds the rows that the store holds of the documents that begin
// in this group, and waits for the groups that list the others.
func (c *committer) listExisting(group []*part) {
	var begin []*document
	for _, p := range group {
		if p.first {
			begin = append(begin, p.doc)
		}
	}
	if len(begin) > 0 && !c.fresh() {
		failAll(begin, c.readExisting(begin))
	}
	for _, d := range begin {
		close(d.listed)
	}
	for _, p := range group {
		<-p.doc.listed
	}
}

var existingFields = []string{
	rows.Field.ID, rows.Field.Doc, rows.Field.TextSHA, rows.Field.Ordinal, rows.Field.Chunks, rows.Field.SHA,
	rows.Field.Policy,
}

func (c *committer) readExisting(documents []*document) error {
	found := map[*document]*versions{}
	err := c.vectors.rowsOf(documents, existingFields, func(d *document, row rows.Row) {
		d.existing[hashed(row.ID)] = true
		d.byText[hashed(row.TextSHA)] = hashed(row.ID)
		if d.enriching {
			keepStored(d, row)
			return
		}
		if found[d] == nil {
			found[d] = newVersions()
		}
		found[d].add(d, row)
	})
	if err != nil {
		return err
	}
	return adopt(c.vectors, found)
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
// its other parts, which are in groups before this one. A document that has
// failed is settled here.
func (c *committer) endings(group []*part) []*document {
	var list []*document
	for _, p := range group {
		if !p.last {
			continue
		}
		p.doc.written.Wait()
		if err := p.doc.failure(); err != nil {
			c.settler.settle(p.doc, err)
			continue
		}
		list = append(list, p.doc)
	}
	return list
}

// staleRows are the rows that the store held before and that are not in this
// version, of documents that are complete now. It waits for the parts that
// other groups verify.
func staleRows(documents []*document) (stale []staleRow) {
	for _, d := range documents {
		d.verified.Wait()
		if d.failure() != nil {
			continue
		}
		for id, old := range d.existing {
			if old {
				stale = append(stale, staleRow{doc: d, id: id.String()})
			}
		}
	}
	return stale
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
