package pipeline

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/pipeline/version"
)

// committer takes groups of parts into the vector store.
type committer struct {
	*scope
	writer    *writer
	embedding *embedding
	enriching *enriching
	vectors   *vectors
	notes     *notes
	confirm   *confirmer
	discard   *discarder
	settler   *settler
	fresh     func() bool // the collection holds nothing from before this run
}

// commit takes a group into the vector store. The order is what makes a kill at
// any instant harmless: notes of what begins, new rows, then the commit marks,
// then verification, then the stale rows and the notes, then the journal.
func (c *committer) commit(group []*part) {
	c.Metrics.Queue("upsert", -len(group))
	c.listExisting(group)
	c.enriching.enrich(group)
	list := newRows(group)
	c.notes.begin(group, list)
	c.embedding.fill(list)
	c.reopen(list)
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return w.row.IsMark() }))
	for _, p := range group {
		p.doc.written.Done()
	}
	ended := endings(group, list)
	c.writer.write(slices.DeleteFunc(slices.Clone(list), func(w writing) bool { return !w.row.IsMark() }))
	c.confirm.written(group, list)
	c.embedding.forget(list)
	for _, p := range group {
		p.doc.verified.Done()
	}
	c.finish(group, ended)
}

// finish leaves one version of each document that has ended, and settles it.
func (c *committer) finish(group []*part, ended []*document) {
	if len(ended) == 0 {
		return
	}
	for _, d := range ended {
		d.verified.Wait() // for the parts that other groups verify
	}
	c.confirm.current(ended)
	c.notes.complete(ended)
	c.vectors.removeStale(staleRows(ended))
	c.confirm.alone(group)
	c.discard.failed(ended)
	c.notes.close(ended)
	c.record(ended)
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
	if len(begin) > 0 {
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
	if err := c.notes.known(); err != nil || c.fresh() {
		return err
	}
	held := map[*document][]rows.Row{}
	err := c.vectors.rowsOf(documents, existingFields, func(d *document, row rows.Row) {
		held[d] = append(held[d], row)
	})
	if err != nil {
		return err
	}
	found := map[*document]*versions{}
	for d, list := range held {
		if complete := d.holds(list, c.notes.before(d)); !d.enriching {
			found[d] = complete
		}
	}
	return adopt(c.vectors, found)
}

// holds notes the rows that the store holds of a document, and returns the
// versions that are complete.
func (d *document) holds(list []rows.Row, attempts []version.Attempt) *versions {
	complete := newVersions()
	wanted := version.Attempt{Doc: rows.DocumentHash(d.id), SHA: d.sha, Policy: d.policy}
	named := map[string]bool{}
	for _, a := range attempts {
		if named[a.Stamp] = true; a.Same(wanted) {
			d.resumed = a.Stamp
		}
	}
	standings := version.Judge(attempts, list)
	for i, row := range list {
		id := hashed(row.ID)
		d.byText[hashed(row.TextSHA)] = id
		if row.IsMark() {
			d.marks = append(d.marks, row.ID)
		} else {
			d.stamps[row.SHA] = true
		}
		whole := standings[i] == version.Complete
		switch {
		case !row.IsMark() && d.resumed != "" && row.SHA == d.resumed:
			d.existing[id] = former
		case !whole:
			d.existing[id] = abandoned
			continue
		case !row.IsMark() && named[row.SHA]:
			d.existing[id] = noted
		default:
			d.existing[id] = former
		}
		if d.enriching {
			keepStored(d, row)
		} else if whole {
			complete.add(d, row)
		}
	}
	return complete
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
func endings(group []*part, list []writing) (ended []*document) {
	writes := map[*pending]bool{}
	for _, w := range list {
		writes[w.row] = true
	}
	for _, p := range group {
		if !p.last {
			continue
		}
		p.doc.written.Wait()
		if n := len(p.rows); n > 0 && p.rows[n-1].IsMark() && !p.doc.adopted {
			p.doc.mark, p.doc.markKept = p.rows[n-1].ID, !writes[p.rows[n-1]]
		}
		ended = append(ended, p.doc)
	}
	return ended
}

// staleRows are the rows of documents that the store holds and that are not in
// this version.
func staleRows(documents []*document) (stale []staleRow) {
	for _, d := range documents {
		if d.failure() != nil {
			continue
		}
		for id, was := range d.existing {
			if was != kept {
				stale = append(stale, staleRow{doc: d, id: id.String()})
			}
		}
		for _, id := range d.foreign {
			stale = append(stale, staleRow{doc: d, id: id})
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
