package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
)

// deleteDocuments is how many documents are deleted with one read.
const deleteDocuments = 100

// Delete removes documents by id: their chunks, their originals and what the
// journal says of them. An id that is nowhere is reported as NotFound.
//
// The journal forgets a document first and the commit mark goes before the other
// rows, so that a deletion that is killed leaves a document that counts as
// incomplete, never one that counts as complete and is not. Deleting again ends
// it. The errors are those of [Pipeline.Run].
func (p *Pipeline) Delete(ctx context.Context, ids ...string) (Summary, error) {
	if err := p.checkRun(); err != nil {
		return Summary{}, err
	}
	r := newRun(ctx, p)
	start := time.Now()
	r.reporting(func() { r.deleteAll(ids) })
	return r.finish(start)
}

func (r *run) deleteAll(ids []string) {
	found, err := r.check.collection()
	for batch := range slices.Chunk(ids, deleteDocuments) {
		documents := make([]*document, len(batch))
		for i, id := range batch {
			documents[i] = newDocument(id, "")
			documents[i].unlisted = true // a failure is told, not kept to be ingested again
			documents[i].stage = "delete"
		}
		failAll(documents, err)
		if err == nil && !r.end.over() {
			r.deleteBatch(documents, found != nil)
		}
		for _, d := range documents {
			r.settleDeleted(d)
		}
	}
}

func (r *run) settleDeleted(d *document) {
	switch err := d.failure(); {
	case err != nil:
		r.settle(d, err)
	case d.found:
		r.settled <- d.report(Deleted)
	case r.end.over():
		r.settle(d, errStopped)
	default:
		r.settled <- d.report(NotFound)
	}
}

func (r *run) deleteBatch(documents []*document, stored bool) {
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
		if err := r.deleteOriginals(d); err != nil {
			d.fail(err)
		}
	}
}

// forget drops documents from the journal and notes which of them were there.
func (r *run) forget(documents []*document) error {
	ids := make([]string, len(documents))
	for i, d := range documents {
		ids[i] = d.id
		_, done, err := r.Journal.Document(r.ctx, r.Destination, d.id)
		if err != nil {
			return r.journalFault(err)
		}
		_, failed, err := r.Journal.Problem(r.ctx, r.Destination, d.id)
		if err != nil {
			return r.journalFault(err)
		}
		d.found = done || failed
	}
	if err := r.Journal.Forget(context.WithoutCancel(r.ctx), r.Destination, ids...); err != nil {
		return r.journalFault(err)
	}
	return nil
}

func (r *run) deleteRows(documents []*document) error {
	var marks, others []staleRow
	err := r.readRows(documents, []string{rows.Field.ID, rows.Field.Doc, rows.Field.Chunks}, func(d *document, row rows.Row) {
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
	r.removeStale(marks)
	r.removeStale(slices.DeleteFunc(others, func(s staleRow) bool { return s.doc.failure() != nil }))
	return nil
}

// deleteOriginals removes every version of a document's content.
func (r *run) deleteOriginals(d *document) error {
	if d.failure() != nil {
		return nil
	}
	in := &s3.ListObjectsV2Input{Bucket: aws.String(r.Bucket), Prefix: aws.String(r.originalKey(d.id, ""))}
	for {
		var listing *s3.ListObjectsV2Output
		err := r.objects.do(r.ctx, "list_objects_v2", func() (err error) {
			listing, err = r.ObjectGuard.ListObjectsV2(r.ctx, r.Objects, in)
			return err
		})
		if objectstore.StatusCode(err) == http.StatusNotFound {
			return nil // there is no bucket, so there is no original
		}
		if err == nil && len(listing.Contents) > 0 {
			d.found = true
			err = r.deleteObjects(listing.Contents)
		}
		if err != nil || !aws.ToBool(listing.IsTruncated) {
			return r.blame(upstreamS3, "delete", err)
		}
		in.ContinuationToken = listing.NextContinuationToken
	}
}

func (r *run) deleteObjects(list []types.Object) error {
	ids := make([]types.ObjectIdentifier, len(list))
	for i, object := range list {
		ids[i].Key = object.Key
	}
	return r.objects.do(r.ctx, "delete_objects", func() error {
		answer, err := r.ObjectGuard.DeleteObjects(r.ctx, r.Objects, &s3.DeleteObjectsInput{
			Bucket: aws.String(r.Bucket), Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err == nil && len(answer.Errors) > 0 {
			one := answer.Errors[0]
			err = fmt.Errorf("%d originals could not be deleted, %s for one: %s", len(answer.Errors), aws.ToString(one.Key), aws.ToString(one.Message))
		}
		return err
	})
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
// limit is none. Other errors are those of Delete.
func (p *Pipeline) Prune(ctx context.Context, census *source.Census, limit int) (Summary, error) {
	if err := p.checkRun(); err != nil {
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
		return Summary{}, &PruneError{fmt.Errorf("%d documents are gone, %s for one, and the limit is %d; raise --prune-limit if that is right", len(gone), gone[0], limit)}
	case len(gone) == 0:
		return Summary{Destination: p.Destination}, nil
	}
	return p.Delete(ctx, gone...)
}

// gone lists the documents that are no longer there.
func (p *Pipeline) gone(ctx context.Context, census *source.Census) (gone []string, err error) {
	for d, err := range p.Journal.Documents(ctx, p.Destination, "") {
		if err != nil {
			return nil, err
		}
		missing, empty := census.Gone(d.ID, d.Location)
		if empty != "" {
			return nil, &PruneError{fmt.Errorf("%s has no documents now; is it mounted? 'ingest delete' removes documents by name", empty)}
		}
		if missing {
			gone = append(gone, d.ID)
		}
	}
	return gone, nil
}
