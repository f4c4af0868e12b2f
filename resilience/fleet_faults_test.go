package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// Faults that shared breakers of other libraries have.

// A call holds nothing that another waits for.
func TestFleetHoldsNothingDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 4, resilience.Config{}, resilience.FleetConfig{})
		start := time.Now()
		var calls sync.WaitGroup
		for _, p := range all {
			for range 4 {
				calls.Go(func() {
					assert.NoError(t, p.Do(t.Context(), func(context.Context) error {
						time.Sleep(time.Hour)
						return nil
					}))
				})
			}
		}
		calls.Wait()
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

// No failure is lost between processes that fail at once.
func TestFleetCountsEveryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 8, resilience.Config{FailMax: 1000}, resilience.FleetConfig{})
		var calls sync.WaitGroup
		for _, p := range all {
			for range 25 {
				calls.Go(func() { _ = p.Do(t.Context(), down) })
			}
		}
		calls.Wait()
		synctest.Wait()
		for _, p := range all {
			_, streak, _ := p.Streak()
			assert.Equal(t, 200, streak)
		}
	})
}

// A process that cannot read the record at its start does not close what is
// open.
func TestStartWithoutTheStoreClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		client := store.Client()
		client.Down(errors.New("connection refused"))
		fleet := resilience.NewFleet(client, resilience.FleetConfig{Origin: "late", Logger: quiet})
		t.Cleanup(func() { assert.NoError(t, fleet.Close()) })
		late, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, late.Do(t.Context(), fine))
		client.Up()
		settle(10 * time.Second)
		assert.Equal(t, []string{"open", "open"}, states(all))
		require.ErrorIs(t, late.Do(t.Context(), fine), resilience.ErrOpen)
	})
}

// One process that works does not hide the others' failures from themselves.
func TestOneGoodProcessHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 8, resilience.Config{}, resilience.FleetConfig{})
		doomed := 0
		for range 600 {
			for _, p := range all[1:] {
				require.NoError(t, all[0].Do(t.Context(), fine))
				synctest.Wait()
				_ = p.Do(t.Context(), func(context.Context) error { doomed++; return errDown })
				synctest.Wait()
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, doomed, 7*(5+1), "each takes its own five and one probe")
		assert.Equal(t, resilience.Closed, all[0].State())
	})
}

// The deadline is not rounded.
func TestFleetProbesAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{ResetTimeout: 1234567 * time.Microsecond}, resilience.FleetConfig{})
		settle(987654 * time.Microsecond)
		openBy(t, all[0])
		settle(1234567*time.Microsecond - time.Millisecond)
		all[1].isRefused(t)
		settle(time.Millisecond)
		require.NoError(t, all[1].Do(t.Context(), fine))
	})
}

// stubborn is a store that does not heed its contexts once it hangs.
type stubborn struct {
	*storetest.Memory
	hang chan struct{}
}

func (s *stubborn) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	if s.hang != nil {
		<-s.hang
	}
	return s.Memory.Swap(ctx, key, version, value, keep)
}

func TestStoreThatHeedsNoContextHoldsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stubborn{Memory: &storetest.Memory{}}
		fleet := resilience.NewFleet(store, resilience.FleetConfig{Logger: quiet})
		b, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, b.Do(t.Context(), fine))
		store.hang = make(chan struct{})
		start := time.Now()
		for range 5 {
			require.Same(t, errDown, b.Do(t.Context(), down))
		}
		require.ErrorIs(t, b.Do(t.Context(), fine), resilience.ErrOpen)
		assert.Equal(t, 150*time.Millisecond, time.Since(start))
		close(store.hang)
		require.NoError(t, fleet.Close())
	})
}

// The store's losses and returns are one line each, and nobody else's error.
func TestStoreIsLoggedOnceAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logger := slog.New(slog.NewTextHandler(&out, nil))
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{Logger: logger})
		assert.True(t, all[0].fleet.Up())
		store.Down(errors.New("connection refused"))
		settle(time.Minute)
		assert.False(t, all[0].fleet.Up())
		all[0].fails(t)
		store.Up()
		settle(time.Minute)
		assert.True(t, all[0].fleet.Up())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 3, out.String())
		assert.Contains(t, lines[0], "level=INFO")
		assert.Contains(t, lines[1], "connection refused")
		assert.Contains(t, lines[2], "level=WARN", "it ends a warning")
		assert.Contains(t, lines[2], "answers")
	})
}

// A store that is slow to fail has not answered when the first call must be
// decided. What is wrong with it is known later, and is said then.
func TestStoreSaysLateWhyItCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		fleet := resilience.NewFleet(slowToFail{}, resilience.FleetConfig{
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		})
		settle(time.Minute)
		require.NoError(t, fleet.Close())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 2, out.String())
		for i, cause := range []string{"no answer within 100ms", "x509: certificate has expired"} {
			assert.Contains(t, lines[i], "level=WARN")
			assert.Contains(t, lines[i], cause)
			assert.Contains(t, lines[i], "store=rediss://cache:6379")
		}
	})
}

// slowToFail is a store whose certificate has expired.
type slowToFail struct{ resilience.Store }

func (slowToFail) String() string { return "rediss://cache:6379" }

func (slowToFail) Watch(context.Context, func(), func(string, resilience.Record)) error {
	time.Sleep(time.Second) // of the bubble's clock
	return errors.New("x509: certificate has expired")
}

// locked is a log that goroutines write while it is read.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// After Close the breakers are those of this process.
func TestClosedFleetLeavesItsBreakersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		require.NoError(t, all[0].fleet.Close())
		require.NoError(t, all[0].fleet.Close(), "twice")
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "closed"}, states(all))
		assert.True(t, all[0].Snapshot().Alone)
		b, err := resilience.New("late", resilience.Config{Shared: all[0].fleet, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, b.Do(t.Context(), fine))
	})
}

// Conflicts that do not end refuse a probe and lose no failure.
func TestEndlessConflictsGrantNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		contested := &contested{Memory: store}
		fleet := resilience.NewFleet(contested, resilience.FleetConfig{Origin: "late", Logger: quiet})
		t.Cleanup(func() { assert.NoError(t, fleet.Close()) })
		late, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		synctest.Wait()
		contested.on.Store(true)
		require.ErrorIs(t, late.Do(t.Context(), fine), resilience.ErrOpen)
		contested.on.Store(false)
		require.NoError(t, late.Do(t.Context(), fine))
		settle(5 * time.Second)

		contested.on.Store(true)
		time.AfterFunc(time.Second, func() { contested.on.Store(false) })
		require.Same(t, errDown, late.Do(t.Context(), down))
		settle(time.Second)
		_, streak, _ := all[0].Streak()
		assert.Equal(t, 1, streak, "the failure is written in the end")
	})
}

// contested is a store in which another process is always faster.
type contested struct {
	*storetest.Memory
	on atomic.Bool
}

func (s *contested) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	if s.on.Load() {
		time.Sleep(time.Millisecond)
		now, err := s.Load(ctx, key)
		if err == nil {
			_, err = s.Memory.Swap(ctx, key, now.Version, now.Value, keep)
		}
		if err != nil {
			return resilience.Record{}, err
		}
	}
	return s.Memory.Swap(ctx, key, version, value, keep)
}
