package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// A thousand goroutines ask an upstream that is down. By itself the breaker
// could not keep them all from asking before the first has failed.
func Example() {
	breaker, err := resilience.New("billing", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	limiter, err := inflight.New(breaker, 0)
	if err != nil {
		panic(err)
	}
	var asked, refused atomic.Int64
	price := func(context.Context) (int, error) {
		asked.Add(1)
		return 0, errors.New("500 internal server error")
	}
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() {
			_, err := inflight.Do(context.Background(), limiter, resilience.Op[int]{Name: "price"}, price)
			if errors.Is(err, resilience.ErrOpen) {
				refused.Add(1)
			}
		})
	}
	group.Wait()
	fmt.Println(asked.Load(), "asked,", refused.Load(), "refused")
	// Output: 5 asked, 995 refused
}

// Enter and Leave go around calls that have a shape of their own, such as a
// stream, whose outcome is known long after it began.
func ExampleLimiter_Enter() {
	ctx := context.Background()
	breaker, err := resilience.New("billing", resilience.Config{})
	if err != nil {
		panic(err)
	}
	limiter, err := inflight.New(breaker, 0)
	if err != nil {
		panic(err)
	}
	slot, err := limiter.Enter(ctx, "stream")
	if err != nil {
		panic(err)
	}
	defer slot.Leave()
	permit, err := limiter.Breaker().Allow(ctx)
	if err != nil {
		panic(err)
	}
	verdict := resilience.Verdict{Outcome: resilience.Success} // of the whole stream
	permit.Settle(verdict)
	slot.Settled(verdict)
	fmt.Println(verdict.Outcome)
	// Output: success
}
