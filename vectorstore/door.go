package vectorstore

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
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
	// its outcome is decided. It
	// is not told of a refused call, nor of one that panicked.
	Settled func(resilience.Verdict)
}

func (g Guard) breaker() *resilience.Breaker {
	if g.Breaker == nil {
		return resilience.Milvus
	}
	return g.Breaker
}

// op describes a call.
type op struct {
	name       string // as the SDK names it, for messages
	label      string // for metrics and spans
	collection string
	client     any
	invalid    error // why it must not be sent
}

// typed is implemented by clients whose upstream errors all carry a status, so
// that an error without one is the SDK's own refusal of the arguments.
type typed interface{ typedErrors() }

func (o op) classify(caller context.Context, err error) resilience.Verdict {
	if _, ok := o.client.(typed); ok && plain(err) {
		return resilience.Verdict{Outcome: resilience.Ignored}
	}
	return Classify(caller, err)
}

func plain(err error) bool {
	_, ok := status.FromError(err)
	return !ok && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (o op) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("db.system.name", "milvus"),
		attribute.String("db.operation.name", o.label),
	}
	if o.collection != "" {
		attrs = append(attrs, attribute.String("db.collection.name", o.collection))
	}
	return attrs
}

func (o op) start(ctx context.Context, b *resilience.Breaker) (context.Context, *trace.Span) {
	name := o.label
	if o.collection != "" {
		name += " " + o.collection
	}
	return trace.Start(ctx, b, name, o.attributes()...)
}

// call is the one way through the door.
func call[T any](ctx context.Context, g Guard, o op, valid func(T) error, fn func(context.Context) (T, error)) (T, error) {
	b := g.breaker()
	ctx, span := o.start(ctx, b)
	var (
		v        T
		err      = errPanicked
		settled  resilience.Verdict
		admitted bool
	)
	classify := func(caller context.Context, err error) resilience.Verdict {
		settled = o.classify(caller, err)
		return settled
	}
	defer func() {
		if err == errPanicked { //nolint:errorlint // the very value
			span.End(err, ignore, errorType)
		}
	}()
	if o.invalid == nil && isNil(o.client) {
		o.invalid = errNoClient
	}
	if o.invalid != nil {
		err = &ArgumentError{Op: o.name, Reason: o.invalid.Error()}
	} else {
		v, err = resilience.CallOp(ctx, b, resilience.Op[T]{Name: o.label, Classify: classify, Validate: contract(o, valid)},
			func(ctx context.Context) (T, error) {
				admitted = true
				defer stopwatch(b, o.label)()
				return fn(ctx)
			})
	}
	if admitted && g.Settled != nil {
		g.Settled(settled)
	}
	span.End(err, o.classify, errorType)
	return v, err
}

// stopwatch starts to time a call that was admitted.
func stopwatch(b *resilience.Breaker, operation string) (stop func()) {
	started := time.Now()
	return func() { metrics.ObserveCall(b.Name(), operation, time.Since(started)) }
}

var errNoClient = errors.New("no client")

// errPanicked stands for what a call was to return that a panic or
// runtime.Goexit went through, which go on.
var errPanicked = errors.New("vectorstore: the client panicked")

func ignore(context.Context, error) resilience.Verdict {
	return resilience.Verdict{Outcome: resilience.Ignored}
}

// contract turns a check of an answer into one that gives a ContractError.
func contract[T any](o op, valid func(T) error) func(T) error {
	if valid == nil {
		return nil
	}
	return func(v T) error {
		if err := valid(v); err != nil {
			return &ContractError{Op: o.name, Reason: err.Error()}
		}
		return nil
	}
}

// do is call for operations without a result.
func do(ctx context.Context, g Guard, o op, fn func(context.Context) error) error {
	_, err := call(ctx, g, o, nil, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
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
		ctx, abandon := context.WithCancelCause(ctx)
		defer abandon(nil)
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, maxWait)
			defer cancel()
		}
		err := fn(context.WithValue(ctx, abandonKey{}, abandon))
		if err != nil && ctx.Err() != nil && plain(err) {
			return context.Cause(ctx)
		}
		return err
	}
}
