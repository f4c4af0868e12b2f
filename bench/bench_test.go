package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

const ours = "penstock"

// results is nanoseconds an operation by path and breaker.
var results = struct {
	sync.Mutex
	ns map[string]map[string]float64
}{ns: map[string]map[string]float64{}}

func TestMain(m *testing.M) {
	code := m.Run()
	printRatios()
	printFleet()
	os.Exit(code)
}

// printRatios sets each rival against ours.
func printRatios() {
	if len(results.ns) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "\npath\tbreaker\tns/op\ttimes ours")
	for _, path := range slices.Sorted(maps.Keys(results.ns)) {
		row := results.ns[path]
		names := slices.SortedFunc(maps.Keys(row), func(a, b string) int { return cmp.Compare(row[a], row[b]) })
		for _, name := range names {
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\n", path, name, row[name], row[name]/row[ours])
		}
	}
}

var (
	errDown  = errors.New("upstream is down")
	ctx      = context.Background()
	discard  = slog.New(slog.DiscardHandler)
	answer   = func(context.Context) (int, error) { return 1, nil }
	bare     = func() (int, error) { return 1, nil }
	observed = func(resilience.Transition) {}
)

// rival is one way to make a call under one breaker.
type rival struct {
	name string
	call func() error
}

// measure runs each rival with one goroutine and with one for each processor.
func measure(b *testing.B, path string, rivals []rival) {
	for _, r := range rivals {
		b.Run(path+"/"+r.name+"/goroutines=1", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = r.call()
			}
			note(b, path+", 1 goroutine", r.name)
		})
		b.Run(path+"/"+r.name+"/goroutines=many", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_ = r.call()
				}
			})
			note(b, path+", many goroutines", r.name)
		})
	}
}

func note(b *testing.B, path, name string) {
	results.Lock()
	defer results.Unlock()
	if results.ns[path] == nil {
		results.ns[path] = map[string]float64{}
	}
	results.ns[path][name] = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
}

func penstock(cfg resilience.Config) *resilience.Breaker {
	cfg.Logger, cfg.OnTransition = discard, observed
	return resilience.NewRegistry(resilience.Config{}).MustRegister("bench", cfg)
}

func viaCall(b *resilience.Breaker) func() error {
	return func() error {
		_, err := resilience.Call(ctx, b, answer)
		return err
	}
}

func viaPermit(b *resilience.Breaker) func() error {
	return func() error {
		p, err := b.Allow(ctx)
		if err != nil {
			return err
		}
		p.Done(nil)
		return nil
	}
}

func gobreakerSettings(s gobreaker.Settings) gobreaker.Settings {
	s.Name = "bench"
	s.OnStateChange = func(string, gobreaker.State, gobreaker.State) {}
	return s
}

func viaGobreaker(s gobreaker.Settings) func() error {
	cb := gobreaker.NewCircuitBreaker[int](gobreakerSettings(s))
	return func() error {
		_, err := cb.Execute(bare)
		return err
	}
}

func viaGobreakerTwoStep(s gobreaker.Settings) func() error {
	cb := gobreaker.NewTwoStepCircuitBreaker[int](gobreakerSettings(s))
	return func() error {
		done, err := cb.Allow()
		if err == nil {
			done(nil)
		}
		return err
	}
}

func failsafeBreaker() circuitbreaker.Builder[int] {
	return circuitbreaker.NewBuilder[int]().WithFailureThreshold(5).WithDelay(time.Hour).
		OnStateChanged(func(circuitbreaker.StateChangedEvent) {})
}

func viaExecutor(cb circuitbreaker.CircuitBreaker[int]) func() error {
	executor := failsafe.With(cb)
	return func() error {
		_, err := executor.Get(bare)
		return err
	}
}

func viaFailsafePermit(cb circuitbreaker.CircuitBreaker[int]) func() error {
	return func() error {
		if !cb.TryAcquirePermit() {
			return circuitbreaker.ErrOpen
		}
		cb.RecordSuccess()
		return nil
	}
}

func BenchmarkClosed(b *testing.B) {
	again := penstock(resilience.Config{})
	again.Trip("once")
	again.Reset()
	measure(b, "closed", []rival{
		{ours, viaCall(penstock(resilience.Config{}))},
		{ours + " that has opened before", viaCall(again)},
		{ours + " with a validator", func() func() error {
			br, op := penstock(
				resilience.Config{},
			), resilience.Op[int]{
				Name:     "get",
				Validate: func(int) error { return nil },
			}
			return func() error {
				_, err := resilience.CallOp(ctx, br, op, answer)
				return err
			}
		}()},
		{"gobreaker", viaGobreaker(gobreaker.Settings{})},
		{"failsafe-go executor", viaExecutor(failsafeBreaker().Build())},
	})
}

func BenchmarkRefused(b *testing.B) {
	open := penstock(resilience.Config{})
	open.Trip("bench")
	cb := failsafeBreaker().Build()
	cb.Open()
	tripped := gobreaker.NewCircuitBreaker[int](gobreakerSettings(gobreaker.Settings{Timeout: time.Hour}))
	for range 6 {
		_, _ = tripped.Execute(func() (int, error) { return 0, errDown })
	}
	measure(b, "refused", []rival{
		{ours, viaCall(open)},
		{"gobreaker", func() error {
			_, err := tripped.Execute(bare)
			return err
		}},
		{"failsafe-go executor", viaExecutor(cb)},
		{"failsafe-go permit", viaFailsafePermit(cb)},
	})
}

func BenchmarkTimeWindow(b *testing.B) {
	measure(b, "time window", []rival{
		{ours, viaCall(penstock(resilience.Config{Trip: trip.TimeWindow{Period: time.Minute, Buckets: 10}}))},
		{"gobreaker", viaGobreaker(gobreaker.Settings{Interval: time.Minute, BucketPeriod: 6 * time.Second})},
		{
			"failsafe-go executor",
			viaExecutor(circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 10, time.Minute).Build()),
		},
	})
}

func BenchmarkCountWindow(b *testing.B) {
	measure(b, "count window", []rival{
		{ours, viaCall(penstock(resilience.Config{Trip: trip.CountWindow{Size: 100}}))},
		{
			"failsafe-go executor",
			viaExecutor(circuitbreaker.NewBuilder[int]().WithFailureThresholdRatio(50, 100).Build()),
		},
	})
}

// BenchmarkHalfOpen is a refusal while a probe runs, alone and beside a stream
// that renews its lease.
func BenchmarkHalfOpen(b *testing.B) {
	halfOpen := func() (*resilience.Breaker, *resilience.Permit) {
		br := penstock(resilience.Config{ResetTimeout: time.Nanosecond, ProbeTimeout: time.Hour})
		br.Trip("bench")
		probe, err := br.Allow(ctx)
		if err != nil {
			b.Fatal(err)
		}
		return br, probe
	}
	quiet, _ := halfOpen()
	busy, stream := halfOpen()
	refused, refusedBusy, calls := viaCall(quiet), viaCall(busy), atomic.Int64{}
	tripped := gobreaker.NewCircuitBreaker[int](gobreakerSettings(gobreaker.Settings{Timeout: time.Nanosecond}))
	for range 6 {
		_, _ = tripped.Execute(func() (int, error) { return 0, errDown })
	}
	hold := make(chan struct{})
	defer close(hold)
	probing := make(chan struct{})
	go func() {
		_, _ = tripped.Execute(func() (int, error) { close(probing); <-hold; return 1, nil })
	}()
	<-probing
	measure(b, "half-open, refused", []rival{
		{ours, refused},
		{ours + " while a stream renews every 100 calls", func() error {
			if calls.Add(1)%100 == 0 {
				stream.Renew()
			}
			return refusedBusy()
		}},
		{"gobreaker", func() error {
			_, err := tripped.Execute(bare)
			return err
		}},
	})
}

func BenchmarkKeyed(b *testing.B) {
	family, err := resilience.NewRegistry(resilience.Config{}).Keyed("bench", resilience.Config{Logger: discard})
	if err != nil {
		b.Fatal(err)
	}
	measure(b, "one of a family", []rival{
		{ours, func() error {
			_, err := resilience.Call(ctx, family.Get("a"), answer)
			return err
		}},
		{ours + ", permit", func() error {
			p, err := family.Allow(ctx, "a")
			if err == nil {
				p.Done(nil)
			}
			return err
		}},
	})
}

func BenchmarkPermit(b *testing.B) {
	measure(b, "two-step permit", []rival{
		{ours, viaPermit(penstock(resilience.Config{}))},
		{"gobreaker", viaGobreakerTwoStep(gobreaker.Settings{})},
		{"failsafe-go", viaFailsafePermit(failsafeBreaker().Build())},
	})
}

// BenchmarkSnapshot is what a scrape of the metrics costs.
func BenchmarkSnapshot(b *testing.B) {
	br := penstock(resilience.Config{})
	b.ReportAllocs()
	for b.Loop() {
		br.Snapshot()
	}
}

func TestPathsMeasureWhatTheySay(t *testing.T) {
	open := penstock(resilience.Config{})
	open.Trip("bench")
	if err := viaCall(open)(); !errors.Is(err, resilience.ErrOpen) {
		t.Errorf("an open breaker answered %v", err)
	}
	for name, call := range map[string]func() error{
		"closed":    viaCall(penstock(resilience.Config{})),
		"permit":    viaPermit(penstock(resilience.Config{})),
		"gobreaker": viaGobreaker(gobreaker.Settings{}),
		"two-step":  viaGobreakerTwoStep(gobreaker.Settings{}),
		"executor":  viaExecutor(failsafeBreaker().Build()),
		"failsafe":  viaFailsafePermit(failsafeBreaker().Build()),
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", strings.ToUpper(name), err)
		}
	}
}
