package resilience_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// Rule 25.
func TestRule25OpenErrorSaysWhatHappened(t *testing.T) {
	r := newRig(t, resilience.Config{})
	r.at(time.Second)
	r.fail(5)
	r.clock.Advance(10 * time.Second)
	err := r.refused()
	assert.Equal(t, "milvus", err.Upstream())
	assert.Equal(t, resilience.Open, err.State())
	assert.Equal(t, "consecutive failures", err.Reason())
	assert.Equal(t, r.start.Add(time.Second), err.OpenedAt())
	assert.Equal(t, r.start.Add(61*time.Second), err.RetryAt())
	assert.Same(t, errDown, err.LastFailure())
	wrapped := fmt.Errorf("embed: %w", err)
	require.ErrorIs(t, wrapped, resilience.ErrOpen)
	require.NotErrorIs(t, wrapped, errDown, "a refusal is no answer of the upstream")
	var open *resilience.OpenError
	require.ErrorAs(t, wrapped, &open)
	assert.Same(t, err, open)
}

// Rule 25: the text never understates the wait.
func TestRule25TextRoundsUp(t *testing.T) {
	for _, row := range []struct {
		left time.Duration
		text string
	}{
		{time.Minute, "next probe in 1m0s"},
		{41*time.Second + 1, "next probe in 42s"},
		{time.Second, "next probe in 1s"},
		{time.Second - 1, "next probe in 1s"},
		{time.Millisecond + 1, "next probe in 2ms"},
		{1, "next probe in 1ms"},
		{0, "next probe due"},
		{-time.Hour, "next probe due"},
	} {
		r := newRig(t, resilience.Config{})
		r.Trip("drill")
		err := r.refused()
		r.at(time.Minute - row.left)
		assert.EqualError(t, err, `circuit breaker open for "milvus", failing fast; `+row.text, "row %+v", row)
	}
}

// Rule 26: what retriers ask an error, and the AWS SDK's own retryer.
func TestRule26NoRetrierTakesARefusalForTransient(t *testing.T) {
	r := newRig(t, resilience.Config{StopOnDenied: true})
	r.Trip("drill")
	open := error(r.refused())
	r.Reset()
	r.act("denied")
	denied := r.Do(t.Context(), fine)
	for _, err := range []error{open, denied, fmt.Errorf("put: %w", open)} {
		var timeout interface{ Timeout() bool }
		var temporary interface{ Temporary() bool }
		var retryable interface{ RetryableError() bool }
		require.ErrorAs(t, err, &timeout)
		require.ErrorAs(t, err, &temporary)
		require.ErrorAs(t, err, &retryable)
		assert.False(t, timeout.Timeout())
		assert.False(t, temporary.Temporary())
		assert.False(t, retryable.RetryableError())
		if netErr, ok := errors.AsType[net.Error](err); ok {
			assert.False(t, netErr.Timeout())
		}
		for name, retryer := range map[string]aws.Retryer{
			"standard": retry.NewStandard(), "adaptive": retry.NewAdaptiveMode(),
		} {
			assert.False(t, retryer.IsErrorRetryable(err), "%s retryer and %v", name, err)
		}
	}
}
