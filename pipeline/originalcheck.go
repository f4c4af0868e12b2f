package pipeline

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// originalFault is a fault of the originals of a document.
type originalFault struct {
	id, kind string
	detail   string // what is wrong, or why it was not repaired
	repaired bool
}

// originalCheck compares the journal with the originals.
//
// It lists the originals of the destination, a thousand a call, and reads the
// journal beside: the journal is sorted by id and the listing by the ids'
// hashes, so a stretch of the listing is held in memory while the journal is
// read through. A HEAD for each document would be a call for each document.
type originalCheck struct {
	*restorer
	stored func(hashes []string) (map[string]bool, error) // the documents of these that the vector store knows
	report func(originalFault)
	count  int // originals of this destination
}

func (c *originalCheck) all() error {
	old, err := c.objects.old()
	if err != nil {
		return c.end.BlameBefore(err)
	}
	listing := c.objects.listOriginals(c.objects.shelf)
	if old {
		listing = merged(listing, c.objects.listOriginals(oldShelf(c.Prefix)))
	}
	for s, err := range stretches(listing, stretchOriginals) {
		if err == nil {
			err = c.stretch(s)
		}
		if err != nil {
			return c.end.BlameBefore(err)
		}
	}
	return nil
}

// stretch compares a part of the listing with the journal.
func (c *originalCheck) stretch(s *stretch) error {
	var batch []*examined
	for d, err := range c.Journal.Documents(c.ctx, c.Destination, "") {
		if err != nil {
			return c.end.Fault(err)
		}
		h := hashed(rows.DocumentHash(d.ID))
		if !s.covers(h) {
			continue
		}
		e := examine(d, s.of(h))
		if e.kind == "" && !c.deep {
			continue
		}
		if batch = append(batch, e); len(batch) < examinedTogether {
			continue
		}
		if err := c.work(batch); err != nil {
			return err
		}
		batch = batch[:0]
	}
	if err := c.work(batch); err != nil {
		return err
	}
	return c.orphans(s)
}

// examinedTogether is how many documents are worked on before they are
// reported.
const examinedTogether = 200

// work looks closer at documents, repairs what can be repaired, several at a
// time, and reports what it found. It returns the first error.
func (c *originalCheck) work(batch []*examined) error {
	queue := make(chan *examined)
	var workers sync.WaitGroup
	for range min(c.Concurrency, len(batch)) {
		workers.Go(func() {
			for e := range queue {
				e.err = c.settle(e)
			}
		})
	}
	for _, e := range batch {
		queue <- e
	}
	close(queue)
	workers.Wait()
	return c.tell(batch)
}

func (c *originalCheck) tell(batch []*examined) (first error) {
	for _, e := range batch {
		switch {
		case e.err != nil && first == nil:
			first = e.err
		case e.err == nil && e.kind != "":
			c.report(originalFault{id: e.doc.ID, kind: e.kind, detail: e.detail, repaired: e.repaired})
		}
	}
	return first
}

// orphans finds the originals of documents that neither the journal nor the
// store knows.
func (c *originalCheck) orphans(s *stretch) error {
	for p, err := range c.Journal.Problems(c.ctx, c.Destination, "") {
		if err != nil {
			return c.end.Fault(err)
		}
		if h := hashed(rows.DocumentHash(p.ID)); s.covers(h) {
			if all := s.of(h); len(all) > 0 {
				all[0].known = true
			}
		}
	}
	var batch []hash
	now := time.Now()
	for all := range s.documents() {
		own := slices.DeleteFunc(slices.Clone(all), func(one held) bool { return one.old })
		c.count += contents(own)
		if all[0].known || len(own) == 0 || young(own, now) {
			continue
		}
		if batch = append(batch, all[0].document); len(batch) < examinedTogether {
			continue
		}
		if err := c.unknown(batch); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return c.unknown(batch)
}

// contents counts originals, names left out.
func contents(all []held) (n int) {
	for _, one := range all {
		if one.sha != (hash{}) {
			n++
		}
	}
	return n
}

// unknown asks the store about documents that the journal does not know, and
// removes the originals of those that it does not know either.
func (c *originalCheck) unknown(batch []hash) error {
	if len(batch) == 0 {
		return nil
	}
	hashes := make([]string, len(batch))
	for i, h := range batch {
		hashes[i] = h.String()
	}
	stored, err := c.stored(hashes)
	if err != nil {
		return err
	}
	for _, document := range hashes {
		if stored[document] {
			continue
		}
		if err := c.orphan(string(c.objects.shelf) + document + "/"); err != nil {
			return err
		}
	}
	return nil
}

func (c *originalCheck) orphan(folder string) error {
	f := originalFault{id: folder, kind: FaultOriginalOrphaned}
	name, err := c.objects.nameIn(folder)
	if err != nil {
		return err
	}
	if name != "" {
		f.id = name
	}
	if c.repair {
		if _, err := c.objects.deleteFolder(folder); err != nil {
			return err
		}
		f.repaired = true
	}
	c.report(f)
	return nil
}

// storedDocuments finds which documents, by hash, have rows.
func (v *vectors) storedDocuments(hashes []string) (map[string]bool, error) {
	list, err := v.query(vectorstore.In(rows.Field.Doc, hashes), []string{rows.Field.ID, rows.Field.Doc})
	found := map[string]bool{}
	for _, row := range list {
		found[row.Doc] = true
	}
	return found, err
}
