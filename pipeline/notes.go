package pipeline

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/pipeline/version"
)

// notes keeps the notes of one run in the collection (see pipeline/version),
// and knows those that were there before.
type notes struct {
	*scope
	vectors    *vectors
	dimensions func() int  // of the vectors
	fresh      func() bool // the collection holds nothing from before this run

	once   sync.Once
	ahead  sync.WaitGroup
	err    error
	writer string // names the journal
	run    string
	byDoc  map[string][]version.Attempt // of the notes that were there

	sweeping sync.Mutex
	found    version.Notes   // what is left of the notes that were there
	done     map[string]bool // documents in them, by hash, that need them no longer; false: deferred

	mu     sync.Mutex
	noted  bool     // the journal knows that there are notes
	open   int      // notes of this run that are there
	closed []string // those of them that are to be removed
}

// foresee begins to read the notes before they are needed.
func (n *notes) foresee() {
	n.ahead.Go(func() { _ = n.known() }) // a committer that needs them gets the error
}

// known reads the notes that are there, once a run.
func (n *notes) known() error {
	n.once.Do(func() {
		n.run, n.done = taskID(), map[string]bool{}
		if n.writer, n.noted, n.err = n.Journal.Writer(n.lasting(), n.Destination); n.err != nil {
			n.err = n.end.Fault(n.err)
			return
		}
		if !n.fresh() {
			n.found, n.err = n.vectors.notes()
		}
		n.byDoc = n.found.Attempts()
	})
	return n.err
}

// before gives the attempts on a document that an earlier run left.
func (n *notes) before(d *document) []version.Attempt { return n.byDoc[rows.DocumentHash(d.id)] }

// begin notes the attempts on documents: one note for the documents that end in
// the group, and one for each that does not. No row of theirs may be written
// before wait returns, which waits for the groups that note the others as well.
func (n *notes) begin(group []*part, list []writing) (wait func()) {
	writes := map[*document]int{}
	for _, w := range list {
		writes[w.doc]++
	}
	var whole []*document
	var open []*openNote
	for _, p := range group {
		switch d := p.doc; {
		case !p.first || d.failure() != nil || d.adopted:
		case !p.last:
			d.attempt = n.attempt(d)
			open = append(open, &openNote{documents: []*document{d}})
		case writes[d] > 1 || writes[d] == 1 && len(d.existing) > 0, // a commit mark alone is never half
			len(n.before(d)) > 0: // which are removed before the commit marks that they tell apart
			d.attempt = n.attempt(d)
			whole = append(whole, d)
		}
	}
	go func() {
		n.write(append(open, split(whole)...))
		for _, p := range group {
			if p.first {
				close(p.doc.begun)
			}
		}
	}()
	return func() {
		for _, p := range group {
			<-p.doc.begun
		}
		for _, w := range list {
			if !w.row.IsMark() {
				w.row.SHA = w.doc.attempt.Stamp
			}
		}
	}
}

// split makes notes of documents, as few as will hold them.
func split(documents []*document) (list []*openNote) {
	attempts := make([]version.Attempt, len(documents))
	for i, d := range documents {
		attempts[i] = d.attempt
	}
	for _, part := range version.Split(attempts) {
		list = append(list, &openNote{documents: documents[:len(part):len(part)]})
		documents = documents[len(part):]
	}
	return list
}

// attempt is a new attempt on a document, or one that a run before began and
// did not end.
func (n *notes) attempt(d *document) version.Attempt {
	a := version.Attempt{
		Doc: rows.DocumentHash(d.id), SHA: d.sha, Policy: d.policy, At: n.now(d), Before: d.marks,
	}
	for _, before := range n.before(d) {
		if before.Same(a) && d.resumed == before.Stamp {
			a.Stamp = before.Stamp
			return a
		}
	}
	a.Stamp = version.Stamp(a.Doc, a.SHA, a.Policy, func(stamp string) bool { return d.stamps[stamp] })
	return a
}

// now is the time, or just after all earlier attempts on a document, whatever
// the clocks of two machines say.
func (n *notes) now(d *document) int64 {
	at := time.Now().UnixMilli()
	for _, before := range n.before(d) {
		at = max(at, before.At+1)
	}
	return at
}

// write writes notes, all in one call, for the first time or with what has
// changed. Without its note no row of a document is written.
func (n *notes) write(list []*openNote) {
	if len(list) == 0 {
		return
	}
	var batch []*rows.Row
	err := n.expect()
	for _, note := range list {
		if err == nil {
			var row *rows.Row
			row, err = n.row(note)
			batch = append(batch, row)
		}
	}
	if err == nil {
		err = n.vectors.upsert(batch, n.dimensions())
	}
	if stop.IsRefusal(err) { // of the notes: no document is to blame
		err = stop.Defer("store", "upstream refused", err)
	}
	for _, note := range list {
		failAll(note.documents, err)
	}
}

// expect has the journal know that there are notes, once a run.
func (n *notes) expect() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noted {
		return nil
	}
	if err := n.Journal.SetUnfinished(n.lasting(), n.Destination, true); err != nil {
		return n.end.Fault(err)
	}
	n.noted = true
	return nil
}

func (n *notes) row(note *openNote) (*rows.Row, error) {
	attempts := make([]version.Attempt, len(note.documents))
	for i, d := range note.documents {
		attempts[i] = d.attempt
		d.note = note
	}
	if note.id == "" {
		note.id = "note-" + rand.Text()
		n.mu.Lock()
		n.open++
		n.mu.Unlock()
	}
	made := version.Note{ID: note.id, Writer: n.writer, Run: n.run, At: time.Now().UTC(), Attempts: attempts}
	row, err := made.Row(n.dimensions())
	if err != nil {
		return nil, n.end.Fault(err)
	}
	return row, nil
}

// complete says in the notes of documents whose commit mark was there before
// that all their rows are there now: the mark alone does not say it.
func (n *notes) complete(documents []*document) {
	var list []*openNote
	for _, d := range documents {
		if d.failure() != nil || d.note == nil || !d.markHeld {
			continue
		}
		d.attempt.Kept = d.mark
		if !slices.Contains(list, d.note) {
			list = append(list, d.note)
		}
	}
	n.write(list)
}

// close removes the notes of documents that have ended, apart from those that
// still have rows of an unfinished version.
func (n *notes) close(ended []*document) {
	var closed []string
	var smaller []*openNote
	for _, d := range ended {
		n.leave(d)
		note := d.note
		if note == nil || !n.ends(note) {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(note.documents), func(d *document) bool { return !d.halfStored() })
		switch len(left) {
		case 0:
			closed = append(closed, note.id)
		case len(note.documents):
		default:
			smaller = append(smaller, &openNote{id: note.id, documents: left})
		}
	}
	n.write(smaller)
	n.remove(closed, notesKept)
}

// halfStored reports whether the store may hold rows of a version of the
// document that is not complete.
func (d *document) halfStored() bool { return d.failure() != nil && !d.discarded }

// leave leaves to the next run what earlier ones noted of a document that is
// deferred.
func (n *notes) leave(d *document) {
	doc := rows.DocumentHash(d.id)
	if len(n.byDoc[doc]) == 0 || !d.halfStored() {
		return
	}
	n.sweeping.Lock()
	defer n.sweeping.Unlock()
	n.done[doc] = false
}

// outdate takes documents that are complete out of the notes of earlier runs.
// It comes when only rows of the complete version are left, and before the
// commit marks of earlier ones go: without these, the notes would call
// unfinished what the complete version shares with those. It fails the
// documents for which it cannot be done.
func (n *notes) outdate(documents []*document) {
	var noted []*document
	n.sweeping.Lock()
	defer n.sweeping.Unlock()
	for _, d := range documents {
		if doc := rows.DocumentHash(d.id); d.failure() == nil && len(n.byDoc[doc]) > 0 {
			n.done[doc] = true
			noted = append(noted, d)
		}
	}
	if len(noted) > 0 {
		failAll(noted, n.shrinkAll(func(a version.Attempt) bool { return n.done[a.Doc] }))
	}
}

// shrinkAll takes attempts out of the notes of earlier runs.
func (n *notes) shrinkAll(gone func(version.Attempt) bool) error {
	var empty []string
	var smaller []*rows.Row
	left := slices.Clone(n.found)
	for i, note := range n.found {
		note.Attempts = slices.DeleteFunc(slices.Clone(note.Attempts), gone)
		left[i] = note
		switch len(note.Attempts) {
		case len(n.found[i].Attempts):
		case 0:
			empty = append(empty, note.ID)
		default:
			row, err := note.Row(n.dimensions())
			if err != nil {
				return n.end.Fault(err)
			}
			smaller = append(smaller, row)
		}
	}
	err := n.vectors.deleteRows(empty)
	if err == nil && len(smaller) > 0 {
		err = n.vectors.upsert(smaller, n.dimensions())
	}
	if err == nil {
		n.found = left
	}
	return err
}

// deleting notes that documents are being deleted: what a deletion that is
// killed leaves is not found.
func (n *notes) deleting(documents []*document) error {
	if err := n.known(); err != nil {
		return err
	}
	for _, d := range documents {
		d.attempt = version.Attempt{Doc: rows.DocumentHash(d.id), At: n.now(d), Deleted: true}
	}
	n.write(split(documents))
	return nil
}

// deleted removes the notes of documents that are deleted, those of earlier
// runs first.
func (n *notes) deleted(documents []*document) {
	var closed []string
	for _, d := range documents {
		if d.note != nil && n.ends(d.note) && !slices.ContainsFunc(d.note.documents, (*document).halfStored) {
			closed = append(closed, d.note.id)
		}
	}
	n.outdate(documents)
	if !slices.ContainsFunc(documents, (*document).halfStored) {
		n.remove(closed, 0)
	}
}

// ends counts a document of a note that has ended, and reports whether it was
// the last.
func (n *notes) ends(note *openNote) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	note.ended++
	return note.ended == len(note.documents)
}

// notesKept is how many notes of complete documents may stay for a while:
// removing them one by one would cost a call for each group. They say nothing
// that the commit marks do not.
const notesKept = 8

// remove removes notes once there are more than so many.
func (n *notes) remove(closed []string, most int) {
	n.mu.Lock()
	n.closed = append(n.closed, closed...)
	var now []string
	if len(n.closed) > most && !n.end.Over() {
		now, n.closed = n.closed, nil
	}
	n.mu.Unlock()
	if len(now) == 0 {
		return
	}
	if err := n.vectors.deleteRows(now); err != nil {
		n.Logger.Warn("notes of finished documents stay in the collection until the next run", "error", err)
		return
	}
	n.mu.Lock()
	n.open -= len(now)
	n.mu.Unlock()
}
