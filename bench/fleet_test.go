package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/redisstore"
)

const (
	fleetSize  = 8
	fleetReset = 2 * time.Second // ResetTimeout, and gobreaker's Timeout
	fleetPace  = 10 * time.Millisecond
)

// process is what one process of a fleet calls with: a function for each of
// its breakers.
type process []func(call func() error) error

// contender starts the processes of a fleet on a Redis, each with as many
// breakers.
type contender struct {
	name  string
	start func(b *testing.B, addr string, breakers int) []process
}

var contenders = []contender{{"solo", startSolo}, {ours, startFleet}, {"gobreaker", startGobreaker}}

func startSolo(_ *testing.B, _ string, breakers int) (all []process) {
	for range fleetSize {
		all = append(all, register(breakers, resilience.Config{}))
	}
	return all
}

func register(breakers int, cfg resilience.Config) (p process) {
	cfg.ResetTimeout, cfg.Logger = fleetReset, discard
	registry := resilience.NewRegistry(resilience.Config{})
	for i := range breakers {
		br := registry.MustRegister(strconv.Itoa(i), cfg)
		p = append(p, func(call func() error) error {
			return br.Do(ctx, func(context.Context) error { return call() })
		})
	}
	return p
}

func startFleet(b *testing.B, addr string, breakers int) (all []process) {
	for i := range fleetSize {
		store := redisstore.New(connect(b, addr), b.Name())
		fleet := resilience.NewFleet(store, resilience.FleetConfig{Origin: fmt.Sprint("host-", i), Logger: discard})
		b.Cleanup(func() { _ = fleet.Close() })
		for tick := time.Tick(time.Millisecond); !fleet.Up(); {
			<-tick
		}
		all = append(all, register(breakers, resilience.Config{Shared: fleet}))
	}
	return all
}

func startGobreaker(b *testing.B, addr string, breakers int) (all []process) {
	for range fleetSize {
		client := connect(b, addr)
		locks := redsync.New(goredis.NewPool(client))
		store := &lockStore{client: client, locks: locks, held: map[string]*redsync.Mutex{}}
		var p process
		for i := range breakers {
			cb, err := gobreaker.NewDistributedCircuitBreaker[int](store, gobreaker.Settings{
				Name: b.Name() + strconv.Itoa(i), Timeout: fleetReset,
				ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 5 },
			})
			if err != nil {
				b.Fatal(err)
			}
			p = append(p, func(call func() error) error {
				_, err := cb.Execute(func() (int, error) { return 0, call() })
				return err
			})
		}
		all = append(all, p)
	}
	return all
}

func connect(b *testing.B, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// lockStore is gobreaker's store in Redis: a string for the state, and a lock
// of redsync that lasts five seconds. The one in gobreaker's repository does
// the same, and its module has no release.
type lockStore struct {
	client *redis.Client
	locks  *redsync.Redsync
	held   map[string]*redsync.Mutex // by the one goroutine of its process
}

func (s *lockStore) Lock(name string) error {
	if s.held[name] == nil {
		s.held[name] = s.locks.NewMutex(name, redsync.WithExpiry(5*time.Second))
	}
	return s.held[name].Lock()
}

func (s *lockStore) Unlock(name string) error {
	_, err := s.held[name].Unlock()
	return err
}

func (s *lockStore) GetData(name string) ([]byte, error) {
	data, err := s.client.Get(ctx, name).Bytes()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return data, err
}

func (s *lockStore) SetData(name string, data []byte) error {
	return s.client.Set(ctx, name, data, 0).Err()
}

// callers has each process make calls one after the other, at its pace, until
// done is closed. It returns how long the longest took.
func callers(all []process, done <-chan struct{}, call func() error) (longest func() time.Duration) {
	var most atomic.Int64
	var group sync.WaitGroup
	for _, p := range all {
		group.Go(func() {
			tick := time.NewTicker(fleetPace)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				began := time.Now()
				_ = p[i%len(p)](call)
				took := int64(time.Since(began))
				for old := most.Load(); took > old && !most.CompareAndSwap(old, took); old = most.Load() {
				}
			}
		})
	}
	return func() time.Duration {
		group.Wait()
		return time.Duration(most.Load())
	}
}

// BenchmarkFleetOutage takes eight processes, which call at once and one call
// at a time each, into an outage: how many calls meet it before the last
// breaker is open, how many probes there are each ResetTimeout, and how long
// the longest call took, where the upstream answers at once.
func BenchmarkFleetOutage(b *testing.B) {
	addr := upstreams.Redis(b)
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				outage(b, c, addr)
			}
		})
	}
}

func outage(b *testing.B, c contender, addr string) {
	const resets = 2
	all := c.start(b, addr, 1)
	done := make(chan struct{})
	var down atomic.Bool
	var failures atomic.Int64
	longest := callers(all, done, func() error {
		if down.Load() {
			failures.Add(1)
			return errDown
		}
		return nil
	})
	<-time.After(fleetReset / 2)
	down.Store(true)
	<-time.After(fleetReset / 2)
	doomed := failures.Load()
	<-time.After(resets * fleetReset)
	probes := float64(failures.Load()-doomed) / resets
	close(done)
	took := longest()
	report(b, c.name, "calls at an opening", float64(doomed))
	report(b, c.name, "probes a ResetTimeout", probes)
	report(b, c.name, "longest call, ms", took.Seconds()*1000)
}

// BenchmarkFleetSteady is the same with an upstream that is well and 100
// breakers a process: what Redis is asked each second, and each call.
func BenchmarkFleetSteady(b *testing.B) {
	addr := upstreams.StartRedis(b).Addr
	admin := connect(b, addr)
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				all := c.start(b, addr, 100)
				done := make(chan struct{})
				var calls atomic.Int64
				before, began := commands(b, admin), time.Now()
				longest := callers(all, done, func() error { calls.Add(1); return nil })
				<-time.After(5 * time.Second) // two pings of each process
				asked, took := commands(b, admin)-before, time.Since(began).Seconds()
				close(done)
				longest()
				report(b, c.name, "calls a second", float64(calls.Load())/took)
				report(b, c.name, "Redis commands a second", float64(asked)/took)
			}
		})
	}
}

// commands is how many a server has been sent, but for those that ask for it.
func commands(b *testing.B, client *redis.Client) (n int) {
	text, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":calls=")
		count, _, _ := strings.Cut(rest, ",")
		if ok && name != "cmdstat_info" {
			calls, _ := strconv.Atoi(count)
			n += calls
		}
	}
	return n
}

// BenchmarkFleetSuccess is a good call through a closed breaker.
func BenchmarkFleetSuccess(b *testing.B) {
	addr := upstreams.Redis(b)
	fine := func() error { return nil }
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			call := c.start(b, addr, 1)[0][0]
			b.ReportAllocs()
			for b.Loop() {
				_ = call(fine)
			}
			report(b, c.name, "a closed success, ns", float64(b.Elapsed().Nanoseconds())/float64(b.N))
		})
	}
}

// fleetResults are what was measured, by what it is and by contender.
var fleetResults = map[string]map[string]float64{}

func report(b *testing.B, contender, what string, value float64) {
	b.ReportMetric(value, strings.ReplaceAll(what, " ", "_"))
	if fleetResults[what] == nil {
		fleetResults[what] = map[string]float64{}
	}
	fleetResults[what][contender] = value
}

// printFleet sets eight processes side by side.
func printFleet() {
	if len(fleetResults) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintf(w, "\n%d processes\t", fleetSize)
	for _, c := range contenders {
		fmt.Fprint(w, c.name, "\t")
	}
	fmt.Fprintln(w)
	for _, what := range []string{
		"calls at an opening", "probes a ResetTimeout", "longest call, ms", "a closed success, ns",
		"calls a second", "Redis commands a second",
	} {
		fmt.Fprint(w, what, "\t")
		for _, c := range contenders {
			fmt.Fprintf(w, "%.1f\t", fleetResults[what][c.name])
		}
		fmt.Fprintln(w)
	}
}
