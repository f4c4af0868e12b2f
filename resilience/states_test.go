package resilience_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

var errDown = errors.New("upstream is down")

func fail(context.Context) error    { return errDown }
func succeed(context.Context) error { return nil }

type clock struct{ t time.Time }

func (c *clock) Now() time.Time { return c.t }

func TestOpensAfter5ConsecutiveFailures(t *testing.T) {
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b := resilience.MustNew("milvus", resilience.Config{Clock: c})
	for range 5 {
		require.Same(t, errDown, b.Do(t.Context(), fail))
	}
	assert.Equal(t, resilience.Open, b.State())
	err := b.Do(t.Context(), succeed)
	require.ErrorIs(t, err, resilience.ErrOpen)
	assert.EqualError(t, err, `circuit breaker open for "milvus", failing fast; next probe in 1m0s`)
	c.t = c.t.Add(time.Minute)
	assert.Equal(t, resilience.HalfOpen, b.State())
	require.NoError(t, b.Do(t.Context(), succeed))
	assert.Equal(t, resilience.Closed, b.State())
}
