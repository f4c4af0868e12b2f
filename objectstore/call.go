package objectstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

// target names a call for spans and errors.
type target struct{ op, bucket, key string }

func (t target) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("rpc.system", "aws-api"),
		attribute.String("rpc.service", "S3"),
		attribute.String("rpc.method", t.op),
	}
	if t.bucket != "" {
		attrs = append(attrs, attribute.String("aws.s3.bucket", t.bucket))
	}
	if t.key != "" {
		attrs = append(attrs, attribute.String("aws.s3.key", t.key))
	}
	return attrs
}

// flight is one admitted call, from its admission to its outcome.
type flight struct {
	ctx    context.Context // to call the client with
	caller context.Context
	permit *resilience.Permit
	tell   func(resilience.Verdict)
	span   *trace.Span
	watch  func() // records how long it took
	once   sync.Once
	handed bool // the outcome is decided later, by whoever took it over
}

// call is the way of every operation: it asks for admission, runs fn, and
// settles the outcome, which fn may take over with f.hand. A refused call
// leaves a span too.
func call[T any](ctx context.Context, g Guard, t target, fn func(f *flight) (T, error)) (out T, err error) {
	f, err := g.admit(ctx, t)
	if err != nil {
		return out, err
	}
	returned := false
	defer func() {
		if !returned {
			f.panicked()
		}
	}()
	out, err = fn(f)
	returned = true
	if err != nil || !f.handed {
		f.end(err)
	}
	return out, err
}

func (g Guard) admit(ctx context.Context, t target) (*flight, error) {
	b := g.breaker()
	inner, span := trace.Start(ctx, b, "S3."+t.op, t.attributes()...)
	permit, err := b.Allow(inner)
	if err != nil {
		span.End(err, Classify, errorType)
		return nil, err
	}
	return &flight{ctx: permit.Context(), caller: ctx, permit: permit, tell: g.Settled, span: span, watch: stopwatch(b.Name(), t.op)}, nil
}

// stopwatch starts to time a call. A transfer ends with its last byte.
func stopwatch(breaker, op string) (stop func()) {
	started := time.Now()
	return func() { metrics.ObserveCall(breaker, snake(op), time.Since(started)) }
}

// snake is an operation's name as metrics write it: list_objects_v2.
func snake(op string) string {
	var b strings.Builder
	for i, r := range op {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// hand keeps the outcome open after fn has returned without an error.
func (f *flight) hand() { f.handed = true }

// end settles the call by its error. The first end counts.
func (f *flight) end(err error) {
	f.close(err, func() {
		if err == nil {
			f.settled(resilience.Verdict{}, nil)
		} else {
			f.settled(Classify(f.caller, err), err)
		}
	})
}

func (f *flight) settled(v resilience.Verdict, err error) {
	f.permit.Settle(v, err)
	if f.tell != nil {
		f.tell(v)
	}
}

// abandon settles a call whose answer nobody waited for.
func (f *flight) abandon() {
	f.close(nil, func() { f.settled(resilience.Verdict{Outcome: resilience.Ignored}, nil) })
}

// errPanicked is what the span of a call says that a panic or runtime.Goexit
// went through.
var errPanicked = &localError{errors.New("objectstore: the client panicked")}

func (f *flight) panicked() { f.close(errPanicked, f.permit.Panicked) }

func (f *flight) close(err error, settle func()) {
	f.once.Do(func() {
		f.watch()
		settle()
		f.span.End(err, Classify, errorType)
	})
}
