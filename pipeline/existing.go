package pipeline

import (
	"slices"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/version"
)

// existing finds what the collection holds of documents.
type existing struct {
	*scope
	vectors *vectors
	notes   *notes
	fresh   func() bool // the collection holds nothing from before this run
}

// list finds the rows of the documents that begin in a group, and waits for the
// groups that list the others.
func (c *existing) list(group []*part) {
	var begin []*document
	for _, p := range group {
		if p.first {
			begin = append(begin, p.doc)
		}
	}
	if len(begin) > 0 {
		failAll(begin, c.read(begin))
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

func (c *existing) read(documents []*document) error {
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
	open := version.Open(attempts, list) // the stamp of a complete version stays its own
	for _, a := range attempts {
		if a.Same(wanted) && slices.Contains(open, a.Stamp) {
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
		if !whole && (row.IsMark() || row.SHA != d.resumed) {
			d.existing[id] = abandoned
			continue
		}
		d.existing[id] = former
		if d.enriching {
			keepStored(d, row)
		} else if whole {
			complete.add(d, row)
		}
	}
	return complete
}
