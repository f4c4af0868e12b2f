package pipeline

import (
	"slices"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
)

const (
	// writeRows and writeBytes bound one upsert, well below Milvus's limit of
	// 64 MB for a message.
	writeRows  = 1000
	writeBytes = 16 << 20
)

// writer writes rows.
type writer struct {
	*scope
	vectors    *vectors
	dimensions func() int // of the vectors
}

// write upserts rows, in calls of bounded size. Rows of documents that have
// failed are left out.
func (w *writer) write(list []writing) {
	list = slices.DeleteFunc(list, func(w writing) bool { return w.doc.failure() != nil || w.row.Vector == nil })
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < len(list) && n < writeRows && (n == 0 || bytes < writeBytes) {
			bytes += len(list[n].row.Text) + 4*len(list[n].row.Vector)
			n++
		}
		w.writeBatch(list[:n])
		list = list[n:]
	}
}

func (w *writer) writeBatch(batch []writing) {
	list := make([]*rows.Row, len(batch))
	for i, one := range batch {
		list[i] = &one.row.Row
	}
	written := w.timed("upsert")
	err := w.vectors.upsert(list, w.dimensions())
	written()
	if err == nil {
		w.Metrics.Chunks(len(batch))
		return
	}
	if stop.IsRefusal(err) && batch[0].doc != batch[len(batch)-1].doc {
		w.writeApart(batch)
		return
	}
	for _, one := range batch {
		one.doc.fail(err)
	}
}

// writeApart writes a refused batch document by document, so that the one to
// blame fails alone.
func (w *writer) writeApart(batch []writing) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].doc == batch[0].doc {
			n++
		}
		w.writeBatch(batch[:n:n])
		batch = batch[n:]
	}
}
