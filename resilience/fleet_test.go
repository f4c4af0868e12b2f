package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
	"github.com/penstock-go/penstock/testutil"
)

// process is one of several that share the breaker of one upstream.
type process struct {
	*resilience.Breaker
	store *storetest.Memory // its way to the store
	fleet *resilience.Fleet
	seen  *testutil.Recorder
}

// processes start on hosts of their own, in a bubble of synctest.
func processes(
	t *testing.T, n int, cfg resilience.Config, share resilience.FleetConfig,
) ([]*process, *storetest.Memory) {
	t.Helper()
	store := &storetest.Memory{}
	all := make([]*process, n)
	for i := range all {
		all[i] = newProcess(t, store, fmt.Sprintf("host-%d", i), cfg, share)
	}
	synctest.Wait()
	return all, store
}

func newProcess(
	t *testing.T, store *storetest.Memory, host string, cfg resilience.Config, share resilience.FleetConfig,
) *process {
	t.Helper()
	p := &process{store: store.Client()}
	if share.Origin == "" {
		share.Origin = host
	}
	if share.Logger == nil {
		share.Logger = quiet
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	p.fleet = resilience.NewFleet(p.store, share)
	t.Cleanup(func() { assert.NoError(t, p.fleet.Close()) })
	cfg.Shared = p.fleet
	b, err := resilience.New("llm", cfg)
	require.NoError(t, err)
	p.Breaker, p.seen = b, testutil.Record(t, b)
	return p
}

func (p *process) fails(t *testing.T) {
	t.Helper()
	require.Same(t, errDown, p.Do(t.Context(), down))
}

func (p *process) isRefused(t *testing.T) {
	t.Helper()
	_ = p.refusal(t)
}

func (p *process) refusal(t *testing.T) *resilience.OpenError {
	t.Helper()
	err := p.Do(t.Context(), func(context.Context) error { t.Error("the call was let through"); return nil })
	open, ok := errors.AsType[*resilience.OpenError](err)
	require.True(t, ok, "%v", err)
	return open
}

// settle lets pushes arrive and staggered processes close.
func settle(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func states(all []*process) (s []string) {
	for _, p := range all {
		s = append(s, p.State().String())
	}
	return s
}

func TestFleetTakesFiveFailuresOfAnybodyAndOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 8, resilience.Config{}, resilience.FleetConfig{})
		start := time.Now()
		for i := range 5 {
			all[i].fails(t)
			synctest.Wait()
		}
		for i, p := range all {
			open := p.refusal(t)
			assert.Equal(t, 5, p.Snapshot().Streak, "process %d", i)
			assert.Equal(t, 5, p.seen.Transitions()[0].Failures, "process %d", i)
			assert.WithinDuration(t, start.Add(time.Minute), open.RetryAt(), time.Second, "process %d", i)
			assert.Equal(t, 1, len(p.seen.Transitions()), "process %d", i)
		}
		assert.Equal(t, "host-4", all[0].seen.Transitions()[0].Origin)
		assert.Empty(t, all[4].seen.Transitions()[0].Origin)
		assert.Same(t, errDown, all[4].refusal(t).LastFailure())
		assert.Same(t, errDown, all[0].refusal(t).LastFailure(), "its own failure says more")
		assert.EqualError(t, all[7].refusal(t).LastFailure(), "consecutive failures on several hosts")

		settle(time.Minute + time.Millisecond)
		probing, end := make(chan struct{}), make(chan struct{})
		go func() {
			assert.NoError(t, all[2].Do(t.Context(), func(context.Context) error { close(probing); <-end; return nil }))
		}()
		<-probing
		synctest.Wait()
		for i, p := range all {
			if i != 2 {
				assert.Equal(t, resilience.HalfOpen, p.refusal(t).State(), "process %d", i)
			}
		}
		settle(30 * time.Second) // longer than the lease, which is kept
		for i, p := range all {
			if i != 2 {
				p.isRefused(t)
			}
		}
		close(end)
		synctest.Wait()
		assert.Equal(t, resilience.Closed, all[2].State())
		settle(5 * time.Second)
		for i, p := range all {
			assert.NoError(t, p.Do(t.Context(), fine), "process %d", i)
		}
		t.Log(store.Calls())
	})
}

func TestClosedSuccessAsksNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		before := store.Calls()
		for range 1000 {
			for _, p := range all {
				require.NoError(t, p.Do(t.Context(), fine))
			}
		}
		settle(time.Minute)
		assert.Equal(t, before, store.Calls())
	})
}

func TestSuccessOfAnybodyEndsTheStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		for range 20 {
			for range 4 {
				all[0].fails(t)
				synctest.Wait()
			}
			_, streak, _ := all[1].Streak()
			require.Equal(t, 4, streak)
			require.NoError(t, all[1].Do(t.Context(), fine))
			synctest.Wait()
			_, streak, _ = all[0].Streak()
			require.Equal(t, 4, streak, "its own")
			require.NoError(t, all[0].Do(t.Context(), fine))
			synctest.Wait()
		}
		assert.Equal(t, []string{"closed", "closed"}, states(all))
	})
}

func TestOneBadHostOpensOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		for range 5 {
			all[0].fails(t)
			synctest.Wait()
			require.NoError(t, all[1].Do(t.Context(), fine))
			synctest.Wait()
		}
		assert.Equal(t, []string{"open", "closed", "closed"}, states(all))
		settle(time.Minute)
		all[0].fails(t) // its probe
		assert.Equal(t, []string{"open", "closed", "closed"}, states(all))
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
		for i := range 5 {
			all[i%3].fails(t)
			synctest.Wait()
		}
		assert.Equal(t, []string{"open", "open", "open"}, states(all), "it is of the fleet again")
	})
}

func TestOperatorsHoldTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		all[1].ForceOpen("maintenance")
		synctest.Wait()
		for _, p := range all {
			assert.True(t, p.refusal(t).RetryAt().IsZero())
			assert.Equal(t, "maintenance", p.Snapshot().HeldReason)
		}
		settle(48 * time.Hour)
		all[2].Reset()
		synctest.Wait()
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
		all[0].ForceClose("a test of the breaker")
		synctest.Wait()
		for i := range 15 {
			all[i%3].fails(t)
		}
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
		all[0].Reset()
		all[0].Trip("drill")
		synctest.Wait()
		assert.Equal(t, []string{"open", "open", "open"}, states(all))
	})
}

func TestResetLiftsCredentialStopsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("401")
		all, store := processes(t, 3, resilience.Config{
			StopOnDenied: true,
			Classify: func(_ context.Context, err error) resilience.Verdict {
				if errors.Is(err, denied) {
					return resilience.Verdict{Outcome: resilience.Denied}
				}
				return resilience.Verdict{Outcome: resilience.Failure}
			},
		}, resilience.FleetConfig{})
		assert.Same(t, denied, all[0].Do(t.Context(), func(context.Context) error { return denied }))
		synctest.Wait()
		assert.Equal(t, []string{"open", "closed", "closed"}, states(all), "the key of one process stops only that one")
		for range 5 {
			all[1].fails(t)
		}
		synctest.Wait()
		assert.Equal(t, "denied", all[0].Snapshot().Held)
		all[2].Reset()
		settle(5 * time.Second)
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
		assert.Same(t, denied, all[0].Do(t.Context(), func(context.Context) error { return denied }))
		settle(time.Hour) // the record has expired
		late := newProcess(t, store, "late", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		late.Reset()
		settle(5 * time.Second)
		assert.Empty(t, all[0].Snapshot().Held)
	})
}

func TestStoreThatHangsDelaysOneFailureAndNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		store.Freeze()
		start := time.Now()
		require.NoError(t, all[0].Do(t.Context(), fine))
		assert.Zero(t, time.Since(start))
		all[0].fails(t)
		assert.LessOrEqual(t, time.Since(start), 150*time.Millisecond)
		start = time.Now()
		for range 4 {
			all[0].fails(t)
		}
		assert.Zero(t, time.Since(start), "no call waits again")
		all[0].isRefused(t)
		assert.Equal(t, resilience.Closed, all[1].State())
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine), "its own probe")
		store.Thaw()
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		synctest.Wait()
		for i := range 5 {
			all[i%2].fails(t)
			synctest.Wait()
		}
		assert.Equal(t, []string{"open", "open"}, states(all), "they share again")
	})
}

func TestFlushWhileOpenClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		for range 5 {
			all[0].fails(t)
		}
		synctest.Wait()
		store.Flush()
		settle(10 * time.Second)
		assert.Equal(t, []string{"open", "open", "open"}, states(all))
		late := newProcess(t, store, "late", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		late.isRefused(t)
		settle(50 * time.Second)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(10 * time.Second)
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
	})
}

func TestProbeOfADeadProcessGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logged := resilience.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		all, _ := processes(t, 2, logged, resilience.FleetConfig{})
		for range 5 {
			all[0].fails(t)
		}
		settle(time.Minute)
		probe, err := all[0].Allow(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		all[0].store.Freeze() // as if it were stopped
		all[1].isRefused(t)
		settle(11 * time.Second)
		require.NoError(t, all[1].Do(t.Context(), fine), "the slot is free, without a failure")
		synctest.Wait()
		assert.Regexp(t, `(?m)^[^\n]*level=WARN msg="a probe of a shared circuit breaker ended without a result; `+
			`another begins" upstream=llm process=host-0/`, out.String())
		all[0].store.Thaw()
		settle(30 * time.Second)
		probe.Done(errDown)
		synctest.Wait()
		assert.Equal(t, []string{"closed", "closed"}, states(all), "what the stopped process found out is late")
	})
}

func TestFirstCallWaitsForTheStoresFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		for range 5 {
			all[0].fails(t)
		}
		late := newProcess(t, store, "late", resilience.Config{}, resilience.FleetConfig{})
		late.isRefused(t)

		store.Freeze()
		alone := newProcess(t, store, "alone", resilience.Config{}, resilience.FleetConfig{})
		start := time.Now()
		require.NoError(t, alone.Do(t.Context(), fine))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		require.NoError(t, alone.Do(t.Context(), fine))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

func TestUnreadableRecordIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logged := resilience.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		store := &storetest.Memory{}
		_, err := store.Swap(t.Context(), "1/llm", 0, []byte(`{"state":"ajar"}`), 0)
		require.NoError(t, err)
		p := newProcess(t, store, "host", logged, resilience.FleetConfig{})
		synctest.Wait()
		for range 5 {
			p.fails(t)
		}
		p.isRefused(t)
		p.ForceOpen("maintenance")
		assert.Equal(t, `{"state":"ajar"}`, string(store.Records()["1/llm"].Value))
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(out.String(), "level=ERROR"), out.String())
		assert.Regexp(t, "until the breaker is reset or the record is removed.* key=1/llm ", out.String())
		assert.Contains(t, out.String(), `because="the record cannot be read"`)

		other := newProcess(t, store, "other", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		p.Reset()
		require.NoError(t, p.Do(t.Context(), fine))
		synctest.Wait() // the other one follows
		openBy(t, other)
		synctest.Wait()
		p.isRefused(t)
		assert.False(t, p.Snapshot().Alone)
	})
}

// What cannot be a standing is not followed.
func TestRecordsThatCannotBe(t *testing.T) {
	for name, value := range map[string]string{
		"too large":     `{"state":"closed","reason":"` + strings.Repeat("a", 1<<20) + `"}`,
		"unknown hold":  `{"state":"open","held":"maybe"}`,
		"bad streak":    `{"state":"closed","streak":-1}`,
		"bad probes":    `{"state":"open","failed_probes":-1}`,
		"no generation": `{"state":"open","generation":8796093022207}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &storetest.Memory{}
				_, err := store.Swap(t.Context(), "1/llm", 0, []byte(value), 0)
				require.NoError(t, err)
				p := newProcess(t, store, "host", resilience.Config{}, resilience.FleetConfig{})
				synctest.Wait()
				assert.True(t, p.Snapshot().Alone)
				require.NoError(t, p.Do(t.Context(), fine))
			})
		})
	}
}

// A record that an operator removes is one that can be read again.
func TestRemovedRecordIsFollowedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{Traces: true}
		broken, err := store.Swap(t.Context(), "1/llm", 0, []byte("{"), 0)
		require.NoError(t, err)
		p := newProcess(t, store, "host", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		assert.True(t, p.Snapshot().Alone)
		_, err = store.Swap(t.Context(), "1/llm", broken.Version, nil, 0)
		require.NoError(t, err)
		synctest.Wait()
		assert.False(t, p.Snapshot().Alone)
		p.fails(t)
		assert.Contains(t, string(store.Records()["1/llm"].Value), "streak")
	})
}

// BenchmarkFleetClosedSuccess is a success of a closed breaker: shared and of
// its own.
func BenchmarkFleetClosedSuccess(b *testing.B) {
	fleet := resilience.NewFleet(&storetest.Memory{}, resilience.FleetConfig{Logger: quiet})
	b.Cleanup(func() { assert.NoError(b, fleet.Close()) })
	for _, kind := range []struct {
		name   string
		shared *resilience.Fleet
	}{{"solo", nil}, {"shared", fleet}} {
		breaker, err := resilience.New("llm", resilience.Config{Shared: kind.shared, Logger: quiet})
		require.NoError(b, err)
		require.NoError(b, breaker.Do(b.Context(), fine))
		b.Run(kind.name, func(b *testing.B) {
			ctx := b.Context()
			for b.Loop() {
				_ = breaker.Do(ctx, fine)
			}
		})
	}
}
