package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

const (
	// writeRows and writeBytes bound one upsert, well below Milvus's limit of
	// 64 MB for a message.
	writeRows  = 1000
	writeBytes = 16 << 20
	// deleteKeys bounds one deletion by primary key.
	deleteKeys = 1000
)

// commit takes a group of parts into the vector store. The order is what makes
// a kill at any instant harmless: new rows, then the commit marks, then
// verification, then the stale rows, then the journal.
func (r *run) commit(group []*part) {
	r.Metrics.Queue("upsert", -len(group))
	r.listExisting(group)
	r.enrich.enrich(group)
	fresh := r.fresh(group)
	embedded := r.timed("embed")
	r.fillVectors(fresh)
	embedded()
	r.reopen(fresh)
	r.write(slices.DeleteFunc(slices.Clone(fresh), func(w writing) bool { return w.row.IsMark() }))
	for _, p := range group {
		p.doc.written.Done()
	}
	ending := r.endings(group)
	r.write(slices.DeleteFunc(slices.Clone(fresh), func(w writing) bool { return !w.row.IsMark() }))
	r.verify(fresh)
	r.forgetVectors(fresh)
	for _, p := range group {
		p.doc.verified.Done()
	}
	r.removeStale(r.stale(ending))
	r.record(ending)
}

// listExisting finds the rows that the store holds of the documents that begin
// in this group, and waits for the groups that list the others.
func (r *run) listExisting(group []*part) {
	var begin []*document
	for _, p := range group {
		if p.first {
			begin = append(begin, p.doc)
		}
	}
	if len(begin) > 0 && !r.check.emptyCollection() {
		failAll(begin, r.readExisting(begin))
	}
	for _, d := range begin {
		close(d.listed)
	}
	for _, p := range group {
		<-p.doc.listed
	}
}

var existingFields = []string{
	rows.Field.ID, rows.Field.Doc, rows.Field.TextSHA, rows.Field.Ordinal, rows.Field.Chunks, rows.Field.SHA, rows.Field.Policy,
}

func (r *run) readExisting(documents []*document) error {
	found := map[*document]*versions{}
	err := r.readRows(documents, existingFields, func(d *document, row rows.Row) {
		d.existing[hashed(row.ID)] = true
		d.byText[hashed(row.TextSHA)] = hashed(row.ID)
		if d.enriching {
			d.more.keepStored(d, row)
			return
		}
		if found[d] == nil {
			found[d] = newVersions()
		}
		found[d].add(d, row)
	})
	if err != nil {
		return err
	}
	return r.adopt(found)
}

func failAll(documents []*document, err error) {
	if err == nil {
		return
	}
	for _, d := range documents {
		d.fail(err)
	}
}

// readRows reads all rows of the documents at Strong consistency.
func (r *run) readRows(documents []*document, fields []string, take func(*document, rows.Row)) error {
	byHash := make(map[string]*document, len(documents))
	hashes := make([]string, 0, len(documents))
	for _, d := range documents {
		hash := rows.DocumentHash(d.id)
		byHash[hash], hashes = d, append(hashes, hash)
	}
	list, err := r.query(vectorstore.In(rows.Field.Doc, hashes), fields)
	if err != nil {
		return err
	}
	for _, row := range list {
		if d := byHash[row.Doc]; d != nil {
			take(d, row)
		}
	}
	return nil
}

// query reads rows. No document is to blame for a read that is refused, as that
// of a collection which somebody has released: the next run finds it mended or
// says what is wrong.
func (r *run) query(expr string, fields []string) ([]rows.Row, error) {
	if err := r.check.loaded(); err != nil {
		return nil, err
	}
	var answer client.ResultSet
	err := r.vectors.do(r.ctx, "query", func() (err error) {
		answer, err = r.VectorGuard.Query(r.ctx, r.Vectors, r.Collection, nil, expr, fields,
			client.WithSearchQueryConsistencyLevel(entity.ClStrong))
		return err
	})
	var list []rows.Row
	if err == nil {
		list, err = rows.Read(answer)
	}
	err = r.blame(upstreamMilvus, "store", err)
	if isRefusal(err) {
		return nil, deferral("store", "upstream refused", err)
	}
	return list, err
}

// writing is a row on its way into the store.
type writing struct {
	doc *document
	row *pending
}

// fresh are the rows of the group that the store does not hold.
func (r *run) fresh(group []*part) []writing {
	var list []writing
	for _, p := range group {
		if p.doc.failure() != nil || p.doc.adopted {
			continue
		}
		for _, row := range p.rows {
			if !p.doc.keep(hashed(row.ID)) {
				list = append(list, writing{doc: p.doc, row: row})
			}
		}
	}
	return list
}

// keep reports whether the store held a row before; if so, it is not stale.
func (d *document) keep(id hash) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, there := d.existing[id]
	if there {
		d.existing[id] = false
	}
	return there
}

// fillVectors gives each row its vector, from the rows of the version before
// where the text is the same, else from the embedder. A text that has none
// fails its document.
func (r *run) fillVectors(list []writing) {
	r.reuse(list)
	if again := r.embedRows(list); len(again) > 0 {
		r.reuse(again)
		r.embedRows(again)
	}
}

// embedRows gives rows without a vector one. It returns the rows that the model
// does not take with their context, now without it.
func (r *run) embedRows(list []writing) (again []writing) {
	texts := map[string]text{}
	for _, w := range list {
		if w.row.Vector == nil && w.doc.failure() == nil {
			texts[w.row.TextSHA] = text{hash: w.row.TextSHA, text: w.row.embedText(), tokens: w.row.tokens}
		}
	}
	answers := r.embed.vectors(texts)
	for _, w := range list {
		if w.row.Vector != nil {
			continue
		}
		answer := answers[w.row.TextSHA]
		w.row.Vector = answer.vector
		switch {
		case w.row.context != "" && isRefusal(answer.err):
			if r.withoutContext(w) {
				again = append(again, w)
			}
		case answer.err != nil:
			w.doc.fail(answer.err)
		case answer.sent:
			w.doc.mu.Lock()
			w.doc.embedded++
			w.doc.mu.Unlock()
		}
	}
	return again
}

// withoutContext takes the context off a row and reports whether the row is
// still to be written.
func (r *run) withoutContext(w writing) bool {
	if err := r.enrich.dropContext(w.row); err != nil {
		w.doc.fail(r.journalFault(err))
		return false
	}
	return !w.doc.keep(hashed(w.row.ID))
}

// reopen has the journal no longer call documents complete whose rows are about
// to be replaced: should the process be killed, the next run looks at the store,
// whatever it is to make of them.
func (r *run) reopen(list []writing) {
	var ids []string
	for _, w := range list {
		if w.doc.failure() == nil && w.doc.unrecord() {
			ids = append(ids, w.doc.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	if err := r.Journal.Reopen(context.WithoutCancel(r.ctx), r.Destination, ids...); err != nil {
		r.fault(err)
	}
}

// unrecord reports, once, whether the journal calls the document complete.
func (d *document) unrecord() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	recorded := d.recorded
	d.recorded = false
	return recorded
}

// reuse reads back the vectors of rows with the same text. A read that fails
// costs embeddings at most, unless it ends the run.
func (r *run) reuse(list []writing) {
	wanted := map[string][]writing{} // by id of the row that has the vector
	var ids []string
	for _, w := range list {
		known, ok := w.doc.byText[hashed(w.row.TextSHA)]
		if !ok {
			continue
		}
		id := known.String()
		if wanted[id] == nil {
			ids = append(ids, id)
		}
		wanted[id] = append(wanted[id], w)
	}
	if len(ids) == 0 {
		return
	}
	found, err := r.query(vectorstore.In(rows.Field.ID, ids), []string{rows.Field.ID, rows.Field.Vector})
	if err != nil {
		for _, same := range wanted {
			for _, w := range same {
				w.doc.fail(err)
			}
		}
		return
	}
	for _, row := range found {
		for _, w := range wanted[row.ID] {
			w.row.Vector = row.Vector
		}
	}
}

// write upserts rows, in calls of bounded size. Rows of documents that have
// failed are left out.
func (r *run) write(list []writing) {
	list = slices.DeleteFunc(list, func(w writing) bool { return w.doc.failure() != nil || w.row.Vector == nil })
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < len(list) && n < writeRows && (n == 0 || bytes < writeBytes) {
			bytes += len(list[n].row.Text) + 4*len(list[n].row.Vector)
			n++
		}
		r.writeBatch(list[:n])
		list = list[n:]
	}
}

func (r *run) writeBatch(batch []writing) {
	written := r.timed("upsert")
	err := r.upsert(batch)
	written()
	if err == nil {
		r.Metrics.Chunks(len(batch))
		return
	}
	if isRefusal(err) && batch[0].doc != batch[len(batch)-1].doc {
		r.writeApart(batch)
		return
	}
	for _, w := range batch {
		w.doc.fail(err)
	}
}

// writeApart writes a refused batch document by document, so that the one to
// blame fails alone.
func (r *run) writeApart(batch []writing) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].doc == batch[0].doc {
			n++
		}
		r.writeBatch(batch[:n:n])
		batch = batch[n:]
	}
}

func (r *run) upsert(batch []writing) error {
	list := make([]*rows.Row, len(batch))
	for i, w := range batch {
		list[i] = &w.row.Row
	}
	err := r.vectors.do(r.ctx, "upsert", func() error {
		_, err := r.VectorGuard.Upsert(r.ctx, r.Vectors, r.Collection, "", rows.Columns(list, r.check.dimensions())...)
		return err
	})
	return r.blame(upstreamMilvus, "store", err)
}

// endings are the documents whose last part is in this group. Each waits for
// its other parts, which are in groups before this one. A document that has
// failed is settled here.
func (r *run) endings(group []*part) []*document {
	var list []*document
	for _, p := range group {
		if !p.last {
			continue
		}
		p.doc.written.Wait()
		if err := p.doc.failure(); err != nil {
			r.settle(p.doc, err)
			continue
		}
		list = append(list, p.doc)
	}
	return list
}

// staleRow is a row of an earlier version of a document.
type staleRow struct {
	doc *document
	id  string
}

// verify reads back the rows that were written: what is missing fails its
// document.
func (r *run) verify(written []writing) {
	written = slices.DeleteFunc(slices.Clone(written), func(w writing) bool { return w.doc.failure() != nil })
	if len(written) == 0 {
		return
	}
	defer r.timed("verify")()
	for batch := range slices.Chunk(written, writeRows) {
		ids := make([]string, len(batch))
		for i, w := range batch {
			ids[i] = w.row.ID
		}
		found, err := r.query(vectorstore.In(rows.Field.ID, ids), []string{rows.Field.ID})
		there := make(map[hash]bool, len(found))
		for _, row := range found {
			there[hashed(row.ID)] = true
		}
		for _, w := range batch {
			if err != nil {
				w.doc.fail(err)
			} else if !there[hashed(w.row.ID)] {
				w.doc.fail(deferral("verify", "incomplete", fmt.Errorf("the vector store took chunk %d and does not hold it; run again", w.row.Ordinal)))
			}
		}
	}
}

// forgetVectors tells the journal which vectors the store holds now: a journal
// that is kept elsewhere need not take them there.
func (r *run) forgetVectors(written []writing) {
	if !r.KeepVectors {
		return
	}
	var texts []string
	for _, w := range written {
		if w.row.Vector != nil && w.doc.failure() == nil {
			texts = append(texts, w.row.TextSHA)
		}
	}
	if err := r.Journal.Stored(context.WithoutCancel(r.ctx), r.embed.space, texts...); err != nil {
		r.fault(err)
	}
}

// stale are the rows that the store held before and that are not in this
// version, of documents that are complete now. It waits for the parts that
// other groups verify.
func (r *run) stale(documents []*document) (stale []staleRow) {
	for _, d := range documents {
		d.verified.Wait()
		if d.failure() != nil {
			continue
		}
		for id, old := range d.existing {
			if old {
				stale = append(stale, staleRow{doc: d, id: id.String()})
			}
		}
	}
	return stale
}

// removeStale deletes rows of earlier versions by primary key. A document whose
// stale rows cannot be deleted now is deferred: its next run finds them again.
func (r *run) removeStale(stale []staleRow) {
	if len(stale) > 0 {
		defer r.timed("delete")()
	}
	for batch := range slices.Chunk(stale, deleteKeys) {
		ids := make([]string, len(batch))
		for i, s := range batch {
			ids[i] = s.id
		}
		err := r.deleteByKeys(ids)
		for _, s := range batch {
			if err != nil {
				s.doc.fail(err)
				continue
			}
			s.doc.removed++
		}
	}
}

// deleteByKeys deletes rows by primary key, in calls of bounded size.
func (r *run) deleteByKeys(ids []string) error {
	for batch := range slices.Chunk(ids, deleteKeys) {
		err := r.vectors.do(r.ctx, "delete_by_pks", func() error {
			return r.VectorGuard.DeleteByPks(r.ctx, r.Vectors, r.Collection, "", entity.NewColumnVarChar(rows.Field.ID, batch))
		})
		if err != nil {
			return r.blame(upstreamMilvus, "store", err)
		}
	}
	return nil
}

// record writes the complete documents of a group to the journal and settles
// them all.
func (r *run) record(documents []*document) {
	defer r.timed("commit")()
	var done []journal.Document
	for _, d := range documents {
		if d.failure() == nil {
			done = append(done, d.record(time.Now()))
		}
	}
	if err := r.Journal.Complete(context.WithoutCancel(r.ctx), r.Destination, done...); err != nil {
		r.fault(err)
		failAll(documents, deferral("journal", "fault", err))
	}
	for _, d := range documents {
		r.settle(d, d.failure())
	}
}

// isRefusal reports whether an upstream would not take what it was sent,
// whoever sends it again.
func isRefusal(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.status == journal.DeadLetter && !errors.Is(err, resilience.ErrOpen)
}
