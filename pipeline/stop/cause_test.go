package stop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

var errFire = errors.New("the GPU node is on fire, api_key=hunter2hunter2")

const fire = "the GPU node is on fire, api_key=***"

// failing is a breaker that a failure opens at once, or that stops where the
// upstream denies a call.
func failing(t *testing.T, outcome resilience.Outcome, failure error) *resilience.Breaker {
	t.Helper()
	b, err := resilience.New("llm", resilience.Config{
		FailMax: 1, StopOnDenied: true,
		Classify: func(context.Context, error) resilience.Verdict { return resilience.Verdict{Outcome: outcome} },
	})
	require.NoError(t, err)
	require.Error(t, b.Do(t.Context(), func(context.Context) error { return failure }))
	return b
}

func refusalOf(t *testing.T, b *resilience.Breaker) error {
	t.Helper()
	err := b.Do(t.Context(), func(context.Context) error { return nil })
	require.Error(t, err)
	return err
}

// What stopped a run said "circuit breaker open, next probe in 59s", and the
// failure behind it was in no field of its own.
func TestAReportHasTheUpstreamsOwnWords(t *testing.T) {
	open := refusalOf(t, failing(t, resilience.Failure, errFire))
	tripped, err := resilience.New("llm", resilience.Config{})
	require.NoError(t, err)
	tripped.Trip("maintenance, token=hunter2hunter2")
	forced, err := resilience.New("llm", resilience.Config{})
	require.NoError(t, err)
	forced.ForceOpen("maintenance")
	places := map[string]stop.Place{"llm": {Address: "http://127.0.0.1:18701/v1", Model: "fake-8"}}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"open":                {open, fire},
		"open, of a call":     {&stop.CallError{Upstream: "llm", Err: fmt.Errorf("embed: %w", open)}, fire},
		"denied":              {refusalOf(t, failing(t, resilience.Denied, errFire)), fire},
		"failed":              {&stop.CallError{Upstream: "llm", Err: errFire}, fire},
		"tripped":             {refusalOf(t, tripped), "maintenance, token=***"},
		"forced open":         {refusalOf(t, forced), "maintenance"},
		"left behind":         {&stop.LeftError{Documents: 2, Cause: errFire}, fire},
		"left behind, called": {&stop.LeftError{Documents: 2, Cause: &stop.CallError{Err: errFire}}, fire},
		"left behind, open":   {&stop.LeftError{Documents: 2, Cause: open}, fire},
		"left, nobody knows":  {&stop.LeftError{Documents: 2}, ""},
		"no call":             {errServer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&stop.Error{Kind: stop.Deferred, Upstream: "llm", Err: row.err}).Report(places)
			assert.Equal(t, row.want, got.Cause)
			assert.Equal(t, row.err.Error(), got.Reason)
			assert.Equal(t, places["llm"], stop.Place{Address: got.Address, Model: got.Model})
		})
	}
	nowhere := (&stop.Error{Kind: stop.Deferred, Upstream: "llm", Err: open}).Report(nil)
	assert.Empty(t, nowhere.Address+nowhere.Model)
}

func TestAReportHasTheWholePlace(t *testing.T) {
	denied := &stop.Error{Kind: stop.Denied, Upstream: "llm", Err: errFire}
	for _, row := range []struct {
		place          stop.Place
		address, model string
	}{
		{stop.Place{}, "", ""},
		{stop.Place{Address: "embedded", Embedded: true}, "embedded", ""},
		{stop.Place{Address: "embedded", StateAddress: "AWS"}, "embedded (state: AWS)", ""},
		{stop.Place{Address: "embedded", SourceAddress: "AWS"}, "embedded (documents: AWS)", ""},
		{stop.Place{Address: "http://m", Model: "a", ChatModel: "b"}, "http://m", "a (chat: b)"},
		{
			stop.Place{Address: "http://m", Model: "a", ChatAddress: "http://c", ChatModel: "b"},
			"http://m (chat: http://c)", "a (chat: b)",
		},
	} {
		got := denied.Report(map[string]stop.Place{"llm": row.place})
		assert.Equal(t, row.address, got.Address)
		assert.Equal(t, row.model, got.Model)
	}
}

// A stop by an open breaker names the service, whatever its breaker is called.
func TestUpstreamOfARefusedCall(t *testing.T) {
	got := stop.Of(&stop.CallError{Upstream: "s3", Err: refused(t)})
	require.NotNil(t, got)
	assert.Equal(t, "s3", got.Upstream)
}
