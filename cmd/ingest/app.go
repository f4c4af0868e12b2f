package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/state"
	"github.com/penstock-go/penstock/resilience"
)

// app is one run of the command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	output         io.Writer // what stdout writes to

	args     []string // the command line
	paths    []string // the inputs that it names
	file     configFile
	parsed   *kong.Context
	settings *Settings
	log      *slog.Logger
	ink      ink                     // of stdout
	drawn    atomic.Pointer[display] // has a progress bar; nil without one

	metrics *http.Server
	closers []func() error
	state   *state.State     // nil unless the journal is in an object store
	opened  *journal.Journal // of the open pipeline
	dry     bool             // the run is a dry one
	store   resilience.Store // of shared breakers; may be nil
	shared  string           // where the breakers are shared, for people; empty if they are not
	audit   *auditLog        // nil without one

	onlyLooks bool   // the verb needs no journal that can be written
	instead   string // a folder for the embedded stores in place of that of --state; empty but for doctor
}

// shortestTimeout is the minimum of --timeout. Below it no call is answered in
// time, and each would count as a failure of the upstream.
const shortestTimeout = 100 * time.Millisecond

// start sets up what every verb needs.
func (a *app) start() error {
	a.log = a.newLogger(a.settings)
	slog.SetDefault(a.log)
	a.ink = inkFor(a.settings.Color, a.output)
	if err := a.checkValues(); err != nil {
		return err
	}
	if a.settings.Timeout < shortestTimeout {
		return usage(fmt.Errorf("--timeout: %s is too short; the minimum is %s", a.settings.Timeout, shortestTimeout))
	}
	if err := a.checkState(); err != nil {
		return usage(err)
	}
	if err := cmp.Or(a.settings.checkMilvus(), a.settings.checkShared()); err != nil {
		return usage(err)
	}
	if err := a.startDelivery(); err != nil {
		return err
	}
	if a.settings.MetricsAddr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", a.settings.MetricsAddr)
	if err != nil {
		return configuration(fmt.Errorf("--metrics-addr: %w", err))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler())
	a.metrics = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	a.log.Info("serving metrics", "address", listener.Addr().String())
	go func() {
		if err := a.metrics.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("metrics server stopped", "error", err)
		}
	}()
	return nil
}

func (a *app) newLogger(s *Settings) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		level = slog.LevelWarn // unreachable: the parser accepts known names only
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: inUTC}
	if s.LogJSON {
		return slog.New(slog.NewJSONHandler(logWriter{a}, options))
	}
	return slog.New(slog.NewTextHandler(logWriter{a}, options))
}

// inUTC has the times of a log in one zone, whatever that of the machine is.
func inUTC(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindTime {
		attr.Value = slog.TimeValue(attr.Value.Time().UTC())
	}
	return attr
}

// stop closes what the verb opened, last opened first.
func (a *app) stop() error {
	var errs []error
	for _, closer := range slices.Backward(a.closers) {
		errs = append(errs, closer())
	}
	if a.metrics != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		errs = append(errs, a.metrics.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// later registers a function to be called when the verb ends.
func (a *app) later(close func() error) { a.closers = append(a.closers, close) }

// printJSON writes a value as one line.
func (a *app) printJSON(value any) {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		a.log.Error("cannot write result", "error", err)
	}
}

// oneScreen reports whether results and logs go to the same person.
func (a *app) oneScreen() bool {
	return onTerminal(a.output) && onTerminal(a.stderr) && !a.settings.JSON && !a.settings.LogJSON
}

// onTerminal reports whether w is a terminal.
func onTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
