// Package trace makes the OpenTelemetry span that each call through a door leaves, refused calls included.
//
//	ctx, span := trace.Start(ctx, breaker, "chat gpt-5", attribute.String("gen_ai.operation.name", "chat"))
//	…
//	span.End(err, Classify, errorType)
//
// Spans go to the global tracer provider; without one nothing is recorded. Beside what the door gives, a span has
// penstock.breaker.name, penstock.breaker.state (what the call met: closed, half_open, open), penstock.outcome
// (success, failure, ignored, throttled, denied, rejected) and, on an error, error.type.
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
)

// Breaker is what a span says about the breaker of its call.
type Breaker interface {
	Name() string
	State() resilience.State
}

// Span is one call. It belongs to the goroutine that ends it.
type Span struct {
	span   trace.Span
	caller context.Context
}

// Start begins a client span, a child of the one in ctx. The returned context carries it into the call.
func Start(ctx context.Context, b Breaker, name string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	inner, span := otel.Tracer(instrumentation).Start(ctx, name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	if span.IsRecording() {
		span.SetAttributes(breakerName.String(b.Name()), breakerState.String(b.State().String()))
	}
	return inner, &Span{span: span, caller: ctx}
}

// Set adds what became known during the call.
func (s *Span) Set(attrs ...attribute.KeyValue) {
	if s.span.IsRecording() {
		s.span.SetAttributes(attrs...)
	}
}

// End closes the span with the error that the caller gets. classify says what the breaker makes of it. kind names
// the error for error.type, such as its status code; nil, or an empty name, means the error's Go type. The breaker's
// own refusals are told apart here, as circuit_open and circuit_denied, and reach neither.
//
// An error that is an answer (its outcome is success, such as a 404) does not give the span an error status.
func (s *Span) End(err error, classify resilience.Classifier, kind func(error) string) {
	defer s.span.End()
	switch {
	case !s.span.IsRecording():
	case err == nil:
		s.span.SetAttributes(outcome.String(resilience.Success.String()))
	default:
		s.fail(err, classify, kind)
	}
}

func (s *Span) fail(err error, classify resilience.Classifier, kind func(error) string) {
	result, name := refusal(err)
	if name == "" {
		verdict := classify(s.caller, err)
		result, name = verdict.Outcome.String(), nameOf(err, kind)
	}
	s.span.SetAttributes(outcome.String(result), errorType.String(name))
	if result != resilience.Success.String() {
		s.span.SetStatus(codes.Error, err.Error())
	}
}

func refusal(err error) (result, name string) {
	var denied *resilience.DeniedError
	switch {
	case errors.Is(err, resilience.ErrOpen):
		return "rejected", "circuit_open"
	case errors.As(err, &denied):
		return "rejected", "circuit_denied"
	}
	return "", ""
}

func nameOf(err error, kind func(error) string) string {
	if kind != nil {
		if name := kind(err); name != "" {
			return name
		}
	}
	return fmt.Sprintf("%T", err)
}
