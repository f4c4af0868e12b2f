package pipeline

import (
	"maps"
	"slices"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// versions are what a store holds of a document: the rows by policy, and the
// commit marks of its content by policies that are not its own.
type versions struct {
	rows  map[string][]hash
	marks []rows.Row
}

func newVersions() *versions { return &versions{rows: map[string][]hash{}} }

func (v *versions) add(d *document, row rows.Row) {
	v.rows[row.Policy] = append(v.rows[row.Policy], hashed(row.ID))
	if row.IsMark() && row.SHA == d.sha && row.Policy != d.policy {
		v.marks = append(v.marks, row)
	}
}

// adopt leaves documents as they are that the store holds complete and with
// enrichment, where this run has none to offer: it must not undo what was paid
// for because the journal was lost.
func (r *run) adopt(found map[*document]*versions) error {
	owners := map[string]*document{}
	marks := map[string]rows.Row{}
	for d, v := range found {
		for _, mark := range v.marks {
			if len(v.rows[mark.Policy]) == mark.Chunks {
				owners[mark.ID], marks[mark.ID] = d, mark
			}
		}
	}
	if len(owners) == 0 {
		return nil
	}
	list, err := r.query(vectorstore.In(rows.Field.ID, slices.Sorted(maps.Keys(owners))),
		[]string{rows.Field.ID, rows.Field.Meta})
	if err != nil {
		return err
	}
	for _, row := range list {
		if d := owners[row.ID]; d != nil {
			mark := marks[row.ID]
			d.adopt(mark, readMeta(row.Meta).Enrichment, found[d].rows[mark.Policy])
		}
	}
	return nil
}

// result is how a document came out that is complete.
func (d *document) result() Result {
	if d.adopted && d.before != "" {
		return Unchanged // for want of a budget
	}
	return Ingested
}

func (d *document) adopt(mark rows.Row, note receipt, ids []hash) {
	if note.Plain != d.plain || d.adopted {
		return
	}
	d.adopted, d.policy, d.pending = true, mark.Policy, note.Pending
	for _, id := range ids {
		d.keep(id)
	}
}
