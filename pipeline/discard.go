package pipeline

import (
	"fmt"
	"slices"

	"github.com/milvus-io/milvus-sdk-go/v2/client"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/vectorstore"
)

// discarder removes rows of versions that will not be complete.
type discarder struct {
	*scope
	vectors *vectors
	// keep takes vectors that were paid for, by the hash of their text; nil
	// where they cost nothing.
	keep func(vectors map[string][]float32) error
	// originals removes a document's originals.
	originals func(id string) error
}

// failed removes what attempts have written on documents that will not be
// ingested in this version. A document that is deferred keeps its rows, hidden:
// its next run needs them.
func (x *discarder) failed(documents []*document) {
	for _, d := range documents {
		err := d.failure()
		switch {
		case err == nil || d.note == nil && !d.givenUp:
			continue
		case !d.givenUp && stop.AsFailure(d.stage, err).Deferred:
			continue
		case x.end.Over():
			return
		}
		if err := x.all(d); err != nil {
			x.Logger.Warn("rows of a failed version stay in the collection, hidden, until the next run",
				"document", d.id, "error", err)
			continue
		}
		d.discarded = true
	}
}

// all removes what this run wrote of a document. Where its source is gone and
// the collection held nothing of it before, it was deleted, or never complete:
// nothing is to come back.
func (x *discarder) all(d *document) error {
	if err := x.attempt(d); err != nil || !d.gone || len(d.existing)+len(d.foreign) > 0 {
		return err
	}
	return x.originals(d.id)
}

// attempt removes what this run wrote of a document. Its commit mark goes
// first: from then on its rows are hidden.
func (x *discarder) attempt(d *document) error {
	if d.mark != "" && !d.markHeld {
		if err := x.vectors.deleteRows([]string{d.mark}); err != nil {
			return err
		}
	}
	return x.stamped(d.attempt)
}

// stamped removes the rows with an attempt's stamp, a page at a time. A version
// that another run has completed meanwhile may share some of them.
func (x *discarder) stamped(a version.Attempt) error {
	if a.Stamp == "" {
		return nil
	}
	doc := ofDocument(a.Doc)
	marks, err := x.vectors.query(doc+andMarked, judgedFields)
	if err != nil {
		return err
	}
	for _, mark := range marks {
		if a.New(mark) {
			return x.unshared(a, mark)
		}
	}
	return x.pages(doc + " and " + rows.Field.SHA + " == " + vectorstore.Quote(a.Stamp))
}

// judgedFields are what version.Judge needs.
var judgedFields = []string{
	rows.Field.ID, rows.Field.Doc, rows.Field.Ordinal, rows.Field.Chunks, rows.Field.SHA, rows.Field.Policy,
}

// unshared removes the rows of an attempt that a version which was completed by
// another run does not share.
func (x *discarder) unshared(a version.Attempt, mark rows.Row) error {
	other := version.Attempt{Doc: a.Doc, SHA: mark.SHA, Policy: mark.Policy, At: a.At + 1, Before: a.Before}
	_, err := x.remains(a.Doc, []version.Attempt{a, other})
	return err
}

// remnants are what is left of a document once the rows of no complete version
// are gone.
type remnants struct {
	marks   []string          // stale commit marks, by id
	current []version.Attempt // on the complete version
}

// remains removes all rows of a document that belong to no complete version, by
// the attempts on it, but for commit marks.
func (x *discarder) remains(doc string, attempts []version.Attempt) (left remnants, err error) {
	list, err := x.vectors.query(ofDocument(doc), judgedFields)
	if err != nil {
		return left, err
	}
	var ids []string
	for i, standing := range version.Judge(attempts, list) {
		switch {
		case standing == version.Complete:
		case list[i].IsMark():
			left.marks = append(left.marks, list[i].ID)
		default:
			ids = append(ids, list[i].ID)
		}
	}
	left.current = version.Current(attempts, list)
	return left, x.rows(ids)
}

// rows removes rows by key, and keeps the vectors that were paid for.
func (x *discarder) rows(ids []string) error {
	if x.keep == nil {
		return x.vectors.forgetRows(ids)
	}
	for batch := range slices.Chunk(ids, paidPage) {
		found, err := x.vectors.query(vectorstore.In(rows.Field.ID, batch), paidFields)
		if err == nil {
			err = x.keepPaid(found)
		}
		if err == nil {
			err = x.vectors.forgetRows(batch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// discardPage is how many rows are found and removed at a time, and
	// paidPage where their vectors are read as well.
	discardPage = 10_000
	paidPage    = 1000
)

var paidFields = []string{rows.Field.ID, rows.Field.TextSHA, rows.Field.Vector}

// pages removes the rows that match, page by page, until none is left. A store
// that keeps them ends it.
func (x *discarder) pages(expr string) error {
	fields, size := []string{rows.Field.ID}, int64(discardPage)
	if x.keep != nil {
		fields, size = paidFields, paidPage
	}
	for last := ""; ; {
		page, err := x.vectors.query(expr, fields, client.WithLimit(size))
		if err != nil || len(page) == 0 {
			return err
		}
		if page[0].ID == last {
			return stop.Defer("discard", "incomplete", fmt.Errorf(
				"the vector store accepted the deletion of row %s and still returns it; run again", last))
		}
		last = page[0].ID
		if x.keep != nil {
			err = x.keepPaid(page)
		}
		ids := make([]string, len(page))
		for i, row := range page {
			ids[i] = row.ID
		}
		if err == nil {
			err = x.vectors.forgetRows(ids)
		}
		if err != nil {
			return err
		}
	}
}

func (x *discarder) keepPaid(list []rows.Row) error {
	paid := make(map[string][]float32, len(list))
	for _, row := range list {
		paid[row.TextSHA] = row.Vector
	}
	if err := x.keep(paid); err != nil {
		return x.end.Fault(err)
	}
	return nil
}
