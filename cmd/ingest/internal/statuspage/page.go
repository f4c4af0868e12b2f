// Package statuspage shows a running ingest service to people and machines: the
// state of the circuit breakers, the current pass, the documents that could not
// be ingested and why, and a search over the ingested ones.
//
//	page, err := statuspage.New(statuspage.Config{Breakers: resilience.Default.All(), …})
//	go page.Run(ctx)
//	http.Serve(listener, page)
//
// The service tells it about passes with PassBegins, Document and PassEnds.
// Breakers are watched.
//
// # Routes
//
//	/              the page
//	/search?q=…    passages that answer a question
//	/problems      all dead letters and deferred documents, in pages
//	/changes       the state changes of the breakers
//	/events        changes, as server-sent events
//	/metrics       for Prometheus
//	/healthz       200 while the process is alive
//	/readyz        503 while the service cannot do its work; the body says why
//	/login         with a token only
//
// The page works without JavaScript: it is rendered on the server and reloads
// every few seconds. With JavaScript it is updated in place, within a second.
// It needs no build step and loads nothing from other hosts.
//
// # What it defends against
//
// Requests cannot change anything. Names and texts of documents, and errors of
// upstreams, are text and never markup (html/template, and a content security
// policy that allows no inline script or style). Without a token only requests
// for a loopback name are answered, so that another site cannot reach the page
// by pointing its own name at 127.0.0.1. The number of event streams, of
// concurrent searches, of kept changes and of listed documents is bounded.
package statuspage

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// Searcher answers questions; *pipeline.Pipeline is one.
type Searcher interface {
	Search(ctx context.Context, question string, options pipeline.SearchOptions) ([]pipeline.Hit, error)
}

// Journal lists complete and incomplete documents; *journal.Journal is one.
type Journal interface {
	Totals(ctx context.Context, destination string) (journal.Totals, error)
	ProblemsOf(ctx context.Context, destination string, status journal.Status, after string,
	) iter.Seq2[journal.Problem, error]
}

// Config says what a Page shows. Breakers, Searcher, Journal and Metrics are
// required.
type Config struct {
	// Breakers are those that the service needs: it is not ready while one of
	// them is open. See also Page.Readiness.
	Breakers []*resilience.Breaker
	Searcher Searcher
	Journal  Journal
	// Destination is the journal's name for the place where documents go.
	Destination string
	// Places says where the upstreams are, by the names of their breakers, and
	// Folder where embedded stores keep their data. Both are shown.
	Places map[string]stop.Place
	Folder string
	// Shared says where the breakers are that processes share, such as
	// redis://host:6379/0; empty if they are not shared. It is shown.
	Shared string
	// Metrics answers /metrics.
	Metrics http.Handler

	// Token, if set, is required for every route but /healthz, /readyz, /login
	// and the static files, as a bearer token or through the login form.
	Token string
	// AnyHost answers requests whatever host they name. Without it the host
	// must be a loopback name or address, or one of Hosts. It needs a Token.
	AnyHost bool
	Hosts   []string

	// Logger receives errors and refused logins. Default: slog.Default().
	Logger *slog.Logger
}

// Page is the status page of one service. It is an http.Handler, safe for
// concurrent use.
type Page struct {
	config    Config
	now       func() time.Time
	began     time.Time
	guard     *guard
	handler   http.Handler
	timelines timelines
	slots     slots
	passes    passes
	worries   worries
	readiness readiness
	hub       *hub
	asking    chan struct{} // a slot for each concurrent search
	unwatch   []func()
}

// searchesAtATime bounds the load that a page can put on the upstreams.
const searchesAtATime = 4

// New makes a page that watches the breakers from now on, until Close.
func New(config Config) (*Page, error) {
	if len(config.Breakers) == 0 || config.Searcher == nil || config.Journal == nil || config.Metrics == nil {
		return nil, errors.New("statuspage: Breakers, Searcher, Journal and Metrics are required")
	}
	if config.AnyHost && config.Token == "" {
		return nil, errors.New("statuspage: AnyHost needs a Token")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	p := &Page{
		config: config, guard: newGuard(config), asking: make(chan struct{}, searchesAtATime),
		now: time.Now, began: time.Now(),
	}
	p.worries.stale = true
	p.hub = newHub(p.fragments)
	p.handler = p.routes()
	for _, b := range config.Breakers {
		p.unwatch = append(p.unwatch, b.Observe(p.transition))
	}
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// Run sends changes to the event streams until ctx is done, and then ends the
// streams, so that the server can shut down.
func (p *Page) Run(ctx context.Context) { p.hub.run(ctx) }

// Close stops watching the breakers.
func (p *Page) Close() {
	for _, remove := range p.unwatch {
		remove()
	}
}

func (p *Page) transition(t resilience.Transition) {
	p.timelines.add(t)
	p.readiness.transition(t)
	p.hub.wakeUp()
}

// PassBegins records the start of a pass over the inputs.
func (p *Page) PassBegins(at time.Time) {
	p.passes.begin(at)
	p.readiness.passBegins()
	p.hub.wakeUp()
}

// Document records the result of one document of the pass.
func (p *Page) Document(d pipeline.Document) {
	p.passes.document(d)
	if d.Result == pipeline.Ingested {
		p.readiness.worked() // each upstream has passed its check in this pass
	}
	p.slots.document(p.now(), d.Result)
	switch d.Result {
	case pipeline.Unchanged, pipeline.KnownDeadLetter, pipeline.Skipped, pipeline.Gone:
	default:
		p.worries.change()
	}
}

// PassEnds records how the pass ended and when the next one is due. fault is
// the error of the pass, or the reason why it could not run at all, or nil.
func (p *Page) PassEnds(summary pipeline.Summary, fault error, at, next time.Time) {
	p.passes.end(summary, fault, at, next)
	p.readiness.passEnds(summary, fault, at, next)
	p.slots.pass(p.now(), !worked(summary, fault))
	p.worries.change()
	p.hub.wakeUp()
}
