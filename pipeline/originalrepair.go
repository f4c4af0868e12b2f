package pipeline

import (
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// The faults of originals that Verify finds.
const (
	// FaultOriginalLost: a complete document has no original.
	FaultOriginalLost = "original lost"
	// FaultOriginalDamaged: the original has another size than the content, or
	// with Deep another hash.
	FaultOriginalDamaged = "original damaged"
	// FaultOriginalElsewhere: the original has only a key that does not name
	// the destination, as earlier versions made them. It can be read, and a
	// person who tidies up may remove it: it is not an inconsistency.
	FaultOriginalElsewhere = "original elsewhere"
	// FaultOriginalOrphaned: an original of this destination, at least a day
	// old, is of a document that neither the journal nor the store knows.
	FaultOriginalOrphaned = "original orphaned"
)

// examined is a document whose original needs a closer look, or repair.
type examined struct {
	doc    journal.Document
	size   int64 // of its original; absent for none
	old    int64 // of the one whose key does not name the destination
	kind   string
	detail string

	repaired bool
	err      error
}

// examine compares a document with what the listing shows of it, and marks it
// as known.
func examine(d journal.Document, all []held) *examined {
	e := &examined{doc: d, size: absent, old: absent}
	sha := hashed(d.SHA)
	for i, one := range all {
		all[i].known = true
		switch {
		case one.sha != sha:
		case one.old:
			e.old = one.size
		default:
			e.size = one.size
		}
	}
	switch {
	case e.size == absent && e.old != absent && fits(d, e.old):
		e.kind = FaultOriginalElsewhere
	case e.size == absent:
		e.kind = FaultOriginalLost
	case !fits(d, e.size):
		e.damaged(fmt.Sprintf("it has %d bytes, the content has %d", e.size, d.Size))
		if d.Size == 0 {
			e.detail = "it is empty"
		}
	}
	return e
}

func (e *examined) damaged(detail string) { e.kind, e.detail = FaultOriginalDamaged, detail }

// fits reports whether a size can be that of a document's content. The journal
// may not know it; content of no bytes is never ingested.
func fits(d journal.Document, size int64) bool {
	if d.Size == 0 {
		return size > 0
	}
	return size == d.Size
}

// restorer looks closer at the original of a document, and puts it back. It is
// safe for concurrent use.
type restorer struct {
	*scope
	objects *objects
	reader  *reader
	sources *sources

	deep, repair bool
}

// settle does what is to be done about an original.
func (c *restorer) settle(e *examined) error {
	if err := c.look(e); err != nil || e.kind == "" || !c.repair {
		return err
	}
	return c.restore(e)
}

// look reads the original, where everything is to be read.
func (c *restorer) look(e *examined) error {
	switch {
	case !c.deep:
		return nil
	case e.kind == "":
		same, err := c.same(c.objects.shelf.original(e.doc.ID, e.doc.SHA), e.doc.SHA)
		if err == nil && !same {
			e.damaged("its content has another hash")
		}
		return err
	case e.kind == FaultOriginalElsewhere:
		same, err := c.same(oldShelf(c.Prefix).original(e.doc.ID, e.doc.SHA), e.doc.SHA)
		if err == nil && !same {
			e.kind, e.old = FaultOriginalLost, absent
		}
		return err
	}
	return nil
}

// same reports whether an object has the content of a hash.
func (c *restorer) same(key, sha string) (bool, error) {
	found, err := c.objects.hashOf(key)
	return found == sha, err
}

// restore puts an original back: from a key that does not name the destination
// if that is all that is wrong, else from the document's source where that
// still has the content, else from such a key. Where nothing has it, detail
// says why.
func (c *restorer) restore(e *examined) (err error) {
	if e.kind != FaultOriginalElsewhere {
		why, err := c.fromSource(e)
		if err != nil || why == "" {
			e.repaired = err == nil
			return err
		}
		spare, err := c.spare(e)
		if err != nil || !spare {
			e.detail = join(e.detail, why)
			return err
		}
	}
	e.repaired, err = c.objects.adopt(e.doc.ID, e.doc.SHA)
	if err == nil && !e.repaired {
		e.detail = join(e.detail, "it was removed meanwhile")
	}
	return err
}

// spare reports whether a key that does not name the destination has the
// content.
func (c *restorer) spare(e *examined) (bool, error) {
	if e.old == absent || !fits(e.doc, e.old) {
		return false, nil
	}
	if !c.deep {
		return true, nil
	}
	return c.same(oldShelf(c.Prefix).original(e.doc.ID, e.doc.SHA), e.doc.SHA)
}

func join(detail, why string) string {
	if detail == "" {
		return why
	}
	return detail + "; " + why
}

const (
	whyUnknown = "the journal does not know its source: run ingest over it, then repair again; " +
		"if it came from standard input, delete it and ingest it again"
	whyChanged = "its source has changed; the next run stores the new content"
)

// fromSource puts the content of the source back if that is the one in the
// journal. why is empty if it was.
func (c *restorer) fromSource(e *examined) (why string, err error) {
	if e.doc.Location == "" {
		return whyUnknown, nil
	}
	item, err := c.sources.item(e.doc.ID, e.doc.Location)
	if err != nil {
		return c.unreadable(err)
	}
	content, in, sha, err := c.reader.open(item)
	if err != nil {
		return c.unreadable(err)
	}
	defer content.Close()
	if sha != e.doc.SHA {
		return whyChanged, nil
	}
	return c.replace(e.doc.ID, sha, in)
}

// replace puts content that was read, and takes it back if it changed while it
// was.
func (c *restorer) replace(id, sha string, in parse.Input) (why string, err error) {
	key := c.objects.shelf.original(id, sha)
	if err := c.objects.putName(id); err != nil {
		return "", err
	}
	if err := c.objects.put(original(key, id, in), false); err != nil {
		return "", err
	}
	moved := c.reader.unmoved(in, sha)
	if moved == nil || errors.Is(moved, stop.ErrEnded) {
		return "", moved
	}
	if _, err := c.objects.deleteFolder(key); err != nil {
		return "", err
	}
	return whyChanged, nil
}

// unreadable says why a source cannot be read. An object store that fails, or
// the end of the work, is an error.
func (c *restorer) unreadable(err error) (why string, ended error) {
	call, ok := errors.AsType[*stop.CallError](err)
	if ok && !call.Misfit {
		ended = c.end.Blame("read", err)
	}
	if c.end.Over() {
		return "", errors.Join(stop.ErrEnded, ended)
	}
	return "its source cannot be read: " + err.Error(), nil
}

// sources reads documents again from where they were read. It is safe for
// concurrent use; close ends it.
type sources struct {
	mu    sync.Mutex
	place source.Place
	next  func() (source.Item, error, bool)
	close func()
}

func newSources(options source.Options) *sources {
	s := &sources{}
	places := func(yield func(source.Place, error) bool) {
		for yield(s.place, nil) {
		}
	}
	s.next, s.close = iter.Pull2(source.Again(places, options))
	return s
}

// item is a document as its source has it now.
func (s *sources) item(id, location string) (source.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place = source.Place{ID: id, Location: location}
	item, err, _ := s.next()
	return item, err
}
