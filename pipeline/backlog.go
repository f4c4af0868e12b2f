package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
)

const (
	// backlogLimit bounds how long a run continues to list its inputs after an
	// upstream has stopped it.
	backlogLimit = 10 * time.Second
	// waitingKept is how many waiting documents are written at once.
	waitingKept = 500
)

// backlog finds the documents that wait because an upstream stopped the run
// before it came to them, and notes them in the journal as deferred. It reads
// no content and calls no upstream that is down: it compares what the listing
// says with what the journal holds.
type backlog struct {
	*scope
	decider *decider
	listed  chan struct{} // closed when the listing is over

	incomplete bool // some of the inputs were not listed; set by wait

	mu        sync.Mutex
	until     time.Time // when the run waits no longer; zero before it has ended
	closed    bool      // the run waits no longer, and its journal may be closed
	partly    bool      // some of the inputs were not listed
	found     findings
	reporting sync.WaitGroup // reports of failed that have begun
}

// findings are documents that wait, and those that do not wait any more.
type findings struct {
	waiting  []journal.Problem
	resolved []string
}

func (f findings) len() int { return len(f.waiting) + len(f.resolved) }

func newBacklog(s *scope, d *decider) *backlog {
	return &backlog{scope: s, decider: d, listed: make(chan struct{})}
}

// errUnbegun is the reason that the journal has for a document that waits.
var errUnbegun = errors.New("the run ended before this document was begun")

// look notes a document that the run does not come to any more, or a place that
// could not be listed. more is false where the rest is of no interest.
func (b *backlog) look(item source.Item, listing error) (more bool) {
	if !b.open() {
		return false
	}
	if listing == nil {
		listing = b.note(item)
	}
	if hidden(listing) {
		b.abandon()
	}
	return true
}

// open reports whether the run still waits for the listing.
func (b *backlog) open() bool {
	counts := b.counts()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if !counts || time.Now().After(b.untilLocked()) {
		b.partly = true
		return false
	}
	return true
}

// failed has what a listing yielded in place of a document reported, unless the
// run has been left already.
func (b *backlog) failed(listing error, report func()) {
	if !b.begin(listing) {
		return
	}
	defer b.reporting.Done()
	report()
}

// begin begins the report of what a listing yielded.
func (b *backlog) begin(listing error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.partly = b.partly || hidden(listing)
	b.reporting.Add(1)
	return true
}

// hidden reports whether documents may be where a listing failed.
func hidden(listing error) bool {
	_, empty := errors.AsType[*source.EmptyError](listing)
	_, twin := errors.AsType[*source.CollisionError](listing)
	return listing != nil && !empty && !twin
}

func (b *backlog) untilLocked() time.Time {
	if b.until.IsZero() {
		b.until = time.Now().Add(backlogLimit)
	}
	return b.until
}

// counts reports whether the run was stopped by an upstream. One that ended for
// another reason leaves the journal alone.
func (b *backlog) counts() bool {
	ended := b.end.Reason()
	if b.DryRun || ended == nil || ended.Upstream == "" {
		return false
	}
	return ended.Kind == StopDeferred || ended.Kind == StopDenied || ended.Kind == StopConfiguration
}

func (b *backlog) note(item source.Item) error {
	if item.Input != "" && !b.Parsers.LikelyText(item.ID, item.Size) {
		return nil // it will be skipped
	}
	found, err := b.find(item)
	if err != nil {
		return err
	}
	return b.write(b.ctx, b.add(found)) // the end of the run takes back what hangs
}

// find compares a document with what the journal holds.
func (b *backlog) find(item source.Item) (f findings, err error) {
	done, known, err := b.Journal.Document(b.ctx, b.Destination, item.ID)
	if err != nil {
		return f, err
	}
	problem, failed, err := b.Journal.Problem(b.ctx, b.Destination, item.ID)
	if err != nil {
		return f, err
	}
	deferred := failed && problem.Status == journal.Deferred
	switch b.compare(item, done, known) {
	case current:
		if deferred {
			f.resolved = []string{item.ID}
		}
	case changed:
		if !failed || !deferred && !b.knownDead(item, problem) {
			f.waiting = []journal.Problem{{
				ID: item.ID, Status: journal.Deferred, Stage: "list", Kind: NotBegun, Reason: errUnbegun.Error(),
				At: time.Now(), Location: item.Location,
			}}
		}
	case unclear:
	}
	return f, nil
}

// add keeps what was found, and returns it once it is worth a write.
func (b *backlog) add(f findings) (enough findings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return enough
	}
	b.found.waiting = append(b.found.waiting, f.waiting...)
	b.found.resolved = append(b.found.resolved, f.resolved...)
	if b.found.len() >= waitingKept {
		enough, b.found = b.found, findings{}
	}
	return enough
}

// complete reports whether a document that the run did not read to its end is
// known to be complete without.
func (b *backlog) complete(item source.Item) bool {
	if b.Journal == nil || b.end.Reason() == nil {
		return false
	}
	done, known, err := b.Journal.Document(b.lasting(), b.Destination, item.ID)
	return err == nil && b.compare(item, done, known) == current
}

func (b *backlog) write(ctx context.Context, f findings) error {
	if f.len() == 0 {
		return nil
	}
	if err := b.Journal.Fail(ctx, b.Destination, f.waiting...); err != nil {
		return err
	}
	return b.Journal.Dismiss(ctx, b.Destination, f.resolved...)
}

// knownDead reports whether a dead letter has not been written since.
func (b *backlog) knownDead(item source.Item, problem journal.Problem) bool {
	return !b.RetryDeadLetters && !item.Modified.After(problem.At)
}

// standing is how a document stands, by what a listing and the journal say.
type standing uint8

const (
	unclear standing = iota // only its content would tell
	current
	changed
)

// compare says whether a document is complete in the version that was listed.
func (b *backlog) compare(item source.Item, done journal.Document, known bool) standing {
	switch {
	case !known || !b.samePolicy(item, done):
		return changed
	case item.Listed == "":
		return unclear
	case done.Version != "" && done.Version == item.Listed:
		return current
	case done.Version != "", done.Size != 0 && item.Size >= 0 && done.Size != item.Size, item.Modified.After(done.At):
		return changed
	}
	return current
}

// samePolicy reports whether a document is complete by the policy of this run.
func (b *backlog) samePolicy(item source.Item, done journal.Document) bool {
	switch {
	case done.Policy == "": // its rows are being replaced
		return false
	case done.Parser == "":
		return true
	}
	d := newDocument(item.ID, item.Location)
	b.decider.policies(d, parse.Format{Parser: done.Parser, Version: b.decider.versions[done.Parser]})
	return b.decider.upToDate(d, done)
}

// wait waits for the rest of the listing, for a limited time, and writes what
// is left to write. A listing that hangs is abandoned; a report that has begun
// is not, since the caller gets each before Run returns.
func (b *backlog) wait() error {
	over := time.NewTimer(time.Until(b.deadline()))
	defer over.Stop()
	select {
	case <-b.listed:
	case <-over.C:
		b.abandon()
	case <-b.ctx.Done():
		b.abandon()
	}
	rest := b.leave()
	b.reporting.Wait()
	return b.write(b.lasting(), rest)
}

func (b *backlog) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.untilLocked()
}

// abandon notes that some of the inputs are not listed.
func (b *backlog) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.partly = true
}

// leave ends the wait, and returns what is still to be written.
func (b *backlog) leave() (rest findings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, b.found = b.found, findings{}
	b.closed, b.incomplete = true, b.partly
	return rest
}

// forgetGone drops the documents that wait and are no longer in the inputs,
// once these were listed whole, by a run that an upstream has stopped too.
func (b *backlog) forgetGone() error {
	if b.DryRun || b.Gone == nil || b.incomplete || b.end.Over() && !b.counts() {
		return nil
	}
	var gone []string
	for p, err := range b.Journal.Problems(b.lasting(), b.Destination, "") {
		if err != nil {
			return err
		}
		if p.Status == journal.Deferred && b.Gone(p.ID, p.Location) {
			gone = append(gone, p.ID)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return b.Journal.Dismiss(b.lasting(), b.Destination, gone...)
}

// account counts what waits for the destination, by the journal.
func (b *backlog) account(s *Summary) error {
	if b.Journal == nil {
		return nil
	}
	totals, err := b.Journal.Totals(b.lasting(), b.Destination)
	s.Waiting, s.WaitingAtLeast = totals.Deferred, b.incomplete
	return err
}
