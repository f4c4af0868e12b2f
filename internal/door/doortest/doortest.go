// Package doortest has what the tests of all doors need: outages that are seen
// through from the first failure to the last, the verdicts that a guard is
// told, and the check that a guide names real tests.
package doortest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/resilience"
)

// Hear has a guard's Settled write down the verdicts that it is told. It is for
// guards whose calls end in one goroutine.
func Hear(settled *func(resilience.Verdict)) *[]resilience.Verdict {
	var told []resilience.Verdict
	*settled = func(v resilience.Verdict) { told = append(told, v) }
	return &told
}

// LeakFree fails the test if goroutines are left when everything is closed. An
// open connection has some of them, so it is a connection too that leaks here.
func LeakFree(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, before,
			// toxiproxy's own: a toxic that holds a chunk, or ended a stream
			// whose source continues to fill it
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"))
	})
}
