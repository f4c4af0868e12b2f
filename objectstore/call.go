package objectstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

// target says what a call is about, in spans and in errors.
type target struct{ op, bucket, key string }

// about is the target of a call about a bucket, and perhaps a key.
func about(op string, bucket, key *string) target {
	return target{op, aws.ToString(bucket), aws.ToString(key)}
}

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

// operation describes a call about t.
func (t target) operation() door.Op {
	return door.Op{
		Name: snake(t.op), Classify: Classify, Observe: metrics.ObserveCall,
		Span: trace.New("S3."+t.op, errorType, t.attributes()...),
	}
}

// through is the guard with its breaker.
func (g Guard) through() door.Guard { return door.Guard(g).Or(resilience.S3) }

// call is the way of operations that end when fn returns.
func call[T any](ctx context.Context, g Guard, t target, fn func(context.Context) (T, error)) (T, error) {
	v, err := door.Call(ctx, g.through(), t.operation(), func(inner context.Context) (T, error) {
		v, err := fn(inner)
		return v, left(ctx, err)
	})
	return v, refused(ctx, err)
}

// open is the way of operations that renew a probe's lease while data flows, or
// that end later than fn.
func open[T any](ctx context.Context, g Guard, t target, fn func(*door.Handle) (T, error)) (T, error) {
	v, err := door.Open(ctx, g.through(), t.operation(), func(h *door.Handle) (T, error) {
		v, err := fn(h)
		return v, left(ctx, err)
	})
	return v, refused(ctx, err)
}

// left is the error of a call that ended with its context: it is the context's
// error and its cause, whatever the SDK has made of them. An answer stays what
// it is, and so does what was never sent. A good answer that broke off is no
// answer, although the SDK shows its status.
func left(ctx context.Context, err error) error {
	if err == nil || err == io.EOF || ctx.Err() == nil { //nolint:errorlint // the end of a body
		return err
	}
	var (
		input *InputError
		local *localError
	)
	status, code := answer(err)
	if errors.As(err, &input) || errors.As(err, &local) || status >= http.StatusMultipleChoices || code != "" {
		return err
	}
	return ended(ctx, err)
}

// refused is the error of a call that a context which had ended before did not
// let begin.
func refused(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return ended(ctx, err)
}

// ended adds to err what it does not say of the end of ctx.
func ended(ctx context.Context, err error) error {
	var ends []error
	for _, end := range []error{ctx.Err(), context.Cause(ctx)} {
		if !errors.Is(err, end) {
			ends = append(ends, end)
		}
	}
	if ends == nil {
		return err
	}
	return &endedError{err, ends}
}

// snake is an operation's name as metrics write it: list_objects_v2.
func snake(op string) string {
	var b strings.Builder
	b.Grow(len(op) + 4)
	for i, r := range op {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
