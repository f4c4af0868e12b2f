package resilience_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

func names(all []*resilience.Breaker) (n []string) {
	for _, b := range all {
		n = append(n, b.Name())
	}
	return n
}

func TestSingletons(t *testing.T) {
	assert.Equal(t, []string{"llm", "milvus", "s3"}, names(resilience.Default.All()))
	for _, b := range []*resilience.Breaker{resilience.Milvus, resilience.S3, resilience.LLM} {
		found, ok := resilience.Default.Get(b.Name())
		assert.True(t, ok)
		assert.Same(t, b, found)
		assert.Equal(t, 5, b.Config().FailMax)
		assert.Equal(t, time.Minute, b.Config().ResetTimeout)
	}
}

// Rule 32: a program may have another policy than the one registered.
func TestRule32Replace(t *testing.T) {
	r := resilience.NewRegistry(resilience.Config{FailMax: 3, Logger: quiet})
	before := r.MustRegister("llm", resilience.Config{})
	after, err := r.Replace("llm", resilience.Config{ResetTimeout: time.Second})
	require.NoError(t, err)
	assert.NotSame(t, before, after)
	assert.Equal(t, 3, after.Config().FailMax, "what is not given is the registry's default")
	found, _ := r.Get("llm")
	assert.Same(t, after, found)
	assert.Equal(t, []*resilience.Breaker{after}, r.All())

	_, err = r.Replace("other", resilience.Config{})
	assert.ErrorContains(t, err, `no breaker "other"`)
	_, err = r.Replace("llm", resilience.Config{ResetTimeout: -1})
	assert.ErrorContains(t, err, "ResetTimeout")
}

// Rule 32: own defaults, overrides by name.
func TestRule32RegistryDefaultsAndOverrides(t *testing.T) {
	clock := testutil.NewClock()
	defaults := resilience.Config{
		FailMax: 7, ResetTimeout: 30 * time.Second, ProbeTimeout: time.Second, CallTimeout: 2 * time.Second,
		MaxThrottle: time.Hour, MaxProbes: 2, SuccessThreshold: 3, OpenOnThrottle: true, StopOnDenied: true,
		Trip: trip.Consecutive{}, Probe: fine, Clock: clock, Logger: quiet, MaxKeys: 9,
		Classify:     func(context.Context, error) resilience.Verdict { return resilience.Verdict{} },
		OnTransition: func(resilience.Transition) {},
	}
	r := resilience.NewRegistry(defaults)
	plain := r.MustRegister("plain", resilience.Config{}).Config()
	assert.NotNil(t, plain.Classify)
	assert.NotNil(t, plain.Probe)
	assert.NotNil(t, plain.OnTransition)
	want := defaults
	want.Classify, want.Probe, want.OnTransition = nil, nil, nil
	want.MaxKeys = 0 // for families
	plain.Classify, plain.Probe, plain.OnTransition = nil, nil, nil
	assert.Equal(t, want, plain)
	own := r.MustRegister("own", resilience.Config{ResetTimeout: time.Minute, Trip: trip.CountWindow{}}).Config()
	assert.Equal(t, time.Minute, own.ResetTimeout)
	assert.Equal(t, 2, own.MaxProbes)
	assert.Zero(t, own.FailMax)
}

// Rule 32.
func TestRule32RegistryNames(t *testing.T) {
	r := resilience.NewRegistry(resilience.Config{Logger: quiet})
	b := r.MustRegister("b", resilience.Config{})
	r.MustRegister("a", resilience.Config{})
	found, ok := r.Get("b")
	assert.True(t, ok)
	assert.Same(t, b, found)
	_, ok = r.Get("c")
	assert.False(t, ok)
	_, err := r.Register("b", resilience.Config{})
	require.EqualError(t, err, `resilience: breaker "b" is registered already`)
	_, err = r.Register("c", resilience.Config{FailMax: -1})
	require.EqualError(t, err, `resilience: breaker "c": FailMax is -1; it must be between 1 and 65535`)
	assert.Panics(t, func() { r.MustRegister("b", resilience.Config{}) })
	k, err := r.Keyed("tenant", resilience.Config{})
	require.NoError(t, err)
	k.Get("x")
	assert.Equal(t, []string{"a", "b", "tenant/x"}, names(r.All()))
	_, err = r.Keyed("tenant", resilience.Config{})
	require.EqualError(t, err, `resilience: breakers keyed "tenant" are registered already`)
	_, err = r.Keyed("other", resilience.Config{MaxKeys: -1})
	require.ErrorContains(t, err, "MaxKeys")
}

// Rule 32: bounded, and it forgets closed and idle breakers only.
func TestRule32KeyedEvictsIdleBreakersOnly(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet, FailMax: 2})
	k, err := reg.Keyed("tenant", resilience.Config{MaxKeys: 4})
	require.NoError(t, err)
	ctx := t.Context()
	open, streak, busy, idle := k.Get("open"), k.Get("streak"), k.Get("busy"), k.Get("idle")
	open.Trip("drill")
	_ = streak.Do(ctx, down)
	p, err := busy.Allow(ctx)
	require.NoError(t, err)
	require.NoError(t, idle.Do(ctx, fine))

	next := k.Get("next") // in the place of idle, though the others were used longer ago
	assert.Equal(t, []string{"tenant/busy", "tenant/next", "tenant/open", "tenant/streak"}, names(reg.All()))
	next.ForceClose("hand")
	streak.Trip("drill")
	shared := k.Get("one too many")
	assert.Equal(t, "tenant/(overflow)", shared.Name())
	assert.Same(t, shared, k.Get("another"))
	assert.Len(t, reg.All(), 4, "an overflow that nobody called is not shown")
	require.NoError(t, shared.Do(ctx, fine))
	assert.Len(t, reg.All(), 5)
	assert.Same(t, open, k.Get("open"))

	p.Done(nil)
	assert.Equal(t, "tenant/another", k.Get("another").Name(), "busy made room")
	assert.Same(t, idle, k.Get("idle"), "a forgotten breaker that is held stays the one of its key")
}

// Rule 32: the order of eviction is that of the last use.
func TestRule32KeyedEvictsTheLeastRecentlyUsed(t *testing.T) {
	k, err := resilience.NewRegistry(resilience.Config{}).Keyed("k", resilience.Config{MaxKeys: 2})
	require.NoError(t, err)
	a := k.Get("a")
	k.Get("b")
	k.Get("a")
	k.Get("c")
	assert.Same(t, a, k.Get("a"))
}

// Rule 32: ten thousand keys cost no more than the bound.
func TestRule32KeyedStaysBounded(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet})
	k, err := reg.Keyed("k", resilience.Config{MaxKeys: 16, FailMax: 1})
	require.NoError(t, err)
	for i := range 10_000 {
		b := k.Get(strconv.Itoa(i))
		if i%3 == 0 {
			_ = b.Do(t.Context(), down)
		}
	}
	assert.Len(t, reg.All(), 17)
}

// Rule 32: names that metrics and logs can carry, whatever the key.
func TestRule32KeyedNames(t *testing.T) {
	k, err := resilience.NewRegistry(resilience.Config{}).Keyed("k", resilience.Config{})
	require.NoError(t, err)
	long := strings.Repeat("é", 100)
	for key, want := range map[string]string{
		"acme":        "k/acme",
		"a\nb\xffc":   "k/a_b_c~02054f100410037e",
		"":            "k/",
		long:          "k/" + strings.Repeat("é", 54) + "~f42ec48e1e4b487e",
		long + "more": "k/" + strings.Repeat("é", 54) + "~c88fdc78a8ea8fa9",
	} {
		assert.Equal(t, want, k.Get(key).Name())
	}
	assert.NotSame(t, k.Get(long), k.Get(long+"more"))
	assert.NotEqual(t, k.Get(long).Name(), k.Get(long+"more").Name())
}

// BenchmarkKeyedFull is a new key in a family of 20,000 that is full.
func BenchmarkKeyedFull(b *testing.B) {
	fill := map[string]func(*resilience.Breaker) *resilience.Permit{
		"open":   func(m *resilience.Breaker) *resilience.Permit { m.Trip("bench"); return nil },
		"streak": func(m *resilience.Breaker) *resilience.Permit { _ = m.Do(b.Context(), down); return nil },
		"busy":   func(m *resilience.Breaker) *resilience.Permit { p, _ := m.Allow(b.Context()); return p },
	}
	for name, with := range fill {
		b.Run(name, func(b *testing.B) {
			k, err := resilience.NewRegistry(resilience.Config{Logger: quiet}).
				Keyed("k", resilience.Config{MaxKeys: 20_000})
			require.NoError(b, err)
			held := make([]*resilience.Permit, 20_000)
			for i := range held {
				held[i] = with(k.Get(fmt.Sprint("member", i)))
			}
			n := 0
			for b.Loop() {
				n++
				k.Get(strconv.Itoa(n))
			}
			runtime.KeepAlive(held)
		})
	}
}
