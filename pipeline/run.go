package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// run is one Run: it makes the stages and the channels between them.
type run struct {
	*scope
	*settler
	before   Summary // of the last run, zero before the first
	services []*service.Service
	objects  *objects
	vectors  *vectors
	check    *check
	embed    *embed.Embedder
	enrich   *enrich.Enricher
	prepare  *preparer
	commit   *committer
	notes    *notes
	discard  *discarder
	backlog  *backlog
	empty    *heard
	parts    chan *part
}

func newRun(ctx context.Context, config Config, chunker *chunk.Chunker) (*run, error) {
	s := newScope(ctx, config)
	r := &run{scope: s, settler: newSettler(s), empty: &heard{}, parts: make(chan *part)}
	if err := r.connect(); err != nil {
		s.close()
		return nil, err
	}
	r.stages(chunker)
	return r, nil
}

// connect makes the services. Once the run has ended, nothing more is sent to
// any of them.
func (r *run) connect() error {
	for _, one := range []struct {
		field string
		*service.Service
	}{
		{"ObjectGuard", service.Objects(r.ObjectGuard)},
		{"VectorGuard", service.Vectors(r.VectorGuard)},
		{"LLMGuard", service.Models(r.LLMGuard)},
	} {
		limited, err := one.Limited(r.Concurrency)
		if err != nil {
			return &ConfigError{Field: one.field, Err: err}
		}
		r.services = append(r.services, limited)
		r.end.Then(func() { limited.Close(stop.ErrEnded) })
		context.AfterFunc(r.ctx, func() { limited.Close(stop.ErrEnded) })
	}
	return nil
}

// stages makes the stages, each of which is given what it calls.
func (r *run) stages(chunker *chunk.Chunker) {
	s := r.scope
	r.objects = newObjects(s, r.services[0], func() bool { return r.check.empty })
	r.vectors = &vectors{scope: s, service: r.services[1]}
	server := modelserver.New(modelserver.Config{
		Service: r.services[2], Ending: s.end, MaxPause: s.MaxPause, Rate: s.Rate,
	})
	r.embed = embed.New(s.embedding(server))
	r.enrich = enrich.New(s.enriching(server))
	r.check = &check{scope: s, objects: r.objects, vectors: r.vectors, embed: r.embed}
	r.vectors.loaded = r.check.loaded

	asking := &enriching{scope: s, vectors: r.vectors, model: r.enrich}
	read := &reader{scope: s, objects: r.services[0]}
	r.check.passed = func() { r.notes.foresee() }
	r.prepare = &preparer{
		reader: read, settler: r.settler, check: r.check.upstreams, original: r.objects.keepOriginal,
		decider: &decider{
			scope: s, chunker: chunker, versions: s.Parsers.Parsers(), enriching: r.enrich.Open, unchanged: r.unchanged,
		},
		cutting: &cutting{
			reader: read, chunker: chunker, parsing: make(chan struct{}, runtime.GOMAXPROCS(0)), parts: r.parts,
		},
	}
	r.backlog = newBacklog(s, r.prepare.decider)
	r.prepare.complete = r.backlog.complete
	dimensions, fresh := func() int { return r.check.dims }, func() bool { return r.check.empty }
	r.notes = &notes{scope: s, vectors: r.vectors, dimensions: dimensions, fresh: fresh}
	r.discard = &discarder{scope: s, vectors: r.vectors, originals: func(id string) error {
		_, err := r.objects.deleteOriginals(id)
		return err
	}}
	if s.KeepVectors {
		r.discard.keep = func(paid map[string][]float32) error {
			return s.Journal.KeepVectors(s.lasting(), r.embed.Space(), paid)
		}
	}
	r.commit = &committer{
		scope: s, vectors: r.vectors, settler: r.settler,
		existing:  &existing{scope: s, vectors: r.vectors, notes: r.notes, fresh: fresh},
		writer:    &writer{scope: s, vectors: r.vectors, dimensions: dimensions},
		notes:     r.notes,
		replaced:  make(chan *document, replacedDocuments),
		confirm:   &confirmer{scope: s, vectors: r.vectors},
		discard:   r.discard,
		enriching: asking,
		embedding: &embedding{scope: s, vectors: r.vectors, model: r.embed, dropContext: asking.dropContext},
	}
}

// recall reads how the last run ended, which the metrics say until this one
// ends.
func (r *run) recall() {
	before, at, err := LastSummary(r.ctx, r.Journal, r.Destination)
	switch {
	case err != nil:
		r.Logger.Warn("the summary of the last run is not known; metrics say nothing about it", "error", err)
	case !at.IsZero():
		r.before = before
		publish(r.Metrics, before, at)
	}
}

// execute moves the documents through: one lister, several readers that parse,
// one assembler that makes groups, several committers. Each channel is bounded,
// so a slow upstream slows the readers.
func (r *run) execute(documents iter.Seq2[source.Item, error]) {
	if !r.DryRun {
		r.check.journal()
	}
	items := make(chan source.Item)
	groups := make(chan []*part)
	var readers, commits sync.WaitGroup
	go func() { r.list(documents, items); close(items) }()
	for range r.Concurrency + cap(r.prepare.cutting.parsing) {
		readers.Go(func() { r.read(items) })
	}
	go func() { readers.Wait(); close(r.parts) }()
	go func() { assemble(r.parts, groups); close(groups) }()
	var settling sync.WaitGroup
	settling.Go(r.commit.settle)
	for range committers {
		commits.Go(func() {
			for group := range groups {
				r.commit.commit(group)
			}
		})
	}
	commits.Wait()
	close(r.commit.replaced)
	settling.Wait()
	r.notes.ahead.Wait()
	r.sweep()
	r.dropCollisions()
	r.check.loading.Wait()
	r.confirm(1)
	r.settleBacklog()
}

// read prepares documents until they or the run end.
func (r *run) read(items <-chan source.Item) {
	for {
		select {
		case item, more := <-items:
			if !more {
				return
			}
			r.prepare.prepare(item)
		case <-r.end.Done():
			return
		}
	}
}

func (r *run) settleBacklog() {
	err := r.backlog.wait()
	if err == nil {
		err = r.backlog.forgetGone()
	}
	if err != nil {
		_ = r.end.Fault(err)
	}
}

// sweep removes what earlier runs left unfinished, where the journal or the
// work of this run says that there may be something.
func (r *run) sweep() {
	if r.DryRun || r.end.Over() {
		return
	}
	_, expected, err := r.Journal.Writer(r.ctx, r.Destination)
	if err != nil {
		r.check.faulty(err)
		return
	}
	if !expected && len(r.notes.found) == 0 {
		return
	}
	if err := r.check.prepared(); err != nil {
		return // it has ended the run, or the next will say so
	}
	r.notes.sweep(r.discard)
}

// dropCollisions drops from the journal the files that had the ID of another
// and have been renamed or removed.
func (r *run) dropCollisions() {
	if r.DryRun || r.end.Over() {
		return
	}
	for p, err := range r.Journal.Problems(r.ctx, r.Destination, "") {
		if err == nil && p.Kind == NameCollision && (source.Place{ID: p.ID, Location: p.Location}).Gone() {
			err = r.Journal.Dismiss(r.lasting(), r.Destination, p.ID)
		}
		if err != nil {
			r.check.faulty(err)
			return
		}
	}
}

// list feeds the readers until the documents or the run end. What is listed
// after that is left to the backlog.
func (r *run) list(documents iter.Seq2[source.Item, error], items chan<- source.Item) {
	defer close(r.backlog.listed)
	found := r.timed("discover")
	for item, err := range documents {
		found()
		if !r.listed(item, err, items) {
			return
		}
		found = r.timed("discover")
	}
}

// listed passes on what a listing has yielded; more is false where the rest of
// it is of no interest.
func (r *run) listed(item source.Item, err error, items chan<- source.Item) (more bool) {
	switch {
	case r.end.Over():
	case err != nil:
		r.backlog.failed(err, func() { r.listFailed(err) })
		return true
	case r.hand(item, items):
		return true
	}
	return r.backlog.look(item, err)
}

// hand gives a document to the readers; false means that the run is over.
func (r *run) hand(item source.Item, items chan<- source.Item) bool {
	r.Metrics.Queue("read", 1)
	defer r.Metrics.Queue("read", -1)
	select {
	case items <- item:
		return true
	case <-r.end.Done():
		return false
	}
}

// listFailed reports what could not be listed, unless the listing only noticed
// that the run is over.
func (r *run) listFailed(err error) {
	if r.end.Over() && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return
	}
	if call, ok := errors.AsType[*stop.CallError](err); ok {
		r.unlisted(call, err)
		return
	}
	if _, ok := errors.AsType[*stop.Error](err); ok {
		_ = r.end.Blame("list", err) // it ends the run
		return
	}
	if none, ok := errors.AsType[*source.EmptyError](err); ok {
		r.count(none.Input, false)
		return
	}
	if collision, ok := errors.AsType[*source.CollisionError](err); ok && collision.Alias != "" {
		r.collided(collision)
		return
	}
	d := newDocument("(listing)", "")
	if listing, ok := errors.AsType[*source.Error](err); ok {
		d.id = listing.Path
	}
	d.unlisted = true
	r.isUnlisted(err)
	r.settle(d, stop.DeadLetter("list", "unreadable", err))
}

// collided reports a file that has the ID of another, under an ID of its own.
func (r *run) collided(collision *source.CollisionError) {
	d := newDocument(collision.Alias, collision.Second)
	if err := r.prepare.collidedBefore(d, collision); errors.Is(err, errKnown) {
		r.done(d, KnownDeadLetter)
		return
	}
	r.settle(d, stop.DeadLetter("list", NameCollision, collision))
}

// unlisted ends the run: what the object store did not list is unknown.
func (r *run) unlisted(call *stop.CallError, err error) {
	_ = r.end.Blame("list", err) // it ends the run for most errors
	if !r.end.Over() {
		r.end.With(call.Later(err))
	}
}

// finish completes the summary and returns the reason of an early end.
func (r *run) finish(start time.Time) (Summary, error) {
	r.summary.Elapsed = time.Since(start)
	r.summary.ChatTokens = r.enrich.Spent()
	r.summary.Unlisted = r.unlistedPlaces()
	ended := cmp.Or(r.end.Reason(), r.leftovers())
	var err error
	if r.end.Reason() == nil {
		err = r.reportEmpty()
	}
	if err := cmp.Or(err, r.backlog.account(&r.summary)); err != nil && ended == nil {
		ended = &StopError{Kind: StopFault, Err: err}
	}
	breakers := r.snapshots()
	r.summary.SetBreakers(ended, breakers...)
	if ended == nil {
		return r.summary, nil
	}
	ended = ended.Until(breakers...)
	r.summary.Stopped = ended.Report(r.Places)
	r.summary.Recall(r.before, ended)
	r.logStop(r.summary.Stopped)
	return r.summary, ended
}

// reportEmpty says which inputs had nothing to ingest: a name may be wrong, or
// a volume not mounted. It logs those that the run before did not report.
func (r *run) reportEmpty() error {
	r.summary.EmptyInputs = r.emptyInputs()
	emptied, err := r.emptied()
	for _, input := range emptied {
		r.summary.Unlisted = append(r.summary.Unlisted, fmt.Sprintf(
			"nothing is left in %s, where documents were ingested from; it may not be mounted (to delete them, use 'ingest delete')",
			input))
	}
	for _, input := range r.empty.news(r.summary.EmptyInputs) {
		r.Logger.Log(r.lasting(), r.summaryLevel(), "nothing to ingest was found; check that the input is the right one",
			"input", input)
	}
	return err
}

// summaryLevel is the level of what the summary says as well.
func (r *run) summaryLevel() slog.Level {
	if r.ShowsSummary {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// emptied lists, in a stable order, the empty inputs from which the journal has
// documents.
func (r *run) emptied() (inputs []string, err error) {
	if len(r.summary.EmptyInputs) == 0 || r.Emptied == nil || r.DryRun {
		return nil, nil
	}
	for d, err := range r.Journal.Documents(r.lasting(), r.Destination, "") {
		if err != nil {
			return nil, err
		}
		input := r.Emptied(d.ID, d.Location)
		if input == "" || slices.Contains(inputs, input) {
			continue
		}
		if inputs = append(inputs, input); len(inputs) == len(r.summary.EmptyInputs) {
			break
		}
	}
	slices.Sort(inputs)
	return inputs, nil
}

func (r *run) snapshots() (all []resilience.Snapshot) {
	for _, s := range r.services {
		all = append(all, s.Breaker().Snapshot())
	}
	return all
}

// logStop says why the run ended early. A person who interrupted it knows.
func (r *run) logStop(s *Stop) {
	level := r.summaryLevel()
	if s.Kind == StopInterrupted {
		level = slog.LevelInfo
	}
	about := []slog.Attr{slog.String("kind", string(s.Kind)), slog.String("reason", s.Reason)}
	for _, one := range []struct{ key, value string }{
		{"upstream", s.Upstream}, {"address", s.Address}, {"model", s.Model}, {"cause", s.Cause},
	} {
		if one.value != "" {
			about = append(about, slog.String(one.key, one.value))
		}
	}
	if s.RetryAt != nil {
		about = append(about, slog.Time("retry_at", *s.RetryAt))
	}
	r.Logger.LogAttrs(r.lasting(), level, "run stopped", about...)
}

// leftovers is the stop of a run that went through and left documents behind.
func (r *run) leftovers() *StopError {
	if r.summary.Deferred == 0 {
		return nil
	}
	models := r.services[2].Breaker()
	left := &stop.LeftError{Documents: r.summary.Deferred, Cause: r.left}
	return stop.Later(stop.Upstream(left.Cause), time.Now().Add(models.Config().ResetTimeout), left)
}

// keepSummary completes the summary by that of the run before, and leaves it
// for the next look at the journal and at the metrics.
func (r *run) keepSummary(ctx context.Context, now time.Time, ended error) (Summary, error) {
	r.summary.setUpstreams(r.before, ended, r.services)
	r.summary.setDates(r.before, now)
	err := r.Journal.EndRun(context.WithoutCancel(ctx), r.Destination, now, r.summary)
	if err != nil {
		r.summary.LastSuccess = r.before.LastSuccess
	}
	if err != nil && ended == nil {
		fault := &StopError{Kind: StopFault, Err: err}
		r.summary.Stopped, ended = fault.Report(r.Places), fault
		r.logStop(r.summary.Stopped)
	}
	publish(r.Metrics, r.summary, now)
	return r.summary, ended
}
