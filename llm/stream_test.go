package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func drain(s *llm.ChatCompletionStream) (string, error) {
	var text strings.Builder
	for {
		part, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return text.String(), nil
		}
		if err != nil {
			return text.String(), err
		}
		for _, c := range part.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
}

func readAll(t *testing.T, s *llm.ChatCompletionStream) string {
	text, err := drain(s)
	require.NoError(t, err)
	return text
}

func TestStreamIsDecidedAtItsEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault llmtest.Fault
		want  resilience.Outcome
	}{
		{"whole", llmtest.Fault{}, resilience.Success},
		{"dies half-way", llmtest.Fault{After: 2, Drop: true}, resilience.Failure},
		{"goes silent half-way", llmtest.Fault{After: 2, Hang: true}, resilience.Failure},
		{"error event", llmtest.Fault{After: 2, Status: 500}, resilience.Failure},
		{"throttle event", llmtest.Fault{
			After: 2, Status: 429,
			Body: `{"error":{"message":"slow down","type":"rate_limit_error"}}`,
		}, resilience.Throttled},
		{"quota event", llmtest.Fault{
			After: 2, Status: 429,
			Body: `{"error":{"message":"pay","code":"insufficient_quota"}}`,
		}, resilience.Denied},
		{"garbage event", llmtest.Fault{After: 2, Status: 1, Body: `{`}, resilience.Failure},
		{"DONE without finish reason", llmtest.Fault{After: 2, Status: 1, Body: "[DONE]"}, resilience.Success},
		{"ends without finish reason", llmtest.Fault{After: 2, Status: 1, Body: "[DON"}, resilience.Failure},
		{
			"error body under 200", llmtest.Answer(200, `{"error":{"message":"no","type":"server_error"}}`),
			resilience.Failure,
		},
		{"nothing under 200", llmtest.Answer(200, "\n"), resilience.Failure},
		{"a page under 200", llmtest.Answer(200, "<html>welcome</html>"), resilience.Failure},
		{"refused", llmtest.Status(500), resilience.Failure},
		{"wrong", llmtest.Status(400), resilience.Ignored},
		{"no key", llmtest.Status(401), resilience.Denied},
		{"throttled", llmtest.RateLimit("7"), resilience.Throttled},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := llmtest.NewServer(t, llmtest.Options{})
			s.Script(llmtest.All(row.fault))
			guard := newGuard(resilience.Config{})
			client := newClient(t, llm.Config{BaseURL: s.URL, StreamIdleTimeout: 50 * time.Millisecond})
			stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two three four"))
			if err == nil {
				assert.Zero(t, count(guard), "nothing is decided at the headers")
				_, err = drain(stream)
				_, again := stream.Recv()
				sticky := again == io.EOF && err == nil || again == err //nolint:errorlint // the very value
				assert.True(t, sticky, "the end is sticky: %v, %v", err, again)
				require.NoError(t, stream.Close())
			}
			assert.Equal(t, row.want == resilience.Success, err == nil, "%v", err)
			assertOutcome(t, guard, row.want)
		})
	}
}

func count(g llm.Guard) uint64 {
	s := g.Breaker.Snapshot()
	return s.Successes + s.Failures + s.Ignored + s.Throttled + s.Denied
}

func assertOutcome(t *testing.T, g llm.Guard, want resilience.Outcome) {
	t.Helper()
	s := g.Breaker.Snapshot()
	got := map[resilience.Outcome]uint64{
		resilience.Success: s.Successes, resilience.Failure: s.Failures, resilience.Ignored: s.Ignored,
		resilience.Throttled: s.Throttled, resilience.Denied: s.Denied,
	}
	assert.Equal(t, uint64(1), got[want], "want one %v, have %v", want, got)
	assert.Equal(t, uint64(1), count(g), "have %v", got)
}

func TestStreamClosedEarlyIsIgnored(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	guard, client := newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: s.URL})
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two three"))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	_ = stream.Close()
	assertOutcome(t, guard, resilience.Ignored)
}

func TestStreamWhoseCallerLeavesIsIgnored(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Fault{After: 1, Hang: true}))
	guard, client := newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: s.URL})
	ctx, cancel := context.WithCancelCause(t.Context())
	stream, err := guard.CreateChatCompletionStream(ctx, client, ask("one two three"))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel(errors.New("the run is over"))
	_, err = stream.Recv()
	require.Error(t, err)
	require.NoError(t, stream.Close())
	assertOutcome(t, guard, resilience.Ignored)
}

func TestRawStream(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	guard, client := newGuard(resilience.Config{}), newClient(t, llm.Config{BaseURL: s.URL})
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two"))
	require.NoError(t, err)
	defer stream.Close()
	assert.Equal(t, "text/event-stream", stream.Header().Get("Content-Type"))
	assert.Zero(t, stream.GetRateLimitHeaders().LimitRequests)
	chunks := 0
	for {
		raw, err := stream.RecvRaw()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, json.Valid(raw))
		chunks++
	}
	assert.Equal(t, 4, chunks)
	_, err = stream.RecvRaw()
	require.ErrorIs(t, err, io.EOF)
	assertOutcome(t, guard, resilience.Success)
}

// openBreaker has failed so often that its next call, a second of its clock
// later, is the probe.
func openBreaker(t *testing.T) (llm.Guard, *testutil.FakeClock) {
	clock := testutil.NewClock()
	guard := newGuard(resilience.Config{FailMax: 1, ResetTimeout: time.Second, Clock: clock})
	require.Error(t, guard.Breaker.Do(t.Context(), func(context.Context) error { return errors.New("down") }))
	clock.Advance(time.Second)
	return guard, clock
}

func TestAbandonedStreamGivesItsSlotBack(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	guard, _ := openBreaker(t)
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two"))
	require.NoError(t, err)
	require.ErrorIs(
		t,
		operations(guard, client)[0].do(t.Context()),
		resilience.ErrOpen,
		"the stream holds the only slot",
	)
	require.NoError(t, stream.Close())
	require.NoError(t, operations(guard, client)[0].do(t.Context()), "the slot is free for another probe")
	assert.Equal(t, resilience.Closed, guard.Breaker.State())
}

func TestForgottenStreamLosesItsLease(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	guard, clock := openBreaker(t)
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two"))
	require.NoError(t, err)
	defer stream.Close()
	clock.Advance(time.Second)
	assert.Equal(t, resilience.Open, guard.Breaker.State(), "silence for the probe's time is a failure")
	_, err = drain(stream)
	require.NoError(t, err)
	assert.Equal(t, resilience.Open, guard.Breaker.State(), "and what comes after changes nothing")
	assert.Equal(t, uint64(2), guard.Breaker.Snapshot().Calls, "nor is it counted again")
}

func TestFlowingStreamKeepsItsLease(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	guard, clock := openBreaker(t)
	stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("one two three four five"))
	require.NoError(t, err)
	defer stream.Close()
	for err == nil {
		clock.Advance(900 * time.Millisecond)
		_, err = stream.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, resilience.Closed, guard.Breaker.State())
}

func TestRefusalRemembersTheErrorOfAStream(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Fault{After: 1, Status: 500}))
	guard, client := newGuard(resilience.Config{FailMax: 1}), newClient(t, llm.Config{BaseURL: s.URL})
	err := operations(guard, client)[1].do(t.Context())
	var open *resilience.OpenError
	require.ErrorAs(t, operations(guard, client)[1].do(t.Context()), &open)
	assert.Same(t, err, open.LastFailure())
}

// leaving is a client that leaves by leave, or without a word.
type leaving struct{ leave func() }

func (c leaving) CreateChatCompletionStream(
	context.Context, openai.ChatCompletionRequest,
) (*openai.ChatCompletionStream, error) {
	c.leave()
	return nil, nil
}

func (c leaving) CreateChatCompletion(
	context.Context, openai.ChatCompletionRequest,
) (openai.ChatCompletionResponse, error) {
	c.leave()
	return openai.ChatCompletionResponse{}, nil
}

var panicky = leaving{func() { panic("boom") }}

func TestPanicGoesOnAndGivesTheSlotBack(t *testing.T) {
	guard, _ := openBreaker(t)
	assert.PanicsWithValue(
		t,
		"boom",
		func() { _, _ = guard.CreateChatCompletionStream(t.Context(), panicky, ask("x")) },
	)
	assert.PanicsWithValue(t, "boom", func() { _, _ = guard.CreateChatCompletion(t.Context(), panicky, ask("x")) })
	assert.True(t, guard.Breaker.Ready())
}

// emptyStream opens streams that panic when they are read.
type emptyStream struct{}

func (emptyStream) CreateChatCompletionStream(
	context.Context, openai.ChatCompletionRequest,
) (*openai.ChatCompletionStream, error) {
	return &openai.ChatCompletionStream{}, nil
}

func TestPanicAndGoexitAreCountedAsPanics(t *testing.T) {
	for name, leave := range map[string]func(){"panic": panicky.leave, "goexit": runtime.Goexit} {
		guard, _ := openBreaker(t)
		ctx := t.Context()
		testutil.Isolate(func() { _, _ = guard.CreateChatCompletionStream(ctx, leaving{leave}, ask("x")) })
		testutil.Isolate(func() { _, _ = guard.CreateChatCompletion(ctx, leaving{leave}, ask("x")) })
		for range 2 {
			stream, err := guard.CreateChatCompletionStream(ctx, emptyStream{}, ask("x"))
			require.NoError(t, err)
			testutil.Isolate(func() { _, _ = stream.Recv() })
			testutil.Isolate(func() { _, _ = stream.RecvRaw() })
		}
		s := guard.Breaker.Snapshot()
		assert.Equal(t, [3]uint64{4, 0, 1}, [3]uint64{s.Panics, s.Ignored, s.Failures}, name)
		assert.True(t, guard.Breaker.Ready(), name)
	}
}

func TestClientWithoutAStreamAndWithoutAnErrorIsAContractError(t *testing.T) {
	guard := newGuard(resilience.Config{})
	_, err := guard.CreateChatCompletionStream(t.Context(), leaving{func() {}}, ask("x"))
	var broken *llm.ContractError
	require.ErrorAs(t, err, &broken)
	assertOutcome(t, guard, resilience.Failure)
}
