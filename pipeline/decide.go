package pipeline

import (
	"cmp"
	"context"
	"errors"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
)

var (
	errUnchanged = errors.New("unchanged")
	errKnown     = errors.New("unchanged dead letter")
)

// decider decides what is to be done with a document, by what the journal says
// about it: nothing (errUnchanged, errKnown), or to ingest it (nil) by the
// policies that it sets.
type decider struct {
	*scope
	chunker   *chunk.Chunker
	versions  map[string]int // of the parsers, by name
	enriching func() bool    // documents are still enriched
	unchanged func(d *document, done journal.Document) error
}

// policies sets which policies a document may have, and whether it is to be
// enriched in this run.
func (c *decider) policies(d *document, format parse.Format) {
	d.plain = policyHash(&c.Config, c.chunker, format)
	d.policy, d.rich = d.plain, policyHash(&c.Config, c.chunker, format, c.Enrich.wanted().Policy(c.Enrich.Model)...)
	d.enriching = c.enriching()
	d.unenriched = c.Enrich.on() && !d.enriching
	if d.enriching {
		d.policy, d.more = d.rich, &enrichment{begun: make(chan struct{})}
	}
}

// upToDate reports whether there is nothing to do for a document of the same
// content: it was made by the same policy, its enrichment included; or by the
// same apart from that, in a run that enriches nothing or has spent its budget.
// Enrichment that was paid for stays.
func (c *decider) upToDate(d *document, done journal.Document) bool {
	switch {
	case c.Enrich.on() && done.Plain == d.plain && done.Policy == d.rich && !done.Pending:
		d.unenriched = false
		return true
	case d.enriching:
		return false
	}
	return cmp.Or(done.Plain, done.Policy) == d.plain
}

// byVersion decides without reading the document, where its source says that it
// has not changed since.
func (c *decider) byVersion(d *document, version func(context.Context) string) error {
	if version == nil || c.Journal == nil {
		return nil
	}
	done, ok, err := c.Journal.Document(c.ctx, c.Destination, d.id)
	switch {
	case err != nil:
		return c.end.Fault(err)
	case !ok || done.Version == "":
		return nil
	}
	c.policies(d, parse.Format{Parser: done.Parser, Version: c.versions[done.Parser]})
	if !c.upToDate(d, done) || version(c.ctx) != done.Version {
		return nil
	}
	return c.confirmed(d, done)
}

// confirmed is errUnchanged, or what kept the journal from saying so.
func (c *decider) confirmed(d *document, done journal.Document) error {
	d.chunks = done.Chunks
	return cmp.Or(c.unchanged(d, done), errUnchanged)
}

// byContent decides once the content and its format are known.
func (c *decider) byContent(d *document) error {
	if c.Journal == nil {
		return nil
	}
	done, ok, err := c.Journal.Document(c.ctx, c.Destination, d.id)
	switch {
	case err != nil:
		return c.end.Fault(err)
	case ok && done.SHA == d.sha && c.upToDate(d, done):
		return c.confirmed(d, done)
	}
	d.recorded = ok
	if ok && done.SHA == d.sha && cmp.Or(done.Plain, done.Policy) == d.plain {
		d.before, d.pending = done.Policy, done.Pending
	}
	return c.deadBefore(d)
}

// deadBefore decides about a document that was a dead letter in this version.
func (c *decider) deadBefore(d *document) error {
	return c.unlessKnown(d, func(p journal.Problem) bool {
		return p.Status == journal.DeadLetter && p.SHA == d.sha && p.Policy == c.tried(d, p.Kind)
	})
}

// unreadableBefore decides about a document that cannot be read: for the same
// reason as before, it is no news.
func (c *decider) unreadableBefore(d *document, cause error) error {
	return c.unlessKnown(d, func(p journal.Problem) bool {
		return p.Kind == "unreadable" && p.Reason == reasonOf(d, cause)
	})
}

// collidedBefore decides about a file whose ID another has.
func (c *decider) collidedBefore(d *document, cause error) error {
	return c.unlessKnown(d, func(p journal.Problem) bool {
		return p.Kind == NameCollision && p.Reason == reasonOf(d, cause)
	})
}

// unlessKnown is errKnown for a document whose problem in the journal is the
// same, unless dead letters are tried again.
func (c *decider) unlessKnown(d *document, same func(journal.Problem) bool) error {
	if c.Journal == nil || c.RetryDeadLetters {
		return nil
	}
	p, ok, err := c.Journal.Problem(c.ctx, c.Destination, d.id)
	switch {
	case err != nil:
		return c.end.Fault(err)
	case ok && same(p):
		return errKnown
	}
	return nil
}

// waitsNoLonger drops a document that was deferred from the journal.
func (c *decider) waitsNoLonger(id string) error {
	if c.DryRun || c.Journal == nil {
		return nil
	}
	problem, known, err := c.Journal.Problem(c.ctx, c.Destination, id)
	if err == nil && known && problem.Status == journal.Deferred {
		err = c.Journal.Dismiss(c.lasting(), c.Destination, id)
	}
	if err != nil {
		return c.end.Fault(err)
	}
	return nil
}

// skip passes over a document: what kept it from being ingested before does so
// no longer, and what an earlier run made of it stays.
func (c *decider) skip(d *document, o *outcome) error {
	if c.Journal == nil {
		return o
	}
	if err := c.dismiss(d.id); err != nil {
		return err
	}
	_, ingested, err := c.Journal.Document(c.ctx, c.Destination, d.id)
	if err != nil {
		return c.end.Fault(err)
	}
	if ingested {
		o.reason += "; what was ingested of it before stays until a run with --prune"
		c.Logger.Warn("a document that was ingested has no text any more", "document", d.id, "kind", o.kind)
	}
	return o
}
