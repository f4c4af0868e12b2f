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
// groups that list the others. The rows of the documents of last, which have
// ended, are found by the same read.
func (c *existing) list(group, last []*part) (found map[*document][]rows.Row) {
	var begin, all []*document
	for _, p := range group {
		if p.first {
			begin = append(begin, p.doc)
		}
	}
	for _, p := range last {
		all = append(all, p.doc)
	}
	err := c.notes.known()
	if err == nil && !c.fresh() {
		all = append(all, begin...)
	}
	if err == nil && len(all) > 0 {
		found, err = c.read(all)
	}
	if err == nil {
		err = c.judge(begin, found)
	}
	failAll(all, err)
	failAll(begin, err)
	for _, d := range begin {
		close(d.listed)
	}
	for _, p := range group {
		<-p.doc.listed
	}
	return found
}

var existingFields = []string{
	rows.Field.ID, rows.Field.Doc, rows.Field.TextSHA, rows.Field.Ordinal, rows.Field.Chunks, rows.Field.SHA,
	rows.Field.Policy,
}

func (c *existing) read(documents []*document) (found map[*document][]rows.Row, err error) {
	found = map[*document][]rows.Row{}
	err = c.vectors.rowsOf(documents, existingFields, func(d *document, row rows.Row) {
		found[d] = append(found[d], row)
	})
	return found, err
}

// judge notes what was found of documents that begin.
func (c *existing) judge(begin []*document, found map[*document][]rows.Row) error {
	complete := map[*document]*versions{}
	for _, d := range begin {
		if versions := d.holds(found[d], c.notes.before(d)); !d.enriching {
			complete[d] = versions
		}
	}
	return adopt(c.vectors, complete)
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
