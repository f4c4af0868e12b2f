package pipeline

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/vectorstore"
)

// The faults that Verify finds.
const (
	// FaultMissing: the journal says that a document is complete, and the store
	// lacks some of its rows.
	FaultMissing = "missing"
	// FaultStale: the store holds rows of another version beside it.
	FaultStale = "stale"
	// FaultOrphaned: the store holds rows of a document that is not complete
	// and that the journal does not mention.
	FaultOrphaned = "orphaned"
	// FaultUnfinished: the store holds rows of a version that was not
	// completed, or has been replaced. A search does not return them.
	FaultUnfinished = "unfinished"
	// FaultUnknown: the store holds a complete document that the journal, which
	// may have been lost, does not know.
	FaultUnknown = "unknown"
)

// Fault is one disagreement between the journal and a store.
type Fault struct {
	// ID is the document's; the folder of an orphaned original that names none.
	ID   string `json:"document"`
	Kind string `json:"fault"` // FaultMissing and the others
	Rows int    `json:"rows"`  // that are missing, stale, orphaned, unfinished or unknown
	// Repaired says that Verify has put it right, as far as it could: a missing
	// document waits for the next retry.
	Repaired bool `json:"repaired"`
	// Detail says what is wrong with an original, or why it was not repaired.
	Detail string `json:"detail,omitempty"`
}

// Verification counts what Verify found.
type Verification struct {
	Destination string `json:"destination"`
	Documents   int    `json:"documents"` // that the journal calls complete
	Rows        int    `json:"rows"`      // in the store, but for unfinished ones
	Missing     int    `json:"missing"`   // documents with each fault
	Stale       int    `json:"stale"`
	Orphaned    int    `json:"orphaned"`
	Unknown     int    `json:"unknown"`
	Repaired    int    `json:"repaired"`

	// Unfinished counts documents with rows that searches do not return. They
	// are no inconsistency, and the repair of Removed of them does not count.
	Unfinished int `json:"unfinished"`
	Removed    int `json:"unfinished_removed"`

	// Folder is where the originals of the destination are: bucket and what
	// their keys begin with. Originals counts them, versions of before too.
	Folder            string `json:"folder"`
	Originals         int    `json:"originals"`
	OriginalsLost     int    `json:"originals_lost"` // documents with each fault
	OriginalsDamaged  int    `json:"originals_damaged"`
	OriginalsOrphaned int    `json:"originals_orphaned"`
	// OriginalsElsewhere are no inconsistency: OriginalsCopied of them now have
	// a key of their own, and do not count as repaired.
	OriginalsElsewhere int `json:"originals_elsewhere"`
	OriginalsCopied    int `json:"originals_copied"`
}

// Consistent reports whether journal and store agree, or do so now.
func (v Verification) Consistent() bool {
	return v.Missing+v.Stale+v.Orphaned+v.Unknown+
		v.OriginalsLost+v.OriginalsDamaged+v.OriginalsOrphaned == v.Repaired
}

func (v *Verification) add(f Fault) {
	switch f.Kind {
	case FaultMissing:
		v.Missing++
	case FaultStale:
		v.Stale++
	case FaultOrphaned:
		v.Orphaned++
	case FaultUnfinished:
		v.Unfinished++
		if f.Repaired {
			v.Removed++
		}
		return
	case FaultUnknown:
		v.Unknown++
	case FaultOriginalLost:
		v.OriginalsLost++
	case FaultOriginalDamaged:
		v.OriginalsDamaged++
	case FaultOriginalOrphaned:
		v.OriginalsOrphaned++
	case FaultOriginalElsewhere:
		v.OriginalsElsewhere++
		if f.Repaired {
			v.OriginalsCopied++
		}
		return
	}
	if f.Repaired {
		v.Repaired++
	}
}

// VerifyOptions say what Verify does. The zero value looks and changes nothing.
type VerifyOptions struct {
	// Repair fixes what differs.
	Repair bool
	// Deep reads every original and compares the SHA-256 of its content.
	Deep bool
	// Sources are the options by which documents are read again, to restore
	// their originals.
	Sources source.Options
}

// Verify compares the journal with the vector store and the originals, and
// reports each fault. The rows of many documents are read at a time, at Strong
// consistency, and originals are listed a thousand at a time.
//
// With Repair, a document that misses rows is put on the list that a retry
// works off, rows that are stale, orphaned or unfinished are deleted by primary
// key, and a complete document that the journal does not know is noted there,
// so that a lost journal comes back. An original that is lost or damaged is put
// back from the document's source, if that still has the content, or else from
// a key of the earlier layout; orphaned ones are removed. No other run should
// write to the collection meanwhile: it would miss rows and defer their
// documents. The errors are those of [Pipeline.Run].
func (p *Pipeline) Verify(ctx context.Context, options VerifyOptions, report func(Fault)) (Verification, error) {
	if err := p.config.checkRun(); err != nil {
		return Verification{}, err
	}
	r, err := newRun(ctx, p.config, p.chunker)
	if err != nil {
		return Verification{}, err
	}
	defer r.close()
	v := &verifier{
		run: r, options: options, repair: options.Repair, report: report, seen: map[hash]bool{},
		result: Verification{Destination: p.config.Destination},
	}
	err = v.all()
	if ended := r.end.Reason(); ended != nil {
		return v.result, ended
	}
	return v.result, err
}

// verifier is one Verify.
type verifier struct {
	*run
	options VerifyOptions
	repair  bool
	report  func(Fault)
	result  Verification

	left  version.Notes                // what the store holds of notes
	byDoc map[string][]version.Attempt // of left
	seen  map[hash]bool                // documents that were looked at; true: each of their rows counts
}

func (v *verifier) all() error {
	found, err := v.check.collection()
	if err != nil {
		return err
	}
	if found != nil {
		if v.left, err = v.vectors.notes(); err != nil {
			return err
		}
		v.byDoc = v.left.Attempts()
	}
	var batch []journal.Document
	for d, err := range v.Journal.Documents(v.ctx, v.Destination, "") {
		if err != nil {
			return err
		}
		if batch = append(batch, d); len(batch) < verifyDocuments {
			continue
		}
		if err := v.known(batch, found != nil); err != nil {
			return err
		}
		batch = batch[:0]
	}
	if err := v.known(batch, found != nil); err != nil {
		return err
	}
	if found != nil {
		if err := v.strangers(); err != nil {
			return err
		}
		if err := v.forgetNotes(); err != nil {
			return err
		}
	}
	return v.originals(found)
}

// forgetNotes removes the notes, once all rows that they tell apart are gone.
func (v *verifier) forgetNotes() error {
	if !v.repair || len(v.left) == 0 {
		return nil
	}
	ids := make([]string, len(v.left))
	for i, note := range v.left {
		ids[i] = note.ID
	}
	return v.vectors.deleteRows(ids)
}

// originals compares the journal, as it is now, with the object store.
func (v *verifier) originals(found *entity.Collection) error {
	if err := v.check.place(found); err != nil {
		return err
	}
	if v.repair {
		if err := v.check.bucket(); err != nil {
			return err
		}
	}
	read := newSources(v.options.Sources)
	defer read.close()
	c := &originalCheck{
		restorer: &restorer{
			scope: v.scope, objects: v.objects, reader: v.prepare.reader, sources: read,
			repair: v.repair, deep: v.options.Deep,
		},
		report: v.original, stored: func([]string) (map[string]bool, error) { return nil, nil },
	}
	if found != nil {
		c.stored = v.vectors.storedDocuments
	}
	err := c.all()
	v.result.Originals, v.result.Folder = c.count, v.Bucket+"/"+string(v.objects.shelf)
	return err
}

// original counts and reports a fault of an original.
func (v *verifier) original(o originalFault) {
	f := Fault{ID: o.id, Kind: o.kind, Detail: o.detail, Repaired: o.repaired}
	v.result.add(f)
	v.report(f)
}

// verifyDocuments is how many documents are compared with one read.
const verifyDocuments = 200

// state is what the store holds of one document.
type state struct {
	rows []rows.Row
	mark *rows.Row // nil without exactly one mark
}

func newState(list []rows.Row) state {
	s := state{rows: list}
	marks := 0
	for i := range list {
		if list[i].IsMark() {
			marks++
			s.mark = &list[i]
		}
	}
	if marks != 1 {
		s.mark = nil
	}
	return s
}

// split tells the rows that can belong to a version from those that cannot,
// and says how many the version lacks. Two rows for one place cannot be told
// apart: neither counts as there.
func (s state) split(sha, policy string, chunks int) (missing int, stale []string) {
	places := map[int]int{}
	for _, row := range s.rows {
		switch {
		case row.Policy != policy, row.Ordinal >= chunks, row.IsMark() != (row.Ordinal == chunks-1),
			row.IsMark() && (row.SHA != sha || row.Chunks != chunks):
			stale = append(stale, row.ID)
		default:
			places[row.Ordinal]++
		}
	}
	for ordinal := range chunks {
		if places[ordinal] != 1 {
			missing++
		}
	}
	return missing, stale
}

var stateFields = append([]string{rows.Field.Source}, judgedFields...)

// read gives the rows of documents by the hash of their id.
func (v *verifier) read(hashes []string) (map[string][]rows.Row, error) {
	list, err := v.vectors.query(vectorstore.In(rows.Field.Doc, hashes), stateFields)
	byDoc := map[string][]rows.Row{}
	for _, row := range list {
		byDoc[row.Doc] = append(byDoc[row.Doc], row)
	}
	return byDoc, err
}

// known compares documents of the journal with the store.
func (v *verifier) known(batch []journal.Document, stored bool) error {
	if len(batch) == 0 {
		return nil
	}
	hashes := make([]string, len(batch))
	for i, d := range batch {
		hashes[i] = rows.DocumentHash(d.ID)
	}
	byDoc := map[string][]rows.Row{}
	if stored {
		var err error
		if byDoc, err = v.read(hashes); err != nil {
			return err
		}
	}
	for i, d := range batch {
		v.result.Documents++
		v.seen[hashed(hashes[i])] = false
		list, err := v.complete(d.ID, byDoc[hashes[i]])
		if err != nil {
			return err
		}
		v.result.Rows += len(list)
		s := newState(list)
		if d.Policy == "" && s.mark != nil { // a run began to replace it, and did not come to its end
			d.SHA, d.Policy, d.Chunks = s.mark.SHA, s.mark.Policy, s.mark.Chunks
		}
		missing, stale := s.split(d.SHA, d.Policy, d.Chunks)
		if err := v.document(d, missing, stale); err != nil {
			return err
		}
	}
	return nil
}

// complete takes the rows of a document that belong to a complete version, and
// reports the others.
func (v *verifier) complete(id string, list []rows.Row) (kept []rows.Row, err error) {
	if len(list) == 0 || len(v.byDoc[list[0].Doc]) == 0 {
		return list, nil
	}
	var unfinished []string
	for i, standing := range version.Judge(v.byDoc[list[0].Doc], list) {
		if standing == version.Complete {
			kept = append(kept, list[i])
		} else {
			unfinished = append(unfinished, list[i].ID)
		}
	}
	if len(unfinished) == 0 {
		return kept, nil
	}
	return kept, v.fault(
		Fault{ID: id, Kind: FaultUnfinished, Rows: len(unfinished)},
		func() error { return v.discard.rows(unfinished) },
	)
}

func (v *verifier) document(d journal.Document, missing int, stale []string) error {
	if missing > 0 { // the run that repairs it finds what is stale as well
		return v.fault(
			Fault{ID: d.ID, Kind: FaultMissing, Rows: missing},
			func() error { return v.requeue(d, missing) },
		)
	}
	if len(stale) == 0 {
		return nil
	}
	return v.fault(
		Fault{ID: d.ID, Kind: FaultStale, Rows: len(stale)},
		func() error { return v.vectors.forgetRows(stale) },
	)
}

// requeue has a document ingested again by the next retry.
func (v *verifier) requeue(d journal.Document, missing int) error {
	ctx := context.WithoutCancel(v.ctx)
	if err := v.Journal.Forget(ctx, v.Destination, d.ID); err != nil {
		return err
	}
	return v.Journal.Fail(ctx, v.Destination, journal.Problem{
		ID: d.ID, SHA: d.SHA, Policy: d.Policy, Status: journal.Deferred, Stage: "verify", Kind: FaultMissing,
		Reason: fmt.Sprintf(
			"%d of its %d chunks are missing from the vector store",
			missing,
			d.Chunks,
		), At: time.Now(), Location: d.Location,
	})
}

// fault repairs a fault, if that is asked for, and reports it.
func (v *verifier) fault(f Fault, repair func() error) error {
	if v.repair {
		if err := repair(); err != nil {
			return err
		}
		f.Repaired = true
	}
	v.result.add(f)
	v.report(f)
	return nil
}

// strangers looks at every row for documents that the journal does not call
// complete, and judges those that it does not know or that have notes. Their
// rows are counted as they were read at Strong consistency: the scan may still
// show those that are deleted.
func (v *verifier) strangers() error {
	unknown := map[string]string{} // ids by hash
	for row, err := range v.scan() {
		if err != nil {
			return err
		}
		if row.Doc == version.Place {
			continue
		}
		counts, seen := v.seen[hashed(row.Doc)]
		if counts {
			v.result.Rows++
		}
		if seen || unknown[row.Doc] != "" {
			continue
		}
		there, err := v.speaksOf(row.Source)
		if err != nil {
			return err
		}
		if there && len(v.byDoc[row.Doc]) == 0 {
			v.seen[hashed(row.Doc)] = true
			v.result.Rows++
			continue
		}
		if unknown[row.Doc] = row.Source; len(unknown) < verifyDocuments {
			continue
		}
		if err := v.judge(unknown); err != nil {
			return err
		}
		for hash := range unknown {
			v.seen[hashed(hash)] = false
		}
		clear(unknown)
	}
	return v.judge(unknown)
}

// speaksOf reports whether the journal knows a document, complete or not.
func (v *verifier) speaksOf(id string) (bool, error) {
	_, done, err := v.Journal.Document(v.ctx, v.Destination, id)
	if err != nil || done {
		return done, err
	}
	_, failed, err := v.Journal.Problem(v.ctx, v.Destination, id)
	return failed, err
}

// judge reads documents that the journal does not know, now at Strong
// consistency, and tells what is complete from what is not.
func (v *verifier) judge(unknown map[string]string) error {
	if len(unknown) == 0 {
		return nil
	}
	hashes := make([]string, 0, len(unknown))
	for hash := range unknown {
		hashes = append(hashes, hash)
	}
	byDoc, err := v.read(hashes)
	if err != nil {
		return err
	}
	for hash, list := range byDoc {
		complete, err := v.complete(unknown[hash], list)
		if err != nil {
			return err
		}
		v.result.Rows += len(complete)
		mentioned, err := v.speaksOf(unknown[hash])
		if err == nil && !mentioned && len(complete) > 0 {
			err = v.stranger(unknown[hash], newState(complete))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) stranger(id string, s state) error {
	if s.mark != nil {
		missing, stale := s.split(s.mark.SHA, s.mark.Policy, s.mark.Chunks)
		if missing == 0 && len(stale) == 0 {
			adopt := func() error {
				return v.Journal.Complete(
					context.WithoutCancel(v.ctx),
					v.Destination,
					journal.Document{
						ID:     id,
						SHA:    s.mark.SHA,
						Policy: s.mark.Policy,
						Chunks: s.mark.Chunks,
						At:     time.Now(),
					},
				)
			}
			return v.fault(Fault{ID: id, Kind: FaultUnknown, Rows: len(s.rows)}, adopt)
		}
	}
	ids := make([]string, len(s.rows))
	for i, row := range s.rows {
		ids[i] = row.ID
	}
	return v.fault(
		Fault{ID: id, Kind: FaultOrphaned, Rows: len(ids)},
		func() error { return v.vectors.forgetRows(ids) },
	)
}

// scanPage is how many rows are read at a time when all are.
const scanPage = 10_000

// scan reads the documents of all rows: by the SDK's iterator where the store
// has it, else in pages.
func (v *verifier) scan() iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		pages := v.pages
		if store, ok := v.Config.Vectors.(vectorstore.Server); ok {
			pages = func(take func(client.ResultSet) bool) error { return v.iterate(store, take) }
		}
		more := true
		err := pages(func(answer client.ResultSet) bool {
			list, err := rows.Read(answer)
			if err != nil {
				more = yield(rows.Row{}, err)
				return false
			}
			for _, row := range list {
				if more = yield(row, nil); !more {
					return false
				}
			}
			return true
		})
		if err != nil && more {
			yield(rows.Row{}, v.end.Blame("verify", err))
		}
	}
}

var scanFields = []string{rows.Field.ID, rows.Field.Doc, rows.Field.Source}

func (v *verifier) pages(take func(client.ResultSet) bool) error {
	for last := ""; ; {
		var answer client.ResultSet
		err := v.vectors.call("query", func(guard vectorstore.Guard) (err error) {
			answer, err = guard.Query(v.ctx, v.Config.Vectors, v.Collection, nil,
				rows.Field.ID+" > "+vectorstore.Quote(last), scanFields, client.WithLimit(scanPage))
			return err
		})
		if err != nil || answer.Len() == 0 || !take(answer) {
			return err
		}
		ids, ok := answer.GetColumn(rows.Field.ID).(*entity.ColumnVarChar)
		if !ok {
			return fmt.Errorf("the vector store answers without the field %q", rows.Field.ID)
		}
		last = ids.Data()[ids.Len()-1] // the next page follows it, whatever a repair has deleted
	}
}

// iterate reads by one long call. It takes no turn, since rows are looked up
// while it lasts, and those calls would wait for it.
func (v *verifier) iterate(store vectorstore.Server, take func(client.ResultSet) bool) error {
	reading := service.Vectors(vectorstore.Guard{Breaker: v.vectors.service.Breaker(), Settled: v.VectorGuard.Settled})
	return reading.CallVectors(v.ctx, "query", func(guard vectorstore.Guard) error {
		it, err := guard.QueryIterator(v.ctx, store, client.NewQueryIteratorOption(v.Collection).
			WithOutputFields(scanFields...).WithBatchSize(scanPage).WithExpr(rows.Field.ID+` != ""`))
		if err != nil {
			return err
		}
		defer it.Close() //nolint:errcheck // it only reads
		for {
			answer, err := it.Next(v.ctx)
			if err == io.EOF { //nolint:errorlint // the iterator's own contract; a connection's end may wrap one
				return nil
			}
			if err != nil || v.end.Over() || !take(answer) {
				return err
			}
		}
	})
}
