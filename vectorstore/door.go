package vectorstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// maxWait bounds the SDK's synchronous waits where the context has no deadline.
const maxWait = 10 * time.Minute

// Guard is the door with a breaker of the caller's choice. The zero value uses
// resilience.Milvus; the package functions are its methods.
type Guard struct {
	// Breaker is shared by all operations; nil means resilience.Milvus.
	Breaker *resilience.Breaker
	// Settled, where set, is told the verdict of each call that was admitted, a
	// success included: once, in the goroutine that ends the call, after the
	// breaker has counted it and before the call returns; for an iterator, when
	// its outcome is decided. It is not told of a refused call, nor of one that
	// panicked.
	Settled func(resilience.Verdict)
	// InFlight, where set, is entered by each call first, so that no more calls
	// are in flight than its breaker still tolerates failures; a call waits
	// there for its turn. Its breaker is then the guard's: with another one in
	// Breaker each call returns an error that says so, and nothing is sent.
	InFlight *inflight.Limiter
}

// through is the guard with its breaker.
func (g Guard) through() door.Guard { return door.Guard(g).Or(resilience.Milvus) }

// target says what a call is about.
type target struct {
	name       string // as the SDK names it, for messages
	label      string // for metrics and spans
	collection string
	client     any
	invalid    error // why it must not be sent
}

// operation describes a call about t.
func (t target) operation() door.Op {
	op := door.Op{Name: t.label, Classify: t.classify, Span: t.span(), Observe: metrics.ObserveCall}
	if t.invalid == nil && isNil(t.client) {
		t.invalid = errNoClient
	}
	if t.invalid != nil {
		op.Invalid = &ArgumentError{Op: t.name, Reason: t.invalid.Error()}
	}
	return op
}

// typed is implemented by clients whose upstream errors all carry a status, so
// that an error without one is the SDK's own refusal of the arguments.
type typed interface{ typedErrors() }

func (t target) classify(caller context.Context, err error) resilience.Verdict {
	if _, ok := t.client.(typed); ok && plain(err) {
		return resilience.Verdict{Outcome: resilience.Ignored}
	}
	return Classify(caller, err)
}

func plain(err error) bool {
	_, ok := status.FromError(err)
	return !ok && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (t target) span() *trace.Span {
	name, attrs := t.label, []attribute.KeyValue{
		attribute.String("db.system.name", "milvus"),
		attribute.String("db.operation.name", t.label),
	}
	if t.collection != "" {
		name += " " + t.collection
		attrs = append(attrs, attribute.String("db.collection.name", t.collection))
	}
	return trace.New(name, errorType, attrs...)
}

var errNoClient = errors.New("no client")

// call is the way of operations that end when fn returns. valid, if not nil,
// checks the answer: what it finds wrong is a ContractError.
func call[T any](
	ctx context.Context, g Guard, t target, valid func(T) error, fn func(context.Context) (T, error),
) (T, error) {
	return door.Call(ctx, g.through(), t.operation(), func(ctx context.Context) (T, error) {
		v, err := fn(ctx)
		if err == nil && valid != nil {
			if wrong := valid(v); wrong != nil {
				err = &ContractError{Op: t.name, Reason: wrong.Error()}
			}
		}
		return v, err
	})
}

// do is call for operations without a result.
func do(ctx context.Context, g Guard, t target, fn func(context.Context) error) error {
	_, err := call(ctx, g, t, nil, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
	return err
}

// abandonKey finds, in a context, the function that ends a wait of the SDK's.
type abandonKey struct{}

// patiently runs an operation in which the SDK asks again and again until the
// server is done. It bounds the wait, and the first error ends it: in Flush the
// SDK would pass over errors and ask until the context ends.
func patiently(async bool, fn func(context.Context) error) func(context.Context) error {
	if async {
		return fn
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if _, ok := ctx.Deadline(); !ok {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, maxWait)
			defer stop()
		}
		var first atomic.Pointer[error]
		err := fn(context.WithValue(ctx, abandonKey{}, abandon(func(err error) {
			first.CompareAndSwap(nil, &err)
			cancel()
		})))
		_, typed := status.FromError(err)
		switch failed := first.Load(); {
		case typed:
			return err // nil too
		case failed != nil:
			return *failed
		case ctx.Err() != nil:
			return endOf(ctx)
		}
		return err
	}
}

// abandon ends a wait of the SDK's with its first error.
type abandon func(error)
