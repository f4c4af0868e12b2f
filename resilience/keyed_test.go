package resilience_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// newFamily is a family on a fake clock, and the registry that it is in.
func newFamily(t *testing.T, cfg resilience.Config) (*resilience.Keyed, *resilience.Registry, *testutil.FakeClock) {
	t.Helper()
	clock := testutil.NewClock()
	cfg.Clock, cfg.Logger = clock, quiet
	reg := resilience.NewRegistry(resilience.Config{})
	k, err := reg.Keyed("tenant", cfg)
	require.NoError(t, err)
	return k, reg, clock
}

// A breaker that was forgotten between Get and the call opened unseen.
func TestFaultForgottenBreakerOpensUnseen(t *testing.T) {
	for name, call := range map[string]func(*resilience.Breaker) error{
		"Do": func(b *resilience.Breaker) error { return b.Do(context.Background(), down) },
		"Call": func(b *resilience.Breaker) error {
			_, err := resilience.Call(context.Background(), b, func(context.Context) (int, error) { return 0, errDown })
			return err
		},
		"Allow": func(b *resilience.Breaker) error {
			p, err := b.Allow(context.Background())
			if err == nil {
				p.Done(errDown)
			}
			return err
		},
		"Trip":      func(b *resilience.Breaker) error { b.Trip("drill"); return nil },
		"ForceOpen": func(b *resilience.Breaker) error { b.ForceOpen("drill"); return nil },
	} {
		k, _, _ := newFamily(t, resilience.Config{MaxKeys: 1, FailMax: 1})
		bad := k.Get("bad")
		k.Get("other")
		require.True(t, bad.Forgotten(), name)
		_ = call(bad)
		require.False(t, bad.Forgotten(), name)
		require.ErrorIs(t, k.Do(t.Context(), "bad", fine), resilience.ErrOpen, name)
		assert.Equal(t, "tenant/(overflow)", k.Get("other").Name(), "%s: there is no room beside an open one", name)
	}
}

// The same while calls are in flight: of N keys that fail, no more than FailMax
// calls each reach the upstream, however little room there is.
func TestFaultForgottenBreakersCountForThemselves(t *testing.T) {
	const keys, room = 4, 2
	k, _, _ := newFamily(t, resilience.Config{MaxKeys: room, FailMax: 5})
	var ran [keys]atomic.Int64
	var held [keys]*resilience.Breaker
	for i := range held {
		held[i] = k.Get(strconv.Itoa(i))
	}
	var overflow atomic.Int64
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for n := range 200 {
				i := (n + g) % keys
				p, err := held[i].Allow(context.Background())
				if err != nil {
					continue
				}
				if held[i].Forgotten() { // there was no room, so it went through the shared one
					overflow.Add(1)
				}
				ran[i].Add(1)
				runtime.Gosched()
				p.Done(errDown)
			}
		})
	}
	group.Wait()
	open := 0
	for i := range keys {
		if held[i].State() == resilience.Open {
			open++
		}
		assert.LessOrEqual(t, ran[i].Load()-overflow.Load(), int64(5+8), "key %d: FailMax, and those in flight", i)
	}
	assert.Equal(t, room, open)
}

// A family looks for its breakers by key as long as anybody holds them, and
// forgets what nobody holds.
func TestForgottenBreakersAreFoundAgain(t *testing.T) {
	k, _, _ := newFamily(t, resilience.Config{MaxKeys: 1, FailMax: 2})
	held := k.Get("held")
	require.Same(t, errDown, held.Do(t.Context(), down))
	k.Get("other")
	assert.Same(t, held, k.Get("held"))
	require.Same(t, errDown, k.Do(t.Context(), "held", down))
	assert.Equal(t, resilience.Open, held.State(), "its streak was kept")
}

func TestFamilyForgetsWhatNobodyHolds(t *testing.T) {
	k, _, _ := newFamily(t, resilience.Config{MaxKeys: 1, FailMax: 2})
	_ = k.Do(t.Context(), "lost", down)
	k.Get("other")
	require.Eventually(t, func() bool {
		runtime.GC()
		k.Get("other")
		return k.Get("lost").Snapshot().Calls == 0
	}, time.Minute, time.Millisecond)
}

// A task that was refused was let in again once its breaker had been forgotten.
func TestFaultTaskEscapesThroughAForgottenBreaker(t *testing.T) {
	k, _, clock := newFamily(t, resilience.Config{MaxKeys: 1, FailMax: 1})
	_ = k.Do(t.Context(), "a", down)
	task := resilience.WithTask(t.Context(), "t")
	first := k.Do(task, "a", fine)
	require.ErrorIs(t, first, resilience.ErrOpen)
	clock.Advance(time.Minute)
	require.NoError(t, k.Do(t.Context(), "a", fine))
	for range 3 {
		runtime.GC() // nobody holds it
		require.NoError(t, k.Do(t.Context(), "b", fine))
		assert.Same(t, first, k.Do(resilience.WithTask(task, "nested"), "a", fine))
		require.NoError(t, k.Do(resilience.NewTask(task, "next"), "a", fine))
	}
}

// The same for a breaker that was replaced.
func TestFaultTaskEscapesThroughReplace(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet})
	b := reg.MustRegister("x", resilience.Config{})
	b.Trip("drill")
	task := resilience.WithTask(t.Context(), "t")
	first := b.Do(task, fine)
	require.ErrorIs(t, first, resilience.ErrOpen)
	again, err := reg.Replace("x", resilience.Config{})
	require.NoError(t, err)
	require.NoError(t, again.Do(t.Context(), fine))
	assert.Same(t, first, again.Do(task, fine))
	other := resilience.NewRegistry(resilience.Config{Logger: quiet}).MustRegister("x", resilience.Config{})
	other.Trip("drill")
	other.Reset()
	require.NoError(t, other.Do(task, fine), "a name means nothing in another registry")
}

func TestKeyedAll(t *testing.T) {
	k, reg, _ := newFamily(t, resilience.Config{MaxKeys: 3})
	for _, key := range []string{"c", "a", "b"} {
		k.Get(key)
	}
	var keys []string
	for key, b := range k.All() {
		assert.Same(t, k.Get(key), b)
		k.Delete(key) // does not disturb it
		keys = append(keys, key)
		if key == "b" {
			break
		}
	}
	assert.Equal(t, []string{"a", "b"}, keys)
	assert.Equal(t, []string{"tenant/c"}, names(reg.All()))
	assert.Equal(t, "tenant", k.Get("c").Family())
	for _, key := range []string{"d", "e", "f"} {
		k.Get(key).Trip("to take a place")
	}
	assert.Equal(t, "tenant", k.Get("g").Family(), "the one that keys without room share")
	assert.Empty(t, resilience.LLM.Family())
	assert.False(t, resilience.LLM.Forgotten())
}

func TestKeyedDelete(t *testing.T) {
	k, reg, _ := newFamily(t, resilience.Config{MaxKeys: 2, FailMax: 1})
	assert.False(t, k.Delete("a"))
	held := k.Get("a")
	flight, err := k.Allow(t.Context(), "a")
	require.NoError(t, err)
	held.ForceOpen("gone")
	require.True(t, k.Delete("a"))
	assert.Empty(t, reg.All())
	flight.Done(errDown)
	assert.Equal(t, "stale 1, opened 1", totals(held.Snapshot()), "what was in flight no longer counts")
	require.NoError(t, held.Do(t.Context(), fine), "its holders start from scratch")
	assert.Equal(t, []string{"tenant/a"}, names(reg.All()))
	require.Same(t, errDown, held.Do(t.Context(), down))
	held.Reset()
	p, err := held.Allow(t.Context())
	require.NoError(t, err)
	k.Get("b").Trip("drill")
	k.Get("c").Trip("drill")
	p.Done(nil)
	held.ForceClose("so that there is something to lift")
	require.True(t, k.Delete("a"), "also without a place")
	assert.Empty(t, held.Snapshot().Held)
}

// The places that a family gives are as many as MaxKeys, whatever happens.
func TestFamilyStaysBounded(t *testing.T) {
	const room = 8
	k, reg, _ := newFamily(t, resilience.Config{MaxKeys: room, FailMax: 2, ResetTimeout: time.Hour})
	var group sync.WaitGroup
	for g := range 8 {
		rng := rand.New(rand.NewPCG(uint64(g), 1))
		group.Go(func() {
			var held []*resilience.Breaker
			for range 2000 {
				key := strconv.Itoa(rng.IntN(40))
				switch rng.IntN(8) {
				case 0:
					held = append(held, k.Get(key))
				case 1:
					k.Delete(key)
				case 2:
					_, _ = k.Allow(context.Background(), key) // dropped
				case 3:
					_ = k.Do(context.Background(), key, down)
				default:
					if len(held) > 0 {
						_ = held[rng.IntN(len(held))].Do(context.Background(), fine)
					}
				}
				shared := func(b *resilience.Breaker) bool { return b.Name() == "tenant/(overflow)" }
				if all := slices.DeleteFunc(reg.All(), shared); len(all) > room {
					t.Errorf("%d breakers", len(all))
				}
			}
		})
	}
	group.Wait()
}

// 2^20 windows of 2^20 calls, and other sizes without a bound.
func TestFaultFamilyOfHugeWindows(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{})
	_, err := reg.Keyed("big", resilience.Config{MaxKeys: 1 << 20, Trip: trip.CountWindow{Size: 1 << 20}})
	require.EqualError(t, err, `resilience: breaker "big/(overflow)": MaxKeys 1048576 times a window of 1048576 bytes `+
		`is 1048576 MiB; it must be at most 256 MiB`)
	_, err = reg.Keyed("big", resilience.Config{MaxKeys: 1 << 20, Trip: trip.TimeWindow{Buckets: 4096}})
	require.ErrorContains(t, err, "it must be at most 256 MiB")
	_, err = reg.Keyed("big", resilience.Config{MaxKeys: 1<<20 + 1})
	require.ErrorContains(t, err, "MaxKeys is 1048577; it must be between 0 and 1048576")
	_, err = reg.Keyed("big", resilience.Config{MaxKeys: 256, Trip: trip.CountWindow{Size: 1 << 20}})
	require.NoError(t, err)
}
