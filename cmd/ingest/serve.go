package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/netutil"

	"github.com/penstock-go/penstock/cmd/ingest/internal/statuspage"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
)

type serveCmd struct {
	runCmd `embed:""`

	Listen    string        `default:"127.0.0.1:8091" env:"PENSTOCK_LISTEN" placeholder:"HOST:PORT" help:"Address of the status page and /metrics (${default}). Any address other than loopback needs --token."`
	Token     string        `env:"PENSTOCK_TOKEN" secret:"" placeholder:"SECRET" help:"Token that requests must carry, at least 16 characters; better set in the environment."`
	Interval  time.Duration `default:"1m" env:"PENSTOCK_INTERVAL" help:"Pause between passes (${default})."`
	AllowHost []string      `env:"PENSTOCK_ALLOW_HOST" placeholder:"NAME" help:"Host name under which a proxy serves the page. Without a token, only requests for loopback names and these are answered."`
}

const (
	shortestToken = 16
	// connections bounds the open connections, event streams included.
	connections = 256
	// stopLimit bounds how long requests in flight may take at shutdown.
	stopLimit = 3 * time.Second
)

func (c *serveCmd) check(a *app) error {
	switch {
	case c.DryRun:
		return errors.New("--dry-run: not available here; use 'ingest run --dry-run'")
	case c.Interval <= 0:
		return fmt.Errorf("--interval: %v is not positive", c.Interval)
	case c.Token != "" && len(c.Token) < shortestToken:
		return fmt.Errorf("--token: use at least %d characters", shortestToken)
	}
	inputs, err := c.inputs(a)
	if err != nil {
		return err
	}
	return inputs.Missing()
}

// Run serves until a signal ends it, which is a success.
func (c *serveCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(a); err != nil {
		return usage(err)
	}
	listener, err := c.listen()
	if err != nil {
		return err
	}
	s, err := c.service(ctx, a)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	a.serving(listener)
	return s.run(ctx, listener)
}

// listen opens the port, unless it needs a token and has none.
func (c *serveCmd) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, configuration(fmt.Errorf("--listen: %w", err))
	}
	if c.Token == "" && !loopback(listener) {
		return nil, usage(errors.Join(
			fmt.Errorf("--listen %s is not a loopback address and needs a token: set PENSTOCK_TOKEN", c.Listen),
			listener.Close()))
	}
	return netutil.LimitListener(listener, connections), nil
}

func loopback(listener net.Listener) bool {
	address, ok := listener.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// serving prints the address: with port 0 it is known only now.
func (a *app) serving(listener net.Listener) {
	address := "http://" + listener.Addr().String() + "/"
	if a.settings.JSON {
		a.printJSON(map[string]string{"serving": address})
		return
	}
	fmt.Fprintln(a.stdout, "serving", address)
}

// service runs passes over the inputs, and a page that shows them.
type service struct {
	command  *serveCmd
	app      *app
	pipeline *pipeline.Pipeline
	page     *statuspage.Page
	show     *display
	pace     *pace
	lost     lost
	census   *source.Census // of the pass
	unlisted []string       // reasons that the last pass has logged
}

func (c *serveCmd) service(ctx context.Context, a *app) (*service, error) {
	config, err := c.pipeline(ctx, a)
	if err != nil {
		return nil, err
	}
	s := &service{
		command: c, app: a, show: &display{app: a},
		pace: newPace(c.Interval, breakers()...),
	}
	config.Report = s.document
	config.Gone = func(id, location string) bool { return s.census.Missing(id, location) }
	config.Emptied = func(id, location string) string { return s.census.Emptied(id, location) }
	if s.pipeline, err = newPipeline(config); err != nil {
		return nil, err
	}
	s.page, err = c.newPage(s, config.Journal)
	return s, err
}

func (c *serveCmd) newPage(s *service, j *journal.Journal) (*statuspage.Page, error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen: %w", err))
	}
	return statuspage.New(statuspage.Config{
		Breakers: s.pace.breakers, Searcher: s.pipeline, Journal: j, Destination: s.app.destination(),
		Places: s.app.places(), Folder: s.app.folder(), Shared: s.app.shared,
		Metrics: metrics.Handler(),
		Token:   c.Token, AnyHost: c.Token != "" && !statuspage.IsLoopback(host), Hosts: c.AllowHost, Logger: s.app.log,
	})
}

// document shows a document unless it is unchanged, as most are in most passes.
// So is an input that cannot be listed for the reason of the pass before.
func (s *service) document(d pipeline.Document) {
	s.page.Document(d)
	if d.Result == pipeline.Unchanged || d.Result == pipeline.KnownDeadLetter || s.lost.known(d) {
		return
	}
	s.show.document(d)
}

// lost are the inputs that passes cannot list, with the reasons. The zero value
// is ready to use.
type lost struct {
	before, now map[[2]string]bool // of the last pass and of this one
	again       int                // inputs of this pass that are among those of the last
}

// known reports whether a document is an input that the last pass could not
// list either.
func (l *lost) known(d pipeline.Document) bool {
	if d.Result != pipeline.DeadLetter || d.Stage != "list" {
		return false
	}
	key := [2]string{d.ID, d.Reason}
	if l.now == nil {
		l.now = map[[2]string]bool{}
	}
	l.now[key] = true
	if l.before[key] {
		l.again++
	}
	return l.before[key]
}

// pass ends a pass and returns how many of its inputs were known to be lost.
func (l *lost) pass() (again int) {
	again = l.again
	*l = lost{before: l.now}
	return again
}

// run serves the page and runs passes until ctx is done or the server fails.
func (s *service) run(ctx context.Context, listener net.Listener) error {
	defer s.page.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go s.page.Run(ctx)
	server := &http.Server{
		Handler: s.page, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	served := make(chan error, 1)
	go func() {
		err := server.Serve(listener)
		served <- err
		cancel(err)
	}()
	err := s.passes(ctx)
	return errors.Join(err, stopServer(server), unexpected(<-served))
}

func stopServer(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return server.Close()
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("status page server stopped: %w", err)
}

// passes runs one pass after another until ctx is done or another run has taken
// over the state.
func (s *service) passes(ctx context.Context) error {
	defer s.pace.watch()()
	for {
		s.page.PassBegins(time.Now())
		summary, err := s.pass(ctx)
		now := time.Now()
		next := s.pace.next(now, summary, err)
		s.page.PassEnds(summary, err, now, next)
		s.report(ctx, summary, err)
		if err := s.app.stateTaken(); err != nil {
			return err
		}
		if !s.pace.wait(ctx, next) {
			return nil
		}
	}
}

// pass ingests the inputs once. It lists them again, since folders and files
// come and go. Each pass is a task of its own: a call that a breaker refused in
// one may be made in the next.
func (s *service) pass(ctx context.Context) (pipeline.Summary, error) {
	inputs, err := s.command.inputs(s.app)
	if err != nil {
		metrics.Ingest.RunEnded(time.Now(), string(stop.Configuration))
		return pipeline.Summary{}, err
	}
	s.census = inputs.Census()
	ctx = stop.WithEnd(ctx)
	summary, err := s.pipeline.Run(ctx, s.census.All(ctx))
	if err == nil && len(summary.Unlisted) > 0 {
		err = &unlistedError{reasons: summary.Unlisted}
	}
	return summary, err
}

// unlistedError reports that a pass went through those inputs alone that could
// be listed.
type unlistedError struct{ reasons []string }

func (e *unlistedError) Error() string {
	if others := len(e.reasons) - 1; others > 0 {
		return fmt.Sprintf("%s (and %d more)", e.reasons[0], others)
	}
	return e.reasons[0]
}

// report logs and prints what a pass did, if it did anything, and delivers the
// metrics.
func (s *service) report(ctx context.Context, summary pipeline.Summary, err error) {
	for _, reason := range summary.Unlisted {
		if !slices.Contains(s.unlisted, reason) {
			s.app.log.Warn("a pass went without one of its inputs", "error", reason)
		}
	}
	s.unlisted = summary.Unlisted
	_, logged := errors.AsType[*pipeline.StopError](err)
	if err != nil && !logged && len(summary.Unlisted) == 0 && ctx.Err() == nil {
		s.app.log.Warn("a pass ended early", "error", err)
	}
	quiet := summary.Unchanged + summary.KnownDeadLetters + summary.Skipped + s.lost.pass()
	if summary.Documents > quiet || summary.Stopped != nil {
		s.show.summary(summary)
	}
	s.app.deliver(context.WithoutCancel(ctx))
}
