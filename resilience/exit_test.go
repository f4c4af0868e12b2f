package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// says is a classifier that gives every error the same verdict.
func says(o resilience.Outcome) func(context.Context, error) resilience.Verdict {
	return func(context.Context, error) resilience.Verdict { return resilience.Verdict{Outcome: o} }
}

// refusals are the errors of an open breaker, of one that is held open, and of
// one that stopped because it was denied.
func refusals(t *testing.T) (open, held *resilience.OpenError, denied error) {
	t.Helper()
	r := newRig(t, resilience.Config{})
	r.Trip("drill")
	open = r.refused()
	forced := newRig(t, resilience.Config{})
	forced.ForceOpen("drill")
	held = forced.refused()
	stopped := newRig(t, resilience.Config{StopOnDenied: true})
	stopped.act("denied")
	return open, held, stopped.Do(t.Context(), fine)
}

func TestExitCode(t *testing.T) {
	open, held, denied := refusals(t)
	failure, ignored := says(resilience.Failure), says(resilience.Ignored)
	canceled := fmt.Errorf("upsert: %w", context.Canceled)
	hangs := fmt.Errorf("upsert: %w", context.DeadlineExceeded)
	for _, row := range []struct {
		name     string
		err      error
		classify func(context.Context, error) resilience.Verdict
		want     int
	}{
		{"no error", nil, failure, 0},
		{"no error, no classifier", nil, nil, 0},
		{"failure", errDown, failure, 75},
		{"throttled", errDown, says(resilience.Throttled), 75},
		{"unknown outcome counts as a failure", errDown, says(resilience.Denied + 1), 75},
		{"denied", errDown, says(resilience.Denied), 77},
		{"caller's mistake", errDown, ignored, 65},
		{"missing key", errDown, says(resilience.Success), 65},

		{"open", open, nil, 75},
		{"open, ignored by a classifier", open, ignored, 75},
		{"open, wrapped", fmt.Errorf("load: %w", open), nil, 75},
		{"open, joined", errors.Join(errDown, open), nil, 75},
		{"held open", held, nil, 75},
		{"stopped by a denial", denied, nil, 77},
		{"stopped by a denial, called a failure", fmt.Errorf("load: %w", denied), failure, 77},
		{"open and stopped", errors.Join(open, denied), nil, 77},
		{"open, and the others cancelled for it", errors.Join(canceled, open), failure, 75},

		{"cancelled", context.Canceled, ignored, 143},
		{"cancelled, called a failure", canceled, failure, 143},
		{"cancelled after a failure", errors.Join(errDown, canceled), failure, 143},
		{"deadline", context.DeadlineExceeded, failure, 75},
		{"deadline, ignored by a classifier", hangs, ignored, 75},
		{"deadline of a token's server", hangs, says(resilience.Denied), 77},

		{"own error", fs.ErrNotExist, nil, 1},
		{"own deadline", os.ErrDeadlineExceeded, nil, 1},
		{"deadline, no classifier", hangs, nil, 1},
		{"cancelled, no classifier", canceled, nil, 143},
	} {
		assert.Equal(t, row.want, resilience.ExitCode(row.err, row.classify), row.name)
	}
}

// The signal is the cause of the context that signal.NotifyContext returns, and
// net/http returns the cause.
func TestExitCodeOfTheCauseOfACancellation(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("terminated: %w", context.Canceled))
	assert.Equal(t, 143, resilience.ExitCode(context.Cause(ctx), says(resilience.Failure)))
}

func TestExitCodeAsksTheClassifierOnce(t *testing.T) {
	calls := 0
	classify := func(callerCtx context.Context, err error) resilience.Verdict {
		calls++
		assert.NoError(t, callerCtx.Err())
		assert.Same(t, errDown, err)
		return resilience.Verdict{Outcome: resilience.Failure}
	}
	assert.Equal(t, 75, resilience.ExitCode(errDown, classify))
	assert.Equal(t, 1, calls)
}

func TestRetryAtOfAFirstFailureIsWhenTheBreakerWouldProbe(t *testing.T) {
	r := newRig(t, resilience.Config{ResetTimeout: 20 * time.Second})
	r.at(time.Hour)
	r.fail(1)
	assert.Equal(t, r.start.Add(time.Hour+20*time.Second), r.RetryAt(errDown))
	r.want(resilience.Closed)
}

func TestRetryAtWithoutAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := resilience.New("llm", resilience.Config{Logger: quiet})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.True(t, time.Now().Add(time.Minute).Equal(b.RetryAt(errDown)))
	})
}

func TestRetryAtOfTheCallThatTrips(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.fail(5)
	r.want(resilience.Open)
	assert.Equal(t, r.start.Add(time.Minute), r.RetryAt(errDown))
	assert.Equal(t, r.Snapshot().OpenUntil, r.RetryAt(errDown))
}

func TestRetryAtIsNeverBeforeTheTimeThatTheUpstreamNamed(t *testing.T) {
	for _, row := range []struct {
		after time.Duration
		down  bool
		want  time.Duration
	}{
		{0, false, time.Minute},
		{5 * time.Second, false, time.Minute},
		{time.Minute, false, time.Minute},
		{time.Minute + 1, false, time.Minute + 1},
		{2 * time.Minute, true, 2 * time.Minute},
		{time.Hour, true, 5 * time.Minute}, // MaxThrottle
	} {
		r := newRig(t, resilience.Config{})
		r.allow().Settle(resilience.Verdict{
			Outcome: resilience.Throttled, RetryAfter: row.after, Unavailable: row.down,
		}, errDown)
		assert.Equal(t, r.start.Add(row.want), r.RetryAt(errDown), "%+v", row)
	}
}

func TestRetryAtOfATripAfterAThrottle(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.allow().Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 3 * time.Minute})
	r.fail(5)
	assert.Equal(t, r.start.Add(3*time.Minute), r.RetryAt(errDown))
}

func TestRetryAtOfARefusalIsItsOwn(t *testing.T) {
	open, held, denied := refusals(t)
	other := newRig(t, resilience.Config{ResetTimeout: time.Hour})
	assert.Equal(t, open.RetryAt(), other.RetryAt(open))
	assert.Equal(t, open.RetryAt(), other.RetryAt(fmt.Errorf("load: %w", errors.Join(errDown, open))))
	assert.Zero(t, other.RetryAt(held))
	assert.Zero(t, other.RetryAt(denied))
	assert.Zero(t, other.RetryAt(errors.Join(open, denied)))
	assert.Zero(t, other.RetryAt(nil))
}

// A refusal is as old as the task: what counts is how its breaker is held now.
func TestFaultRetryAtAfterAHold(t *testing.T) {
	r := newRig(t, resilience.Config{})
	other := newRig(t, resilience.Config{})
	r.Trip("drill")
	open := r.refused()
	r.ForceOpen("hand")
	held := r.refused()
	assert.Zero(t, other.RetryAt(open), "held since")
	r.Reset()
	assert.Equal(t, r.start, other.RetryAt(held), "no longer held")
	r.Trip("drill")
	assert.Equal(t, r.start.Add(time.Minute), other.RetryAt(held))
}

func TestRetryAtWhileOnlyAResetHelps(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.ForceOpen("drill")
	assert.Zero(t, r.RetryAt(errDown))
	r.Reset()
	assert.Equal(t, r.start.Add(time.Minute), r.RetryAt(errDown))
	r.ForceClose("drill")
	assert.Equal(t, r.start.Add(time.Minute), r.RetryAt(errDown))

	r = newRig(t, resilience.Config{StopOnDenied: true})
	r.act("denied")
	assert.Zero(t, r.RetryAt(errDown))
}

func TestRetryAtOfAFailedProbe(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.due()
	r.fail(1)
	r.want(resilience.Open)
	assert.Equal(t, r.start.Add(2*time.Minute), r.RetryAt(errDown))
}

// A task with two upstreams gives each error to the classifier of its own.
func ExampleExitCode() {
	model, _ := newExample(resilience.Config{})
	store, _ := newExample(resilience.Config{})
	errOverloaded, errNoKey := errors.New("503 overloaded"), errors.New("404 no such key")
	modelSays := func(context.Context, error) resilience.Verdict {
		return resilience.Verdict{Outcome: resilience.Failure}
	}
	storeSays := func(_ context.Context, err error) resilience.Verdict {
		if errors.Is(err, errNoKey) {
			return resilience.Verdict{Outcome: resilience.Success} // it answered
		}
		return resilience.Verdict{Outcome: resilience.Failure}
	}
	for _, end := range []struct {
		breaker  *resilience.Breaker
		classify func(context.Context, error) resilience.Verdict
		err      error
	}{
		{model, modelSays, errOverloaded},
		{store, storeSays, errNoKey},
		{nil, nil, fs.ErrNotExist}, // of the task's own code
	} {
		code := resilience.ExitCode(end.err, end.classify)
		fmt.Println(code, end.err)
		if code == 75 {
			fmt.Println("run again at", end.breaker.RetryAt(end.err).Format(time.TimeOnly))
		}
	}
	// Output:
	// 75 503 overloaded
	// run again at 00:01:00
	// 65 404 no such key
	// 1 file does not exist
}
