package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

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
	"github.com/penstock-go/penstock/testutil"
)

var spans = tracetest.NewInMemoryExporter()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(spans)))
	os.Exit(m.Run())
}

// breaker is one in the given state.
func breaker(t *testing.T, state resilience.State) *resilience.Breaker {
	clock := testutil.NewClock()
	b := testutil.NewBreaker(t, "llm", resilience.Config{Clock: clock, Logger: slog.New(slog.DiscardHandler)})
	if state != resilience.Closed {
		b.Trip("test")
	}
	if state == resilience.HalfOpen {
		clock.Advance(time.Hour)
	}
	return b
}

func status(err error) string {
	if err.Error() == "boom" {
		return ""
	}
	return err.Error()
}

// one is the span of a call that end ends.
func one(t *testing.T, state resilience.State, end func(*trace.Span)) tracetest.SpanStub {
	spans.Reset()
	span := trace.New("chat gpt", status, attribute.String("gen_ai.operation.name", "chat"))
	ctx := span.Start(t.Context(), breaker(t, state))
	require.True(t, oteltrace.SpanContextFromContext(ctx).IsValid())
	span.Set(attribute.Int("gen_ai.usage.input_tokens", 3))
	end(span)
	require.Len(t, spans.GetSpans(), 1)
	return spans.GetSpans()[0]
}

func TestSpanSaysWhatBecameOfTheCall(t *testing.T) {
	ends := func(o resilience.Outcome, err error) func(*trace.Span) {
		return func(s *trace.Span) { s.End(resilience.Verdict{Outcome: o}, err) }
	}
	refused := func(err error) func(*trace.Span) { return func(s *trace.Span) { s.Refuse(err) } }
	const closed, open, halfOpen = resilience.Closed, resilience.Open, resilience.HalfOpen
	for _, row := range []struct {
		name, outcome, errorType string
		state                    resilience.State
		end                      func(*trace.Span)
		code                     codes.Code
	}{
		{"success", "success", "", closed, ends(resilience.Success, nil), codes.Unset},
		{
			"failure by type", "failure", "*errors.errorString", closed,
			ends(resilience.Failure, errors.New("boom")), codes.Error,
		},
		{"failure by status", "failure", "503", halfOpen, ends(resilience.Failure, errors.New("503")), codes.Error},
		{"an answer", "success", "404", closed, ends(resilience.Success, errors.New("404")), codes.Unset},
		{"nobody waited for it", "ignored", "", closed, ends(resilience.Ignored, nil), codes.Unset},
		{"refusal", "rejected", "circuit_open", open, refused(refusal(t, resilience.Failure)), codes.Error},
		{"stopped", "rejected", "circuit_denied", open, refused(refusal(t, resilience.Denied)), codes.Error},
		{"not made", "ignored", "no text", closed, refused(errors.New("no text")), codes.Error},
	} {
		got := one(t, row.state, row.end)
		want := map[attribute.Key]string{
			"penstock.breaker.name": "llm", "penstock.breaker.state": row.state.String(),
			"penstock.outcome":      row.outcome,
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
	outer, inner := trace.New("outer", status), trace.New("inner", status)
	inner.Start(outer.Start(t.Context(), breaker(t, resilience.Closed)), breaker(t, resilience.Closed))
	inner.End(resilience.Verdict{}, nil)
	outer.End(resilience.Verdict{}, nil)
	stubs := spans.GetSpans()
	require.Len(t, stubs, 2)
	assert.Equal(t, stubs[1].SpanContext.SpanID(), stubs[0].Parent.SpanID())
}

// refusal is what a breaker says after its call came to the given end.
func refusal(t *testing.T, end resilience.Outcome) error {
	b := testutil.NewBreaker(t, "llm", resilience.Config{
		FailMax: 1, StopOnDenied: true, Logger: slog.New(slog.DiscardHandler),
		Classify: func(context.Context, error) resilience.Verdict { return resilience.Verdict{Outcome: end} },
	})
	fail := func(context.Context) error { return errors.New("boom") }
	require.EqualError(t, b.Do(t.Context(), fail), "boom")
	return fmt.Errorf("step: %w", b.Do(t.Context(), fail))
}
