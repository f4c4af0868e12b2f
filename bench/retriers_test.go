package bench

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// transient is the predicate that programs put into a retry policy: what says
// of itself that it may pass.
func transient(err error) bool {
	var netErr net.Error
	var temporary interface{ Temporary() bool }
	var retryable interface{ RetryableError() bool }
	return errors.As(err, &netErr) && netErr.Timeout() ||
		errors.As(err, &temporary) && temporary.Temporary() ||
		errors.As(err, &retryable) && retryable.RetryableError()
}

// retriers run op up to ten times for as long as retry says so.
var retriers = map[string]func(ctx context.Context, op func() error, retry func(error) bool) error{
	"failsafe-go": func(ctx context.Context, op func() error, retry func(error) bool) error {
		policy := retrypolicy.NewBuilder[any]().WithMaxAttempts(10).ReturnLastFailure().
			HandleIf(func(_ any, err error) bool { return err != nil && retry(err) }).Build()
		return failsafe.With(policy).WithContext(ctx).Run(op)
	},
	"backoff": func(ctx context.Context, op func() error, retry func(error) bool) error {
		_, err := backoff.Retry(ctx, func() (any, error) {
			err := op()
			if err != nil && !retry(err) {
				err = backoff.Permanent(err)
			}
			return nil, err
		}, backoff.WithMaxTries(10), backoff.WithBackOff(&backoff.ZeroBackOff{}))
		return err
	},
}

// A refusal is not transient for a retrier that asks.
func TestRetriersThatAskDoNotRetryARefusal(t *testing.T) {
	for name, retrier := range retriers {
		t.Run(name, func(t *testing.T) {
			br := penstock(resilience.Config{})
			br.Trip("drill")
			attempts := 0
			err := retrier(t.Context(), func() error {
				attempts++
				return br.Do(ctx, func(context.Context) error { return nil })
			}, transient)
			require.ErrorIs(t, err, resilience.ErrOpen)
			assert.Equal(t, 1, attempts)
		})
	}
}

// A retrier that does not ask continues, but inside a task its retries reach
// nothing, even after the reset time.
func TestRetriersThatDoNotAskReachNothingInATask(t *testing.T) {
	for name, retrier := range retriers {
		t.Run(name, func(t *testing.T) {
			br := penstock(resilience.Config{ResetTimeout: 50 * time.Millisecond})
			br.Trip("drill")
			task := resilience.WithTask(t.Context(), "embed/42")
			attempts := 0
			err := retrier(t.Context(), func() error {
				if attempts++; attempts == 2 {
					untilDue(br)
				}
				return br.Do(task, func(context.Context) error {
					t.Error("the upstream was called")
					return nil
				})
			}, func(error) bool { return true })
			require.ErrorIs(t, err, resilience.ErrOpen)
			assert.Equal(t, 10, attempts)
			assert.Equal(t, uint64(9), br.Snapshot().RetriedInTask)
		})
	}
}

// untilDue returns when a probe would be admitted.
func untilDue(br *resilience.Breaker) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !br.Ready() {
		<-tick.C
	}
}
