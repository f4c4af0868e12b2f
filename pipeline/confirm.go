package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/vectorstore"
)

// confirmer holds what was written against what is there, and finds out whether
// another run has written the same documents meanwhile: runs without a common
// journal do not know of each other.
type confirmer struct {
	*scope
	vectors *vectors
}

// wholeRows is the number of rows up to which a document is read back by its
// hash, all its rows at once.
const wholeRows = 4096

// collect keeps the ids of the rows of a part, unless the document is too large
// to be read back at once.
func (p *part) collect() {
	d := p.doc
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.large = d.large || len(d.own)+len(p.rows) > wholeRows || len(d.existing) > wholeRows; d.large {
		d.unread, d.own = append(d.unread, slices.Collect(maps.Keys(d.own))...), nil
		return
	}
	for _, row := range p.rows {
		if !row.IsMark() { // which is written after all others
			d.own[row.ID] = true
		}
	}
}

// written reads back the rows of a group. What is missing fails its document.
func (c *confirmer) written(group []*part, list []writing) {
	defer c.timed("verify")()
	var whole []*document
	large := map[*document][]string{}
	for _, p := range group {
		switch d := p.doc; {
		case d.failure() != nil || d.adopted:
		case d.isLarge():
			large[d] = append(large[d], d.takeUnread()...)
		case p.last: // its other parts are written, and read now as well
			whole = append(whole, d)
		}
	}
	for _, w := range list {
		if _, ok := large[w.doc]; ok {
			large[w.doc] = append(large[w.doc], w.row.ID)
		}
	}
	for d, ids := range large {
		if err := c.there(ids); err != nil {
			d.fail(err)
		}
	}
	c.readBack(whole)
}

// isLarge reports whether the document has more rows than are read at once, as
// far as it is known.
func (d *document) isLarge() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.large
}

// takeUnread gives the rows that were not read back when the document was not
// known to be large.
func (d *document) takeUnread() (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, d.unread = d.unread, nil
	return ids
}

// there reads rows back by key.
func (c *confirmer) there(ids []string) error {
	for batch := range slices.Chunk(ids, writeRows) {
		found, err := c.vectors.query(vectorstore.In(rows.Field.ID, batch), []string{rows.Field.ID})
		if err != nil {
			return err
		}
		there := make(map[string]bool, len(found))
		for _, row := range found {
			there[row.ID] = true
		}
		lost := 0
		for _, id := range batch {
			if !there[id] {
				lost++
			}
		}
		if lost > 0 {
			return incomplete(lost)
		}
	}
	return nil
}

func incomplete(chunks int) error {
	return stop.Defer("verify", "incomplete", fmt.Errorf(
		"the vector store accepted %d of the chunks but does not return them; run again", chunks))
}

// readBack reads documents by their hash. Rows that are neither of this version
// nor were there before are another run's.
func (c *confirmer) readBack(documents []*document) {
	if len(documents) == 0 {
		return
	}
	own := map[*document]int{}
	err := c.vectors.rowsOf(documents, []string{rows.Field.ID, rows.Field.Doc}, func(d *document, row rows.Row) {
		if d.own[row.ID] {
			own[d]++
		} else if _, was := d.existing[hashed(row.ID)]; !was { // Milvus shows some once more that were removed
			d.foreign = append(d.foreign, row.ID)
		}
	})
	failAll(documents, err)
	for _, d := range documents {
		if own[d] < len(d.own) {
			d.fail(incomplete(len(d.own) - own[d]))
		}
	}
}

// current gives up documents that their source has no longer, and those that
// another run has written while the source changed: the other run may have the
// newer content. Rows of an older one are stale.
func (c *confirmer) current(ended []*document) {
	for _, d := range ended {
		if d.failure() != nil || d.adopted || d.current == nil {
			continue
		}
		same, err := d.current(c.ctx)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.gone = true
			d.giveUp(errors.New("its source was removed while it was ingested"))
		case err != nil || same || len(d.foreign) == 0: // where nothing is known, its content counts
		default:
			d.giveUp(errors.New("another run wrote it meanwhile, and its source has changed since it was read"))
		}
	}
}

// giveUp defers a document whose version is not to stay.
func (d *document) giveUp(why error) {
	d.givenUp = true
	d.fail(stop.Defer("verify", "overtaken", fmt.Errorf("%w; run again", why)))
}

// alone reads documents again whose stale rows were removed: another run may
// have kept some of these, or written others. The rows of large documents are
// counted.
func (c *confirmer) alone(documents []*document) {
	defer c.timed("verify")()
	var again []*document
	for _, d := range documents {
		if !d.large {
			d.foreign = nil
			again = append(again, d)
		} else if err := c.counted(d); err != nil {
			d.fail(err)
		}
	}
	same, err := c.same(again)
	failAll(again, err)
	if same || err != nil {
		return
	}
	c.readBack(again)
	for _, d := range again {
		if len(d.foreign) > 0 {
			d.fail(contended())
		}
	}
}

// same reports whether documents have as many rows as were written, and their
// own commit marks: that costs less than to read them all, and says as much.
func (c *confirmer) same(documents []*document) (bool, error) {
	hashes, marks, sum := make([]string, len(documents)), map[string]bool{}, 0
	for i, d := range documents {
		hashes[i] = rows.DocumentHash(d.id)
		marks[d.mark] = true
		sum += len(d.own)
	}
	if len(documents) == 0 {
		return true, nil
	}
	n, found, err := c.tally(vectorstore.In(rows.Field.Doc, hashes))
	for _, row := range found {
		delete(marks, row.ID)
	}
	return n == sum && len(found) == len(documents) && len(marks) == 0, err
}

// tally counts the rows that match, and reads the commit marks among them.
func (c *confirmer) tally(expr string) (n int, marks []rows.Row, err error) {
	var countErr error
	var counting sync.WaitGroup // both wait for the store's time tick
	counting.Go(func() { n, countErr = c.vectors.count(expr) })
	marks, err = c.vectors.query(expr+andMarked, []string{rows.Field.ID})
	counting.Wait()
	return n, marks, cmp.Or(countErr, err)
}

func contended() error {
	return stop.Defer("verify", "overtaken", errors.New(
		"another run writes this document at the same time, and what is there is not what was written; run again"))
}

// counted checks that a large document has its rows and the commit mark of one
// version. Rows that were removed may still be counted.
func (c *confirmer) counted(d *document) error {
	n, marks, err := c.tally(ofDocument(rows.DocumentHash(d.id)))
	if err != nil {
		return err
	}
	if n < d.chunks || len(marks) != 1 || marks[0].ID != d.mark {
		return contended()
	}
	return nil
}
