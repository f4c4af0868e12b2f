package resilience

import (
	"errors"
	"math"
	"slices"
)

//	           a failure breaks the rule, Trip
//	+--------+ -----------------------------> +--------+
//	| closed |                                |  open  | <------+
//	+--------+ <------ Reset, ForceClose ---- +--------+        |
//	    ^                               wait over, |            | a probe fails,
//	    |                              a call asks v            | is throttled or
//	    |  enough good probes in a row      +-----------+       | stays silent;
//	    +---------------------------------- | half-open | ------+ Trip
//	                                        +-----------+
//	ForceOpen and a denied credential hold open, ForceClose closed, until Reset.
//	For a while after a good probe, Ramp lets a growing share of calls through.
//
// The core is the breaker without its concurrency: plain values, no lock, no
// clock, no callback. Each method is a function of (core, event, now) that
// leaves the next core in its receiver and the transitions it made in out. The
// shell copies the core, steps the copy and commits it, so a discarded copy has
// changed nothing; a reader learns the current state in the same way. A breaker
// that is shared by several processes commits the same steps to a record in a
// store first.
//
// now counts nanoseconds from the breaker's own base.

// never is later than every instant.
const never = math.MaxInt64

// errLeaseRanOut stands in for the answer that a hung probe never gave.
var errLeaseRanOut = errors.New("the probe neither ended nor renewed its lease within ProbeTimeout")

// Reasons of the transitions that no operator asked for.
const (
	reasonConsecutive = "consecutive failures"
	reasonElapsed     = "reset timeout elapsed"
	reasonProbeOK     = "probe succeeded"
	reasonProbeBad    = "probe failed"
	reasonProbeSlow   = "probe too slow"
	reasonLease       = "probe lease ran out"
	reasonThrottled   = "throttled"
	reasonDenied      = "denied"
	reasonReset       = "reset"
)

// hold says who keeps the state where it is.
type hold uint8

const (
	free hold = iota
	heldOpen
	heldClosed
	heldDenied
)

var holdNames = [...]string{"", "forced_open", "forced_closed", "denied"}

func (h hold) String() string { return holdNames[h] }

// policy is what the core needs of a Config.
type policy struct {
	failMax                          int // 0 where a window rules
	reset, probeTimeout, maxThrottle int64
	jitter                           int64
	maxReset                         int64 // 0 if the wait does not grow
	ramp                             int64 // 0 without a ramp
	maxProbes, goodProbes            int
	openOnThrottle, stopOnDenied     bool
}

// ticket is an admission. That of a probe carries its lease.
type ticket struct {
	gen   uint64
	probe uint64 // 0 unless the call is a probe, or is let through in shadow mode
}

type lease struct {
	id      uint64
	expiry  int64
	waiting bool // its probe has not begun: observers are told first
	foreign bool // of another process, which keeps it; see sharing
}

// result is how an admitted call ended.
type result struct {
	verdict Verdict // Ignored for one that panicked
	slow    bool
	err     error
}

// count says how the totals take a result.
type count uint8

const (
	inTime  count = iota
	late          // its state ended before it did
	counted       // it is the answer of a probe whose silence has been counted
)

// why is what made a transition.
type why struct {
	reason string
	cause  error  // nil for time and operators
	probe  uint64 // 0 for none
}

// change is a transition that the shell has yet to date and deliver. Its two
// states are equal where only a hold began or ended.
type change struct {
	why
	from, to     State
	held         hold
	at           int64
	gen          uint64
	eligible     int
	failures     int
	until        int64
	since        int64
	sinceEpisode int64
	origin       string // of another process that made it
}

type core struct {
	policy *policy
	window window // nil under Consecutive; written only by commits that cannot fail

	state  State
	held   hold
	gen    uint64
	streak int
	latest int64 // no step goes back before it

	since    int64 // start of the state
	episode  int64 // when the breaker last left closed
	openedAt int64
	closedAt int64
	until    int64 // end of open
	pause    int64 // no probe before: what throttling upstreams asked for
	reason   string
	cause    error // with reason

	holdReason string
	holdSince  int64

	good      int
	leases    []lease // replaced, never written in place
	lastProbe uint64
	silent    []uint64 // probes that were counted when their leases ran out; likewise

	failed     int    // failed probes since the breaker last left closed
	random     uint64 // state of the generator of jitter
	rampFrom   int64  // when a ramp began
	rampUntil  int64  // 0 without one
	rampCredit int64  // in parts per million of a call

	veteran              bool   // another breaker of its name has been here before it
	opened, probes, lost uint64 // lost: leases that ran out
	lastFailure          error
	out                  []change

	sharing
}

// tick moves the core to now, or to the last instant if that is later, and
// ends the leases that have run out by then.
func (c *core) tick(now int64) int64 {
	c.latest = max(c.latest, now)
	if c.state == HalfOpen {
		c.expire()
	}
	return c.latest
}

// expire finds the probe that has been silent for too long. Its failure counts
// at the instant its lease ran out. A probe that has not begun has not failed,
// and loses its slot, as does one whose process keeps its lease no longer.
func (c *core) expire() {
	late := func(l lease) bool { return (l.waiting || l.foreign) && l.expiry <= c.latest }
	if slices.ContainsFunc(c.leases, late) {
		for _, l := range c.leases {
			if late(l) && !l.foreign {
				c.probes--
			}
		}
		c.leases = slices.DeleteFunc(slices.Clone(c.leases), late)
	}
	first := lease{expiry: never}
	for _, l := range c.leases {
		if l.expiry < first.expiry {
			first = l
		}
	}
	if first.expiry > c.latest {
		return
	}
	c.lost++
	c.lastFailure = errLeaseRanOut
	c.silent = append(slices.Clip(c.silent[max(0, len(c.silent)-maxSilent+1):]), first.id)
	c.reopen(first.expiry, why{reasonLease, errLeaseRanOut, first.id}, counts{calls: c.good + 1, failures: 1})
}

// maxSilent bounds how many silent probes are remembered until they answer. One
// that answers after so many others have fallen silent is counted as stale.
const maxSilent = 1024

// admit grants a ticket or refuses.
func (c *core) admit(now int64) (ticket, bool) {
	now = c.tick(now)
	if c.state == Closed {
		return ticket{gen: c.gen}, c.rampAdmits(now)
	}
	if !c.probeDue(now) {
		return ticket{}, false
	}
	if c.state == Open {
		c.halfOpen(now)
	}
	c.lastProbe++
	c.probes++
	c.leases = append(slices.Clip(c.leases), lease{
		id: c.lastProbe, expiry: now + c.policy.probeTimeout, waiting: len(c.out) > 0,
	})
	return ticket{c.gen, c.lastProbe}, true
}

// probeDue reports whether a breaker that is not closed would admit a probe.
func (c *core) probeDue(now int64) bool {
	switch {
	case c.held != free, now < c.pause:
		return false
	case c.state == Open:
		return now >= c.due()
	}
	return len(c.leases) < c.policy.maxProbes
}

// renew starts a live lease again. With a silence it lasts at least that long,
// and is not made shorter. It reports whether there was one.
func (c *core) renew(t ticket, now, silence int64, extend bool) bool {
	now = c.tick(now)
	i := c.lease(t)
	if i < 0 {
		return false
	}
	c.leases = slices.Clone(c.leases)
	expiry := now + max(silence, c.policy.probeTimeout)
	if extend {
		expiry = max(expiry, c.leases[i].expiry)
	}
	c.leases[i].expiry, c.leases[i].waiting = expiry, false
	return true
}

func (c *core) lease(t ticket) int {
	if t.gen != c.gen || t.probe == 0 {
		return -1
	}
	return slices.IndexFunc(c.leases, func(l lease) bool { return l.id == t.probe })
}

// settle takes the result of an admitted call and says how it counts. A late
// one leaves only the pause that it asked for.
func (c *core) settle(t ticket, r result, at int64) count {
	now := c.tick(at)
	c.throttle(r, now)
	switch i := c.lease(t); {
	case i >= 0:
		c.leases = slices.Delete(slices.Clone(c.leases), i, i+1)
		c.settleProbe(t, r, now)
	case t.probe != 0:
		return c.answered(t.probe)
	case t.gen != c.gen:
		return late
	case c.held == heldClosed:
		c.note(r)
	default:
		c.settleClosed(r, now, at)
	}
	return inTime
}

// answered takes the result of a probe that has lost its lease.
func (c *core) answered(probe uint64) count {
	i := slices.Index(c.silent, probe)
	if i < 0 {
		return late
	}
	c.silent = slices.Delete(slices.Clone(c.silent), i, i+1)
	return counted
}

// throttle keeps the later of the waits that are known.
func (c *core) throttle(r result, now int64) {
	if r.verdict.Outcome != Throttled || r.verdict.RetryAfter <= 0 {
		return
	}
	c.pause = max(c.pause, now+min(int64(r.verdict.RetryAfter), c.policy.maxThrottle))
	if c.state == Open && c.held == free {
		c.until = max(c.until, c.pause)
	}
}

func (c *core) note(r result) {
	if r.verdict.Failed() {
		c.lastFailure = r.err
	}
}

func (c *core) settleProbe(t ticket, r result, now int64) {
	c.note(r)
	tally := counts{calls: c.good}
	failed := tally.plus(counts{calls: 1, failures: 1})
	switch {
	case r.verdict.Outcome == Success && r.slow:
		c.reopen(now, why{reason: reasonProbeSlow, probe: t.probe}, failed)
	case r.verdict.Outcome == Success:
		if c.good++; c.good >= c.policy.goodProbes {
			tally.calls++
			c.close(now, why{reason: reasonProbeOK, probe: t.probe}, tally)
			c.startRamp(now)
		}
	case r.verdict.Outcome == Failure:
		c.reopen(now, why{reasonProbeBad, r.err, t.probe}, failed)
	case r.verdict.Outcome == Throttled:
		c.open(now, c.throttledUntil(r, now), why{reasonThrottled, r.err, t.probe}, tally)
	case r.verdict.Outcome == Denied && c.policy.stopOnDenied:
		c.stop(now, why{reasonDenied, r.err, t.probe}, tally)
	}
}

// settleClosed counts a call of the closed state. A window is given the time
// as it was read, since a late result belongs to an older bucket.
func (c *core) settleClosed(r result, now, at int64) {
	c.note(r)
	if r.verdict.Failed() {
		c.failedOnce()
		c.weigh(counts{calls: 1, failures: 1, slow: int(flag(r.slow))}, r.err, now, at)
	}
	switch {
	case c.state == Open:
	case r.verdict.Outcome == Success:
		c.works()
		c.weigh(counts{calls: 1, slow: int(flag(r.slow))}, nil, now, at)
	case r.verdict.Outcome == Throttled && c.policy.openOnThrottle:
		c.open(now, c.throttledUntil(r, now), why{reason: reasonThrottled, cause: r.err}, c.tally(now))
	case r.verdict.Outcome == Denied && c.policy.stopOnDenied:
		c.stop(now, why{reason: reasonDenied, cause: r.err}, c.tally(now))
	}
}

// weigh records one eligible call and opens where it broke the rule.
func (c *core) weigh(one counts, cause error, now, at int64) {
	reason := ""
	if c.window != nil {
		c.window.record(one, at)
		reason = c.window.rule().broken(one, c.window.counts(at))
	} else if c.longest() >= c.policy.failMax {
		reason = reasonConsecutive
		c.alone = c.joined && c.known < c.policy.failMax
	}
	if reason != "" {
		c.open(now, now+c.first(), why{reason: reason, cause: cause}, c.tally(at))
	}
}

// tally is what the closed state has counted towards opening.
func (c *core) tally(now int64) counts {
	if c.window != nil {
		return c.window.counts(now)
	}
	return counts{calls: c.longest(), failures: c.longest()}
}

// throttledUntil is the end of the wait that the upstream asked for, or of
// ResetTimeout if it did not say. A longer wait that is known prevails.
func (c *core) throttledUntil(r result, now int64) int64 {
	if r.verdict.RetryAfter > 0 {
		return c.pause
	}
	return now + c.first()
}

// The four moves, and the hold.

func (c *core) open(at, until int64, w why, tally counts) {
	c.until, c.late = max(until, c.pause), 0
	c.reason, c.cause = w.reason, w.cause
	c.opened++
	if c.state == Closed {
		c.episode, c.failed, c.opener = at, 0, ""
	}
	c.openedAt = at
	c.move(Open, at, w, tally)
}

func (c *core) halfOpen(at int64) {
	c.move(HalfOpen, at, why{reason: reasonElapsed, probe: c.lastProbe + 1}, counts{})
}

func (c *core) close(at int64, w why, tally counts) {
	c.closedAt = at
	c.empty()
	c.move(Closed, at, w, tally)
}

// empty forgets what the closed state counts.
func (c *core) empty() {
	c.works()
	if c.window != nil {
		c.window.clear()
	}
}

// stop opens for good: the upstream denied the credential.
func (c *core) stop(at int64, w why, tally counts) {
	c.lastFailure = w.cause
	c.seize(heldDenied, at, w)
	c.open(at, never, w, tally)
}

func (c *core) seize(h hold, at int64, w why) {
	c.held, c.holdReason, c.holdSince = h, w.reason, at
}

func (c *core) move(to State, at int64, w why, tally counts) {
	c.nextGeneration()
	c.report(to, at, w, tally)
	c.state, c.since, c.good, c.leases, c.rampUntil, c.closing = to, at, 0, nil, 0, false
}

// report puts a change out.
func (c *core) report(to State, at int64, w why, tally counts) {
	ch := change{
		why: w, from: c.state, to: to, held: c.held, at: at, gen: c.gen,
		eligible: tally.calls, failures: tally.failures, since: c.since, sinceEpisode: c.episode,
		origin: c.voice,
	}
	if to == Open {
		ch.until = c.due()
	}
	c.out = append(c.out, ch)
}

// The operator's events.

// trip opens as failures would. A breaker that is already open stays as it is.
func (c *core) trip(w why, now int64) {
	now = c.tick(now)
	if c.held != free || c.state == Open && now < c.due() {
		return
	}
	if c.state == Open {
		c.halfOpen(now)
	}
	c.open(now, now+c.first(), w, c.current(now))
}

// current is what the state has counted that is about to end.
func (c *core) current(now int64) counts {
	if c.state == Closed {
		return c.tally(now)
	}
	return counts{calls: c.good}
}

func (c *core) forceOpen(w why, now int64) {
	now = c.tick(now)
	if c.held == heldOpen {
		return
	}
	c.seize(heldOpen, now, w)
	if c.state != Open {
		c.open(now, never, w, c.current(now))
		return
	}
	c.until, c.reason = never, w.reason
	c.report(Open, now, w, counts{})
}

func (c *core) forceClose(w why, now int64) {
	now = c.tick(now)
	if c.held == heldClosed {
		return
	}
	c.seize(heldClosed, now, w)
	if c.state != Closed {
		c.close(now, w, c.current(now))
		return
	}
	c.report(Closed, now, w, c.tally(now))
	c.empty()
	c.rampUntil = 0
}

// restart is Reset: closed, empty, a new generation, no hold of any kind.
func (c *core) restart(now int64) {
	now = c.tick(now)
	held := c.held
	c.seize(free, 0, why{})
	c.pause, c.until, c.late = 0, 0, 0
	c.resets = max(c.resets+1, c.floor)
	if c.state != Closed {
		c.close(now, why{reason: reasonReset}, c.current(now))
		return
	}
	c.nextGeneration()
	if held != free {
		c.report(Closed, now, why{reason: reasonReset}, c.tally(now))
	}
	c.since, c.rampUntil = now, 0
	c.empty()
}

// The word: what a closed call needs to know, in one atomic value.

const (
	stateBits  = 2
	streakBits = 16

	stateMask  = 1<<stateBits - 1
	veteranBit = 1 << stateBits       // tasks may have been refused
	rampBit    = 1 << (stateBits + 1) // admits a share of calls
	suspectBit = 1 << (stateBits + 2) // sharing.suspect
	streakAt   = stateBits + 3
	streakMask = uint64(maxStreak) << streakAt
	genAt      = streakAt + streakBits

	maxGeneration = 1<<(64-genAt) - 1
)

func (c *core) word() uint64 {
	w := uint64(c.state) | uint64(c.longest())<<streakAt | c.gen<<genAt
	if c.veteran || c.joining || c.opened > 0 {
		w |= veteranBit
	}
	if c.suspect {
		w |= suspectBit
	}
	if c.rampUntil != 0 {
		w |= rampBit
	}
	return w
}

func wordState(w uint64) State { return State(w & stateMask) }
func wordStreak(w uint64) int  { return int(w & streakMask >> streakAt) }
func wordGen(w uint64) uint64  { return w >> genAt }

// reads is the state that a reader sees: open turns half-open at its deadline,
// with or without a call.
func (c *core) reads() State {
	if c.state == Open && c.held == free && c.latest >= c.due() {
		return HalfOpen
	}
	return c.state
}

// retry is the earliest instant at which a refused call may fare better.
func (c *core) retry() int64 {
	switch {
	case c.state == Closed:
		return c.rampUntil
	case c.state == Open:
		return c.due()
	case c.probeDue(c.latest):
		return c.latest
	}
	at := int64(never)
	for _, l := range c.leases {
		at = min(at, l.expiry)
	}
	if at == never || len(c.leases) < c.policy.maxProbes {
		return max(c.latest, c.pause)
	}
	return max(at, c.pause)
}
