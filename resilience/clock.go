package resilience

import "time"

// timer is a breaker's time: the nanoseconds since it was made. They are
// monotonic. The wall clock only dates what is shown, as of the moment when it
// is shown, so that dates follow a wall clock that steps.
type timer struct {
	clock  interface{ Now() time.Time } // nil for the system's
	steady interface{ Monotonic() time.Duration }
	base   time.Time
	start  time.Duration // of steady
}

func newTimer(clock interface{ Now() time.Time }) timer {
	if clock == nil {
		return timer{base: time.Now()}
	}
	t := timer{clock: clock, base: clock.Now()}
	if steady, ok := clock.(interface{ Monotonic() time.Duration }); ok {
		t.steady, t.start = steady, steady.Monotonic()
	}
	return t
}

// horizon is as far as a clock can go, so that a wait added to it still fits.
const horizon = 100 * 365 * 24 * time.Hour

// at is an instant of a clock on the timer.
func (t *timer) at(now time.Time) int64 {
	d := now.Sub(t.base)
	if t.steady != nil {
		d = t.steady.Monotonic() - t.start
	}
	return int64(min(max(d, -horizon), horizon))
}

// now is the time since the timer was made.
func (t *timer) now() int64 {
	if t.clock == nil {
		return int64(time.Since(t.base))
	}
	return t.at(t.clock.Now())
}

// now is the time since the breaker was made.
func (b *Breaker) now() int64 {
	if b.timer.clock == nil {
		return int64(time.Since(b.timer.base))
	}
	return b.timer.at(b.timer.clock.Now())
}

// dates is one look at both clocks, so that the dates of one picture differ by
// as much as their instants.
type dates struct {
	now time.Time
	at  int64
}

func (b *Breaker) dates() dates {
	now := time.Now()
	if b.timer.clock != nil {
		now = b.timer.clock.Now()
	}
	return dates{now, b.timer.at(now)}
}

// wall dates an instant.
func (d dates) wall(at int64) time.Time { return d.now.Add(time.Duration(at - d.at)) }

// wall dates an instant that is shown alone.
func (b *Breaker) wall(at int64) time.Time { return b.dates().wall(at) }
