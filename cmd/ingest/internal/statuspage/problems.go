package statuspage

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
)

const (
	// listed is how many documents of each kind the page lists; the rest is on
	// pages of their own.
	listed = 20
	// pageLength is the number of documents on such a page.
	pageLength = 100
	// scanned bounds the journal entries read to find them: thousands of
	// deferred documents can precede a dead letter.
	scanned = 10_000
	// worriesAge is how old the list may be while it changes.
	worriesAge = time.Second
)

// problemView is a document that is not ingested, as the page shows it.
type problemView struct {
	key                     string // the id as it is
	ID, Stage, Kind, Reason string
	At                      time.Time
}

func newProblemView(p journal.Problem) problemView {
	return problemView{key: p.ID, ID: clean(p.ID), Stage: p.Stage, Kind: p.Kind, Reason: clean(p.Reason), At: p.At}
}

// worriesView lists documents that are not ingested.
type worriesView struct {
	journal.Totals
	Dead, Put []problemView // dead letters and deferred documents, the first of them
	Fault     string        // why the journal cannot be read
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
	if v.Dead, err = p.problems(ctx, journal.DeadLetter, "", min(listed, v.DeadLetters)); err == nil {
		v.Put, err = p.problems(ctx, journal.Deferred, "", min(listed, v.Deferred))
	}
	if err != nil {
		v.Fault = clean(err.Error())
	}
	return v
}

// problems lists at most n documents of one status, those after the given id.
func (p *Page) problems(
	ctx context.Context, status journal.Status, after string, n int,
) (found []problemView, err error) {
	read := 0
	for one, err := range p.config.Journal.Problems(ctx, p.config.Destination, after) {
		switch {
		case err != nil:
			return nil, err
		case len(found) == n || read == scanned:
			return found, nil
		case one.Status == status:
			found = append(found, newProblemView(one))
		}
		read++
	}
	return found, nil
}
