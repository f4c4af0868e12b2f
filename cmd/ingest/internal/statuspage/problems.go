package statuspage

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
)

const (
	// pageLength is the number of documents on a page that lists them.
	pageLength = 100
	// scanned bounds the journal entries read at a time: thousands of deferred
	// documents can precede a dead letter.
	scanned = 10_000
	// worriesAge is how old the list may be while it changes.
	worriesAge = time.Second
)

// problemView is a document that is not ingested, as the page shows it.
type problemView struct {
	ID, Stage, Kind, Reason string
	At                      time.Time
	Again                   bool // the reason is that of the document before it
}

func newProblemView(p journal.Problem) problemView {
	return problemView{ID: clean(p.ID), Stage: p.Stage, Kind: p.Kind, Reason: clean(p.Reason), At: p.At}
}

// worriesView is the documents that are not ingested, by reason.
type worriesView struct {
	journal.Totals
	Dead, Put groupView // dead letters and deferred documents
	Fault     string    // why the journal cannot be read
}

// groupView is the most frequent reasons of one status.
type groupView struct {
	Status  journal.Status
	Reasons []reasonView
	Others  int // documents with other reasons
}

func newGroupView(status journal.Status, r *reasons, total int) groupView {
	v := groupView{Status: status, Reasons: r.most(), Others: total}
	for _, one := range v.Reasons {
		v.Others -= one.N
	}
	v.Others = max(0, v.Others) // the journal may have changed between the two reads
	return v
}

// worries caches the view.
type worries struct {
	mu    sync.Mutex
	stale bool
	asked time.Time
	view  worriesView
}

func (w *worries) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
}

// read returns the view. It reads the journal after a change, but at most once
// per worriesAge.
func (w *worries) read(ctx context.Context, from func(context.Context) worriesView) worriesView {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stale && time.Since(w.asked) >= worriesAge {
		w.stale = false
		w.view = from(ctx)
		w.asked = time.Now()
	}
	return w.view
}

func (p *Page) readWorries(ctx context.Context) (v worriesView) {
	var err error
	if v.Totals, err = p.config.Journal.Totals(ctx, p.config.Destination); err != nil {
		v.Fault = clean(err.Error())
		return v
	}
	var dead, put reasons
	if v.DeadLetters+v.Deferred > 0 {
		if err = p.groupProblems(ctx, &dead, &put); err != nil {
			v.Fault = clean(err.Error())
		}
	}
	v.Dead = newGroupView(journal.DeadLetter, &dead, v.DeadLetters)
	v.Put = newGroupView(journal.Deferred, &put, v.Deferred)
	return v
}

// groupProblems sorts the first problems by their reasons.
func (p *Page) groupProblems(ctx context.Context, dead, put *reasons) error {
	read := 0
	for one, err := range p.config.Journal.Problems(ctx, p.config.Destination, "") {
		switch {
		case err != nil:
			return err
		case one.Status == journal.DeadLetter:
			dead.add(one)
		default:
			put.add(one)
		}
		if read++; read == scanned {
			break
		}
	}
	return nil
}

// wanted says which documents a page lists.
type wanted struct {
	status journal.Status
	reason string // a key; empty for any
	after  string // the id that the page before ended with
}

func (w wanted) has(p journal.Problem) bool {
	return p.Status == w.status && (w.reason == "" || reasonKey(p) == w.reason)
}

// problems lists one page of documents. next is the id to continue after, empty
// at the end.
func (p *Page) problems(ctx context.Context, w wanted) (found []problemView, next string, err error) {
	read := 0
	for one, err := range p.config.Journal.Problems(ctx, p.config.Destination, w.after) {
		if err != nil {
			return nil, "", err
		}
		if w.has(one) {
			v := newProblemView(one)
			v.Again = len(found) > 0 && found[len(found)-1].Reason == v.Reason
			found = append(found, v)
		}
		if read++; len(found) == pageLength || read == scanned {
			return found, one.ID, nil
		}
	}
	return found, "", nil
}
