package testutil

import (
	"sync"
	"time"
)

// FakeClock is a clock for resilience.Config that moves only when it is told
// to. It is safe for concurrent use.
type FakeClock struct {
	mu      sync.Mutex
	now     time.Time
	elapsed time.Duration
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
	c.elapsed += d
	return c.now
}

// Step moves the wall clock by d, backwards if d is negative, without time that
// passes: an operator or NTP has set it. Deadlines keep their distance, and
// dates that are read afterwards are those of the new wall clock.
func (c *FakeClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Monotonic is the time that has passed, which Step does not change.
func (c *FakeClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Set lets time pass until t, backwards if t is past.
func (c *FakeClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed += t.Sub(c.now)
	c.now = t
}
