package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/resilience"
)

var spans = tracetest.NewInMemoryExporter()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(spans)))
	os.Exit(m.Run())
}

type breaker struct{ state resilience.State }

func (b breaker) Name() string            { return "llm" }
func (b breaker) State() resilience.State { return b.state }

func classify(_ context.Context, err error) resilience.Verdict {
	if err.Error() == "not found" {
		return resilience.Verdict{Outcome: resilience.Success}
	}
	return resilience.Verdict{Outcome: resilience.Failure}
}

func one(t *testing.T, state resilience.State, err error, kind func(error) string) tracetest.SpanStub {
	spans.Reset()
	ctx, span := trace.Start(t.Context(), breaker{state}, "chat gpt", attribute.String("gen_ai.operation.name", "chat"))
	require.True(t, oteltrace.SpanContextFromContext(ctx).IsValid())
	span.Set(attribute.Int("gen_ai.usage.input_tokens", 3))
	span.End(err, classify, kind)
	require.Len(t, spans.GetSpans(), 1)
	return spans.GetSpans()[0]
}

func TestSpanSaysWhatBecameOfTheCall(t *testing.T) {
	status := func(error) string { return "503" }
	for _, row := range []struct {
		name, outcome, errorType string
		state                    resilience.State
		err                      error
		kind                     func(error) string
		code                     codes.Code
	}{
		{"success", "success", "", resilience.Closed, nil, nil, codes.Unset},
		{"failure by type", "failure", "*errors.errorString", resilience.Closed, errors.New("boom"), nil, codes.Error},
		{"failure by status", "failure", "503", resilience.HalfOpen, errors.New("boom"), status, codes.Error},
		{"an answer", "success", "404", resilience.Closed, errors.New("not found"), func(error) string { return "404" }, codes.Unset},
		{"refusal", "rejected", "circuit_open", resilience.Open, refusal(t, resilience.Failure), status, codes.Error},
		{"stopped", "rejected", "circuit_denied", resilience.Open, refusal(t, resilience.Denied), status, codes.Error},
	} {
		got := one(t, row.state, row.err, row.kind)
		want := map[attribute.Key]string{
			"penstock.breaker.name": "llm", "penstock.breaker.state": row.state.String(), "penstock.outcome": row.outcome,
			"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "3",
		}
		if row.errorType != "" {
			want["error.type"] = row.errorType
		}
		attrs := map[attribute.Key]string{}
		for _, kv := range got.Attributes {
			attrs[kv.Key] = kv.Value.String()
		}
		assert.Equal(t, want, attrs, row.name)
		assert.Equal(t, row.code, got.Status.Code, row.name)
		assert.Equal(t, oteltrace.SpanKindClient, got.SpanKind, row.name)
	}
}

func TestSpanIsAChild(t *testing.T) {
	spans.Reset()
	ctx, outer := trace.Start(t.Context(), breaker{}, "outer")
	_, inner := trace.Start(ctx, breaker{}, "inner")
	inner.End(nil, classify, nil)
	outer.End(nil, classify, nil)
	stubs := spans.GetSpans()
	require.Len(t, stubs, 2)
	assert.Equal(t, stubs[1].SpanContext.SpanID(), stubs[0].Parent.SpanID())
}

// refusal is what a breaker says after its call came to the given end.
func refusal(t *testing.T, end resilience.Outcome) error {
	b := resilience.MustNew("llm", resilience.Config{
		FailMax: 1, StopOnDenied: true, Logger: slog.New(slog.DiscardHandler),
		Classify: func(context.Context, error) resilience.Verdict { return resilience.Verdict{Outcome: end} },
	})
	fail := func(context.Context) error { return errors.New("boom") }
	require.EqualError(t, b.Do(t.Context(), fail), "boom")
	return fmt.Errorf("step: %w", b.Do(t.Context(), fail))
}
