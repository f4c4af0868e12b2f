package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// deleteDocuments is how many documents are deleted with one read.
const deleteDocuments = 100

// Delete removes documents by id: their chunks, their originals and what the
// journal says about them. An id that is unknown everywhere is reported as
// NotFound.
//
// The journal forgets a document first and the commit mark goes before the
// other rows, so that a deletion that is killed leaves a document that counts
// as incomplete, never one that counts as complete and is not. Deleting again
// finishes it. The errors are those of [Pipeline.Run].
func (p *Pipeline) Delete(ctx context.Context, ids ...string) (Summary, error) {
	if err := p.config.checkRun(); err != nil {
		return Summary{}, err
	}
	start := time.Now()
	r, err := newRun(ctx, p.config, p.chunker)
	if err != nil {
		return Summary{}, err
	}
	r.reporting(func() { (&deleter{r}).all(ids) })
	return r.finish(start)
}

// deleter is one Delete.
type deleter struct{ *run }

func (r *deleter) all(ids []string) {
	found, err := r.check.collection()
	if err == nil {
		err = r.check.place(found)
	}
	for batch := range slices.Chunk(ids, deleteDocuments) {
		documents := make([]*document, len(batch))
		for i, id := range batch {
			documents[i] = newDocument(id, "")
			documents[i].unlisted = true // a failure is reported, not kept to be ingested again
			documents[i].stage = "delete"
		}
		failAll(documents, err)
		if err == nil && !r.end.Over() {
			r.batch(documents, found != nil)
		}
		for _, d := range documents {
			r.settleDeleted(d)
		}
	}
}

func (r *deleter) settleDeleted(d *document) {
	switch err := d.failure(); {
	case err != nil:
		r.settle(d, err)
	case d.found:
		r.done(d, Deleted)
	case r.end.Over():
		r.settle(d, stop.ErrEnded)
	default:
		r.done(d, NotFound)
	}
}

func (r *deleter) batch(documents []*document, stored bool) {
	defer r.timed("delete")()
	if err := r.forget(documents); err != nil {
		failAll(documents, err)
		return
	}
	if stored {
		if err := r.deleteRows(documents); err != nil {
			failAll(documents, err)
			return
		}
	}
	for _, d := range documents {
		if d.failure() != nil {
			continue
		}
		d.fail(r.deleteOriginals(d))
	}
}

// deleteOriginals removes the document's originals and counts those that it
// leaves.
func (r *deleter) deleteOriginals(d *document) error {
	found, err := r.objects.deleteOriginals(d.id)
	d.found = d.found || found
	if err == nil {
		d.originalsLeft, err = r.objects.countOld(d.id)
	}
	return err
}

// forget drops documents from the journal and notes which of them were there.
func (r *deleter) forget(documents []*document) error {
	ids := make([]string, len(documents))
	for i, d := range documents {
		ids[i] = d.id
		_, done, err := r.Journal.Document(r.ctx, r.Destination, d.id)
		if err != nil {
			return r.end.Fault(err)
		}
		_, failed, err := r.Journal.Problem(r.ctx, r.Destination, d.id)
		if err != nil {
			return r.end.Fault(err)
		}
		d.found = done || failed
	}
	if err := r.Journal.Forget(r.lasting(), r.Destination, ids...); err != nil {
		return r.end.Fault(err)
	}
	return nil
}

func (r *deleter) deleteRows(documents []*document) error {
	var marks, others []staleRow
	fields := []string{rows.Field.ID, rows.Field.Doc, rows.Field.Chunks}
	err := r.vectors.rowsOf(documents, fields, func(d *document, row rows.Row) {
		d.found = true
		if row.IsMark() {
			marks = append(marks, staleRow{doc: d, id: row.ID})
		} else {
			others = append(others, staleRow{doc: d, id: row.ID})
		}
	})
	if err != nil {
		return err
	}
	r.vectors.removeStale(marks)
	r.vectors.removeStale(slices.DeleteFunc(others, func(s staleRow) bool { return s.doc.failure() != nil }))
	return nil
}

// PruneError says why nothing was pruned.
type PruneError struct{ Err error }

func (e *PruneError) Error() string { return "nothing was pruned: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *PruneError) Unwrap() error { return e.Err }

// Prune deletes the documents that the journal knows from the places that the
// census watched, and that are no longer there. It comes after a Run that went
// through. It refuses with a [*PruneError], and deletes nothing, when a place
// could not be listed whole, when a place that had documents has none now (it
// may not be mounted), and when more than limit documents are gone; a negative
// limit means any number. Other errors are those of Delete.
func (p *Pipeline) Prune(ctx context.Context, census *source.Census, limit int) (Summary, error) {
	if err := p.config.checkRun(); err != nil {
		return Summary{}, err
	}
	if census.Errors > 0 {
		return Summary{}, &PruneError{errors.New("some of the inputs could not be listed")}
	}
	gone, err := p.gone(ctx, census)
	switch {
	case err != nil:
		return Summary{}, err
	case limit >= 0 && len(gone) > limit:
		return Summary{}, &PruneError{fmt.Errorf(
			"%d documents are gone, for example %s, and the limit is %d; raise --prune-limit if this is intended",
			len(gone),
			gone[0],
			limit,
		)}
	case len(gone) == 0:
		return Summary{Destination: p.config.Destination}, nil
	}
	return p.Delete(ctx, gone...)
}

// gone lists the documents that are no longer there.
func (p *Pipeline) gone(ctx context.Context, census *source.Census) (gone []string, err error) {
	for d, err := range p.config.Journal.Documents(ctx, p.config.Destination, "") {
		if err != nil {
			return nil, err
		}
		missing, empty := census.Gone(d.ID, d.Location)
		if empty != "" {
			return nil, &PruneError{fmt.Errorf(
				"%s has no documents any more; is it mounted? To delete documents by name, use 'ingest delete'", empty)}
		}
		if missing {
			gone = append(gone, d.ID)
		}
	}
	return gone, nil
}
