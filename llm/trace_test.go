package llm_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

const (
	waitLong = 10 * time.Second
	waitStep = time.Millisecond
)

// lastSpan is the newest span's name, status and attributes.
func lastSpan(t *testing.T) (string, codes.Code, map[attribute.Key]string) {
	stubs := spans.GetSpans()
	require.NotEmpty(t, stubs)
	last := stubs[len(stubs)-1]
	attrs := map[attribute.Key]string{}
	for _, kv := range last.Attributes {
		attrs[kv.Key] = kv.Value.String()
	}
	return last.Name, last.Status.Code, attrs
}

func TestSpanOfEachOperation(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	guard, client := newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: s.URL})
	for _, row := range []struct {
		i    int
		name string
		want map[attribute.Key]string
	}{
		{0, "chat m", map[attribute.Key]string{
			"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.model": "m",
			"gen_ai.response.id":             "chatcmpl-1",
			"gen_ai.response.finish_reasons": `["stop"]`, "gen_ai.usage.input_tokens": "1",
			"gen_ai.usage.output_tokens": "2",
		}},
		{1, "chat m", map[attribute.Key]string{
			"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.model": "m",
			"gen_ai.response.id": "chatcmpl-1",
		}},
		{2, "embeddings " + staticmodel.Name, map[attribute.Key]string{
			"gen_ai.operation.name": "embeddings", "gen_ai.request.model": staticmodel.Name,
			"gen_ai.response.model":             staticmodel.Name,
			"gen_ai.embeddings.dimension.count": "256", "gen_ai.usage.input_tokens": "2",
		}},
		{3, "list_models", map[attribute.Key]string{"gen_ai.operation.name": "list_models"}},
	} {
		require.NoError(t, operations(guard, client)[row.i].do(t.Context()), row.name)
		name, code, attrs := lastSpan(t)
		row.want["penstock.breaker.name"], row.want["penstock.breaker.state"],
			row.want["penstock.outcome"] = "llm", "closed", "success"
		assert.Equal(t, row.name, name)
		assert.Equal(t, row.want, attrs, row.name)
		assert.Equal(t, codes.Unset, code, row.name)
	}
}

func TestSpanOfWhatGoesWrong(t *testing.T) {
	for _, row := range []struct {
		name               string
		fault              llmtest.Fault
		outcome, errorType string
	}{
		{"500", llmtest.Status(500), "failure", "500"},
		{"429", llmtest.RateLimit("3"), "throttled", "429"},
		{"garbage", llmtest.Answer(200, "{}"), "failure", "contract"},
		{"hang", llmtest.Hang(), "failure", "timeout"},
	} {
		s := llmtest.NewServer(t, llmtest.Options{})
		s.Script(llmtest.All(row.fault))
		cfg := llm.Config{BaseURL: s.URL}
		if row.fault.Hang {
			cfg.Timeout, cfg.ChatTimeout = 50*time.Millisecond, 50*time.Millisecond
		}
		client := newClient(t, cfg)
		for _, call := range operations(newGuard(resilience.Config{}), client) {
			require.Error(t, call.do(t.Context()))
			_, code, attrs := lastSpan(t)
			assert.Equal(t, row.outcome, attrs["penstock.outcome"], "%s, %s", row.name, call.name)
			assert.Equal(t, row.errorType, attrs["error.type"], "%s, %s", row.name, call.name)
			assert.Equal(t, codes.Error, code, row.name)
		}
	}
}

func TestRefusalMakesASpanToo(t *testing.T) {
	guard := newGuard(resilience.Config{})
	guard.Breaker.ForceOpen("maintenance")
	for _, call := range operations(guard, nil) {
		before := len(spans.GetSpans())
		require.ErrorIs(t, call.do(t.Context()), resilience.ErrOpen)
		_, _, attrs := lastSpan(t)
		assert.Equal(t, before+1, len(spans.GetSpans()))
		assert.Equal(t, "circuit_open", attrs["error.type"], call.name)
		assert.Equal(t, "rejected", attrs["penstock.outcome"], call.name)
		assert.Equal(t, "open", attrs["penstock.breaker.state"], call.name)
	}
}

func TestSpanOfAPanic(t *testing.T) {
	guard := newGuard(resilience.Config{})
	assert.Panics(t, func() { _, _ = guard.CreateChatCompletion(t.Context(), panicky, ask("x")) })
	_, code, attrs := lastSpan(t)
	assert.Equal(t, codes.Error, code)
	assert.Equal(t, "ignored", attrs["penstock.outcome"])
}

func TestSpanOfAStreamEndsWithTheStream(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	guard, client := newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: s.URL})
	before := len(spans.GetSpans())
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two"))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	assert.Len(t, spans.GetSpans(), before)
	require.NoError(t, errors.Join(stream.Close(), nil))
	assert.Len(t, spans.GetSpans(), before+1)
}
