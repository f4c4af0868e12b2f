package pipeline

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// movesKept is how many moves are written at once.
const movesKept = 500

// settler ends documents: it writes what failed to the journal, counts, and
// reports to the caller.
type settler struct {
	*scope
	settled chan Document
	summary Summary // belongs to report until reporting returns

	mu    sync.Mutex
	left  error             // what a deferred document was left for
	moves map[string]string // new locations by id, not in the journal yet
}

func newSettler(s *scope) *settler {
	return &settler{
		scope: s, settled: make(chan Document), moves: map[string]string{},
		summary: Summary{Destination: s.Destination},
	}
}

// reporting does work whose documents are reported as they are settled.
func (s *settler) reporting(work func()) {
	defer s.close()
	reported := make(chan struct{})
	go func() { s.report(); close(reported) }()
	work()
	close(s.settled)
	<-reported
}

// report counts the documents and hands them to the caller, one at a time.
func (s *settler) report() {
	for d := range s.settled {
		s.summary.add(d)
		s.Metrics.Document(string(d.Result))
		s.Report(d)
	}
}

// done ends a document with a result.
func (s *settler) done(d *document, result Result) { s.settled <- d.report(result) }

// settle ends a document: err is nil when it is ingested, and else a failure.
// What failed is written to the journal before it is reported.
func (s *settler) settle(d *document, err error) {
	if err == nil {
		s.done(d, d.result())
		return
	}
	f := stop.AsFailure(d.stage, err)
	report := d.report(DeadLetter)
	if f.Deferred {
		report.Result = Deferred
		s.leave(f.Err)
	}
	report.Stage, report.Kind = f.Stage, f.Kind
	report.Reason = reasonOf(d, f.Err)
	if !s.DryRun && !d.unlisted {
		s.keepProblem(d, report)
	}
	s.settled <- report
}

// leave keeps what a document was left for: the first that names an upstream.
func (s *settler) leave(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil || stop.Upstream(s.left) == "" && stop.Upstream(cause) != "" {
		s.left = cause
	}
}

func (s *settler) keepProblem(d *document, report Document) {
	status := journal.DeadLetter
	if report.Result == Deferred {
		status = journal.Deferred
	}
	err := s.Journal.Fail(s.lasting(), s.Destination, journal.Problem{
		ID: d.id, SHA: d.sha, Policy: s.tried(d, report.Kind), Status: status,
		Stage: report.Stage, Kind: report.Kind, Reason: report.Reason, At: time.Now(), Location: d.location,
	})
	if err != nil {
		_ = s.end.Fault(fmt.Errorf("recording %s: %w", d.id, err)) // the document is settled all the same
	}
}

// reasonOf is what an error says, without the document's name before it.
func reasonOf(d *document, err error) string { return strings.TrimPrefix(err.Error(), d.id+": ") }

// moved notes that an unchanged document is read from another place than the
// journal says.
func (s *settler) moved(d *document, from string) {
	if from == d.location || s.DryRun {
		return
	}
	s.mu.Lock()
	s.moves[d.id] = d.location
	s.mu.Unlock()
	s.keepMoves(movesKept)
}

// keepMoves writes the moves to the journal once there are at least so many.
func (s *settler) keepMoves(least int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.moves) < least {
		return
	}
	if err := s.Journal.Move(s.lasting(), s.Destination, s.moves); err != nil {
		_ = s.end.Fault(err) // the next run moves them
	}
	clear(s.moves)
}
