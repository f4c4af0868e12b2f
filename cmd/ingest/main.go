// Command ingest reads documents into an object store and a vector store, and
// searches them.
//
//	ingest README.md docs/
//	ingest search "when does the breaker open?"
//
// Without configuration everything stays in the folder .penstock: originals as
// files, chunks and vectors in SQLite, embeddings from a model inside the
// binary. --s3-endpoint, --milvus and --llm-base-url switch each of the three
// to a real upstream. "ingest help" lists the verbs and flags, "ingest config"
// the settings in force and where each comes from.
//
// Results go to stdout, logs and the progress bar to stderr. The exit codes
// follow sysexits.h, so that an orchestrator knows whether to run the command
// again (75) or not (64, 65, 77, 78): "ingest help exit-codes".
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

func main() {
	ctx, stop := signals(context.Background())
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// signalError is the cause of a context canceled by a signal.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string {
	names := map[os.Signal]string{
		syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGPIPE: "SIGPIPE",
	}
	return "interrupted by " + cmp.Or(names[e.signal], e.signal.String())
}

// signals cancels the context at the first SIGINT, SIGTERM or SIGHUP, so that
// the run can save its state, and ends the process at the second. A process
// that nohup has started ignores SIGHUP. A closed stdout counts as a signal
// too, see checkedWriter.
func signals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(caught, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // a write fails instead, and the run can save its state
	go func() {
		first, ok := <-caught
		if !ok {
			return
		}
		cancel(signalError{first})
		if second, ok := <-caught; ok {
			os.Exit(signalCode(second))
		}
	}()
	return ctx, func() {
		signal.Stop(caught)
		close(caught)
		cancel(nil)
	}
}

// run is the whole command; it does not exit the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := &checkedWriter{to: stdout, gone: func() { cancel(signalError{syscall.SIGPIPE}) }}
	app := &app{stdin: stdin, stdout: results, output: stdout, stderr: stderr}
	err := app.command(ctx, args)
	if err == nil && results.err != nil {
		err = fmt.Errorf("cannot write results: %w", results.err)
	}
	return app.exit(ctx, err)
}

// checkedWriter remembers the first failed write: a run whose results were not
// written did not succeed. It drops everything after that write.
type checkedWriter struct {
	to   io.Writer
	gone func() // called when the reader has closed its end

	mu  sync.Mutex
	err error
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return len(p), nil
	}
	n, err := w.to.Write(p)
	w.err = err
	if errors.Is(err, syscall.EPIPE) {
		w.gone()
		return len(p), nil
	}
	return n, err
}

// both returns the more severe of a verb's error and the error of its cleanup,
// and logs the other.
func (a *app) both(verb, end error) error {
	if end == nil {
		return verb
	}
	graver := worse(verb, end)
	if verb != nil && exitCode(context.Background(), graver) != exitCode(context.Background(), end) {
		a.log.Error("cleanup failed", "error", end)
	}
	return graver
}
