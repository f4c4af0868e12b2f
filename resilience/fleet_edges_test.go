package resilience_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// A breaker that a process makes later, in place of another one or beside it,
// knows what that one knew.
func TestLaterBreakerOfAKeyKnowsItsRecord(t *testing.T) {
	for name, make := range map[string]func(*testing.T, *resilience.Fleet, *resilience.Registry) *resilience.Breaker{
		"beside": func(t *testing.T, f *resilience.Fleet, _ *resilience.Registry) *resilience.Breaker {
			b, err := resilience.New("llm", resilience.Config{Shared: f, Logger: quiet})
			require.NoError(t, err)
			return b
		},
		"replaced": func(t *testing.T, _ *resilience.Fleet, r *resilience.Registry) *resilience.Breaker {
			b, err := r.Replace("llm", resilience.Config{ResetTimeout: 30 * time.Second})
			require.NoError(t, err)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := resilience.NewRegistry(resilience.Config{Logger: quiet})
				first := registry.MustRegister("llm", resilience.Config{})
				fleet := resilience.NewFleet((&storetest.Memory{}).Client(), resilience.FleetConfig{Logger: quiet})
				defer fleet.Close()
				registry.Join(fleet)
				first.ForceOpen("maintenance")
				settle(time.Second)
				later := make(t, fleet, registry)
				settle(time.Minute)
				require.ErrorIs(t, later.Do(t.Context(), fine), resilience.ErrOpen)
			})
		})
	}
}

// The same of a family whose key was deleted.
func TestDeletedKeyKnowsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := resilience.NewRegistry(resilience.Config{Logger: quiet})
		family, err := registry.Keyed("tenant", resilience.Config{})
		require.NoError(t, err)
		fleet := resilience.NewFleet((&storetest.Memory{}).Client(), resilience.FleetConfig{Logger: quiet})
		defer fleet.Close()
		registry.Join(fleet)
		family.Get("a").ForceOpen("maintenance")
		settle(time.Second)
		family.Delete("a")
		settle(time.Second)
		require.ErrorIs(t, family.Get("a").Do(t.Context(), fine), resilience.ErrOpen)
	})
}

// curious is a log handler that looks at the breaker that is written about.
type curious struct {
	slog.Handler

	breaker *atomic.Pointer[resilience.Breaker]
	seen    *atomic.Int64
}

func (c curious) Handle(context.Context, slog.Record) error {
	if b := c.breaker.Load(); b != nil {
		_ = b.Snapshot()
		c.seen.Add(1)
	}
	return nil
}

// What is logged is logged without locks, since a handler may need them.
func TestLogHandlerMayLookAtTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		other := newProcess(t, store, "other", resilience.Config{FailMax: 3}, resilience.FleetConfig{})
		handler := curious{slog.DiscardHandler, &atomic.Pointer[resilience.Breaker]{}, &atomic.Int64{}}
		handler.Handler = slog.NewTextHandler(&locked{}, nil)
		logged := slog.New(handler)
		p := newProcess(t, store, "host", resilience.Config{Logger: logged}, resilience.FleetConfig{Logger: logged})
		handler.breaker.Store(p.Breaker)
		synctest.Wait()
		other.fails(t) // another policy
		synctest.Wait()
		r := store.Records()["1/llm"]
		_, err := store.Swap(t.Context(), "1/llm", r.Version, []byte("{"), 0)
		require.NoError(t, err)
		synctest.Wait()
		assert.GreaterOrEqual(t, handler.seen.Load(), int64(2))
	})
}

// slowly is a store whose answers take a while.
type slowly struct {
	*storetest.Memory

	takes time.Duration
}

func (s slowly) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	select {
	case <-time.After(s.takes):
		return s.Memory.Swap(ctx, key, version, value, keep)
	case <-ctx.Done():
		return resilience.Record{}, ctx.Err()
	}
}

// A store that answers each request in time is not lost, however many calls
// wait for their turn.
func TestSlowStoreIsNotLost(t *testing.T) {
	for _, takes := range []time.Duration{30 * time.Millisecond, 60 * time.Millisecond, 90 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			store := &storetest.Memory{}
			var all []*resilience.Breaker
			var lost []*locked
			for i := range 5 {
				out := &locked{}
				fleet := resilience.NewFleet(slowly{store.Client(), takes}, resilience.FleetConfig{
					Origin: strconv.Itoa(i), Logger: slog.New(slog.NewTextHandler(out, nil)),
				})
				defer fleet.Close()
				b, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
				require.NoError(t, err)
				all, lost = append(all, b), append(lost, out)
			}
			synctest.Wait()
			for i := range 16 {
				go func() { _ = all[i%5].Do(context.Background(), down) }()
				time.Sleep(7 * time.Millisecond) // of the bubble
			}
			settle(10 * time.Second)
			for _, out := range lost {
				assert.NotContains(t, out.String(), "does not answer")
			}
		})
	}
}

// Each loss after a good time is tried again as soon as the first, also where a
// call has found it out.
func TestBackoffBeginsAgainAfterAGoodTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		for range 8 {
			settle(time.Hour)
			store.Freeze()
			all[0].fails(t)
			require.False(t, all[0].fleet.Up())
			store.Thaw()
			settle(400 * time.Millisecond)
			require.True(t, all[0].fleet.Up())
			require.NoError(t, all[0].Do(t.Context(), fine))
		}
	})
}

// A clock that is wrong by decades leaves no generation that others cannot
// read, and none that results of another life belong to.
func TestStoresClockIsWrongByDecades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		offset.Store(int64(100 * 365 * 24 * time.Hour))
		store := &storetest.Memory{Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }}
		one := newProcess(t, store, "one", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		for range 2 {
			openBy(t, one)
			other := newProcess(t, store, "other", resilience.Config{}, resilience.FleetConfig{})
			synctest.Wait()
			assert.False(t, other.Snapshot().Alone)
			other.isRefused(t)
			settle(time.Minute + time.Second)
			require.NoError(t, one.Do(t.Context(), fine))
			offset.Store(0) // it is right again
		}
	})
}

// An opening is one, in the process whose window has made it too.
func TestOpeningByAWindowCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, windowConfig(), resilience.FleetConfig{})
		for all[0].State() == resilience.Closed {
			all[0].fails(t)
		}
		synctest.Wait()
		for _, p := range all {
			assert.Equal(t, uint64(1), p.Snapshot().Opened)
		}
	})
}

// A breaker whose fleet was closed may join another one.
func TestBreakerJoinsAnotherFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := resilience.NewRegistry(resilience.Config{Logger: quiet})
		b := registry.MustRegister("llm", resilience.Config{})
		registry.Join(nil)
		assert.False(t, b.Snapshot().Shared)
		store := &storetest.Memory{}
		for range 2 {
			fleet := resilience.NewFleet(store.Client(), resilience.FleetConfig{Logger: quiet})
			registry.Join(fleet)
			b.ForceOpen("maintenance")
			assert.Contains(t, string(store.Records()["1/llm"].Value), "forced_open")
			b.Reset()
			require.NoError(t, fleet.Close())
		}
	})
}

// hanging is a store that does not heed its contexts.
type hanging struct{ resilience.Store }

func (hanging) Watch(context.Context, func(), func(string, resilience.Record)) error {
	time.Sleep(time.Hour) // of the bubble
	return errors.New("the disk answers again")
}

func TestCloseDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logger := slog.New(slog.NewTextHandler(&out, nil))
		fleet := resilience.NewFleet(hanging{}, resilience.FleetConfig{Logger: logger})
		b, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, b.Do(t.Context(), fine))
		start := time.Now()
		require.NoError(t, fleet.Close())
		assert.LessOrEqual(t, time.Since(start), 300*time.Millisecond)
		synctest.Wait()
		assert.Contains(t, out.String(), "left to themselves")
		settle(2 * time.Hour)
	})
}

// faulty is a store with a fault of its own.
type faulty struct{ *storetest.Memory }

func (faulty) Swap(context.Context, string, uint64, []byte, time.Duration) (resilience.Record, error) {
	panic("index out of range")
}

func TestStoreThatPanicsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		fleet := resilience.NewFleet(faulty{&storetest.Memory{}}, resilience.FleetConfig{
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		})
		defer fleet.Close()
		b, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		synctest.Wait()
		require.Same(t, errDown, b.Do(t.Context(), down))
		synctest.Wait()
		assert.Contains(t, out.String(), "the store panicked: index out of range")
	})
}

// After a machine was suspended, what it knows of the store's clock is old. Its
// first opening still lasts for the whole wait.
func TestFirstOpeningAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		store := &storetest.Memory{Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }}
		one := newProcess(t, store, "one", resilience.Config{}, resilience.FleetConfig{})
		two := newProcess(t, store, "two", resilience.Config{}, resilience.FleetConfig{})
		settle(time.Second)
		offset.Store(int64(2 * time.Hour))
		one.Trip("drill")
		synctest.Wait()
		for _, p := range []*process{one, two} {
			assert.InDelta(t, time.Minute, time.Until(p.refusal(t).RetryAt()), float64(time.Second))
		}
	})
}

// What was written while the store's clock was ahead keeps nobody out for
// longer than it was meant to, whenever in the state that was.
func TestStoresClockWasAheadForAWhile(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *process, func(time.Duration)){
		"lease": func(t *testing.T, p *process, ahead func(time.Duration)) {
			settle(time.Minute)
			probe, err := p.Allow(t.Context())
			require.NoError(t, err)
			ahead(3 * time.Hour)
			settle(10 * time.Second) // it is renewed
			_ = probe                // and its process dies
		},
		"pause": func(t *testing.T, p *process, ahead func(time.Duration)) {
			settle(time.Minute)
			probe, err := p.Allow(t.Context())
			require.NoError(t, err)
			ahead(3 * time.Hour)
			settle(10 * time.Second)
			probe.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 30 * time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var offset atomic.Int64
				store := &storetest.Memory{
					Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
				}
				p := newProcess(t, store, "first", resilience.Config{}, resilience.FleetConfig{})
				settle(time.Second)
				openBy(t, p)
				leave(t, p, func(d time.Duration) { offset.Store(int64(d)) })
				require.NoError(t, p.fleet.Close())
				offset.Store(0)
				for start := time.Now(); ; settle(5 * time.Second) {
					next := newProcess(t, store, "next", resilience.Config{}, resilience.FleetConfig{})
					err := next.Do(t.Context(), fine)
					require.NoError(t, next.fleet.Close())
					if err == nil {
						break
					}
					require.Less(t, time.Since(start), 2*time.Minute, "%v", err)
				}
			})
		})
	}
}
