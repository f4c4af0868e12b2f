package llm_test

import (
	"context"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// untraced turns spans off for a benchmark.
func untraced(b *testing.B) {
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(noop.NewTracerProvider())
	b.Cleanup(func() { otel.SetTracerProvider(before) })
}

type instant struct{ llm.ChatClient }

func (instant) CreateChatCompletion(context.Context, openai.ChatCompletionRequest) (openai.ChatCompletionResponse, error) {
	return openai.ChatCompletionResponse{Choices: []openai.ChatCompletionChoice{{FinishReason: openai.FinishReasonStop}}}, nil
}

func BenchmarkCall(b *testing.B) {
	untraced(b)
	guard, request := newGuard(resilience.Config{}), ask("hello")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := guard.CreateChatCompletion(b.Context(), instant{}, request); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	untraced(b)
	guard, request := newGuard(resilience.Config{}), ask("hello")
	guard.Breaker.ForceOpen("maintenance")
	b.ReportAllocs()
	for b.Loop() {
		_, err := guard.CreateChatCompletion(b.Context(), instant{}, request)
		require.Error(b, err)
	}
}
