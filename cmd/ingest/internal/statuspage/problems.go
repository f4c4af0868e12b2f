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
	// scanned bounds the journal entries read for such a page: thousands of
	// documents can precede one with the reason that is wanted.
	scanned = 10_000
	// grouped bounds the documents of each status that are sorted by reason.
	// That many take a fraction of a second.
	grouped = 50_000
	// worriesAge is how old the list may be while it changes, and rests how
	// many times as long as the last read of the journal the pause after it is.
	worriesAge = time.Second
	rests      = 9
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
	Unread  int // documents whose reason was not looked at
}

func newGroupView(status journal.Status, r *reasons, total int) groupView {
	// The journal may have changed between the two reads.
	v := groupView{Status: status, Reasons: r.most(), Others: r.N, Unread: max(0, total-r.N)}
	for _, one := range v.Reasons {
		v.Others -= one.N
	}
	return v
}

// worries caches the view.
type worries struct {
	mu    sync.Mutex
	stale bool
	next  time.Time // not read again before
	view  worriesView
}

func (w *worries) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
}

// read returns the view. It reads the journal after a change, but at most once
// per worriesAge and for a tenth of the time.
func (w *worries) read(ctx context.Context, from func(context.Context) worriesView) worriesView {
	w.mu.Lock()
	defer w.mu.Unlock()
	if began := time.Now(); w.stale && !began.Before(w.next) {
		w.stale = false
		w.view = from(ctx)
		ended := time.Now()
		w.next = ended.Add(max(worriesAge, rests*ended.Sub(began)))
	}
	return w.view
}

func (p *Page) readWorries(ctx context.Context) (v worriesView) {
	var err error
	if v.Totals, err = p.config.Journal.Totals(ctx, p.config.Destination); err != nil {
		v.Fault = clean(err.Error())
		return v
	}
	for status, group := range map[journal.Status]*groupView{journal.DeadLetter: &v.Dead, journal.Deferred: &v.Put} {
		if *group, err = p.group(ctx, status, v.Totals); err != nil {
			v.Fault = clean(err.Error())
		}
	}
	return v
}

// group sorts the documents of one status by their reasons.
func (p *Page) group(ctx context.Context, status journal.Status, totals journal.Totals) (groupView, error) {
	var found reasons
	for one, err := range p.config.Journal.ProblemsOf(ctx, p.config.Destination, status, "") {
		if err != nil {
			return groupView{}, err
		}
		if found.add(one); found.N == grouped {
			break
		}
	}
	return newGroupView(status, &found, total(totals, status)), nil
}

// total is how many documents have a status.
func total(t journal.Totals, status journal.Status) int {
	if status == journal.Deferred {
		return t.Deferred
	}
	return t.DeadLetters
}

// wanted says which documents a page lists.
type wanted struct {
	status journal.Status
	reason string // a key; empty for any
	after  string // the id that the page before ended with
}

func (w wanted) has(p journal.Problem) bool { return w.reason == "" || reasonKey(p) == w.reason }

// problems lists one page of documents. next is the id to continue after, empty
// at the end.
func (p *Page) problems(ctx context.Context, w wanted) (found []problemView, next string, err error) {
	read := 0
	for one, err := range p.config.Journal.ProblemsOf(ctx, p.config.Destination, w.status, w.after) {
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
