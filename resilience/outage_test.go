package resilience_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// outage calls an upstream that is down for half an hour: 100 callers a minute,
// each of whom tries up to three times. It counts the calls that reach it.
func outage(guard func(b *resilience.Breaker, fn func(context.Context) error) error) (asked, reached int) {
	clock := testutil.NewClock()
	b := resilience.NewRegistry(resilience.Config{}).MustRegister("llm", resilience.Config{Clock: clock, Logger: quiet})
	away := func(context.Context) error {
		reached++
		return errDown
	}
	for range 30 * 100 {
		for range 3 {
			asked++
			if guard(b, away) == nil {
				break
			}
		}
		clock.Advance(time.Minute / 100)
	}
	return asked, reached
}

// An outage of 30 minutes with 100 callers a minute.
func Example_outage() {
	ctx := context.Background()
	fmt.Printf("%-12s %6s %8s\n", "", "asked", "reached")
	asked, reached := outage(func(_ *resilience.Breaker, fn func(context.Context) error) error { return fn(ctx) })
	fmt.Printf("%-12s %6d %8d\n", "no breaker", asked, reached)
	asked, reached = outage(func(b *resilience.Breaker, fn func(context.Context) error) error { return b.Do(ctx, fn) })
	fmt.Printf("%-12s %6d %8d\n", "breaker", asked, reached)
	// Output:
	//               asked  reached
	// no breaker     9000     9000
	// breaker        9000       34
}
