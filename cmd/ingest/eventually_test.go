package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually looks until it sees what it wants, for at most a minute. Unlike
// require.Eventually it looks on the goroutine of the test, which alone may end
// the test: look can use require.
func eventually(t *testing.T, tick time.Duration, look func() bool, seen ...any) {
	t.Helper()
	eventuallyWithin(t, time.Minute, tick, look, seen...)
}

// eventuallyWithin is eventually with a limit, for a machine that is busy.
func eventuallyWithin(t *testing.T, limit, tick time.Duration, look func() bool, seen ...any) {
	t.Helper()
	again := time.NewTicker(tick)
	defer again.Stop()
	late := time.After(limit)
	for !look() {
		select {
		case <-late:
			require.Fail(t, "never seen", seen...)
		case <-again.C:
		}
	}
}
