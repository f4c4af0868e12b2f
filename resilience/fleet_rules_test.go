package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/penstock-go/penstock/resilience/trip"
)

// openBy opens the fleet by failures of one process.
func openBy(t *testing.T, p *process) {
	t.Helper()
	for range 5 {
		p.fails(t)
	}
	synctest.Wait()
}

// A host whose calls alone fail opens the fleet once. When the probe of another
// host has shown that the upstream works, it opens only itself, until one of
// its own calls succeeds.
func TestRefutedHostOpensOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "open", "open"}, states(all))
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(5 * time.Second)
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "closed", "closed"}, states(all))
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
		synctest.Wait()
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "open", "open"}, states(all))
	})
}

// A success that finds no streak still ends the suspicion.
func TestSuccessEndsASuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(5 * time.Second)
		require.NoError(t, all[0].Do(t.Context(), fine))
		synctest.Wait()
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "open"}, states(all))
	})
}

// What two hosts have seen is not one bad host.
func TestStreakOfSeveralHostsIsNotRefuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		for i := range 5 {
			all[i%2].fails(t)
			synctest.Wait()
		}
		settle(time.Minute)
		require.NoError(t, all[2].Do(t.Context(), fine))
		settle(5 * time.Second)
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "open", "open"}, states(all))
	})
}

// A host whose probes fail does not win every lease.
func TestOriginOfAFailedProbeWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		for i := range 5 {
			all[i%2].fails(t)
			synctest.Wait()
		}
		settle(time.Minute)
		all[0].fails(t) // the probe
		settle(time.Minute)
		all[0].isRefused(t)
		require.NoError(t, all[1].Do(t.Context(), fine))
	})
	synctest.Test(t, func(t *testing.T) { // a fleet of one host has nobody to wait for
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{Origin: "host"})
		openBy(t, all[0])
		settle(time.Minute)
		all[0].fails(t)
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
	})
}

// A probe that hangs in a process that lives fails at ProbeTimeout, as it does
// without a fleet, though nobody calls.
func TestHungProbeOfALiveProcessFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := resilience.Config{ProbeTimeout: 30 * time.Second}
		all, _ := processes(t, 2, cfg, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		probe, err := all[0].Allow(t.Context())
		require.NoError(t, err)
		settle(29 * time.Second)
		assert.Equal(t, resilience.HalfOpen, all[1].refusal(t).State())
		settle(5 * time.Second)
		assert.Equal(t, []string{"open", "open"}, states(all))
		probe.Done(nil)
		synctest.Wait()
		assert.Equal(t, []string{"open", "open"}, states(all))
	})
}

// A stream that lives is not a hung probe.
func TestRenewedProbeKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{ProbeTimeout: 20 * time.Second}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		probe, err := all[0].Allow(t.Context())
		require.NoError(t, err)
		for range 20 {
			settle(15 * time.Second)
			probe.Renew()
			all[1].isRefused(t)
		}
		probe.Done(nil)
		settle(5 * time.Second)
		assert.Equal(t, []string{"closed", "closed"}, states(all))
	})
}

// Processes close one after the other, in open and in half-open alike, so that
// they do not all return to the upstream in one moment.
func TestClosingIsStaggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 40, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		synctest.Wait()
		assert.Less(t, closed(all), 5)
		settle(2500 * time.Millisecond)
		half := closed(all)
		assert.True(t, half > 5 && half < 35, "%d of 40 are closed after half of the time", half)
		settle(2500 * time.Millisecond)
		assert.Equal(t, 40, closed(all))
	})
}

func closed(all []*process) (n int) {
	for _, p := range all {
		if p.State() == resilience.Closed {
			n++
		}
	}
	return n
}

// What a process opened by itself while the store was lost is not imposed on
// the fleet, and not forgotten either.
func TestOwnOpeningOutlivesTheReturnOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		all[0].store.Down(errors.New("connection refused"))
		openBy(t, all[0])
		all[0].store.Up()
		settle(10 * time.Second)
		assert.Equal(t, []string{"open", "closed", "closed"}, states(all))
		assert.True(t, all[0].Snapshot().Alone)
		settle(50 * time.Second)
		require.NoError(t, all[0].Do(t.Context(), fine), "its own probe")
		assert.False(t, all[0].Snapshot().Alone)
	})
	synctest.Test(t, func(t *testing.T) { // somebody has opened and closed it since
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		all[0].store.Down(errors.New("connection refused"))
		openBy(t, all[0])
		openBy(t, all[1])
		all[2].Reset()
		settle(5 * time.Second)
		all[0].store.Up()
		settle(11 * time.Second)
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
	})
}

// A store that comes and goes dooms no more calls than one that never was.
func TestStoreThatComesAndGoesDoomsNoMore(t *testing.T) {
	doomed := func(shared bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			all, store := processes(t, 8, resilience.Config{}, resilience.FleetConfig{})
			if !shared {
				store.Down(errors.New("connection refused"))
			}
			go func() {
				for range 1200 {
					time.Sleep(250 * time.Millisecond)
					store.Down(errors.New("connection refused"))
					time.Sleep(250 * time.Millisecond)
					if shared {
						store.Up()
					}
				}
			}()
			for range 6000 {
				time.Sleep(100 * time.Millisecond)
				for _, p := range all {
					_ = p.Do(t.Context(), func(context.Context) error { n++; return errDown })
				}
			}
		})
		return n
	}
	solo, fleet := doomed(false), doomed(true)
	t.Logf("of 48,000 calls in ten minutes, 8 processes doomed %d with such a store and %d without one", fleet, solo)
	assert.LessOrEqual(t, fleet, solo)
}

// A push that is lost is made up for by asking.
func TestLostPushIsFoundByAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		store.HoldPushes()
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
		settle(11 * time.Second)
		assert.Equal(t, []string{"closed", "closed"}, states(all))
	})
	synctest.Test(t, func(t *testing.T) { // of an opening: the first failure tells
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		store.HoldPushes()
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "closed"}, states(all))
		all[1].fails(t)
		assert.Equal(t, []string{"open", "open"}, states(all))
	})
}

// Processes with other policies follow each other, and say so.
func TestRollingChangeOfPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		old := newProcess(t, store, "old", resilience.Config{}, resilience.FleetConfig{})
		renewed := newProcess(t, store, "new",
			resilience.Config{FailMax: 3, ResetTimeout: 20 * time.Second}, resilience.FleetConfig{})
		synctest.Wait()
		start := time.Now()
		for range 3 {
			renewed.fails(t)
		}
		synctest.Wait()
		assert.WithinDuration(t, start.Add(20*time.Second), old.refusal(t).RetryAt(), time.Second,
			"the opener's deadline")
		settle(20 * time.Second)
		old.fails(t)
		synctest.Wait()
		assert.WithinDuration(t, time.Now().Add(time.Minute), renewed.refusal(t).RetryAt(), time.Second)
		settle(time.Minute)
		require.NoError(t, renewed.Do(t.Context(), fine))
		settle(5 * time.Second)
		for range 3 {
			old.fails(t)
		}
		assert.Equal(t, resilience.Closed, old.State())
		renewed.fails(t)
		synctest.Wait()
		assert.Equal(t, resilience.Open, old.State())
	})
}

// Another server behind the same name is another breaker.
func TestAddressesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		all[0].Locate("http://one.example/v1")
		all[1].Locate("http://two.example/v1")
		all[2].Locate("http://one.example/v1")
		synctest.Wait()
		openBy(t, all[0])
		assert.Equal(t, []string{"open", "closed", "open"}, states(all))
	})
}

// Records are forgotten once they are useless: not before the deadline of an
// open breaker, and an operator's hold never.
func TestRecordsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		require.Len(t, store.Records(), 1)
		require.NoError(t, all[0].Do(t.Context(), fine))
		settle(3 * time.Minute)
		assert.Empty(t, store.Records())
		all[0].ForceOpen("maintenance")
		settle(100 * 24 * time.Hour)
		assert.Len(t, store.Records(), 1)
	})
}

// A breaker that nobody has called for an hour is due, not closed.
func TestOpenBreakerThatNobodyCallsIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Hour)
		all[1].fails(t)
		synctest.Wait()
		all[0].isRefused(t)
		all[1].isRefused(t)
	})
}

// The first of several windows that breaks its rule opens for all.
func TestWindowStaysLocalAndItsOpeningIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, windowConfig(), resilience.FleetConfig{})
		before := store.Calls()
		for range 5 {
			require.NoError(t, all[0].Do(t.Context(), fine))
			require.NoError(t, all[1].Do(t.Context(), fine))
			all[0].fails(t)
		}
		synctest.Wait()
		after := store.Calls()
		assert.Equal(t, 1, after.Swaps-before.Swaps, "the opening")
		assert.Equal(t, []string{"open", "open"}, states(all))
		assert.Equal(t, "failure rate", all[1].refusal(t).Reason())
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(5 * time.Second)
		assert.Equal(t, []string{"closed", "closed"}, states(all))
		assert.Zero(t, all[0].Snapshot().WindowFailures)
	})
}

// 10,000 keys cost a healthy fleet nothing, and their openings are shared.
func TestKeyedBreakersOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 10_000
		store := &storetest.Memory{}
		var families []*resilience.Keyed
		for i := range 2 {
			fleet := resilience.NewFleet(store.Client(), resilience.FleetConfig{
				Origin: fmt.Sprint("host-", i), Logger: quiet,
			})
			t.Cleanup(func() { assert.NoError(t, fleet.Close()) })
			registry := resilience.NewRegistry(resilience.Config{Logger: quiet})
			registry.Join(fleet)
			family, err := registry.Keyed("partner", resilience.Config{MaxKeys: keys})
			require.NoError(t, err)
			families = append(families, family)
		}
		synctest.Wait()
		before := store.Calls()
		for key := range keys {
			for _, family := range families {
				require.NoError(t, family.Do(t.Context(), strconv.Itoa(key), fine))
			}
		}
		assert.Equal(t, before, store.Calls())
		for key := range 100 {
			for range 5 {
				require.Same(t, errDown, families[key%2].Do(t.Context(), strconv.Itoa(key), down))
			}
		}
		synctest.Wait()
		for key := range 100 {
			require.ErrorIs(t, families[0].Do(t.Context(), strconv.Itoa(key), fine), resilience.ErrOpen)
			require.ErrorIs(t, families[1].Do(t.Context(), strconv.Itoa(key), fine), resilience.ErrOpen)
		}
		// One that is forgotten here, and not there, is not a closed one here.
		late := resilience.NewRegistry(resilience.Config{Logger: quiet})
		fleet := resilience.NewFleet(store.Client(), resilience.FleetConfig{Origin: "late", Logger: quiet})
		defer fleet.Close()
		synctest.Wait()
		late.Join(fleet)
		family, err := late.Keyed("partner", resilience.Config{})
		require.NoError(t, err)
		require.ErrorIs(t, family.Do(t.Context(), "42", fine), resilience.ErrOpen)
	})
}

// A hundred processes with one call that fails each second write each failure
// once, and once more on average for the writes of others that they meet.
func TestHundredProcessesWithAFailureEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 100, resilience.Config{FailMax: 65535}, resilience.FleetConfig{})
		before := store.Calls()
		for range 10 {
			for _, p := range all {
				go func() {
					time.Sleep(rand.N(time.Second))
					_ = p.Do(context.Background(), down)
				}()
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		after := store.Calls()
		swaps, conflicts := after.Swaps-before.Swaps, after.Conflicts-before.Conflicts
		t.Logf("1,000 failures in 10 s: %d writes, %d of them met another version, %d pushes, %d loads",
			swaps, conflicts, after.Pushes-before.Pushes, after.Loads-before.Loads)
		assert.LessOrEqual(t, swaps, 2000)
		assert.LessOrEqual(t, after.Loads-before.Loads, 0)
	})
}

// The record can be read by people, and holds no text of an error.
func TestRecordHoldsNoErrorText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		for range 5 {
			_ = all[0].Do(t.Context(), func(context.Context) error { return errors.New("secret=hunter2 was refused") })
		}
		synctest.Wait()
		value := store.Records()["1/llm"].Value
		assert.NotContains(t, string(value), "hunter2")
		var fields map[string]any
		require.NoError(t, json.Unmarshal(value, &fields))
		assert.Equal(t, "open", fields["state"])
		assert.Equal(t, "host-0", fields["origin"])
		assert.Equal(t, "consecutive failures", fields["reason"])
	})
}

func windowConfig() resilience.Config {
	return resilience.Config{Trip: trip.CountWindow{Size: 10, MinCalls: 10, FailureRate: 0.5}}
}

// A probe that failed while the store was lost is told when it is back: the
// later deadline holds.
func TestFailedProbeIsToldOnReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		all[0].store.Down(errors.New("connection refused"))
		settle(time.Minute)
		all[0].fails(t) // its probe, alone
		failed := time.Now()
		all[0].store.Up()
		settle(10 * time.Second)
		assert.WithinDuration(t, failed.Add(time.Minute), all[0].refusal(t).RetryAt(), time.Second)
		assert.WithinDuration(t, failed.Add(time.Minute), all[1].refusal(t).RetryAt(), time.Second)
	})
}

// With the store away an operator acts on one process.
func TestOperatorActsHereWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logged := resilience.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		all, store := processes(t, 2, logged, resilience.FleetConfig{})
		store.Down(errors.New("connection refused"))
		synctest.Wait()
		all[0].ForceOpen("maintenance")
		assert.Equal(t, 1, strings.Count(out.String(), "applies to this process only"), out.String())
		assert.Equal(t, []string{"open", "closed"}, states(all))
		store.Up()
		settle(10 * time.Second)
		assert.Equal(t, []string{"open", "closed"}, states(all), "it is not imposed on others")
		all[1].Reset()
		settle(5 * time.Second)
		assert.Equal(t, []string{"closed", "closed"}, states(all))
		assert.Equal(t, 1, strings.Count(out.String(), "applies to this process only"), "that one concerns all")

		store.Freeze() // and the act waits for an answer
		all[1].ForceOpen("maintenance")
		assert.Equal(t, []string{"closed", "open"}, states(all))
		assert.Equal(t, 2, strings.Count(out.String(), "applies to this process only"))
		store.Thaw()
	})
}

// A process that follows does not warn of what the opener has warned of.
func TestFollowersLogAtInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		logged := resilience.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		all, _ := processes(t, 3, logged, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Second)
		require.Equal(t, []string{"open", "open", "open"}, states(all))
		changed := `msg="circuit breaker changed state"`
		assert.Equal(t, 1, strings.Count(out.String(), "level=WARN "+changed), out.String())
		assert.Equal(t, 2, strings.Count(out.String(), "level=INFO "+changed), out.String())
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(5 * time.Second)
		require.Equal(t, []string{"closed", "closed", "closed"}, states(all))
		assert.Equal(t, 4, strings.Count(out.String(), "level=WARN "+changed), out.String())
		assert.Equal(t, 2, strings.Count(out.String(), "level=WARN "+changed+" upstream=llm old_state=half_open"),
			"by the one that closed it, and by the one that has warned of the opening: %s", out.String())
	})
}

// Who opened the breaker is told until it is closed, whichever process has
// probed since, and what the upstream said to this one is not forgotten for it.
func TestOpenerOutlivesTheProbesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		all[1].fails(t)
		settle(time.Second)
		late := newProcess(t, store, "late", resilience.Config{}, resilience.FleetConfig{})
		synctest.Wait()
		for i, p := range append(all, late) {
			assert.Equal(t, "host-0", p.Snapshot().Origin)
			assert.Equal(t, i != 0, p.Snapshot().Elsewhere)
		}
		assert.Same(t, errDown, all[0].refusal(t).LastFailure())
		assert.Empty(t, all[0].refusal(t).Origin())
		for _, p := range []*process{all[2], late} {
			assert.EqualError(t, p.refusal(t).LastFailure(), "probe failed on host-1")
			assert.Equal(t, "host-0", p.refusal(t).Origin())
		}
		settle(time.Minute + 2*time.Second)
		require.NoError(t, all[2].Do(t.Context(), fine))
		settle(5 * time.Second)
		for _, p := range append(all, late) {
			assert.Empty(t, p.Snapshot().Origin)
			assert.False(t, p.Snapshot().Elsewhere)
		}
		record := string(store.Records()["1/llm"].Value)
		assert.NotContains(t, record, "reason")
		assert.NotContains(t, record, "origin")
	})
}

// While a process waits for its part of the stagger, its refusals say so.
func TestRefusalsOfABreakerThatIsAboutToClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
		synctest.Wait()
		assert.Regexp(t, `^circuit breaker closing for "llm", failing fast; the probe was good, calls are admitted in \d`,
			all[1].refusal(t).Error())
		settle(5 * time.Second)
		openBy(t, all[0])
		synctest.Wait()
		assert.Regexp(t, `^circuit breaker open for "llm"`, all[1].refusal(t).Error())
	})
}

// Each process tells its observers of each move once.
func TestMovesAreToldOnceInEachProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		all[1].fails(t)
		settle(time.Minute + 2*time.Second)
		require.NoError(t, all[2].Do(t.Context(), fine))
		settle(5 * time.Second)
		for i, p := range all {
			var moves, origins []string
			for _, move := range p.seen.Transitions() {
				moves = append(moves, move.To.String())
				origins = append(origins, move.Origin)
			}
			want := []string{"host-0", "host-1", "host-1", "host-2", "host-2"}
			for j := range want {
				if want[j] == fmt.Sprint("host-", i) {
					want[j] = ""
				}
			}
			assert.Equal(t, []string{"open", "half_open", "open", "half_open", "closed"}, moves)
			assert.Equal(t, want, origins)
		}
	})
}

// A store whose clock steps back prolongs no wait beyond the one that was
// drawn, and one that steps forward ends it.
func TestStoresClockSteps(t *testing.T) {
	for name, step := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var offset atomic.Int64
				store := &storetest.Memory{
					Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
				}
				one := newProcess(t, store, "one", resilience.Config{}, resilience.FleetConfig{})
				two := newProcess(t, store, "two", resilience.Config{}, resilience.FleetConfig{})
				synctest.Wait()
				openBy(t, one)
				offset.Store(int64(step))
				settle(time.Minute + 10*time.Second)
				require.NoError(t, two.Do(t.Context(), fine))
			})
		})
	}
}

// drifting is a clock that loses or gains so many hundredths of its time.
type drifting struct {
	since      time.Time
	hundredths time.Duration
}

func (d drifting) Now() time.Time {
	return d.since.Add(time.Since(d.since) * (100 + d.hundredths) / 100)
}

// What a process knows of the store's clock grows old with the last answer. It
// learns the deadline of an opening by its next question, and rewrites nothing.
func TestClockOfAProcessDrifts(t *testing.T) {
	for _, hundredths := range []time.Duration{-1, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := &storetest.Memory{}
			clock := drifting{time.Now(), hundredths}
			one := newProcess(t, store, "one", resilience.Config{}, resilience.FleetConfig{})
			two := newProcess(t, store, "two", resilience.Config{Clock: clock}, resilience.FleetConfig{Clock: clock})
			settle(time.Hour)
			openBy(t, one)
			written := string(store.Records()["1/llm"].Value)
			settle(20 * time.Second)
			assert.Equal(t, written, string(store.Records()["1/llm"].Value))
			wait := time.Until(one.refusal(t).RetryAt())
			assert.Equal(t, 40*time.Second, wait)
			assert.InDelta(t, wait, two.refusal(t).RetryAt().Sub(clock.Now()), float64(100*time.Millisecond))
		})
	}
}

// Processes that follow one another remember nothing but the record. A clock
// of the store that has stepped back keeps none of them out for longer than the
// wait, the pause or the lease that was written.
func TestStoresClockStepsBackBetweenProcesses(t *testing.T) {
	for name, row := range map[string]struct {
		cfg   resilience.Config
		leave func(*testing.T, *process)
		most  time.Duration
	}{
		"wait": {leave: openBy, most: time.Minute},
		"pause": {
			cfg: resilience.Config{OpenOnThrottle: true, MaxThrottle: 3 * time.Minute},
			leave: func(t *testing.T, p *process) {
				call, err := p.Allow(t.Context())
				require.NoError(t, err)
				call.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 3 * time.Minute})
			},
			most: 3 * time.Minute,
		},
		"lease": {
			leave: func(t *testing.T, p *process) {
				openBy(t, p)
				settle(time.Minute)
				_, err := p.Allow(t.Context()) // and dies
				require.NoError(t, err)
			},
			most: 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var offset atomic.Int64
				store := &storetest.Memory{
					Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
				}
				first := newProcess(t, store, "first", row.cfg, resilience.FleetConfig{})
				settle(time.Second)
				row.leave(t, first)
				require.NoError(t, first.fleet.Close())
				offset.Store(int64(-time.Hour))
				most := row.most + 5*time.Second // they come each five
				for start := time.Now(); ; settle(5 * time.Second) {
					next := newProcess(t, store, "next", row.cfg, resilience.FleetConfig{})
					err := next.Do(t.Context(), fine)
					require.NoError(t, next.fleet.Close())
					if err == nil {
						break
					}
					require.Less(t, time.Since(start), most, "%v", err)
				}
			})
		})
	}
}

// A process that ends after its last success tells the fleet of it.
func TestLastSuccessIsWrittenAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 1, resilience.Config{}, resilience.FleetConfig{})
		all[0].fails(t)
		require.Contains(t, string(store.Records()["1/llm"].Value), "streak")
		require.NoError(t, all[0].Do(t.Context(), fine))
		require.NoError(t, all[0].fleet.Close())
		assert.NotContains(t, string(store.Records()["1/llm"].Value), "streak")
	})
}

// A process with another policy is named once in the log.
func TestOtherPolicyIsNamedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked
		store := &storetest.Memory{}
		logged := resilience.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		one := newProcess(t, store, "one", logged, resilience.FleetConfig{})
		two := newProcess(t, store, "two", resilience.Config{FailMax: 3}, resilience.FleetConfig{})
		synctest.Wait()
		for range 2 {
			two.fails(t)
			synctest.Wait()
			require.NoError(t, two.Do(t.Context(), fine))
			synctest.Wait()
		}
		assert.Equal(t, 1, strings.Count(out.String(), "another policy"), out.String())
		assert.Contains(t, out.String(), "origin=two")
		require.NoError(t, one.Do(t.Context(), fine))
	})
}

// The wait is drawn once, at the opening: all processes wait for the same
// instant.
func TestJitterIsDrawnOnceForTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{Jitter: 6 * time.Second}, resilience.FleetConfig{})
		seen := map[time.Duration]bool{}
		for range 20 {
			start := time.Now()
			openBy(t, all[0])
			at := all[0].refusal(t).RetryAt()
			wait := at.Sub(start)
			assert.True(t, wait >= time.Minute && wait <= 66*time.Second, "%v", wait)
			seen[wait] = true
			for _, p := range all {
				assert.Equal(t, at, p.refusal(t).RetryAt())
			}
			all[0].Reset()
			settle(5 * time.Second)
		}
		assert.Greater(t, len(seen), 10)
	})
}

// A call that fails after the breaker has opened is of the life before: nobody
// needs to be told.
func TestLateFailureIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		late, err := all[1].Allow(t.Context())
		require.NoError(t, err)
		openBy(t, all[0])
		before := store.Calls()
		late.Done(errDown)
		synctest.Wait()
		assert.Equal(t, before, store.Calls())
		assert.Contains(t, string(store.Records()["1/llm"].Value), `"by":"host-0"`)
	})
}

// A move is its maker's, though another process has written since.
func TestMoveIsOfItsMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{}, resilience.FleetConfig{Stagger: time.Second})
		late, err := all[1].Allow(t.Context())
		require.NoError(t, err)
		all[2].store.HoldPushes()
		openBy(t, all[0])
		late.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 2 * time.Minute})
		all[2].fails(t)
		synctest.Wait()
		require.Len(t, all[2].seen.Transitions(), 1)
		assert.Equal(t, "host-0", all[2].seen.Transitions()[0].Origin)
		assert.EqualError(t, all[2].refusal(t).LastFailure(), "consecutive failures on host-0")

		settle(2 * time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
		settle(time.Second)
		all[1].fails(t)
		settle(8 * time.Second) // it asks
		closing := all[2].seen.Transitions()[len(all[2].seen.Transitions())-1]
		assert.Equal(t, resilience.Closed, closing.To)
		assert.Equal(t, "host-0", closing.Origin)
	})
}

// A process that asks for a probe, and learns so that another one's has closed
// the breaker, closes after its part of the stagger as all do.
func TestConflictSkipsNoStagger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		openBy(t, all[0])
		all[1].store.HoldPushes()
		settle(time.Minute)
		require.NoError(t, all[0].Do(t.Context(), fine))
		all[1].isRefused(t)
		assert.Equal(t, "open", all[1].State().String())
		settle(5 * time.Second)
		require.NoError(t, all[1].Do(t.Context(), fine))
		moves := all[1].seen.Transitions()
		assert.Equal(t, resilience.Closed, moves[len(moves)-1].To)
		assert.Equal(t, "host-0", moves[len(moves)-1].Origin)
	})
}

// What a throttling upstream asked for is known where it was asked, whatever
// others write, and told when that process opens. A reset ends it.
func TestPauseOfAClosedBreakerIsKept(t *testing.T) {
	throttled := func(t *testing.T) []*process {
		all, _ := processes(t, 2, resilience.Config{}, resilience.FleetConfig{})
		p, err := all[0].Allow(t.Context())
		require.NoError(t, err)
		p.Settle(resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 3 * time.Minute})
		all[1].fails(t)
		synctest.Wait()
		return all
	}
	wait := func(t *testing.T, p *process) time.Duration {
		return time.Until(p.refusal(t).RetryAt()).Round(time.Second)
	}
	synctest.Test(t, func(t *testing.T) { // it opens
		all := throttled(t)
		for range 4 {
			all[0].fails(t)
		}
		synctest.Wait()
		assert.Equal(t, 3*time.Minute, wait(t, all[0]))
		assert.Equal(t, 3*time.Minute, wait(t, all[1]))
	})
	synctest.Test(t, func(t *testing.T) { // another opens
		all := throttled(t)
		for range 4 {
			all[1].fails(t)
		}
		synctest.Wait()
		assert.Equal(t, 3*time.Minute, wait(t, all[0]))
		assert.Equal(t, time.Minute, wait(t, all[1]))
		settle(2 * time.Minute)
		all[0].isRefused(t)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(5 * time.Second)
		require.NoError(t, all[0].Do(t.Context(), fine))
		openBy(t, all[0])
		assert.Equal(t, time.Minute, wait(t, all[0]), "it is over")
	})
	synctest.Test(t, func(t *testing.T) {
		all := throttled(t)
		all[1].Reset()
		settle(5 * time.Second)
		openBy(t, all[0])
		assert.Equal(t, time.Minute, wait(t, all[0]))
	})
}

// Every process lets a growing share of its calls through, whichever of them
// has probed.
func TestRampOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 3, resilience.Config{Ramp: 100 * time.Second}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		require.NoError(t, all[1].Do(t.Context(), fine))
		settle(50 * time.Second)
		for i, p := range all {
			require.Equal(t, resilience.Closed, p.State())
			assert.InDelta(t, 0.5, p.Snapshot().RampShare, 0.01, "process %d", i)
		}
		all[2].Trip("drill")
		synctest.Wait()
		all[2].Reset()
		settle(5 * time.Second)
		for i, p := range all {
			require.Equal(t, resilience.Closed, p.State())
			assert.Equal(t, 1.0, p.Snapshot().RampShare, "process %d, after a reset", i)
		}
	})
}

// A probe that says nothing about the upstream gives its slot back at once, to
// other processes too. One that was denied stops its own process alone.
func TestProbeThatSaysNothingGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := processes(t, 4, resilience.Config{StopOnDenied: true}, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		for i, end := range []func(*resilience.Permit){
			(*resilience.Permit).Panicked,
			func(p *resilience.Permit) { p.Settle(resilience.Verdict{Outcome: resilience.Ignored}) },
			func(p *resilience.Permit) { p.Settle(resilience.Verdict{Outcome: resilience.Denied}) },
		} {
			probe, err := all[i].Allow(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			all[3].isRefused(t)
			end(probe)
			synctest.Wait()
			assert.Equal(t, resilience.HalfOpen, all[3].State())
		}
		require.NoError(t, all[3].Do(t.Context(), fine))
		settle(5 * time.Second)
		assert.Equal(t, []string{"closed", "closed", "open", "closed"}, states(all))
		assert.Equal(t, "denied", all[2].Snapshot().Held)
	})
}

// The designated probe runs in the process that has the lease.
func TestDesignatedProbeOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes, answer := 0, errDown
		cfg := resilience.Config{Probe: func(context.Context) error { probes++; return answer }}
		all, _ := processes(t, 3, cfg, resilience.FleetConfig{})
		openBy(t, all[0])
		settle(time.Minute)
		for _, p := range all {
			p.isRefused(t)
		}
		assert.Equal(t, 1, probes)
		answer = nil
		settle(time.Minute + 2*time.Second)
		require.NoError(t, all[2].Do(t.Context(), fine))
		settle(5 * time.Second)
		assert.Equal(t, []string{"closed", "closed", "closed"}, states(all))
		assert.Equal(t, 2, probes)
	})
}
