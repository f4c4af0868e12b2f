package testutil

import (
	"sync"
	"time"
)

// FakeClock is a clock for resilience.Config that moves only when Advance or
// Set is called. It is safe for concurrent use.
type FakeClock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock set to 2030-01-01 00:00 UTC.
func NewClock() *FakeClock {
	return &FakeClock{now: time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)}
}

// Now returns the time of the clock.
func (c *FakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, backwards if d is negative, and returns the new
// time.
func (c *FakeClock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// Set sets the clock to t.
func (c *FakeClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}
