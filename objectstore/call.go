package objectstore

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/trace"
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
	span   *trace.Span
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
	defer f.leave()
	out, err = fn(f)
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
	return &flight{ctx: permit.Context(), caller: ctx, permit: permit, span: span}, nil
}

// hand keeps the outcome open after fn has returned without an error.
func (f *flight) hand() { f.handed = true }

// leave gives the slot back where a panic or runtime.Goexit passes by.
func (f *flight) leave() {
	if !f.handed {
		f.settle(resilience.Verdict{Outcome: resilience.Ignored}, nil)
	}
}

// end settles the call by its error. The first end counts.
func (f *flight) end(err error) {
	v := resilience.Verdict{Outcome: resilience.Success}
	if err != nil {
		v = Classify(f.caller, err)
	}
	f.settle(v, err)
}

// abandon settles a call whose answer nobody waited for.
func (f *flight) abandon() { f.settle(resilience.Verdict{Outcome: resilience.Ignored}, nil) }

func (f *flight) settle(v resilience.Verdict, err error) {
	f.once.Do(func() {
		if v.Outcome == resilience.Failure {
			f.permit.Done(err) // Settle would lose the error, which a refusal shows as LastFailure
		} else {
			f.permit.Settle(v)
		}
		f.span.End(err, Classify, errorType)
	})
}
