// Package statuspage shows a running ingest service to people and to machines:
// the circuit breakers as they are now, the pass that goes on, what could not
// be ingested and why, and a search over what was.
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
//	/events        changes, as server-sent events
//	/metrics       for Prometheus
//	/healthz       200 while the process is alive
//	/readyz        503 while a breaker is open; the body says which
//	/login         with a token only
//
// The page works without JavaScript: it is rendered on the server and asks the
// browser to load it again every few seconds. With JavaScript it is changed in
// place, within a second. There is nothing to build and nothing is loaded from
// elsewhere.
//
// # What it defends against
//
// It changes nothing, whoever asks. Names and texts of documents, and errors of
// upstreams, are text and never markup (html/template, and a content security
// policy that allows no inline script or style). Without a token only requests
// for a loopback name are answered, so that a page elsewhere cannot reach it by
// pointing its own name at 127.0.0.1. The number of event streams, of searches
// at a time, of kept transitions and of listed documents is bounded.
package statuspage

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/resilience"
)

// Searcher answers questions; *pipeline.Pipeline is one.
type Searcher interface {
	Search(ctx context.Context, question string, options pipeline.SearchOptions) ([]pipeline.Hit, error)
}

// Journal knows what is done and what is not; *journal.Journal is one.
type Journal interface {
	Totals(ctx context.Context, destination string) (journal.Totals, error)
	Problems(ctx context.Context, destination, after string, limit int) ([]journal.Problem, error)
}

// Config says what a Page shows. Breakers, Searcher, Journal and Metrics are
// required.
type Config struct {
	// Breakers are those that the service needs: it is not ready while one of
	// them is open.
	Breakers []*resilience.Breaker
	Searcher Searcher
	Journal  Journal
	// Destination is what the journal calls the place where documents go.
	Destination string
	// Metrics answers /metrics.
	Metrics http.Handler

	// Token, if there is one, must come with each request for anything that is
	// worth protecting, as a bearer or through the login form.
	Token string
	// AnyHost answers requests whatever host they name. Without it the host must
	// be a loopback name or address, or one of Hosts. It needs a Token.
	AnyHost bool
	Hosts   []string

	// Logger is told what a person should know. Default: slog.Default().
	Logger *slog.Logger
}

// Page is the status page of one service. It is an http.Handler, safe for
// concurrent use.
type Page struct {
	config  Config
	guard   *guard
	handler http.Handler
	history history
	passes  passes
	worries worries
	hub     *hub
	asking  chan struct{} // one place for each search at a time
	unwatch []func()
}

// searchesAtATime bounds what one page can ask of the upstreams.
const searchesAtATime = 4

// New makes a page that watches the breakers from now on, until Close.
func New(config Config) (*Page, error) {
	if len(config.Breakers) == 0 || config.Searcher == nil || config.Journal == nil || config.Metrics == nil {
		return nil, errors.New("statuspage: Breakers, Searcher, Journal and Metrics are required")
	}
	if config.AnyHost && config.Token == "" {
		return nil, errors.New("statuspage: whoever can reach the page from elsewhere needs a token")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	p := &Page{config: config, guard: newGuard(config), asking: make(chan struct{}, searchesAtATime)}
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

// Run sends changes to those who watch until ctx ends, and then ends their
// streams, so that a server can shut down.
func (p *Page) Run(ctx context.Context) { p.hub.run(ctx) }

// Close stops watching the breakers.
func (p *Page) Close() {
	for _, remove := range p.unwatch {
		remove()
	}
}

func (p *Page) transition(t resilience.Transition) {
	p.history.add(t)
	p.hub.wakeUp()
}

// PassBegins notes that a pass over the inputs begins.
func (p *Page) PassBegins(at time.Time) {
	p.passes.begin(at)
	p.hub.wakeUp()
}

// Document notes how one document of the pass came out.
func (p *Page) Document(d pipeline.Document) {
	p.passes.document(d)
	if d.Result != pipeline.Unchanged && d.Result != pipeline.KnownDeadLetter {
		p.worries.change()
	}
}

// PassEnds notes how the pass ended and when the next one is due. fault is why
// the pass could not run at all, or nil.
func (p *Page) PassEnds(summary pipeline.Summary, fault error, at, next time.Time) {
	p.passes.end(summary, fault, at, next)
	p.worries.change()
	p.hub.wakeUp()
}

// notReady names the breakers that are open.
func (p *Page) notReady() (open []string) {
	for _, b := range p.config.Breakers {
		if b.State() == resilience.Open {
			open = append(open, b.Name())
		}
	}
	return open
}
