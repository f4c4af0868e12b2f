package statuspage

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/resilience"
)

const (
	searchLimit    = 30 * time.Second // for one search
	longestAsked   = 1000             // bytes of a question
	hitsShown      = 10
	excerptLength  = 700 // bytes of a passage that are shown at once
	loginBodyLimit = 4096
)

var (
	//go:embed templates/*.html
	templateFiles embed.FS
	//go:embed static
	staticFiles embed.FS

	templates = template.Must(template.New("").Funcs(template.FuncMap{
		"clock":     func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
		"day":       func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		"minute":    func(t time.Time) string { return t.UTC().Format("15:04") },
		"iso":       func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"moment":    moment,
		"round":     round,
		"say":       say,
		"spell":     spell,
		"plural":    plural,
		"noun":      noun,
		"thousands": func(n any) string { return thousands(fmt.Sprint(n)) },
	}).ParseFS(templateFiles, "templates/*.html"))
)

// view is the data of the templates.
type view struct {
	Title       string
	Destination string
	Token       bool // somebody is logged in
	Live        bool // rendered for a page that changes in place
	Refresh     bool // a browser without JavaScript reloads the page
	Now         time.Time
	Headline    headlineView
	Shared      string // where breakers are shared; empty if they are not
	Ready       Readiness
	Breakers    []breakerView
	Timeline    timelineView
	Progress    progressView
	Worries     worriesView

	Question string
	Search   *searchView
	Problems *problemsView
	Denied   bool
}

func (p *Page) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.guard.protect(p.index))
	mux.HandleFunc("GET /search", p.guard.protect(p.search))
	mux.HandleFunc("GET /problems", p.guard.protect(p.listProblems))
	mux.HandleFunc("GET /changes", p.guard.protect(p.changes))
	mux.HandleFunc("GET /events", p.guard.protect(p.events))
	mux.HandleFunc("GET /metrics", p.guard.protect(p.config.Metrics.ServeHTTP))
	mux.HandleFunc("GET /healthz", p.healthz)
	mux.HandleFunc("GET /readyz", p.readyz)
	if p.config.Token != "" {
		mux.HandleFunc("GET /login", p.loginForm)
		mux.HandleFunc("POST /login", p.login)
		mux.HandleFunc("POST /logout", p.logout)
	}
	for path, kind := range map[string]string{
		"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		mux.HandleFunc("GET /"+path, static(path, kind))
	}
	return p.guard.strict(mux)
}

func static(name, kind string) http.HandlerFunc {
	content, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		panic(err) // it is part of the binary
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(content)
	}
}

func (p *Page) view(ctx context.Context) view {
	now := p.now()
	v := view{
		Destination: clean(p.config.Destination), Shared: clean(p.config.Shared), Token: p.config.Token != "", Now: now,
		Breakers: p.breakers(now), Progress: p.passes.view(now), Worries: p.worries.read(ctx, p.readWorries),
	}
	v.Ready = p.Readiness()
	v.markBlamed()
	v.Timeline = newTimelineView(windowAt(p.began, now), v.Breakers, &p.slots)
	v.Headline = newHeadline(v)
	v.Title = v.Headline.What
	return v
}

// show renders a whole page.
func (p *Page) show(w http.ResponseWriter, status int, name string, v view) {
	var body bytes.Buffer
	if err := templates.ExecuteTemplate(&body, name, v); err != nil {
		p.config.Logger.Error("cannot render the status page", "page", name, "error", err)
		http.Error(w, "cannot render the page; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}

func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	v := p.view(r.Context())
	v.Timeline.omit(v.Headline.Cause)
	v.Refresh = true
	p.show(w, http.StatusOK, "index.html", v)
}

func (p *Page) changes(w http.ResponseWriter, r *http.Request) {
	v := p.view(r.Context())
	v.Title = "State changes"
	p.show(w, http.StatusOK, "changes.html", v)
}

func (p *Page) healthz(w http.ResponseWriter, _ *http.Request) {
	plainText(w, http.StatusOK, "alive")
}

// readyz says why the service is not ready only in answers to authorized
// requests.
func (p *Page) readyz(w http.ResponseWriter, r *http.Request) {
	ready := p.Readiness()
	switch {
	case ready.Ready:
		plainText(w, http.StatusOK, ready.String())
	case p.guard.lets(r):
		plainText(w, http.StatusServiceUnavailable, ready.String())
	default:
		plainText(w, http.StatusServiceUnavailable, "not ready")
	}
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text)
}

// searchView is a search and its results.
type searchView struct {
	Hits  []hitView
	Fault string
	Took  time.Duration
	// Confirm: the question came from a page elsewhere and was not asked.
	Confirm bool
}

// hitView is a passage as the page shows it.
type hitView struct {
	pipeline.Hit
	Rank        int
	First, Rest string // of the text
}

func newHitView(rank int, hit pipeline.Hit) hitView {
	hit.Source, hit.Heading = clean(hit.Source), clean(hit.Heading)
	text := strings.TrimSpace(plain.Text(hit.Text))
	v := hitView{Hit: hit, Rank: rank, First: text}
	if len(text) > excerptLength*5/4 {
		v.First = plain.Shorten(text, excerptLength)
		v.Rest = strings.TrimPrefix(text, strings.TrimSuffix(v.First, "…"))
	}
	return v
}

func (p *Page) search(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Search", Destination: clean(p.config.Destination), Token: p.config.Token != ""}
	v.Question = strings.TrimSpace(plain.Shorten(plain.Text(r.URL.Query().Get("q")), longestAsked))
	status := http.StatusOK
	switch {
	case v.Question == "":
	case r.Header.Get("Sec-Fetch-Site") == "cross-site":
		v.Search = &searchView{Confirm: true} // a search can cost money: other sites cannot start one
	default:
		v.Search, status = p.ask(r.Context(), v.Question)
	}
	p.show(w, status, "search.html", v)
}

func (p *Page) ask(ctx context.Context, question string) (*searchView, int) {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	default:
		return &searchView{Fault: "Too many searches at the moment. Try again shortly."}, http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, searchLimit)
	defer cancel()
	start := time.Now()
	hits, err := p.config.Searcher.Search(ctx, question, pipeline.SearchOptions{Limit: hitsShown})
	if err != nil {
		return &searchView{Fault: clean(err.Error())}, searchStatus(err)
	}
	v := &searchView{Took: time.Since(start)}
	for i, hit := range hits {
		v.Hits = append(v.Hits, newHitView(i+1, hit))
	}
	return v, http.StatusOK
}

func searchStatus(err error) int {
	stop, stopped := errors.AsType[*pipeline.StopError](err)
	switch {
	case stopped && stop.Kind == pipeline.StopConfiguration:
		return http.StatusNotFound
	case errors.Is(err, resilience.ErrOpen):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// problemsView is one page of documents that are not ingested.
type problemsView struct {
	Status journal.Status
	Total  int
	Shared string // the reason of all, where only one was wanted
	List   []problemView
	More   string // address of the next page
	Fault  string
}

// problemTitles are the pages of documents that are not ingested, by status.
var problemTitles = map[journal.Status]string{
	journal.DeadLetter: "Dead letters", journal.Deferred: "Deferred documents",
}

func (p *Page) listProblems(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	want := wanted{
		status: cmp.Or(journal.Status(query.Get("status")), journal.DeadLetter),
		reason: query.Get("reason"), after: query.Get("after"),
	}
	title, known := problemTitles[want.status]
	if !known {
		plainText(w, http.StatusBadRequest, fmt.Sprintf(
			"The status is unknown. The documents listed here have the status %s or %s.", journal.DeadLetter, journal.Deferred))
		return
	}
	v := p.view(r.Context())
	v.Title = title
	v.Problems = p.problemsPage(r.Context(), want)
	p.show(w, http.StatusOK, "problems.html", v)
}

func (p *Page) problemsPage(ctx context.Context, want wanted) *problemsView {
	v := &problemsView{Status: want.status}
	totals, err := p.config.Journal.Totals(ctx, p.config.Destination)
	var next string
	if err == nil {
		v.List, next, err = p.problems(ctx, want)
	}
	if err != nil {
		v.Fault = clean(err.Error())
	}
	v.Total = total(totals, want.status)
	if want.reason != "" && len(v.List) > 0 {
		v.Shared = v.List[0].Reason
	}
	if next != "" {
		v.More = want.link(next)
	}
	return v
}

// link is the address of a page of problems.
func (w wanted) link(after string) string {
	query := url.Values{"status": {string(w.status)}}
	for name, value := range map[string]string{"reason": w.reason, "after": after} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return "/problems?" + query.Encode()
}

func (p *Page) loginForm(w http.ResponseWriter, _ *http.Request) {
	p.show(w, http.StatusOK, "login.html", view{Title: "Log in"})
}

func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, loginBodyLimit)
	if !p.guard.isToken(r.PostFormValue("token")) {
		p.config.Logger.Warn("status page: login refused", "from", r.RemoteAddr)
		p.show(w, http.StatusUnauthorized, "login.html", view{Title: "Log in", Denied: true})
		return
	}
	http.SetCookie(w, p.guard.cookie(r, p.guard.session(time.Now().Add(sessionLength)), sessionLength))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (p *Page) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, p.guard.cookie(r, "", -time.Second))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
