package resilience_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
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
		assert.Contains(t, out.String(), "abandoned")
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

// A process that opened alone adds each failed probe to the fleet's streak, so
// that the fleet opens where the trouble is not this process's alone.
func TestFailedProbesOfAProcessAloneCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		for range 5 {
			all[0].fails(t)
			synctest.Wait()
			require.NoError(t, all[1].Do(t.Context(), fine))
			synctest.Wait()
		}
		require.True(t, all[0].Snapshot().Alone)
		for n := range 5 {
			settle(time.Minute + time.Second)
			require.Equal(t, []string{"half_open", "closed"}, states(all))
			all[0].fails(t)
			synctest.Wait()
			if _, streak, _ := all[1].Streak(); n < 4 {
				assert.Equal(t, n+1, streak)
			}
		}
		assert.Equal(t, []string{"open", "open"}, states(all))
		assert.False(t, all[0].Snapshot().Alone, "it is the fleet's outage")
	})
}

// The failed probe of another host confirms an outage: the host that found it
// is not suspect when it is over.
func TestConfirmedHostIsNotSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		all[1].fails(t)
		settle(time.Minute)
		require.NoError(t, all[2].Do(t.Context(), fine))
		settle(10 * time.Second)
		assert.NotContains(t, string(store.Records()["1/llm"].Value), "suspect")
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "open", "open"}, states(all))
	})
}

// A breaker in shadow mode neither writes nor follows.
func TestShadowIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		shadow := newProcess(t, store, "shadow", resilience.Config{Shadow: true}, resilience.FleetConfig{})
		other := newProcess(t, store, "other", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		for range 5 {
			shadow.fails(t)
		}
		synctest.Wait()
		assert.Empty(t, store.Records())
		openBy(t, other)
		shadow.Reset()
		synctest.Wait()
		assert.Equal(t, resilience.Closed, shadow.State())
		assert.False(t, shadow.Snapshot().Shared)
		other.isRefused(t)
	})
}

// late is a store whose answers are of an instant before they come.
type late struct {
	*storetest.Memory

	by atomic.Int64
}

func (l *late) Load(ctx context.Context, key string) (resilience.Record, error) {
	r, err := l.Memory.Load(ctx, key)
	time.Sleep(time.Duration(l.by.Load())) // of the bubble
	return r, err
}

// Of several answers the fastest one says best what time it is in the store: a
// deadline is never early, and late by less than Timeout.
func TestFastestAnswerTellsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &storetest.Memory{}
		one := newProcess(t, memory, "one", resilience.Config{}, resilience.FleetConfig{})
		slow := &late{Memory: memory.Client()}
		fleet := resilience.NewFleet(slow, resilience.FleetConfig{Logger: quiet})
		defer fleet.Close()
		two, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		settle(time.Second)
		openBy(t, one)
		deadline := one.refusal(t).RetryAt()
		slow.by.Store(int64(90 * time.Millisecond))
		settle(30 * time.Second) // it asks several times
		open, ok := errors.AsType[*resilience.OpenError](two.Do(t.Context(), fine))
		require.True(t, ok)
		assert.False(t, open.RetryAt().Before(deadline))
		assert.Less(t, open.RetryAt().Sub(deadline), 10*time.Millisecond)
	})
}

// A push that comes late takes nothing back.
func TestLatePushIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &repeating{Memory: &storetest.Memory{}}
		one := newProcess(t, store.Memory, "one", resilience.Config{}, resilience.FleetConfig{})
		fleet := resilience.NewFleet(store, resilience.FleetConfig{Logger: quiet})
		defer fleet.Close()
		two, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		synctest.Wait()
		for range 4 {
			one.fails(t)
		}
		synctest.Wait()
		_, streak, _ := two.Streak()
		require.Equal(t, 4, streak)
		store.repeat()
		synctest.Wait()
		_, streak, _ = two.Streak()
		assert.Equal(t, 4, streak)
	})
}

// repeating is a store that pushes the first change once more.
type repeating struct {
	*storetest.Memory

	changed func(string, resilience.Record)
	first   resilience.Record
}

func (r *repeating) Watch(ctx context.Context, present func(), changed func(string, resilience.Record)) error {
	r.changed = changed
	return r.Memory.Watch(ctx, present, func(key string, pushed resilience.Record) {
		if r.first.Version == 0 {
			r.first = pushed
		}
		changed(key, pushed)
	})
}

func (r *repeating) repeat() { r.changed("1/llm", r.first) }

// A store that was lost while it went back is told what it has lost.
func TestStoreThatWentBackWhileItWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		all[0].fails(t)
		rollback := store.Save()
		for range 4 {
			all[0].fails(t)
		}
		synctest.Wait()
		store.Down(errors.New("connection refused"))
		synctest.Wait()
		rollback()
		store.Up()
		settle(10 * time.Second)
		assert.Equal(t, []string{"open", "open"}, states(all))
		assert.Contains(t, string(store.Records()["1/llm"].Value), `"state":"open"`)
	})
}

// A store that stays away is asked after a quarter of a second, and then less
// and less often, each five seconds at last.
func TestStoreThatStaysAwayIsAskedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		asked := func(d time.Duration) int {
			before := store.Calls().Watches
			settle(d)
			return store.Calls().Watches - before
		}
		settle(time.Minute)
		store.Down(errors.New("connection refused"))
		first := asked(time.Second)
		assert.GreaterOrEqual(t, first, 2)
		settle(10 * time.Second)
		assert.LessOrEqual(t, asked(time.Minute), 24, "after 2.5 to 5 s")
		assert.GreaterOrEqual(t, asked(time.Minute), 12)
		store.Up()
		settle(5100 * time.Millisecond) // it is up for less than ten seconds
		store.Down(errors.New("connection refused"))
		assert.LessOrEqual(t, asked(2*time.Second), 1, "it is not trusted yet")
	})
}

// Each policy of others is told of once, however they alternate.
func TestPoliciesThatAlternateAreToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logged := resilience.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		store := &storetest.Memory{}
		newProcess(t, store, "host", logged, resilience.FleetConfig{})
		a := newProcess(t, store, "a", resilience.Config{FailMax: 3}, resilience.FleetConfig{})
		b := newProcess(t, store, "b", resilience.Config{FailMax: 4}, resilience.FleetConfig{})
		synctest.Wait()
		for range 5 {
			for _, p := range []*process{a, b} {
				p.fails(t)
				synctest.Wait()
				require.NoError(t, p.Do(t.Context(), fine))
				synctest.Wait()
			}
		}
		assert.Equal(t, 2, strings.Count(out.String(), "another policy"), out.String())
	})
}

// What the fleet has counted when the store is lost counts on.
func TestStreakOutlivesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		for range 4 {
			all[0].fails(t)
		}
		synctest.Wait()
		store.Down(errors.New("connection refused"))
		synctest.Wait()
		all[1].fails(t)
		all[1].isRefused(t)
	})
}

// A breaker that is made after another process has opened it is open.
func TestBreakerMadeDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		fleet := resilience.NewFleet(store.Client(), resilience.FleetConfig{Logger: quiet})
		defer fleet.Close()
		synctest.Wait()
		other := newProcess(t, store, "other", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		openBy(t, other)
		b, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
		require.NoError(t, err)
		require.ErrorIs(t, b.Do(t.Context(), fine), resilience.ErrOpen)
	})
}

// An operator's reason is shared without the secrets in it.
func TestSharedReasonsAreMasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		for _, act := range []func(string){
			all[0].ForceOpen, all[0].ForceClose, func(reason string) { all[0].Trip(reason) },
		} {
			all[0].Reset()
			act("maintenance, api_key=hunter2hunter2")
			record := string(store.Records()["1/llm"].Value)
			assert.Contains(t, record, "maintenance")
			assert.NotContains(t, record, "hunter2")
		}
	})
}

// MaxProbes and GoodProbes hold for all processes together.
func TestSeveralProbesOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := resilience.Config{MaxProbes: 2, SuccessThreshold: 2}
		all, _ := processes(t, 4, cfg, resilience.FleetConfig{Stagger: -1})
		openBy(t, all[0])
		settle(time.Minute)
		first, err := all[1].Allow(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		second, err := all[2].Allow(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		all[3].isRefused(t)
		first.Done(nil)
		synctest.Wait()
		assert.Equal(t, []string{"half_open", "half_open", "half_open", "half_open"}, states(all))
		second.Done(nil)
		synctest.Wait()
		assert.Equal(t, []string{"closed", "closed", "closed", "closed"}, states(all))
	})
}

// Many successes at once clear a streak by one write.
func TestSuccessesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		all[0].fails(t)
		store.Freeze()
		before := store.Calls().Swaps
		for range 100 {
			require.NoError(t, all[0].Do(t.Context(), fine))
		}
		store.Thaw()
		synctest.Wait()
		assert.LessOrEqual(t, store.Calls().Swaps-before, 2)
	})
}

// A process that opened by itself while the store was lost does not prolong an
// outage of the fleet.
func TestOwnOpeningProlongsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		all[1].store.Down(errors.New("connection refused"))
		synctest.Wait()
		for range 5 {
			all[1].fails(t)
		}
		settle(time.Minute)
		openBy(t, all[0])
		deadline := all[0].refusal(t).RetryAt()
		settle(5 * time.Second)
		all[1].fails(t) // its own probe
		all[1].store.Up()
		settle(10 * time.Second)
		assert.Equal(t, deadline, all[0].refusal(t).RetryAt())
	})
}

// Many addresses, and long ones, make a key that a store can hold.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		for i := range 40 {
			all[0].Locate("https://" + strings.Repeat("a", 100) + strconv.Itoa(i) + ".example.com")
		}
		all[0].ForceOpen("drill")
		require.Len(t, store.Records(), 1)
		for key := range store.Records() {
			assert.LessOrEqual(t, len(key), 512)
			assert.Regexp(t, "^1/llm@[0-9a-f]{64}$", key)
		}
	})
}
