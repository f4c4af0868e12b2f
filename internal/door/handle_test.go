package door_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

var ignored = resilience.Verdict{Outcome: resilience.Ignored}

func TestEndItselfIsASuccessAndAnErrorAroundItIsNot(t *testing.T) {
	w := watch(t, resilience.Config{})
	keep(t, t.Context(), w).End(io.EOF)
	broken := fmt.Errorf("read tcp: %w", io.EOF)
	keep(t, t.Context(), w).End(broken)
	assert.Equal(t, []resilience.Verdict{{}, {Outcome: resilience.Failure}}, w.settled)
	assert.Equal(t, []error{nil, broken}, w.errs)
	assert.Equal(t, 1, w.read)
}

func TestAbandonedCallIsIgnored(t *testing.T) {
	w := watch(t, resilience.Config{})
	h := keep(t, t.Context(), w)
	ended := 0
	h.OnEnd = func() { ended++ }
	h.Abandon()
	h.Abandon()
	h.End(errors.New("too late"))
	assert.Equal(t, []resilience.Verdict{ignored}, w.settled)
	assert.Equal(t, []resilience.Verdict{ignored}, w.ended)
	assert.Equal(t, []error{nil}, w.errs)
	assert.Equal(t, 1, ended)
	assert.Zero(t, w.read)
}

func TestCallIsAbandonedWhenItsContextEndsAndNobodyUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, resilience.Config{}).limit(t, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		keep(t, ctx, w)
		gone := errors.New("the user has gone")
		cancel(gone)
		synctest.Wait()
		assert.Equal(t, []resilience.Verdict{ignored}, w.settled)
		assert.Equal(t, []error{gone}, w.errs)
		assert.Equal(t, uint64(1), w.guard.Breaker.Snapshot().Ignored)
		require.NoError(t, ways["Call"](t.Context(), w, nil), "the slot is back")
	})
}

func TestCallInUseDecidesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, resilience.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		h := keep(t, ctx, w)
		h.Use(func() {
			cancel()
			synctest.Wait()
			assert.Empty(t, w.settled, "it is in use")
			h.End(errors.New("broken"))
		})
		assert.Equal(t, []resilience.Verdict{{Outcome: resilience.Failure}}, w.settled)
	})
}

func TestCallWhoseContextEndsDuringAUseIsAbandonedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, resilience.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		keep(t, ctx, w).Use(func() {
			cancel()
			synctest.Wait()
			assert.Empty(t, w.settled, "it is in use")
		})
		assert.Equal(t, []resilience.Verdict{ignored}, w.settled)
		assert.Equal(t, []error{context.Canceled}, w.errs)
	})
}

func TestEndForAsksForItsCaller(t *testing.T) {
	w := watch(t, resilience.Config{})
	ctx := context.WithValue(t.Context(), traced{}, "the reader's")
	keep(t, t.Context(), w).EndFor(ctx, errors.New("broken"))
	assert.Equal(t, ctx, w.caller)
}

// A guard may do as it likes when it is told, close what was opened too.
func TestSettledMayEndTheCallAgain(t *testing.T) {
	w := watch(t, resilience.Config{})
	var h *door.Handle
	told := 0
	w.guard.Settled = func(resilience.Verdict) {
		told++
		h.Abandon()
	}
	h = keep(t, t.Context(), w)
	h.End(errors.New("broken"))
	assert.Equal(t, 1, told)
}

func TestRenewKeepsAProbeAlive(t *testing.T) {
	clock := testutil.NewClock()
	w := watch(t, resilience.Config{Clock: clock, ProbeTimeout: 10 * time.Second, ResetTimeout: time.Minute})
	w.guard.Breaker.Trip("test")
	clock.Advance(time.Minute)
	h := keep(t, t.Context(), w)
	for range 5 {
		clock.Advance(9 * time.Second)
		h.Renew()
		require.Equal(t, resilience.HalfOpen, w.guard.Breaker.State())
	}
	clock.Advance(11 * time.Second)
	assert.Equal(t, resilience.Open, w.guard.Breaker.State(), "a probe that stands still has failed")
	h.End(nil)
	assert.Equal(t, resilience.Open, w.guard.Breaker.State())
}
