package pipeline

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// committers is how many groups are committed at the same time: while one
// waits for vectors, another is written and a third verified.
const committers = 4

// Run ingests the documents that are not complete yet. An error that the
// sequence yields becomes a dead letter of stage "list".
//
// The error is nil when every document was looked at, dead letters or not, and
// a [*StopError] when the run ended early: by an open breaker, a refused
// credential, a configuration that does not fit, or the end of ctx. Everything
// that was done until then is kept. A [*ConfigError] says that a field which Run
// needs is missing.
func (p *Pipeline) Run(ctx context.Context, documents iter.Seq2[source.Item, error]) (Summary, error) {
	if err := p.checkRun(); err != nil {
		return Summary{}, err
	}
	start := time.Now()
	r := newRun(ctx, p)
	r.reporting(func() { r.execute(documents) })
	summary, err := r.finish(start)
	if p.DryRun {
		return summary, err
	}
	return summary, r.keepSummary(ctx, err)
}

// reporting does work whose documents are reported as they are settled.
func (r *run) reporting(work func()) {
	defer r.cancel(errStopped)
	reported := make(chan struct{})
	go func() { r.report(); close(reported) }()
	work()
	close(r.settled)
	<-reported
}

// finish completes the summary and gives the reason of an early end.
func (r *run) finish(start time.Time) (Summary, error) {
	r.summary.Elapsed = time.Since(start)
	r.Metrics.RunEnded(time.Now())
	r.summary.Breakers = r.breakers()
	r.summary.ChatTokens = r.enrich.budget.total()
	stop := cmp.Or(r.end.reason(), r.unfinished())
	if stop == nil {
		return r.summary, nil
	}
	r.summary.Stopped = stop.stop()
	return r.summary, stop
}

// breakers gives the state of the three breakers.
func (r *run) breakers() map[string]string {
	states := map[string]string{}
	for _, g := range []*gate{r.objects, r.vectors, r.llm} {
		states[g.breaker.Name()] = g.breaker.State().String()
	}
	return states
}

// unfinished is the stop of a run that went through and left documents behind.
func (r *run) unfinished() *StopError {
	if r.summary.Deferred == 0 {
		return nil
	}
	return &StopError{
		Kind: StopDeferred, RetryAt: time.Now().Add(r.llm.breaker.Config().ResetTimeout),
		Err: fmt.Errorf("%d documents were deferred", r.summary.Deferred),
	}
}

// keepSummary leaves the summary for the next look at the journal.
func (r *run) keepSummary(ctx context.Context, stop error) error {
	err := r.Journal.EndRun(context.WithoutCancel(ctx), r.Destination, time.Now(), r.summary)
	if err != nil && stop == nil {
		return &StopError{Kind: StopFault, Err: err}
	}
	return stop
}

// run is one Run: one task for the breakers.
type run struct {
	*Pipeline
	// ctx is what upstreams are called with. It outlives the caller's context
	// by the grace period, so that answers in flight are kept.
	ctx    context.Context
	cancel context.CancelCauseFunc
	end    *ending

	objects, vectors, llm *gate
	check                 *check
	embed                 *embedder
	enrich                *enricher

	parsers map[string]int // versions by name
	parsing chan struct{}  // as many as there are cores parse at a time

	mu    sync.Mutex
	moves map[string]string // new locations by id, not in the journal yet

	settled chan Document
	summary Summary // belongs to the reporter until execute returns
}

func newRun(ctx context.Context, p *Pipeline) *run {
	end := &ending{done: make(chan struct{})}
	r := &run{Pipeline: p, end: end, settled: make(chan Document), summary: Summary{Destination: p.Destination}}
	r.parsers, r.moves = p.Parsers.Parsers(), map[string]string{}
	r.parsing = make(chan struct{}, runtime.GOMAXPROCS(0))
	r.ctx, r.cancel = context.WithCancelCause(resilience.WithTask(context.WithoutCancel(ctx), taskID()))
	context.AfterFunc(ctx, func() { r.interrupt(&StopError{Kind: StopInterrupted, Err: context.Cause(ctx)}) })
	r.watchJournal()
	r.objects = newGate(breakerOf(p.ObjectGuard.Breaker, resilience.S3), objectstore.Classify, p.Concurrency, end.done)
	r.vectors = newGate(breakerOf(p.VectorGuard.Breaker, resilience.Milvus), vectorstore.Classify, p.Concurrency, end.done)
	r.llm = newGate(breakerOf(p.LLMGuard.Breaker, resilience.LLM), llm.Classify, p.Concurrency, end.done)
	r.check = &check{run: r}
	r.embed = newEmbedder(r)
	r.enrich = newEnricher(r)
	return r
}

func breakerOf(own, singleton *resilience.Breaker) *resilience.Breaker {
	if own != nil {
		return own
	}
	return singleton
}

func taskID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return "ingest-" + hex.EncodeToString(id[:])
}

// interrupt ends the run at the wish of others; what is in flight has the grace
// period to come back.
func (r *run) interrupt(stop *StopError) {
	r.end.with(stop)
	timer := time.AfterFunc(max(r.Grace, 0), func() { r.cancel(stop.Err) })
	context.AfterFunc(r.ctx, func() { timer.Stop() })
}

// watchJournal ends the run when the journal is revoked: another run may have
// it by now.
func (r *run) watchJournal() {
	if r.Journal == nil {
		return
	}
	revoked, why := r.Journal.Revoked()
	go func() {
		select {
		case <-r.ctx.Done():
		case <-revoked:
			r.interrupt(revocation(why()))
		}
	}()
}

func revocation(err error) *StopError {
	stop := &StopError{Kind: StopDeferred, Err: err}
	if timed, ok := errors.AsType[interface {
		error
		RetryAt() time.Time
	}](err); ok {
		stop.RetryAt = timed.RetryAt()
	}
	return stop
}

// ending is how a run ends early: once, for one reason.
type ending struct {
	done chan struct{} // closed by the first reason

	mu   sync.Mutex
	stop *StopError
}

// rank orders reasons by what an operator must know first.
var rank = map[StopKind]int{StopDeferred: 1, StopDenied: 2, StopConfiguration: 3, StopFault: 4, StopInterrupted: 5}

// with ends the run. Of several reasons the gravest stays.
func (e *ending) with(stop *StopError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop == nil {
		close(e.done)
	}
	if e.stop == nil || rank[stop.Kind] > rank[e.stop.Kind] {
		e.stop = stop
	}
}

func (e *ending) reason() *StopError {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stop
}

func (e *ending) over() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// fault ends the run because something here failed.
func (r *run) fault(err error) {
	r.end.with(&StopError{Kind: StopFault, Err: err})
}

// execute moves the documents through: one lister, several readers that parse,
// one assembler that makes groups, several committers. Each channel is bounded,
// so a slow upstream slows the readers.
func (r *run) execute(documents iter.Seq2[source.Item, error]) {
	if !r.DryRun {
		r.check.journal()
	}
	items := make(chan source.Item)
	parts := make(chan *part)
	groups := make(chan []*part)
	var readers, commits sync.WaitGroup
	go func() { r.list(documents, items); close(items) }()
	for range r.Concurrency + cap(r.parsing) {
		readers.Go(func() {
			for item := range items {
				r.prepare(item, parts)
			}
		})
	}
	go func() { readers.Wait(); close(parts) }()
	go func() { assemble(parts, groups); close(groups) }()
	for range committers {
		commits.Go(func() {
			for group := range groups {
				r.commit(group)
			}
		})
	}
	commits.Wait()
	r.check.loading.Wait()
	r.keepMoves(1)
}

// list feeds the readers until the documents or the run end.
func (r *run) list(documents iter.Seq2[source.Item, error], items chan<- source.Item) {
	found := r.timed("discover")
	for item, err := range documents {
		found()
		if err != nil {
			r.listFailed(err)
		} else if !r.hand(item, items) {
			return
		}
		found = r.timed("discover")
	}
}

// hand gives a document to the readers; false means that the run is over.
func (r *run) hand(item source.Item, items chan<- source.Item) bool {
	r.Metrics.Queue("read", 1)
	defer r.Metrics.Queue("read", -1)
	select {
	case items <- item:
		return !r.end.over()
	case <-r.end.done:
		return false
	}
}

// timed begins a stage; what it returns ends it.
func (r *run) timed(stage string) (end func()) {
	start := time.Now()
	return func() { r.Metrics.Stage(stage, time.Since(start)) }
}

// listFailed reports what could not be listed, unless the listing only noticed
// that the run is over.
func (r *run) listFailed(err error) {
	if r.end.over() && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return
	}
	if _, ok := errors.AsType[*source.StoreError](err); ok {
		r.storeUnlisted(err)
		return
	}
	d := newDocument("(listing)", "")
	if listing, ok := errors.AsType[*source.Error](err); ok {
		d.id = listing.Path
	}
	d.unlisted = true
	r.settle(d, deadLetter("list", "unreadable", err))
}

// storeUnlisted ends the run: what the object store did not list is unknown.
func (r *run) storeUnlisted(err error) {
	_ = r.blame(upstreamS3, "list", err) // it ends the run for most errors
	if !r.end.over() {
		r.end.with(r.later(upstreamS3, 0, err))
	}
}

// report counts the documents and hands them to the caller, one at a time.
func (r *run) report() {
	for d := range r.settled {
		r.summary.add(d)
		r.Metrics.Document(string(d.Result))
		r.Report(d)
	}
}

// movesKept is how many moves are written at once.
const movesKept = 500

// moved notes that an unchanged document is read from another place than the
// journal says.
func (r *run) moved(d *document, from string) {
	if from == d.location || r.DryRun {
		return
	}
	r.mu.Lock()
	r.moves[d.id] = d.location
	r.mu.Unlock()
	r.keepMoves(movesKept)
}

// keepMoves writes the moves to the journal once there are at least so many.
func (r *run) keepMoves(least int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.moves) < least {
		return
	}
	if err := r.Journal.Move(context.WithoutCancel(r.ctx), r.Destination, r.moves); err != nil {
		r.fault(err)
	}
	clear(r.moves)
}

// settle ends a document: err is nil when it is ingested, and else a failure.
// What failed is written to the journal before it is reported.
func (r *run) settle(d *document, err error) {
	if err == nil {
		r.settled <- d.report(d.result())
		return
	}
	f := asFailure(d.stage, err)
	report := d.report(DeadLetter)
	if f.status == journal.Deferred {
		report.Result = Deferred
	}
	report.Stage, report.Kind = f.stage, f.kind
	report.Reason = reasonOf(d, f.err)
	if !r.DryRun && !d.unlisted {
		r.keepProblem(d, f.status, report)
	}
	r.settled <- report
}

func (r *run) keepProblem(d *document, status journal.Status, report Document) {
	err := r.Journal.Fail(context.WithoutCancel(r.ctx), r.Destination, journal.Problem{
		ID: d.id, SHA: d.sha, Policy: d.plain, Status: status,
		Stage: report.Stage, Kind: report.Kind, Reason: report.Reason, At: time.Now(), Location: d.location,
	})
	if err != nil {
		r.fault(fmt.Errorf("recording %s: %w", d.id, err))
	}
}

// reasonOf is what an error says, without the document's name before it.
func reasonOf(d *document, err error) string { return strings.TrimPrefix(err.Error(), d.id+": ") }
