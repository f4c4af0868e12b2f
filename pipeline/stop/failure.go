package stop

import "errors"

// ErrEnded is what a step gets that comes after the end of its run.
var ErrEnded = errors.New("the run ended before this document was done")

// Failure ends one document.
type Failure struct {
	Deferred    bool   // run again; else it is a dead letter
	Stage, Kind string // where it failed, and of what kind the failure is
	Err         error
}

func (f *Failure) Error() string { return f.Stage + ": " + f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// DeadLetter is the failure of a document that cannot be ingested as it is.
func DeadLetter(stage, kind string, err error) error {
	return &Failure{Stage: stage, Kind: kind, Err: err}
}

// Defer is the failure of a document that a later run may ingest.
func Defer(stage, kind string, err error) error {
	return &Failure{Deferred: true, Stage: stage, Kind: kind, Err: err}
}

// AsFailure gives any error that ends a document the shape of a failure: one
// that is none defers it, since its run was stopped.
func AsFailure(stage string, err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Deferred: true, Stage: stage, Kind: "stopped", Err: err}
}

// IsRefusal reports whether an upstream would not take what it was sent, no
// matter who sends it again.
func IsRefusal(err error) bool {
	f, ok := errors.AsType[*Failure](err)
	return ok && !f.Deferred
}
