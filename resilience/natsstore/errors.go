package natsstore

import (
	"errors"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// StoreError says what could not be done in which bucket. Err is the client's
// error.
type StoreError struct {
	Op     string // "load", "swap" or "watch"
	Bucket string
	Key    string // of the breaker; empty for a watch
	Err    error
}

func (e *StoreError) Error() string {
	what := e.Op
	if e.Key != "" {
		what += " " + strconv.Quote(e.Key)
	}
	return "natsstore: cannot " + what + " in bucket " + strconv.Quote(e.Bucket) + ": " + e.Err.Error() + e.advice()
}

func (e *StoreError) Unwrap() error { return e.Err }

func (e *StoreError) advice() string {
	switch {
	case errors.Is(e.Err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(e.Err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "; enable JetStream in the server and for the account"
	case errors.Is(e.Err, jetstream.ErrInvalidStreamName):
		return "; a bucket's name has letters, digits, - and _"
	default:
		return ""
	}
}

var (
	errOldServer    = errors.New("the server does not tell its time; NATS 2.10 or newer does")
	errDisconnected = errors.New("the connection is lost")
	errAnswer       = errors.New("the server's answer cannot be read")
	errQuiet        = errors.New("the server has sent no heartbeat; changes may have been missed")
	errMissed       = errors.New("changes were missed")
)
