package pipeline

import (
	"maps"
	"slices"

	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// adopt leaves documents as they are that the store holds complete and with
// enrichment, where this run has none to offer: it must not undo what was paid
// for because the journal was lost.
func adopt(v *vectors, found map[*document]*versions) error {
	owners := map[string]*document{}
	marks := map[string]rows.Row{}
	for d, held := range found {
		for _, mark := range held.marks {
			if len(held.rows[mark.Policy]) == mark.Chunks {
				owners[mark.ID], marks[mark.ID] = d, mark
			}
		}
	}
	if len(owners) == 0 {
		return nil
	}
	list, err := v.query(
		vectorstore.In(rows.Field.ID, slices.Sorted(maps.Keys(owners))),
		[]string{rows.Field.ID, rows.Field.Meta},
	)
	if err != nil {
		return err
	}
	for _, row := range list {
		if d := owners[row.ID]; d != nil {
			mark := marks[row.ID]
			d.adopt(mark, enrich.ReadMeta(row.Meta).Enrichment, found[d].rows[mark.Policy])
		}
	}
	return nil
}
