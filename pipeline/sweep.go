package pipeline

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline/version"
)

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
	n.remove(nil, 0)
	if err := n.known(); err != nil {
		return // which has ended the run, or keeps the next from sweeping as well
	}
	n.sweeping.Lock()
	defer n.sweeping.Unlock()
	if err := n.sweepAll(discard); err != nil {
		if !n.end.Over() {
			n.Logger.Warn("rows of unfinished versions stay in the collection, hidden, until the next run", "error", err)
		}
		return
	}
	n.forget()
}

// sweepAll goes by the rule of outdate: rows, notes that are no longer true,
// commit marks, and last the notes that tell these apart.
func (n *notes) sweepAll(discard *discarder) error {
	current := map[attemptKey]bool{}
	var marks []string
	for _, doc := range n.abandonedDocuments() {
		left, err := discard.remains(doc, n.byDoc[doc])
		if err != nil {
			return err
		}
		n.done[doc] = true
		marks = append(marks, left.marks...)
		for _, a := range left.current {
			current[attemptKey{a.Stamp, a.At}] = true
		}
	}
	err := n.shrinkAll(func(a version.Attempt) bool { return n.done[a.Doc] && !current[attemptKey{a.Stamp, a.At}] })
	if err == nil {
		err = n.vectors.deleteRows(marks)
	}
	if err == nil {
		err = n.shrinkAll(func(a version.Attempt) bool { return n.done[a.Doc] })
	}
	return err
}

// attemptKey tells attempts apart: stamps differ between documents.
type attemptKey struct {
	stamp string
	at    int64
}

// abandonedDocuments are those in notes of runs that are over, by hash, that
// did not come up in this run.
func (n *notes) abandonedDocuments() []string {
	hashes := map[string]bool{}
	for _, note := range n.found {
		if !n.abandoned(note) {
			continue
		}
		for _, a := range note.Attempts {
			if _, known := n.done[a.Doc]; !known {
				hashes[a.Doc] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(hashes))
}

// finish ends what a deletion has noted.
func (n *notes) finish() {
	n.sweeping.Lock()
	defer n.sweeping.Unlock()
	n.forget()
}

// forget has the journal no longer expect notes, where none of its runs' is
// left.
func (n *notes) forget() {
	left := slices.ContainsFunc(n.found, func(note version.Note) bool {
		return n.abandoned(note) && len(note.Attempts) > 0
	})
	if left || n.open > 0 || !n.noted {
		return
	}
	if err := n.Journal.SetUnfinished(n.lasting(), n.Destination, false); err != nil {
		_ = n.end.Fault(err) // the next run looks for them
	}
}
