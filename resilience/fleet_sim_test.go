package resilience_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
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

var schedules = flag.Int("fleet.schedules", 1000, "how many schedules of a fleet are simulated, each sound, with faults, and with breakers of their own")

const (
	simReset = 5 * time.Second
	simLease = 2 * time.Second
	simTime  = 60 * time.Second
	simCall  = 300 * time.Millisecond // at most
)

// simulation is a fleet whose upstream comes and goes.
type simulation struct {
	t     *testing.T
	rng   *rand.Rand // of the schedule, used by one goroutine
	store *storetest.Memory
	n     int
	solo  bool
	down  atomic.Bool

	doomed  atomic.Int64 // calls that met the outage
	probing atomic.Int64 // calls in flight that began while nobody was closed
	most    atomic.Int64

	mu        sync.Mutex
	processes map[int]*process
	started   int
	done      chan struct{}
	callers   sync.WaitGroup
}

// TestFleetSimulation lets fleets live through random schedules: calls of
// random length, outages, and for half of the schedules a store that is cut
// off, frozen, emptied, set back, late or loses answers, and processes that die
// and begin, with clocks that are hours apart. Whatever happens, the fleets are
// to meet their outages with fewer calls than breakers of their own would.
func TestFleetSimulation(t *testing.T) {
	var fleet, solo atomic.Int64
	t.Run("schedule", func(t *testing.T) {
		for seed := range *schedules {
			for _, kind := range []struct {
				name         string
				faults, solo bool
			}{{"sound", false, false}, {"faults", true, false}, {"solo", true, true}} {
				t.Run(fmt.Sprintf("%d/%s", seed, kind.name), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						s := newSimulation(t, uint64(seed), kind.solo)
						s.run(uint64(seed), kind.faults)
						if kind.solo {
							solo.Add(s.doomed.Load())
						} else if kind.faults {
							fleet.Add(s.doomed.Load())
						}
					})
				})
			}
		}
	})
	t.Logf("with faults of the store, %d calls met an outage; %d do with breakers of their own", fleet.Load(), solo.Load())
	assert.Less(t, fleet.Load(), solo.Load())
}

func newSimulation(t *testing.T, seed uint64, solo bool) *simulation {
	s := &simulation{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), store: &storetest.Memory{}, solo: solo,
		processes: map[int]*process{}, done: make(chan struct{}),
	}
	s.n = 2 + s.rng.IntN(9)
	return s
}

func (s *simulation) run(seed uint64, faults bool) {
	for range s.n {
		s.begin(s.rng.Uint64())
	}
	if faults {
		s.callers.Go(func() { s.trouble(rand.New(rand.NewPCG(seed, 2))) })
	}
	bound := s.outages(faults)
	close(s.done)
	s.callers.Wait()
	s.recover(seed)
	assert.LessOrEqual(s.t, s.doomed.Load(), bound, "doomed calls of %d processes", s.n)
	if !faults {
		assert.LessOrEqual(s.t, s.most.Load(), int64(1), "probes at a time")
	}
	for _, p := range s.processes {
		assert.NoError(s.t, p.fleet.Close())
	}
}

// outages lets the upstream come and go, and returns how many calls may meet
// an outage: without faults of the store, FailMax and those in flight at the
// opening, and a probe each ResetTimeout; with them, what breakers of their own
// would take.
func (s *simulation) outages(faults bool) (bound int64) {
	for left := simTime; left > 0; {
		up := time.Duration(s.rng.Int64N(int64(10 * time.Second)))
		outage := time.Duration(s.rng.Int64N(int64(20 * time.Second)))
		time.Sleep(up)
		s.down.Store(true)
		time.Sleep(outage)
		s.down.Store(false)
		left -= up + outage
		probes := int64(outage/simReset) + 1
		if faults {
			bound += int64(s.n+2) * (5 + 1 + probes) // and processes that begin
		} else {
			bound += 5 + int64(s.n) + probes
		}
	}
	return bound
}

// recover lets the store be well and checks that every breaker closes.
func (s *simulation) recover(seed uint64) {
	s.store.Up()
	s.store.Thaw()
	s.store.ReleasePushes()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.processes {
		p.store.Up()
		p.store.Thaw()
		p.store.ReleasePushes()
	}
	for end := time.Now().Add(2*simReset + 10*time.Second); time.Now().Before(end); {
		time.Sleep(200 * time.Millisecond)
		for _, p := range s.processes {
			_ = p.Do(s.t.Context(), fine)
		}
	}
	for host, p := range s.processes {
		assert.Equal(s.t, resilience.Closed, p.State(), "seed %d, process %d", seed, host)
	}
}

// atMost keeps the largest number of probes that ran at once.
func (s *simulation) atMost(n int64) {
	for {
		most := s.most.Load()
		if n <= most || s.most.CompareAndSwap(most, n) {
			return
		}
	}
}

// begin starts a process and its caller.
func (s *simulation) begin(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	host := s.started
	rng := rand.New(rand.NewPCG(seed, 3))
	p := s.process(host, rng)
	s.processes[host] = p
	s.callers.Go(func() { s.call(host, p, rng) })
}

func (s *simulation) process(host int, rng *rand.Rand) *process {
	p := &process{store: s.store.Client()}
	p.fleet = resilience.NewFleet(p.store, resilience.FleetConfig{
		Origin: fmt.Sprintf("host-%d", host/2), Lease: simLease, Logger: quiet,
	})
	wrong := wrongClock(rng.Int64N(int64(20*time.Hour))) - wrongClock(10*time.Hour)
	cfg := resilience.Config{ResetTimeout: simReset, Shared: p.fleet, Logger: quiet, Clock: &wrong}
	if s.solo {
		cfg.Shared = nil
	}
	b, err := resilience.New("llm", cfg)
	require.NoError(s.t, err)
	p.Breaker = b
	return p
}

// wrongClock is off by as much.
type wrongClock time.Duration

func (c *wrongClock) Now() time.Time { return time.Now().Add(time.Duration(*c)) }

// call calls until the end, or until the process is dead.
func (s *simulation) call(host int, p *process, rng *rand.Rand) {
	ctx := context.Background()
	for {
		select {
		case <-s.done:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(time.Second)))):
		}
		s.mu.Lock()
		alive := s.processes[host] == p
		s.mu.Unlock()
		if !alive {
			return
		}
		state := p.State()
		_ = p.Do(ctx, func(context.Context) error {
			if state != resilience.Closed {
				s.atMost(s.probing.Add(1))
				defer s.probing.Add(-1)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(simCall))))
			if s.down.Load() {
				s.doomed.Add(1)
				return errDown
			}
			return nil
		})
	}
}

// trouble is what happens to the store and to processes.
func (s *simulation) trouble(rng *rand.Rand) {
	var rollback func()
	for {
		select {
		case <-s.done:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(2 * time.Second)))):
		}
		store := s.store
		if rng.IntN(2) == 0 {
			store = s.anybody(rng).store
		}
		switch rng.IntN(12) {
		case 0, 1:
			store.Down(errors.New("connection refused"))
		case 2, 3, 4:
			s.store.Up()
			s.store.Thaw()
			store.Up()
			store.Thaw()
		case 5:
			store.Freeze()
		case 6:
			s.store.Flush()
		case 7:
			store.LoseAnswers(1+rng.IntN(2), errors.New("connection reset"))
		case 8:
			store.HoldPushes()
		case 9:
			store.ReleasePushes()
		case 10:
			if rollback == nil {
				rollback = s.store.Save()
			} else {
				rollback()
				rollback = nil
			}
		case 11:
			s.replace(rng)
		}
	}
}

func (s *simulation) anybody(rng *rand.Rand) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	hosts := make([]int, 0, len(s.processes))
	for host := 1; host <= s.started; host++ {
		if s.processes[host] != nil {
			hosts = append(hosts, host)
		}
	}
	return s.processes[hosts[rng.IntN(len(hosts))]]
}

// replace kills a process in the middle of what it does, and starts another.
func (s *simulation) replace(rng *rand.Rand) {
	p := s.anybody(rng)
	p.store.Freeze() // it does not say goodbye
	s.mu.Lock()
	for host, other := range s.processes {
		if other == p {
			delete(s.processes, host)
		}
	}
	s.mu.Unlock()
	s.callers.Go(func() { <-s.done; p.store.Down(errors.New("dead")); assert.NoError(s.t, p.fleet.Close()) })
	s.begin(rng.Uint64())
}
