package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/resilience"
)

// Exit codes, those of sysexits.h and the shell's for signals.
const (
	exitOK            = 0
	exitFault         = 1   // a fault of this program or of this machine
	exitUsage         = 64  // EX_USAGE: the command line makes no sense
	exitData          = 65  // EX_DATAERR: documents became dead letters, the rest is done
	exitTemporary     = 75  // EX_TEMPFAIL: something was deferred, run again
	exitDenied        = 77  // EX_NOPERM: credentials or quota refused
	exitConfiguration = 78  // EX_CONFIG: bucket, model and collection do not fit
	exitSignal        = 128 // plus the signal's number
)

// codedError is an error that knows its exit code.
type codedError struct {
	code int
	err  error // nil where the output has said it all
	skip bool  // it says that there was nothing to do
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

// exit says what went wrong, once, and gives the exit code.
func (a *app) exit(ctx context.Context, err error) int {
	code := exitCode(ctx, err)
	coded, ok := errors.AsType[*codedError](err)
	if err != nil && (!ok || coded.err != nil) {
		fmt.Fprintln(a.stderr, "ingest:", plain(err.Error()))
	}
	return code
}

// exitCode finds the code for an error. A signal goes before everything else.
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
	if stop, ok := errors.AsType[*pipeline.StopError](err); ok {
		return stopCode(stop)
	}
	_, held := errors.AsType[*journal.HeldError](err)
	_, denied := errors.AsType[*resilience.DeniedError](err)
	_, config := errors.AsType[*pipeline.ConfigError](err)
	switch {
	case held, errors.Is(err, resilience.ErrOpen):
		return exitTemporary
	case denied:
		return exitDenied
	case config:
		return exitConfiguration
	}
	return exitFault
}

func stopCode(stop *pipeline.StopError) int {
	switch stop.Kind {
	case pipeline.StopDeferred:
		return exitTemporary
	case pipeline.StopDenied:
		return exitDenied
	case pipeline.StopConfiguration:
		return exitConfiguration
	case pipeline.StopInterrupted:
		return exitSignal + int(syscall.SIGINT)
	case pipeline.StopFault:
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
