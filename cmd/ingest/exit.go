package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// Exit codes, those of sysexits.h and the shell's for signals.
const (
	exitOK            = 0
	exitFault         = 1   // a fault of this program or this machine
	exitUsage         = 64  // EX_USAGE: invalid command line
	exitData          = 65  // EX_DATAERR: some documents are dead letters, the rest is done
	exitTemporary     = 75  // EX_TEMPFAIL: something was deferred, run again
	exitDenied        = 77  // EX_NOPERM: credentials or quota refused
	exitConfiguration = 78  // EX_CONFIG: bucket, model and collection do not match
	exitSignal        = 128 // plus the signal's number
)

// exitMeaning says what a code means, for help and manual.
type exitMeaning struct {
	code    string
	meaning string
	again   string // whether to run again
}

var exitMeanings = []exitMeaning{
	{"0", "Done, or nothing had changed.", "At the next schedule."},
	{"1", "A fault on this machine: a full disk, a read-only state folder, a damaged journal.", "No; it needs a person."},
	{"64", "The command line is invalid, no input exists, or the state of 'status', 'verify', 'retry' or 'delete' has no journal.", "No; it needs a person."},
	{"65", "Some documents became dead letters, the rest is done; 'ingest status' lists them. 'verify': journal and " +
		"stores differ. --prune was refused. 'delete' did not find a document.", "No; see 'ingest status'."},
	{"75", "Something was deferred: an upstream is unavailable, its circuit breaker is open, or another run holds the " +
		"journal or has taken it over. Nothing is lost or paid for twice.", "Yes, after retry_at in the summary."},
	{"77", "Credentials or quota were refused.", "No, until that is fixed."},
	{"78", "Bucket, model, collection or configuration do not match.", "No, until that is fixed."},
	{"129, 130, 143", "Interrupted by SIGHUP, SIGINT or SIGTERM; the state is saved.", "Yes."},
	{"141", "The reader of the results closed its end, as in 'ingest status | head'; the state is saved.", "Yes."},
}

const exitPrecedence = "If several apply, the first of interruption, 1, 78, 77, 75 and 65 is the exit code. " +
	"--skip-exit-code sets the code of a run with nothing to do."

// codedError is an error with an exit code.
type codedError struct {
	code int
	err  error // nil if the output has already said why
	skip bool  // there was nothing to do
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

func usage(err error) error { return &codedError{code: exitUsage, err: err} }

func configuration(err error) error { return &codedError{code: exitConfiguration, err: err} }

// exit prints the error, unless the output has said it, and returns the exit
// code. A reader of the results that has closed its end, as head does, wants no
// more words.
func (a *app) exit(ctx context.Context, err error) int {
	code := exitCode(ctx, err)
	if code == signalCode(syscall.SIGPIPE) {
		return code
	}
	coded, ok := errors.AsType[*codedError](err)
	if err != nil && (!ok || coded.err != nil) {
		fmt.Fprintln(a.stderr, a.alarm().bad("ingest:"), localTimes(plain.Text(err.Error())))
	}
	return code
}

// alarm is the ink of stderr. The settings are unknown if the command line or
// the configuration is wrong.
func (a *app) alarm() ink {
	color := colorAuto
	if a.settings != nil {
		color = a.settings.Color
	}
	return inkFor(color, a.stderr)
}

// exitCode returns the exit code for an error. A signal takes precedence.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if caught, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		return signalCode(caught.signal)
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	if ended := stop.Before(err); ended != nil {
		return stopCode(ended)
	}
	if _, config := errors.AsType[*pipeline.ConfigError](err); config {
		return exitConfiguration
	}
	return exitFault
}

func stopCode(ended *stop.Error) int {
	switch ended.Kind {
	case stop.Deferred:
		return exitTemporary
	case stop.Denied:
		return exitDenied
	case stop.Configuration:
		return exitConfiguration
	case stop.Interrupted:
		return exitSignal + int(syscall.SIGINT)
	case stop.Fault:
		return exitFault
	}
	return exitFault
}

func signalCode(signal os.Signal) int {
	if number, ok := signal.(syscall.Signal); ok {
		return exitSignal + int(number)
	}
	return exitSignal + int(syscall.SIGINT)
}
