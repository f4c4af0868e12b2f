package pipeline

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/rows"
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
	err    error
	writer string // names the journal
	run    string
	found  version.Notes                // set by once
	byDoc  map[string][]version.Attempt // of found

	mu    sync.Mutex
	noted bool            // the journal knows that there are notes
	open  int             // notes of this run that are there
	done  map[string]bool // documents, by hash, of which nothing is left but one version; false: deferred
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

// begin notes the attempts on documents before the first row of theirs is
// written: one note for the documents that end in the group, and one for each
// that does not. It waits for the groups that note the others.
func (n *notes) begin(group []*part, list []writing) {
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
		case writes[d] > 1 || writes[d] == 1 && len(d.existing) > 0: // a commit mark alone is never half
			d.attempt = n.attempt(d)
			whole = append(whole, d)
		}
	}
	n.write(append(open, split(whole)...))
	for _, p := range group {
		if p.first {
			close(p.doc.begun)
		}
	}
	for _, p := range group {
		<-p.doc.begun
	}
	for _, w := range list {
		if !w.row.IsMark() {
			w.row.SHA = w.doc.attempt.Stamp
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
		Doc: rows.DocumentHash(d.id), SHA: d.sha, Policy: d.policy, At: time.Now().UnixMilli(), Before: d.marks,
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
		note.id = noteID()
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

func noteID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return "note-" + hex.EncodeToString(id[:])
}

// complete says in the notes of documents whose commit mark was there before
// that all their rows are there now: the mark alone does not say it.
func (n *notes) complete(documents []*document) {
	var list []*openNote
	for _, d := range documents {
		if d.failure() != nil || d.note == nil || !d.markKept {
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
	for i, d := range ended {
		n.settled(d)
		note := d.note
		if note == nil || slices.ContainsFunc(ended[:i], func(o *document) bool { return o.note == note }) {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(note.documents), func(d *document) bool { return !d.halfStored() })
		switch {
		case len(left) == 0:
			closed = append(closed, note.id)
		case len(left) < len(note.documents):
			note.documents = left
			smaller = append(smaller, note)
		}
	}
	n.write(smaller)
	if len(closed) == 0 || n.end.Over() {
		return
	}
	if err := n.vectors.deleteRows(closed); err != nil {
		n.Logger.Warn("notes of finished documents stay in the collection until the next run", "error", err)
		return
	}
	n.mu.Lock()
	n.open -= len(closed)
	n.mu.Unlock()
}

// settled notes how a document has ended that an earlier run left unfinished.
func (n *notes) settled(d *document) {
	if len(n.before(d)) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done[rows.DocumentHash(d.id)] = !d.halfStored()
}

// halfStored reports whether the store may hold rows of a version of the
// document that is not complete.
func (d *document) halfStored() bool { return d.failure() != nil && !d.discarded }

// noteAge is the age from which a note of another journal's run counts as
// abandoned. It is far beyond the time that a document takes.
const noteAge = 24 * time.Hour

// abandoned reports whether the run that wrote a note is over: runs of one
// journal follow each other.
func (n *notes) abandoned(note version.Note) bool {
	return note.Run != n.run && (note.Writer == n.writer || time.Since(note.At) > noteAge)
}

// sweep removes what earlier runs left of documents that did not come up in
// this one, and the notes of those that have one version again. What cannot be
// removed now is left to the next run, and what another journal's run may still
// be writing to that.
func (n *notes) sweep(discard *discarder) {
	if err := n.known(); err != nil {
		return // which has ended the run, or keeps the next from sweeping as well
	}
	defer n.forget()
	for i, note := range n.found {
		if n.end.Over() {
			return
		}
		var left []version.Attempt
		for _, a := range note.Attempts {
			if !n.done[a.Doc] && !(n.abandoned(note) && n.swept(a, discard)) {
				left = append(left, a)
			}
		}
		n.found[i].Attempts = left
		n.shrink(n.found[i], len(note.Attempts))
	}
}

// swept reports whether nothing is left of an attempt but rows of a complete
// version.
func (n *notes) swept(a version.Attempt, discard *discarder) bool {
	if done, known := n.done[a.Doc]; known {
		return done
	}
	err := discard.remains(a.Doc, n.byDoc[a.Doc])
	if err != nil && !n.end.Over() {
		n.Logger.Warn("rows of an unfinished version stay in the collection, hidden, until the next run", "error", err)
	}
	n.done[a.Doc] = err == nil
	return err == nil
}

// shrink writes an earlier run's note again with what is left of it.
func (n *notes) shrink(note version.Note, before int) {
	var err error
	switch len(note.Attempts) {
	case before:
		return
	case 0:
		err = n.vectors.deleteRows([]string{note.ID})
	default:
		var row *rows.Row
		if row, err = note.Row(n.dimensions()); err == nil {
			err = n.vectors.upsert([]*rows.Row{row}, n.dimensions())
		}
	}
	if err != nil {
		n.Logger.Warn("a note of unfinished documents stays in the collection until the next run", "error", err)
	}
}

// forget has the journal no longer expect notes, where none of its runs' is
// left.
func (n *notes) forget() {
	left := slices.ContainsFunc(n.found, func(note version.Note) bool {
		return n.abandoned(note) && len(note.Attempts) > 0
	})
	if left || n.open > 0 || !n.noted || n.end.Over() {
		return
	}
	if err := n.Journal.SetUnfinished(n.lasting(), n.Destination, false); err != nil {
		_ = n.end.Fault(err) // the next run looks for them
	}
}
