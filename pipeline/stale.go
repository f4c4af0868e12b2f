package pipeline

import (
	"maps"
	"slices"

	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// staleRow is a row of an earlier version of a document.
type staleRow struct {
	doc  *document
	id   string
	text string // hash of its text; empty where another row of the document has the same
}

var pastFields = []string{rows.Field.Source, rows.Field.TextSHA, rows.Field.Meta}

// forgetRows deletes rows by key whose past is not known.
func (v *vectors) forgetRows(ids []string) error {
	if err := v.past.begin(v.scope); err != nil {
		return err
	}
	if !v.past.vectors && !v.past.answers {
		return v.deleteRows(ids)
	}
	for batch := range slices.Chunk(ids, staleKeys) {
		list, err := v.query(vectorstore.In(rows.Field.ID, batch), pastFields)
		if err != nil {
			return err
		}
		made := make([]journal.Past, len(list))
		for i, row := range list {
			made[i] = journal.Past{
				Document: row.Source, Text: row.TextSHA,
				Answers: slices.Collect(maps.Keys(enrich.ReadMeta(row.Meta).Answers())),
			}
		}
		if err := v.notePast(made); err != nil {
			return err
		}
		if err := v.deleteRows(batch); err != nil {
			return err
		}
	}
	return nil
}

// forgetStale deletes rows of which everything but answers is known.
func (v *vectors) forgetStale(stale []staleRow) error {
	ids := make([]string, len(stale))
	for i, s := range stale {
		ids[i] = s.id
	}
	if err := v.past.begin(v.scope); err != nil {
		return err
	}
	if v.past.answers {
		return v.forgetRows(ids)
	}
	if v.past.vectors {
		made := make([]journal.Past, 0, len(stale))
		for _, s := range stale {
			if hashed(s.text) != (hash{}) {
				made = append(made, journal.Past{Document: s.doc.id, Text: s.text})
			}
		}
		if err := v.notePast(made); err != nil {
			return err
		}
	}
	return v.deleteRows(ids)
}

func (v *vectors) notePast(made []journal.Past) error {
	if err := v.Journal.NotePast(v.lasting(), v.Destination, made...); err != nil {
		return v.end.Fault(err)
	}
	return nil
}

// removeStale deletes rows of earlier versions by primary key. A document whose
// stale rows cannot be deleted now is deferred: its next run finds them again.
func (v *vectors) removeStale(stale []staleRow) {
	if len(stale) > 0 {
		defer v.timed("delete")()
	}
	for batch := range slices.Chunk(stale, staleKeys) {
		err := v.forgetStale(batch)
		for _, s := range batch {
			if err != nil {
				s.doc.fail(err)
				continue
			}
			s.doc.removed++
		}
	}
}
