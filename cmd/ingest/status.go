package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
)

type statusCmd struct {
	All bool `help:"Show every destination in the journal, not only the configured one."`
}

// destinationStatus is the status of one destination.
type destinationStatus struct {
	Destination string `json:"destination"`
	journal.Totals
	// Waiting and the next three are as in a summary, by the journal as it is.
	Waiting        int        `json:"waiting"`
	WaitingAtLeast bool       `json:"waiting_at_least,omitempty"`
	WaitingSince   *time.Time `json:"waiting_since,omitempty"`
	LastSuccess    *time.Time `json:"last_success,omitempty"`

	LastRun  *pipeline.Summary `json:"last_run,omitempty"`
	EndedAt  *time.Time        `json:"ended_at,omitempty"`
	Problems []journal.Problem `json:"problems,omitempty"`
}

// Run prints the journal's contents. It needs no lock, so it works during a
// run.
func (c *statusCmd) Run(ctx context.Context, a *app) error {
	j, err := a.journal(ctx, true)
	if err != nil {
		return err
	}
	if j == nil {
		return a.nothingHere()
	}
	destinations := []string{a.destination()}
	if c.All {
		if destinations, err = j.Destinations(ctx); err != nil {
			return err
		}
	}
	for _, destination := range destinations {
		status, err := readStatus(ctx, j, destination)
		if err != nil {
			return err
		}
		a.printStatus(status)
	}
	return nil
}

// countWaiting sets what waits by a journal that another run holds, as far as
// it can be read here.
func (a *app) countWaiting(ctx context.Context, s *pipeline.Summary) {
	if _, _, remote := a.settings.remoteState(); remote {
		return
	}
	j, err := a.localJournal(ctx, true)
	if err != nil {
		return // the summary says why the journal could not be opened
	}
	status, err := readStatus(ctx, j, s.Destination)
	if err == nil {
		s.Waiting, s.WaitingAtLeast, s.WaitingSince = status.Waiting, status.WaitingAtLeast, status.WaitingSince
		s.LastSuccess = status.LastSuccess
	}
}

// lastSummary is the summary of the last run, as far as it is known on this
// machine.
func (a *app) lastSummary(ctx context.Context) (last pipeline.Summary) {
	j := a.opened
	if j == nil && journal.Exists(a.settings.State) {
		var err error
		if j, err = a.localJournal(ctx, true); err != nil {
			return last // a search says nothing of a journal that it does not need
		}
	}
	if j != nil {
		last, _, _ = pipeline.LastSummary(ctx, j, a.destination())
	}
	return last
}

func readStatus(ctx context.Context, j *journal.Journal, destination string) (destinationStatus, error) {
	status := destinationStatus{Destination: destination}
	var err error
	if status.Totals, err = j.Totals(ctx, destination); err != nil {
		return status, err
	}
	for p, err := range j.Problems(ctx, destination, "") {
		if err != nil {
			return status, err
		}
		status.Problems = append(status.Problems, p)
	}
	status.Waiting = status.Deferred
	last, at, err := pipeline.LastSummary(ctx, j, destination)
	if err != nil || at.IsZero() {
		return status, err
	}
	status.EndedAt, status.LastRun, status.LastSuccess = &at, &last, last.LastSuccess
	status.WaitingAtLeast = last.WaitingAtLeast
	if status.Waiting > 0 {
		status.WaitingSince = last.WaitingSince
	}
	return status, nil
}

func (a *app) printStatus(s destinationStatus) {
	if a.settings.JSON {
		a.printJSON(s)
		return
	}
	fmt.Fprintf(a.stdout, "%s\n", plain.Name(s.Destination))
	fmt.Fprintf(a.stdout, "  %s, %s, %s, %d deferred\n", numberOf(s.Documents, "document"), numberOf(s.Chunks, "chunk"),
		numberOf(s.DeadLetters, "dead letter"), s.Deferred)
	if s.LastRun != nil {
		fmt.Fprintf(a.stdout, "  last run, ended %s:\n", clock(*s.EndedAt))
		for _, upstream := range slices.Sorted(maps.Keys(s.LastRun.Breakers)) {
			fmt.Fprintf(a.stdout, "    breaker %s: %s\n", upstream, standing(*s.LastRun, upstream))
		}
		writeSummary(a.stdout, "    ", a.ink, *s.LastRun)
		for _, why := range s.LastRun.Unlisted {
			fmt.Fprintf(a.stdout, "    %s\n", a.ink.bad(plain.Line(why)))
		}
	}
	if s.LastSuccess != nil {
		fmt.Fprintf(a.stdout, "  last run with nothing left to do: %s\n", clock(*s.LastSuccess))
	}
	a.printProblems(s.Problems, s.LastRun)
}

// standing is the state of a breaker after a run, and what the run found of its
// upstream: a breaker is closed until several calls have failed.
func standing(s pipeline.Summary, upstream string) string {
	state := s.Breakers[upstream]
	if hold := s.Holds[upstream]; hold != "" {
		state += ", " + plain.Line(hold)
	}
	switch s.Upstreams[upstream] {
	case pipeline.UpstreamDown:
		state += "; the upstream is down"
	case pipeline.UpstreamRefused:
		state += "; the upstream refuses the credentials or the quota"
	}
	return state
}

// printProblems prints a line for each dead letter, and one for each group of
// deferred documents.
func (a *app) printProblems(problems []journal.Problem, last *pipeline.Summary) {
	var deferred deferrals
	for _, p := range problems {
		if p.Status == journal.Deferred {
			deferred.add(pipeline.Document{ID: p.ID, Stage: p.Stage, Kind: p.Kind, Reason: p.Reason})
			continue
		}
		fmt.Fprintf(a.stdout, "  %s  %s: %s (%s, %s)\n", a.ink.bad(string(p.Status)), plain.Name(p.ID),
			plain.Line(p.Reason), p.Stage, p.Kind)
	}
	var said *pipeline.Stop
	if last != nil {
		said = last.Stopped
	}
	for _, line := range deferred.lines(said) {
		fmt.Fprintf(a.stdout, "  %s  %s\n", a.ink.warn("deferred"), line)
	}
}
