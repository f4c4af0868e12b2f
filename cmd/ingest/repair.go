package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/source"
)

type retryCmd struct {
	IngestFlags
}

// Run ingests the documents that failed or were deferred, and no others.
func (c *retryCmd) Run(ctx context.Context, a *app) error {
	if !a.hasJournal() {
		return a.nothingHere()
	}
	p, show, err := c.open(ctx, a, false, func(config *pipeline.Config) { config.RetryDeadLetters = true })
	if err != nil {
		return err
	}
	if known, err := a.opened.Destinations(ctx); err == nil && len(known) == 0 {
		return a.nothingHere()
	}
	if totals, err := a.opened.Totals(ctx, a.destination()); err == nil {
		show.total(totals.DeadLetters + totals.Deferred)
	}
	places := problemPlaces(ctx, a.opened, a.destination())
	summary, err := p.Run(ctx, source.Again(places, c.sources(a)))
	show.summary(summary)
	return c.verdict(summary, err)
}

// problemPlaces lists the documents that are not complete. The run changes only
// entries that it has already read.
func problemPlaces(ctx context.Context, j *journal.Journal, destination string) iter.Seq2[source.Place, error] {
	return func(yield func(source.Place, error) bool) {
		for p, err := range j.Problems(ctx, destination, "") {
			place := source.Place{ID: p.ID, Location: p.Location}
			if err == nil && p.Kind == pipeline.NameCollision && !place.Gone() {
				if twinGone(ctx, j, destination, p.ID) {
					continue // the next run gives it the ID of that
				}
				err = &source.CollisionError{Second: p.Location, Alias: p.ID, Before: p.Reason}
			}
			if !yield(place, err) {
				return
			}
		}
	}
}

// twinGone reports whether the file is no longer there that has the ID of a
// document with this alias.
func twinGone(ctx context.Context, j *journal.Journal, destination, alias string) bool {
	name, err := url.PathUnescape(alias)
	if err != nil {
		return false
	}
	if mark := strings.LastIndex(name, "./"); mark >= 0 {
		name = name[:mark] + name[mark+len("./"):]
	}
	twin, known, err := j.Document(ctx, destination, source.Identity(name))
	return err == nil && known && (source.Place{Location: twin.Location}).Gone()
}

type deleteCmd struct {
	Sources []string `arg:"" name:"source" help:"Document IDs, as shown by 'status' and 'search'. An ID that ends with a slash selects every document below it."`
}

// Run deletes documents: chunks, originals and journal entries.
func (c *deleteCmd) Run(ctx context.Context, a *app) error {
	if !a.hasJournal() && !a.hasStore() {
		return a.nothingHere()
	}
	var missing []string
	p, show, err := new(IngestFlags).open(ctx, a, false, noting(&missing))
	if err != nil {
		return err
	}
	ids, err := c.ids(ctx, a)
	if err != nil {
		return err
	}
	summary, err := p.Delete(ctx, ids...)
	show.summary(summary)
	if err == nil && summary.NotFound > 0 {
		return &codedError{code: exitData, err: a.folders(ctx, missing)}
	}
	return new(IngestFlags).verdict(summary, err)
}

// noting keeps the IDs that are not found.
func noting(missing *[]string) func(*pipeline.Config) {
	return func(config *pipeline.Config) {
		report := config.Report
		config.Report = func(d pipeline.Document) {
			if d.Result == pipeline.NotFound {
				*missing = append(*missing, d.ID)
			}
			report(d)
		}
	}
}

// folders says which names without a document have documents below them; nil
// if there are no such names. What cannot be listed is not suggested.
func (a *app) folders(ctx context.Context, names []string) error {
	var found []error
	for _, name := range names {
		folder := strings.TrimSuffix(name, "/") + "/"
		if below, err := idsBelow(ctx, a.opened, a.destination(), folder); err == nil && len(below) > 0 {
			found = append(found, fmt.Errorf("%s is not a document; did you mean %s with the %s below it?",
				name, folder, numberOf(len(below), "document")))
		}
	}
	return errors.Join(found...)
}

// ids resolves the named documents.
func (c *deleteCmd) ids(ctx context.Context, a *app) ([]string, error) {
	var ids []string
	for _, name := range c.Sources {
		named, err := a.named(ctx, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, named...)
	}
	return ids, nil
}

// named returns the documents of a name, which may be that of a file whose ID
// another file has. A name without any is returned, to be reported.
func (a *app) named(ctx context.Context, name string) ([]string, error) {
	alias, id := source.Alias(name), source.Identity(name)
	for _, form := range []string{alias, id} {
		if strings.HasSuffix(name, "/") {
			below, err := idsBelow(ctx, a.opened, a.destination(), strings.TrimSuffix(form, "./"))
			if err != nil || len(below) > 0 {
				return below, err
			}
			continue
		}
		problem, known, err := a.opened.Problem(ctx, a.destination(), form)
		if err != nil || known && problem.Kind == pipeline.NameCollision {
			return []string{form}, err
		}
	}
	return []string{id}, nil
}

// idsBelow lists the documents whose IDs begin with a prefix, sorted: complete
// ones, dead letters and those that wait.
func idsBelow(ctx context.Context, j *journal.Journal, destination, prefix string) ([]string, error) {
	before := strings.TrimSuffix(prefix, "/") // what sorts just before
	complete, err := beginning(prefix, j.Documents(ctx, destination, before),
		func(d journal.Document) string { return d.ID })
	if err != nil {
		return nil, err
	}
	others, err := beginning(prefix, j.Problems(ctx, destination, before),
		func(p journal.Problem) string { return p.ID })
	ids := append(complete, others...)
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// beginning returns the IDs that begin with a prefix, of entries sorted by ID.
func beginning[T any](prefix string, entries iter.Seq2[T, error], id func(T) string) (ids []string, err error) {
	for entry, err := range entries {
		switch one := id(entry); {
		case err != nil:
			return nil, err
		case strings.HasPrefix(one, prefix):
			ids = append(ids, one)
		case one > prefix:
			return ids, nil
		}
	}
	return ids, nil
}

type verifyCmd struct {
	Repair bool `help:"Fix what differs: queue missing documents for 'retry', delete stale, orphaned and unfinished chunks, add unknown documents to the journal, restore originals from their sources."`
	Deep   bool `help:"Read every original and compare its content."`

	WebFlags `embed:""`
}

// Run compares the journal with the vector store and the originals.
func (c *verifyCmd) Run(ctx context.Context, a *app) error {
	a.onlyLooks = !c.Repair
	if !a.hasJournal() && !a.hasStore() {
		return a.nothingHere()
	}
	p, _, err := new(IngestFlags).open(ctx, a, false)
	if err != nil {
		return err
	}
	options := pipeline.VerifyOptions{Repair: c.Repair, Deep: c.Deep, Sources: c.sources(a)}
	result, err := p.Verify(ctx, options, a.printFault)
	if err != nil {
		return stopped(ctx, a, err)
	}
	if known, err := a.opened.Destinations(ctx); err == nil && len(known) == 0 && result.Rows+result.Originals == 0 {
		return a.nothingHere()
	}
	a.printVerification(result, c.Repair)
	switch {
	case !result.Consistent():
		return &codedError{code: exitData}
	case result.Missing > 0:
		return &codedError{code: exitTemporary}
	}
	return nil
}

func (a *app) printFault(f pipeline.Fault) {
	if a.settings.JSON {
		a.printJSON(f)
		return
	}
	var notes []string
	if f.Rows > 0 {
		notes = append(notes, numberOf(f.Rows, "chunk"))
	}
	if f.Detail != "" {
		notes = append(notes, plain.Line(f.Detail))
	}
	if f.Repaired {
		notes = append(notes, "repaired")
	}
	line := f.Kind + "  " + plain.Name(f.ID)
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, ", ") + ")"
	}
	fmt.Fprintln(a.stdout, line)
}

func (a *app) printVerification(v pipeline.Verification, repair bool) {
	if a.settings.JSON {
		a.printJSON(map[string]pipeline.Verification{"summary": v})
		return
	}
	fmt.Fprintf(a.stdout,
		"%s, %s: %d missing, %d stale, %d orphaned, %d unknown to the journal; %d repaired\n",
		numberOf(v.Documents, "document"), numberOf(v.Rows, "chunk"), v.Missing, v.Stale,
		v.Orphaned, v.Unknown, v.Repaired)
	fmt.Fprintf(a.stdout, "%s in %s: %d lost, %d damaged, %d orphaned, %d elsewhere\n",
		numberOf(v.Originals, "original"), v.Folder, v.OriginalsLost, v.OriginalsDamaged, v.OriginalsOrphaned,
		v.OriginalsElsewhere)
	switch {
	case v.Removed > 0:
		fmt.Fprintf(a.stdout, "chunks of unfinished versions of %s removed\n",
			numberOf(v.Removed, "document"))
	case v.Unfinished > 0:
		fmt.Fprintf(a.stdout,
			"chunks of unfinished versions of %s remain, hidden from searches; the next run with the state that "+
				"wrote them removes them, any other run after a day\n",
			numberOf(v.Unfinished, "document"))
	}
	switch {
	case v.OriginalsCopied > 0:
		fmt.Fprintf(a.stdout, "%s copied from keys of an earlier version\n", numberOf(v.OriginalsCopied, "original"))
	case v.OriginalsElsewhere > 0:
		fmt.Fprintln(a.stdout, "originals elsewhere have keys of an earlier version; 'ingest verify --repair' copies them")
	}
	switch {
	case !repair && !v.Consistent():
		fmt.Fprintln(a.stdout, "'ingest verify --repair' fixes what can be fixed")
	case v.Missing > 0 && v.Repaired > 0:
		fmt.Fprintln(a.stdout, "run 'ingest retry' to ingest the missing documents again")
	}
}
