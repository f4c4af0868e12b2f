package pipeline

import (
	"maps"
	"slices"
	"sync"

	"github.com/milvus-io/milvus-sdk-go/v2/client"

	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// past has the journal note what rows were made with before they are deleted:
// vectors and answers about earlier versions stay useful until their document
// is deleted, and nothing else tells then which they are.
type past struct {
	once sync.Once
	kept bool // the journal may hold vectors or answers
	err  error
}

var pastFields = []string{rows.Field.Source, rows.Field.TextSHA, rows.Field.Meta}

// note is for rows, by ID, that are about to be deleted. query reads rows.
func (p *past) note(
	s *scope, query func(expr string, fields []string, opts ...client.SearchQueryOptionFunc) ([]rows.Row, error),
	ids []string,
) error {
	p.once.Do(func() {
		p.kept = s.KeepVectors || s.Enrich.on()
		if !p.kept {
			p.kept, p.err = s.Journal.HoldsPaid(s.ctx)
		}
	})
	if p.err != nil {
		return s.end.Fault(p.err)
	}
	if !p.kept {
		return nil
	}
	list, err := query(vectorstore.In(rows.Field.ID, ids), pastFields)
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
	if err := s.Journal.NotePast(s.lasting(), s.Destination, made...); err != nil {
		return s.end.Fault(err)
	}
	return nil
}
