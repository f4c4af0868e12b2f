package resilience

import "time"

// Snapshot is a breaker at one moment. State, Generation, Streak and the
// window are one consistent picture; the totals are exact once calls have
// ended.
type Snapshot struct {
	Name          string
	PolicyVersion string // equal for equal policies
	State         State
	Generation    uint64    // grows with every transition and every Reset
	OpenUntil     time.Time // when a probe may go out, or might have since; zero if closed, probing or held
	Reason        string    // why it last opened
	Streak        int       // consecutive counted failures
	FailMax       int       // the streak that opens; 0 under a window
	RampShare     float64   // the share of calls that are admitted after closing; 1 unless Config.Ramp says less
	Shadow        bool      // the breaker refuses nothing (Config.Shadow)

	Shared    bool   // the breaker belongs to a fleet
	StoreUp   bool   // and the fleet's store answers
	Alone     bool   // the breaker does not follow its fleet: the store is lost, or it opened by itself
	Origin    string // the host that opened it, for a fleet; empty if it is closed, or opened by itself
	Elsewhere bool   // another process opened it, on Origin: the same host or another one

	Held       string    // what holds the state until Reset: forced_open, forced_closed, denied, or nothing
	HeldReason string    // as given to ForceOpen or ForceClose; denied
	HeldSince  time.Time // zero unless Held

	WindowCalls, WindowFailures, WindowSlow int // 0 without a window

	Calls     uint64 // all outcomes: the next six
	Successes uint64
	Failures  uint64 // probes whose lease ran out included
	Ignored   uint64
	Throttled uint64
	Denied    uint64
	Panics    uint64

	Stale         uint64 // results that came after their state had ended; not counted elsewhere
	Rejected      uint64 // refused calls, which have no outcome
	RetriedInTask uint64 // the part of Rejected that the task latch refused
	Shed          uint64 // calls that a ramp turned away; not in Rejected
	Shadowed      uint64 // calls let through in place of a refusal (Config.Shadow); counted by outcome as well
	Probes        uint64 // probes that went out
	Opened        uint64 // times the breaker opened, reopenings included

	LastFailure            error     `json:"-"` // the last counted error
	LastOpened, LastClosed time.Time // zero if it never did
}

// Snapshot reads the breaker as of now and changes nothing.
func (b *Breaker) Snapshot() Snapshot {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.viewLocked(now)
	s := Snapshot{
		Name: b.name, PolicyVersion: b.version, State: c.reads(), Generation: c.gen, Reason: c.reason,
		Streak: c.longest(), FailMax: b.policy.failMax, RampShare: c.share(), Shadow: b.shadow,
		Held: c.held.String(), HeldReason: c.holdReason, Probes: c.probes, Opened: c.opened, LastFailure: c.lastFailure,
	}
	if l := b.link.Load(); l != nil {
		s.Shared, s.StoreUp, s.Alone = true, l.fleet.Up(), l.phase != following
		if c.state != Closed && !s.Alone {
			s.Origin = l.standing.Origin
			s.Elsewhere = c.opener != ""
		}
	}
	b.dateLocked(&s, &c)
	b.totalsLocked(&s, &c)
	return s
}

func (b *Breaker) dateLocked(s *Snapshot, c *core) {
	dates := b.dates()
	if c.state == Open && c.held == free {
		s.OpenUntil = dates.wall(c.due())
	}
	if c.held != free {
		s.HeldSince = dates.wall(c.holdSince)
	}
	if c.opened > 0 {
		s.LastOpened = dates.wall(c.openedAt)
	}
	if c.closedAt != never {
		s.LastClosed = dates.wall(c.closedAt)
	}
	if c.window != nil {
		at := c.latest
		if c.state != Closed {
			at = c.episode // the window is that of the closed state
		}
		w := c.window.counts(at)
		s.WindowCalls, s.WindowFailures, s.WindowSlow = w.calls, w.failures, w.slow
	}
}

func (b *Breaker) totalsLocked(s *Snapshot, c *core) {
	t := &b.totals
	s.Successes, s.Failures = t.sum(statSuccess), t.sum(statFailure)+c.lost
	s.Ignored, s.Throttled, s.Denied = t.sum(statIgnored), t.sum(statThrottled), t.sum(statDenied)
	s.Panics, s.Stale = t.sum(statPanics), t.sum(statStale)
	s.Calls = s.Successes + s.Failures + s.Ignored + s.Throttled + s.Denied + s.Panics
	s.RetriedInTask, s.Rejected = t.sum(statLatched), t.sum(statRejected)
	s.Shed, s.Shadowed = t.sum(statShed), t.sum(statShadowed)
}
