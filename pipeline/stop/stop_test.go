package stop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

var errServer = errors.New("server says no")

// call is the error of a call with a verdict.
func call(outcome resilience.Outcome, after time.Duration) *stop.CallError {
	return &stop.CallError{
		Upstream: "llm", Breaker: resilience.LLM, Err: errServer,
		Verdict: resilience.Verdict{Outcome: outcome, RetryAfter: after},
	}
}

func refused(t *testing.T) error {
	t.Helper()
	b, err := resilience.New("crm", resilience.Config{ResetTimeout: 90 * time.Second})
	require.NoError(t, err)
	b.Trip("test")
	return b.Do(t.Context(), func(context.Context) error { return nil })
}

// Each verdict has one meaning, wherever the error is looked at.
func TestWhatAnErrorStops(t *testing.T) {
	misfit := call(resilience.Ignored, 0)
	misfit.Misfit = true
	deadline := call(resilience.Ignored, 0)
	deadline.Err = context.DeadlineExceeded
	known := &stop.Error{Kind: stop.Fault, Err: io.ErrShortWrite}
	for name, row := range map[string]struct {
		err          error
		kind, before stop.Kind     // empty for none
		after        time.Duration // until RetryAt; 0 for no time
	}{
		"good answer, unread":    {call(resilience.Success, 0), "", "", 0},
		"failure":                {call(resilience.Failure, 0), "", stop.Deferred, time.Minute},
		"ignored":                {call(resilience.Ignored, 0), "", "", 0},
		"deadline of the caller": {deadline, "", stop.Deferred, time.Minute},
		"throttled":              {call(resilience.Throttled, time.Second), stop.Deferred, stop.Deferred, time.Second},
		"throttled, no time":     {call(resilience.Throttled, 0), stop.Deferred, stop.Deferred, time.Minute},
		"denied":                 {call(resilience.Denied, 0), stop.Denied, stop.Denied, 0},
		"misfit":                 {misfit, stop.Configuration, stop.Configuration, 0},
		"no call":                {errServer, "", "", 0},
		"a stop already":         {known, stop.Fault, stop.Fault, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock begins at a whole second
				if call, ok := errors.AsType[*stop.CallError](row.err); ok {
					call.Breaker = testutil.NewBreaker(t, "llm", resilience.Config{})
				}
				wrapped := fmt.Errorf("reading a.txt: %w", row.err)
				check := func(want stop.Kind, got *stop.Error) {
					if want == "" {
						assert.Nil(t, got)
						return
					}
					require.NotNil(t, got)
					assert.Equal(t, want, got.Kind)
					require.ErrorIs(t, got, row.err)
					if row.after == 0 {
						assert.Zero(t, got.RetryAt)
						return
					}
					assert.Equal(t, row.after, time.Until(got.RetryAt))
					assert.Equal(t, "llm", got.Upstream)
				}
				check(row.kind, stop.Of(wrapped))
				check(row.before, stop.Before(wrapped))
				if row.before == "" {
					assert.Equal(t, wrapped, stop.OrError(wrapped))
				}
			})
		})
	}
}

func TestARefusalStopsUntilTheProbe(t *testing.T) {
	err := refused(t)
	var open *resilience.OpenError
	require.ErrorAs(t, err, &open)
	got := stop.Of(fmt.Errorf("embedding: %w", err))
	require.NotNil(t, got)
	assert.Equal(t, stop.Deferred, got.Kind)
	assert.Equal(t, "crm", got.Upstream)
	assert.False(t, got.RetryAt.Before(open.RetryAt()), "never before the probe")
	assert.Less(t, got.RetryAt.Sub(open.RetryAt()), time.Second)
}

// A deferral names the end of the wait that was drawn for this opening, not the
// shortest one, and of each breaker that has opened since.
func TestADeferralLastsAsLongAsTheBreakersAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			open := resilience.Config{FailMax: 1, Jitter: time.Minute}
			one, two := testutil.NewBreaker(t, "llm", open), testutil.NewBreaker(t, "s3", open)
			for _, b := range []*resilience.Breaker{one, two} {
				require.Error(t, b.Do(t.Context(), func(context.Context) error { return errServer }))
			}
			call := &stop.CallError{
				Upstream: "llm", Breaker: one, Err: errServer, Verdict: resilience.Verdict{Outcome: resilience.Failure},
			}
			got := stop.Before(call)
			assert.Equal(t, ceil(one.Snapshot().OpenUntil), got.RetryAt)
			both := got.Until(two.Snapshot())
			assert.Equal(t, latest(got.RetryAt, ceil(two.Snapshot().OpenUntil)), both.RetryAt)
			assert.Equal(t, []any{got.Kind, got.Upstream, got.Err}, []any{both.Kind, both.Upstream, both.Err})

			call.Verdict = resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Second}
			assert.Equal(t, ceil(one.Snapshot().OpenUntil), stop.Of(call).RetryAt)
			fault := &stop.Error{Kind: stop.Fault, Err: errServer}
			assert.Same(t, fault, fault.Until(two.Snapshot()))
		}
	})
}

func ceil(at time.Time) time.Time { return at.UTC().Add(time.Second - 1).Truncate(time.Second) }

func latest(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

func TestLaterRoundsUpToAWholeSecond(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for nanos, want := range map[int]int{0: 5, 1: 6, 999_999_999: 6} {
		got := stop.Later("s3", at.Add(time.Duration(nanos)), errServer)
		assert.Equal(t, time.Date(2030, 1, 2, 2, 4, want, 0, time.UTC), got.RetryAt)
		assert.EqualError(
			t,
			got,
			fmt.Sprintf("stopped by s3: server says no; run again after 2030-01-02T02:04:0%dZ", want),
		)
	}
	assert.Zero(t, stop.Later("s3", time.Time{}, errServer).RetryAt)
}

func TestVerdictOf(t *testing.T) {
	assert.Equal(t, resilience.Success, stop.VerdictOf(nil).Outcome)
	assert.Equal(t, resilience.Ignored, stop.VerdictOf(errServer).Outcome)
	assert.Equal(t, resilience.Failure, stop.VerdictOf(fmt.Errorf("x: %w", call(resilience.Failure, 0))).Outcome)
	assert.Equal(t, time.Second, stop.RetryAfter(call(resilience.Throttled, time.Second)))
	assert.Zero(t, stop.RetryAfter(call(resilience.Failure, time.Second)), "only throttling is waited out")
}

// What the error of a call means for a document, and whether it ends the run.
func TestBlame(t *testing.T) {
	failure := &stop.Failure{Stage: "parse", Kind: "malformed", Err: errServer}
	for name, row := range map[string]struct {
		err      error
		deferred bool
		kind     string
		ends     stop.Kind // empty for not
	}{
		"failure":          {call(resilience.Failure, 0), true, "upstream failed", ""},
		"refusal":          {call(resilience.Ignored, 0), false, "refused by upstream", ""},
		"throttled":        {call(resilience.Throttled, 0), true, "deferred", stop.Deferred},
		"denied":           {call(resilience.Denied, 0), true, "denied", stop.Denied},
		"open breaker":     {refused(t), true, "deferred", stop.Deferred},
		"end of the run":   {stop.ErrEnded, true, "stopped", ""},
		"known beforehand": {failure, false, "malformed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			end := stop.NewEnding(t.Context())
			f := stop.AsFailure("other", end.Blame("embed", row.err))
			assert.Equal(t, row.deferred, f.Deferred)
			assert.Equal(t, row.kind, f.Kind)
			assert.Equal(t, !row.deferred, stop.IsRefusal(f))
			require.ErrorIs(t, f, errors.Unwrap(f))
			assert.Equal(t, row.ends != "", end.Over())
			if row.ends != "" {
				assert.Equal(t, row.ends, end.Reason().Kind)
			}
		})
	}
	assert.NoError(t, stop.NewEnding(t.Context()).Blame("embed", nil))
}

// Before the first use of an upstream nothing has been paid for, so any error
// ends the run.
func TestBlameBefore(t *testing.T) {
	for outcome, want := range map[resilience.Outcome]stop.Kind{
		resilience.Failure: stop.Deferred, resilience.Throttled: stop.Deferred, resilience.Denied: stop.Denied,
		resilience.Ignored: stop.Configuration, resilience.Success: stop.Configuration,
	} {
		end := stop.NewEnding(t.Context())
		require.Error(t, end.BlameBefore(call(outcome, 0)))
		require.NotNil(t, end.Reason(), outcome)
		assert.Equal(t, want, end.Reason().Kind, outcome)
		assert.Equal(t, "llm", end.Reason().Upstream)
	}
	assert.NoError(t, stop.NewEnding(t.Context()).BlameBefore(nil))
}

func TestAnEndedRunBlamesNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	end := stop.NewEnding(ctx)
	cancel()
	f := stop.AsFailure("", end.Blame("store", call(resilience.Failure, 0)))
	assert.Equal(t, "stopped", f.Kind)
	assert.True(t, f.Deferred)
	assert.False(t, end.Over())
}

func TestEndingKeepsTheMostSevereReason(t *testing.T) {
	end := stop.NewEnding(t.Context())
	closed := 0
	end.Then(func() { closed++ })
	assert.False(t, end.Over())
	assert.Nil(t, end.Reason())
	var all sync.WaitGroup
	for _, kind := range []stop.Kind{stop.Deferred, stop.Configuration, stop.Interrupted, stop.Denied, stop.Fault} {
		all.Go(func() { end.With(&stop.Error{Kind: kind, Err: errServer}) })
	}
	all.Wait()
	<-end.Done()
	assert.Equal(t, stop.Interrupted, end.Reason().Kind)
	assert.Equal(t, 1, closed, "once")
	end.Then(func() { closed++ })
	assert.Equal(t, 2, closed, "at once after the end")
	require.ErrorIs(t, end.Fault(io.ErrShortWrite), stop.ErrEnded)
}

// A stop names the service, whatever its breaker is called.
func TestUpstreamOfADeniedCall(t *testing.T) {
	b, err := resilience.New("acme-eu", resilience.Config{
		StopOnDenied: true,
		Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Denied}
		},
	})
	require.NoError(t, err)
	require.Error(t, b.Do(t.Context(), func(context.Context) error { return errServer }))
	refused := b.Do(t.Context(), func(context.Context) error { return nil })
	got := stop.Of(&stop.CallError{Upstream: "llm", Err: refused})
	require.NotNil(t, got)
	assert.Equal(t, stop.Denied, got.Kind)
	assert.Equal(t, "llm", got.Upstream)
}

// What a call failed with is shown without the secrets in it, and in the words
// of the upstream although the SDK puts long ids before them.
func TestTextOfACallError(t *testing.T) {
	long := strings.Repeat("id ", 100)
	said := errors.New("quota wall 4711 for api_key=hunter2hunter2")
	open := refused(t)
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"short":            {fmt.Errorf("put: %w", said), "put: quota wall 4711 for api_key=***"},
		"long":             {fmt.Errorf("put: %s: %w", long, said), "quota wall 4711 for api_key=***"},
		"long to the end":  {errors.New(long), long[:197] + "…"},
		"several lines":    {errors.New("no\n  such\tthing"), "no such thing"},
		"a breaker's":      {open, open.Error()},
		"no error at all":  {nil, ""},
		"ends in ellipsis": {errors.New("waiting…"), "waiting…"},
	} {
		t.Run(name, func(t *testing.T) {
			call := &stop.CallError{Upstream: "s3", Err: row.err}
			assert.Equal(t, row.want, call.Error())
			assert.Equal(t, row.err, errors.Unwrap(call))
		})
	}
}

// The failure that opened the breaker is in what a run says of its end.
func TestRefusalNamesTheFailure(t *testing.T) {
	b, err := resilience.New("crm", resilience.Config{FailMax: 1})
	require.NoError(t, err)
	long := errors.New("quota wall 4711 for api_key=hunter2hunter2 " + strings.Repeat("and so on ", 50))
	require.Error(t, b.Do(t.Context(), func(context.Context) error { return long }))
	refused := b.Do(t.Context(), func(context.Context) error { return nil })
	got := stop.Of(&stop.CallError{Upstream: "llm", Err: refused})
	require.NotNil(t, got)
	assert.Equal(t, stop.Deferred, got.Kind)
	deferred := stop.Defer("embed", "deferred", got.Err)
	for _, text := range []string{got.Error(), got.Report(nil).Reason, deferred.Error()} {
		assert.Contains(t, text, "last failure: quota wall 4711 for api_key=***")
		assert.Contains(t, text, "next probe in 1m0s")
		assert.NotContains(t, text, "hunter2")
	}
}
