package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/vectorstore"
)

// deleteDocuments is how many documents are deleted with one read.
const deleteDocuments = 100

// Delete removes documents by id: their chunks of whatever version, their
// originals, and what the journal says and keeps about them. An id that is
// unknown everywhere is reported as NotFound. At the end the journal, and a
// store that is a [vectorstore.Purger], remove what is left on the disk.
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
	if err == nil {
		err = r.check.prepared()
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
	r.notes.finish()
	r.purge(found != nil)
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
		err := r.notes.deleting(documents)
		if err == nil {
			err = r.deleteRows(documents)
		}
		if err == nil {
			err = r.forgetPast(documents)
			r.notes.deleted(documents)
		}
		if err != nil {
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
	for _, d := range documents {
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
	return r.forgetPast(documents)
}

// forgetPast drops from the journal all about documents. It comes again after
// the deletion of rows, which notes what they were made with.
func (r *deleter) forgetPast(documents []*document) error {
	ids := make([]string, len(documents))
	for i, d := range documents {
		ids[i] = d.id
	}
	if err := r.Journal.Forget(r.lasting(), r.Destination, ids...); err != nil {
		return r.end.Fault(err)
	}
	return nil
}

// deleteRows removes all rows of documents, of whatever version.
func (r *deleter) deleteRows(documents []*document) error {
	if err := r.deletePages(documents, andMarked); err != nil {
		return err
	}
	return r.deletePages(documents, "")
}

// deletedPage is how many rows are read at once to be deleted. A read takes
// Milvus most of a second after a deletion, and 16,384 rows at most.
const deletedPage = 16_000

// deletePages removes the rows of documents that a filter matches, one page
// after the other until nothing is left: a document may have more rows than fit
// into one answer. Milvus shows rows that were deleted once more while it moves
// them to another segment; they are deleted again.
func (r *deleter) deletePages(documents []*document, filter string) error {
	fields := []string{rows.Field.ID, rows.Field.Doc, rows.Field.TextSHA, rows.Field.Ordinal}
	seen := map[hash]bool{}
	for vain := 0; vain < vainPages; vain++ {
		byHash := map[string]*document{}
		for _, d := range documents {
			if d.failure() == nil {
				byHash[rows.DocumentHash(d.id)] = d
			}
		}
		if len(byHash) == 0 {
			return nil
		}
		hashes := slices.Sorted(maps.Keys(byHash))
		expr := vectorstore.In(rows.Field.Doc, hashes) + filter
		page, err := r.vectors.query(expr, fields, client.WithLimit(deletedPage))
		if err != nil || len(page) == 0 {
			return err
		}
		if r.deletePage(page, byHash, seen) > 0 {
			vain = -1
		}
	}
	return stop.Defer("delete", "upstream failed", errors.New("rows are there again and again after their deletion"))
}

// vainPages is how often rows may be there again after their deletion.
const vainPages = 3

// deletePage removes rows and returns how many had not been seen before.
func (r *deleter) deletePage(page []rows.Row, byHash map[string]*document, seen map[hash]bool) (fresh int) {
	// In the order in which they were written: 120,000 rows of the embedded
	// store go in 19 s then, and in 52 s by their ids.
	slices.SortFunc(page, func(a, b rows.Row) int {
		return cmp.Or(cmp.Compare(a.Doc, b.Doc), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	stale := make([]staleRow, 0, len(page))
	again := map[*document]int{}
	for _, row := range page {
		d := byHash[row.Doc]
		if d == nil {
			continue
		}
		if id := hashed(row.ID); seen[id] {
			again[d]++
		} else {
			seen[id] = true
			fresh++
		}
		d.found = true
		stale = append(stale, staleRow{doc: d, id: row.ID, text: row.TextSHA})
	}
	r.vectors.removeStale(stale)
	for d, n := range again {
		if d.failure() == nil {
			d.removed -= n // they were counted before
		}
	}
	return fresh
}

// purge removes from the disk what the deletion has left there. The stores hide
// it already, so a purge that fails ends the run, and the next Delete does it.
func (r *deleter) purge(stored bool) {
	if r.end.Over() {
		return
	}
	defer r.timed("delete")()
	if stored {
		if err := r.vectors.purge(); err != nil {
			r.unpurged(err)
			return
		}
	}
	r.unpurged(r.Journal.Purge(r.lasting()))
}

func (r *deleter) unpurged(err error) {
	if err == nil {
		return
	}
	err = fmt.Errorf("deleted documents cannot be found any more, but some of their bytes are still on the disk: %w", err)
	switch later := stop.Before(err); {
	case later != nil:
		r.end.With(later)
	case errors.Is(err, journal.ErrBusy):
		r.end.With(stop.Later("", time.Time{}, err))
	default:
		_ = r.end.Fault(err)
	}
}

// PruneError says why nothing was pruned.
type PruneError struct{ Err error }

func (e *PruneError) Error() string { return "nothing was pruned: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *PruneError) Unwrap() error { return e.Err }

// Prune deletes the documents that the journal knows from the places that the
// census watched, and that are no longer there, dead letters and deferred
// documents too. It comes after a Run that went
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
			"%d %s gone, for example %s, and the limit is %d; raise --prune-limit if this is intended",
			len(gone), plain.Noun(len(gone), "document is", "documents are"), gone[0], limit,
		)}
	case len(gone) == 0:
		return Summary{Destination: p.config.Destination}, nil
	}
	return p.Delete(ctx, gone...)
}

// gone lists the documents that are no longer there, complete or not.
func (p *Pipeline) gone(ctx context.Context, census *source.Census) (gone []string, err error) {
	missing := func(id, location string) (bool, error) {
		missing, empty := census.Gone(id, location)
		if empty != "" {
			return false, &PruneError{fmt.Errorf(
				"%s has no documents any more; is it mounted? To delete documents by name, use 'ingest delete'", empty)}
		}
		return missing, nil
	}
	for d, err := range p.config.Journal.Documents(ctx, p.config.Destination, "") {
		if err != nil {
			return nil, err
		}
		if is, err := missing(d.ID, d.Location); err != nil {
			return nil, err
		} else if is {
			gone = append(gone, d.ID)
		}
	}
	for d, err := range p.config.Journal.Problems(ctx, p.config.Destination, "") {
		if err != nil {
			return nil, err
		}
		_, complete, err := p.config.Journal.Document(ctx, p.config.Destination, d.ID)
		if err != nil {
			return nil, err
		}
		if is, err := missing(d.ID, d.Location); err != nil {
			return nil, err
		} else if is && !complete { // else it is in the list
			gone = append(gone, d.ID)
		}
	}
	return gone, nil
}
