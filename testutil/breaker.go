package testutil

import (
	"testing"

	"github.com/penstock-go/penstock/resilience"
)

// NewBreaker is resilience.New for tests: a configuration that makes no sense
// ends the test.
func NewBreaker(t testing.TB, name string, cfg resilience.Config) *resilience.Breaker {
	t.Helper()
	b, err := resilience.New(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
