package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// confirmedKept is how many documents are confirmed at once.
const confirmedKept = 500

// settler ends documents: it writes what failed to the journal, counts, and
// reports to the caller.
type settler struct {
	*scope
	settled chan Document
	summary Summary // belongs to report until reporting returns

	troubled func() bool // the journal may know problems from before this run

	mu        sync.Mutex
	left      error              // what a deferred document was left for
	confirmed []journal.Document // that the journal has not confirmed yet

	inputs map[string]bool // whether something in it is to be ingested

	unlisted []string // why places could not be listed
}

func newSettler(s *scope) *settler {
	return &settler{
		inputs: map[string]bool{},
		scope:  s, settled: make(chan Document), summary: Summary{Destination: s.Destination},
		troubled: sync.OnceValue(func() bool {
			totals, err := s.Journal.Totals(s.lasting(), s.Destination)
			return err != nil || totals.DeadLetters+totals.Deferred > 0
		}),
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

// pass ends a document that is neither ingested nor failed.
func (s *settler) pass(d *document, o *outcome) {
	report := d.report(o.result)
	report.Kind, report.Reason = o.kind, o.reason
	s.settled <- report
}

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

// unchanged notes that a document is as the journal says, if something else
// about it is not: it is read from another place, its source names the content
// differently, or something kept it from being ingested before.
func (s *settler) unchanged(d *document, done journal.Document) error {
	version := cmp.Or(d.version, done.Version)
	same := done.Location == d.location && done.Version == version
	if s.DryRun {
		return nil
	}
	if same && s.troubled() {
		_, failed, err := s.Journal.Problem(s.ctx, s.Destination, d.id)
		if err != nil {
			return s.end.Fault(err)
		}
		same = !failed
	}
	if !same {
		s.confirm(confirmedKept, journal.Document{ID: d.id, Location: d.location, Version: version})
	}
	return nil
}

// confirm adds documents, and has the journal confirm all once there are at
// least so many.
func (s *settler) confirm(least int, documents ...journal.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = append(s.confirmed, documents...)
	if len(s.confirmed) < least {
		return
	}
	if err := s.Journal.Confirm(s.lasting(), s.Destination, s.confirmed...); err != nil {
		_ = s.end.Fault(err) // the next run confirms them
	}
	s.confirmed = nil
}

// count notes an input, and whether something in it is to be ingested: a
// document that was neither skipped nor gone.
func (s *settler) count(input string, document bool) {
	if input == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputs[input] = s.inputs[input] || document
}

// emptyInputs lists, in a stable order, the inputs in which nothing was to be
// ingested: they hold no document, or only such as were skipped or gone.
func (s *settler) emptyInputs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var empty []string
	for input, documents := range s.inputs {
		if !documents {
			empty = append(empty, input)
		}
	}
	slices.Sort(empty)
	return empty
}

// unlistedKept bounds how many places that could not be listed are named.
const unlistedKept = 20

// isUnlisted notes a place that could not be listed.
func (s *settler) isUnlisted(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unlisted) < unlistedKept {
		s.unlisted = append(s.unlisted, why.Error())
	}
}

func (s *settler) unlistedPlaces() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unlisted)
}
