package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// newExample is a breaker on a clock that the examples move.
func newExample(cfg resilience.Config) (*resilience.Breaker, *testutil.FakeClock) {
	clock := testutil.NewClock()
	cfg.Clock, cfg.Logger = clock, quiet
	return resilience.NewRegistry(resilience.Config{}).MustRegister("billing", cfg), clock
}

func ExampleCall() {
	b, clock := newExample(resilience.Config{})
	ctx := context.Background()
	healthy := false
	price := func(context.Context) (int, error) {
		if !healthy {
			return 0, errors.New("500 internal server error")
		}
		return 42, nil
	}
	for range 7 {
		_, err := resilience.Call(ctx, b, price)
		fmt.Println(err)
	}
	clock.Advance(time.Minute)
	healthy = true
	fmt.Println(resilience.Call(ctx, b, price))
	// Output:
	// 500 internal server error
	// 500 internal server error
	// 500 internal server error
	// 500 internal server error
	// 500 internal server error
	// circuit breaker open for "billing", failing fast; next probe in 1m0s; last failure: 500 internal server error
	// circuit breaker open for "billing", failing fast; next probe in 1m0s; last failure: 500 internal server error
	// 42 <nil>
}

func ExampleCallOp() {
	b, _ := newExample(resilience.Config{})
	errNotFound := errors.New("404 not found")
	get := resilience.Op[string]{
		Name: "get_invoice",
		Classify: func(_ context.Context, err error) resilience.Verdict {
			if errors.Is(err, errNotFound) {
				return resilience.Verdict{Outcome: resilience.Success} // it answered
			}
			return resilience.Verdict{Outcome: resilience.Failure}
		},
		Validate: func(invoice string) error {
			if invoice == "" {
				return errors.New("an invoice without a number")
			}
			return nil
		},
	}
	for _, answer := range []error{errNotFound, nil} {
		_, err := resilience.CallOp(
			context.Background(),
			b,
			get,
			func(context.Context) (string, error) { return "", answer },
		)
		s := b.Snapshot()
		fmt.Printf("%v: %d successes, %d failures\n", err, s.Successes, s.Failures)
	}
	// Output:
	// 404 not found: 1 successes, 0 failures
	// an invoice without a number: 1 successes, 1 failures
}

func ExampleBreaker_Do() {
	b, _ := newExample(resilience.Config{FailMax: 1})
	err := b.Do(context.Background(), func(context.Context) error { return errors.New("connection refused") })
	fmt.Println(err, "→", b.State())
	err = b.Do(context.Background(), func(context.Context) error { return nil })
	if open, ok := errors.AsType[*resilience.OpenError](err); ok {
		fmt.Println(open.Upstream(), "may be asked again at", open.RetryAt().Format(time.TimeOnly))
	}
	// Output:
	// connection refused → open
	// billing may be asked again at 00:01:00
}

func ExampleBreaker_Allow() {
	b, _ := newExample(resilience.Config{})
	p, err := b.Allow(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	// Open the stream with p.Context(), and for every piece that arrives:
	p.Renew()
	// When it ends, say how:
	p.Done(errors.New("unexpected EOF"))
	fmt.Println(b.Snapshot().Streak, "failure in a row")
	// Output: 1 failure in a row
}

func ExampleRegistry() {
	reg := resilience.NewRegistry(resilience.Config{ResetTimeout: 30 * time.Second, Logger: quiet})
	reg.MustRegister("search", resilience.Config{})
	reg.MustRegister("billing", resilience.Config{FailMax: 10, ResetTimeout: 2 * time.Minute})
	for _, b := range reg.All() {
		fmt.Println(b.Name(), b.State(), b.Config().FailMax, b.Config().ResetTimeout)
	}
	// Output:
	// billing closed 10 2m0s
	// search closed 5 30s
}

// One breaker for each partner: an outage of one is not an outage of all.
func ExampleRegistry_Keyed() {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet, FailMax: 1})
	partners, err := reg.Keyed("partner", resilience.Config{MaxKeys: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_ = partners.Get("acme").Do(ctx, func(context.Context) error { return errors.New("502 bad gateway") })
	fmt.Println(partners.Get("acme").Name(), partners.Get("acme").State())
	fmt.Println(partners.Get("globex").Name(), partners.Get("globex").State())
	// Output:
	// partner/acme open
	// partner/globex closed
}

// A task that was refused stays refused, whatever its framework retries; the
// next attempt is a new task.
func ExampleWithTask() {
	b, clock := newExample(resilience.Config{})
	b.Trip("drill")
	attempt := func() {
		ctx := resilience.WithTask(context.Background(), "embed/42")
		for range 3 {
			fmt.Println(b.Do(ctx, func(context.Context) error { fmt.Println("called"); return nil }) == nil)
			clock.Advance(time.Minute)
		}
	}
	attempt()
	fmt.Println("retried in task:", b.Snapshot().RetriedInTask)
	attempt()
	// Output:
	// false
	// false
	// false
	// retried in task: 2
	// called
	// true
	// called
	// true
	// called
	// true
}

// chatProvider is the interface that an agent framework wants of a model.
type chatProvider interface {
	Complete(ctx context.Context, prompt string) (string, error)
}

// outageError tells such a framework that retrying is useless.
type outageError struct {
	Provider   string
	RetryAfter time.Time
	cause      error
}

func (e *outageError) Error() string {
	return fmt.Sprintf("%s is out of service until %s; do not retry", e.Provider, e.RetryAfter.Format(time.TimeOnly))
}

func (e *outageError) Unwrap() error { return e.cause }

// guarded puts a provider behind a breaker.
type guarded struct {
	inner   chatProvider
	breaker *resilience.Breaker
}

func (g guarded) Complete(ctx context.Context, prompt string) (string, error) {
	answer, err := resilience.Call(ctx, g.breaker, func(ctx context.Context) (string, error) {
		return g.inner.Complete(ctx, prompt)
	})
	if open, ok := errors.AsType[*resilience.OpenError](err); ok {
		return "", &outageError{Provider: open.Upstream(), RetryAfter: open.RetryAt(), cause: err}
	}
	return answer, err
}

type overloaded struct{}

func (overloaded) Complete(context.Context, string) (string, error) {
	return "", errors.New("503 overloaded")
}

// A chat provider behind a breaker turns the refusal into an outage that its
// framework must not retry.
func Example_provider() {
	b, _ := newExample(resilience.Config{FailMax: 2})
	var model chatProvider = guarded{overloaded{}, b}
	for range 3 {
		_, err := model.Complete(context.Background(), "hello")
		fmt.Println(err, errors.Is(err, resilience.ErrOpen))
	}
	// Output:
	// 503 overloaded false
	// 503 overloaded false
	// billing is out of service until 00:01:00; do not retry true
}
