// Package trace makes the OpenTelemetry span that each call through a door
// leaves, refused calls included.
//
//	span := trace.New("chat gpt-5", errorType, attribute.String("gen_ai.operation.name", "chat"))
//	ctx = span.Start(ctx, breaker)
//	…
//	span.End(verdict, err)
//
// Spans go to the global tracer provider; without one nothing is recorded.
// Beside what the door gives, a span has penstock.breaker.name,
// penstock.breaker.state (what the call met: closed, half_open, open),
// penstock.outcome (success, failure, ignored, throttled, denied, rejected)
// and, on an error, error.type.
package trace

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/resilience"
)

const (
	instrumentation = "github.com/penstock-go/penstock"

	breakerName  = attribute.Key("penstock.breaker.name")
	breakerState = attribute.Key("penstock.breaker.state")
	outcome      = attribute.Key("penstock.outcome")
	errorType    = attribute.Key("error.type")

	rejected = "rejected"
)

// Span is one call. It belongs to the goroutine that ends it.
type Span struct {
	name  string
	kind  func(error) string
	attrs []attribute.KeyValue
	span  trace.Span
}

// New describes a client span that has not begun. kind names an error for
// error.type, such as its status code; an empty name means the error's Go type.
func New(name string, kind func(error) string, attrs ...attribute.KeyValue) *Span {
	return &Span{name: name, kind: kind, attrs: attrs}
}

// Start begins the span, a child of the one in ctx. The returned context
// carries it into the call.
func (s *Span) Start(ctx context.Context, b *resilience.Breaker) context.Context {
	ctx, s.span = otel.Tracer(instrumentation).Start(ctx, s.name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(s.attrs...))
	if s.span.IsRecording() {
		s.span.SetAttributes(breakerName.String(b.Name()), breakerState.String(b.State().String()))
	}
	return ctx
}

// Set adds what became known during the call.
func (s *Span) Set(attrs ...attribute.KeyValue) {
	if s.span.IsRecording() {
		s.span.SetAttributes(attrs...)
	}
}

// End closes the span of an admitted call with its verdict and the error that
// the caller gets. An error that is an answer (its outcome is success, such as
// a 404) does not give the span an error status.
func (s *Span) End(v resilience.Verdict, err error) {
	if s.span.IsRecording() {
		s.finish(v.Outcome.String(), "", err)
	}
	s.span.End()
}

// Refuse closes the span of a call that was not admitted. A refusal of the
// breaker is rejected, as circuit_open or circuit_denied; a call that was not
// to be made for another reason is ignored.
func (s *Span) Refuse(err error) {
	if s.span.IsRecording() {
		result, name := refusal(err)
		s.finish(result, name, err)
	}
	s.span.End()
}

func refusal(err error) (result, name string) {
	var denied *resilience.DeniedError
	switch {
	case errors.Is(err, resilience.ErrOpen):
		return rejected, "circuit_open"
	case errors.As(err, &denied):
		return rejected, "circuit_denied"
	}
	return resilience.Ignored.String(), ""
}

// finish describes the end. An empty name stands for what kind calls err.
func (s *Span) finish(result, name string, err error) {
	s.span.SetAttributes(outcome.String(result))
	if err == nil {
		return
	}
	if name == "" {
		name = s.nameOf(err)
	}
	s.span.SetAttributes(errorType.String(name))
	if result != resilience.Success.String() {
		s.span.SetStatus(codes.Error, err.Error())
	}
}

func (s *Span) nameOf(err error) string {
	if name := s.kind(err); name != "" {
		return name
	}
	return fmt.Sprintf("%T", err)
}
