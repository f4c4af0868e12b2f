package resilience

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/resilience/internal/mask"
)

// viewer translates between a standing and the core of one process at one
// moment.
type viewer struct {
	self   string // this process
	origin string // its host
	shift  int64  // from the breaker's clock to the store's
	lease  int64  // how long a claim lasts
	policy string
	slack  int64 // how far the store's clock may be ahead of what is known of it
	touch  bool  // the claims of this process begin again
	remote bool  // what is shown was made elsewhere
}

// local is an instant of the store on the breaker's clock.
func (v *viewer) local(at int64) int64 {
	if at == 0 {
		return 0
	}
	return at - v.shift
}

// rebase moves the instants of a state that are further ahead than they were
// when they were written: the store's clock has stepped back since. Without
// that, processes which follow one another would each wait as if the state had
// just begun. The store's clock must be known well.
func (v *viewer) rebase(s *standing, now int64) (moved bool) {
	if s.State == Closed {
		return false
	}
	there := now + v.shift
	s.Leases = slices.Clone(s.Leases)
	if ahead := s.Since - there; ahead > v.slack {
		moved = true
		for _, at := range []*int64{&s.Since, &s.Episode, &s.OpenedAt, &s.Until, &s.Pause, &s.HeldSince} {
			if *at != 0 {
				*at -= ahead
			}
		}
		for i := range s.Leases {
			s.Leases[i].Expiry -= ahead
		}
	}
	// What was written later in the state may be ahead all the same.
	within := func(at *int64, most time.Duration) {
		if *at > there+int64(most)+v.slack {
			*at, moved = there+int64(most), true
		}
	}
	within(&s.Until, s.Wait)
	within(&s.Pause, s.PauseFor)
	for i := range s.Leases {
		within(&s.Leases[i].Expiry, s.Leases[i].For)
	}
	return moved
}

// show makes c what s says. The change of state, if there is one, is one move.
func (v *viewer) show(c *core, s *standing, now int64) {
	now = c.tick(now)
	before, held := len(c.out), c.held
	if v.remote {
		c.voice = s.maker()
	}
	at := min(max(v.local(s.Since), c.since), now)
	if h := s.hold(); h != c.held {
		c.seize(h, min(v.local(s.HeldSince), now), why{reason: s.HeldReason})
	}
	v.showState(c, s, at)
	v.showStreak(c, s)
	v.showWait(c, s, now)
	if held != c.held && len(c.out) == before {
		c.report(c.state, now, why{reason: cmp.Or(c.holdReason, reasonReset)}, counts{})
	}
	c.voice = ""
	c.resets = s.Resets
}

// maker is who made the last move. Others may have written since.
func (s *standing) maker() string { return cmp.Or(s.Mover, s.By) }

// showState makes the move to the state of s. Where the state is the same, only
// its generation may be another.
func (v *viewer) showState(c *core, s *standing, at int64) {
	fresh := c.mirrored != s.Generation
	c.mirrored = s.Generation
	floor := c.floor
	c.floor = s.Generation
	known, opener := c.knownFailure(), c.opener
	if c.state == Closed && v.remote {
		opener = s.Origin
	}
	switch {
	case s.State == c.state && fresh && c.gen < s.Generation:
		c.gen, c.good, c.leases = s.Generation, 0, nil
		if s.State == Open {
			if v.remote {
				c.opened++
			}
			c.since, c.openedAt, c.reason, c.cause = at, at, s.Reason, v.cause(s)
		}
	case s.State == c.state:
	case s.State == Open:
		c.open(at, never, why{reason: s.Reason, cause: v.cause(s)}, v.tally(c, s, at))
	case s.State == HalfOpen:
		c.openedUnseen(s, v)
		c.move(HalfOpen, at, why{reason: reasonElapsed, probe: s.LastProbe}, v.tally(c, s, at))
	default:
		v.showClosing(c, s, at)
	}
	c.floor = floor
	if s.State != Closed {
		c.episode, c.openedAt = min(v.local(s.Episode), at), min(v.local(s.OpenedAt), at)
		c.opener = opener
	}
	if s.State != Closed && s.Held == "" {
		c.cause = cmp.Or(known, c.cause)
		c.lastFailure = c.cause
	}
}

// tally is what has counted towards the end of c's state: in the whole fleet,
// where its streak opened the breaker.
func (v *viewer) tally(c *core, s *standing, at int64) counts {
	switch {
	case c.state != Closed || !v.remote:
		return c.current(at)
	case s.Reason == reasonConsecutive:
		return counts{calls: s.Streak, failures: s.Streak}
	}
	return counts{} // of the process that opened it
}

// knownFailure is a failure of this process in the present outage. It says more
// than that another process had one.
func (c *core) knownFailure() error {
	_, remote := c.lastFailure.(*remoteError) //nolint:errorlint // made here, wrapped by nobody
	if remote || c.state == Closed && c.streak == 0 {
		return nil
	}
	return c.lastFailure
}

// openedUnseen is what an opening leaves that was over before it was seen.
func (c *core) openedUnseen(s *standing, v *viewer) {
	if c.state == Closed {
		c.opened++
		c.reason, c.cause = s.Reason, v.cause(s)
	}
}

// showClosing closes c. After a good probe each process ramps by itself.
func (v *viewer) showClosing(c *core, s *standing, at int64) {
	w := v.closing(c, s)
	c.close(at, w, c.current(at))
	if w.reason == reasonProbeOK {
		c.startRamp(at)
	}
}

func (v *viewer) closing(c *core, s *standing) why {
	switch {
	case s.Held != "":
		return why{reason: s.HeldReason}
	case s.Resets != c.resets:
		return why{reason: reasonReset}
	}
	return why{reason: reasonProbeOK, probe: s.LastProbe}
}

func (v *viewer) showStreak(c *core, s *standing) {
	c.known, c.suspect = 0, false
	if c.policy.failMax > 0 {
		c.known = min(s.Streak, maxStreak)
		c.suspect = s.State == Closed && s.Suspect == v.origin && v.origin != ""
	}
}

// showWait sets the deadlines of a state that is not closed. A deadline is no
// later than the wait that it was written with: a clock of the store that
// stepped back prolongs nothing. A pause that this process was asked for stays
// until a reset: while the breaker is closed, no record has it.
func (v *viewer) showWait(c *core, s *standing, now int64) {
	c.late = 0
	if s.Resets > c.resets {
		c.pause = 0
	}
	if s.Pause != 0 {
		c.pause = max(c.pause, min(v.local(s.Pause), now+c.policy.maxThrottle))
	}
	if s.State == Closed {
		return
	}
	c.until = never
	if s.Held == "" {
		c.until = max(min(v.local(s.Until), now+int64(max(s.Wait, 0))), c.pause)
	}
	if s.Before != "" && s.FailedBy == v.origin {
		c.late = handicap
	}
	c.failed, c.good, c.lastProbe = s.Failed, s.Good, s.LastProbe
	c.leases = v.leases(c, s, now)
}

func (v *viewer) leases(c *core, s *standing, now int64) (all []lease) {
	for _, l := range s.Leases {
		mine := slices.IndexFunc(c.leases, func(own lease) bool { return own.id == l.Probe && !own.foreign })
		if l.Owner == v.self && mine >= 0 {
			all = append(all, c.leases[mine])
			continue
		}
		all = append(all, lease{id: l.Probe, expiry: min(v.local(l.Expiry), now+int64(l.For)), foreign: true})
	}
	return all
}

// cause stands in for the error of another process.
func (v *viewer) cause(s *standing) error {
	if s.Held != "" || s.Origin == "" {
		return nil
	}
	where := s.Origin
	switch {
	case s.FailedBy != "":
		where = s.FailedBy
	case s.Reason == reasonConsecutive && s.StreakOf == several:
		where = "several hosts"
	}
	return &remoteError{origin: where, reason: s.Reason}
}

// remoteError is a failure that another process has seen. Its text stays there:
// it may hold what only that process may know.
type remoteError struct{ origin, reason string }

func (e *remoteError) Error() string { return fmt.Sprintf("%s on %s", e.reason, e.origin) }

// write is s after what made before into after. It returns s itself if that is
// of no interest to others.
func (v *viewer) write(s *standing, before, after *core) standing {
	n := *s
	switch {
	case after.held == heldDenied: // a matter of this process's credential
		n.Leases = slices.DeleteFunc(slices.Clone(s.Leases), func(l claim) bool { return l.Owner == v.self })
	case after.alone:
		v.writeStreak(&n, before, after)
	default:
		v.writeState(&n, before, after)
		v.writeStreak(&n, before, after)
		v.writeWait(&n, before, after)
		v.writeHold(&n, before, after)
		n.Leases = v.claims(s, before, after)
	}
	if n.same(s) {
		return n
	}
	if s.By != v.origin {
		n.Before = s.By
	}
	n.By, n.Policy = v.origin, v.policy
	return n
}

// stamp is an instant of the core for the store, and what was there if it is
// the same as before.
func (v *viewer) stamp(was, before, after int64) int64 {
	if before == after {
		return was
	}
	return after + v.shift
}

func (v *viewer) writeState(n *standing, before, after *core) {
	n.State = after.state
	if after.gen != before.gen {
		n.Generation, n.Since = after.gen, after.since+v.shift
	}
	n.Episode = v.stamp(n.Episode, before.episode, after.episode)
	n.OpenedAt = v.stamp(n.OpenedAt, before.openedAt, after.openedAt)
	switch {
	case after.opened > before.opened:
		n.Reason = mask.String(after.reason)
		if before.state == Closed {
			n.Origin = v.origin
		}
	case after.state == Closed:
		n.Reason, n.Origin = "", ""
	}
	if after.gen != before.gen || after.held != before.held {
		n.Mover = v.origin
	}
	if after.failed > before.failed {
		n.FailedBy = v.origin
	}
	if after.state == Closed {
		n.Failed, n.Good, n.FailedBy = 0, 0, ""
		return
	}
	n.Failed, n.Good, n.LastProbe = after.failed, after.good, after.lastProbe
}

func (v *viewer) writeStreak(n *standing, before, after *core) {
	if after.policy.failMax == 0 {
		return
	}
	if after.known > before.known {
		switch {
		case before.known == 0:
			n.StreakOf = v.origin
		case n.StreakOf != v.origin:
			n.StreakOf = several
		}
	}
	switch {
	case after.opened == before.opened:
	case before.state == Closed && after.reason != reasonConsecutive:
		n.StreakOf = ""
	case before.state != Closed && n.StreakOf != v.origin:
		n.StreakOf = several // the failed probe of another origin confirms it
	}
	if n.Suspect == v.origin && !after.suspect {
		n.Suspect = ""
	}
	if n.State != Closed {
		if before.state == Closed {
			n.Streak = max(before.known, after.known)
		}
		return
	}
	if before.state != Closed && after.state == Closed && after.resets == before.resets && after.held == free {
		n.Suspect = v.refuted(n)
	}
	if n.Streak = after.known; n.Streak == 0 {
		n.StreakOf = ""
	}
}

// refuted is the one origin whose failures opened a breaker that another
// origin's probe has closed.
func (v *viewer) refuted(n *standing) string {
	if n.StreakOf == several || n.StreakOf == v.origin {
		return ""
	}
	return n.StreakOf
}

func (v *viewer) writeWait(n *standing, before, after *core) {
	if after.state == Closed {
		n.Until, n.Wait, n.Pause, n.PauseFor = 0, 0, 0, 0
		return
	}
	if after.pause != before.pause {
		n.Pause, n.PauseFor = after.pause+v.shift, time.Duration(max(0, after.pause-after.latest))
	}
	switch {
	case after.until == never:
		n.Until, n.Wait = 0, 0
	case after.until != before.until || after.opened != before.opened:
		n.Until, n.Wait = after.until+v.shift, time.Duration(after.until-after.latest)
	}
}

func (v *viewer) writeHold(n *standing, before, after *core) {
	n.Resets = after.resets
	if after.held == before.held {
		return
	}
	n.Held, n.HeldReason, n.HeldSince = after.held.String(), "", 0
	if after.held != free {
		n.HeldReason, n.HeldSince = mask.String(after.holdReason), after.holdSince+v.shift
	}
}

// claims are the leases of after. Those of others stay as they are until a
// probe takes their place, so that the end of one is not a write of its own.
func (v *viewer) claims(s *standing, before, after *core) (all []claim) {
	if after.gen == before.gen && after.lastProbe == before.lastProbe {
		for _, l := range s.Leases {
			if l.Owner != v.self {
				all = append(all, l)
			}
		}
	}
	expiry := after.latest + v.shift + v.lease
	for _, l := range after.leases {
		was := slices.IndexFunc(s.Leases, func(c claim) bool { return c.Probe == l.id })
		switch {
		case l.foreign && was >= 0:
			if !slices.Contains(all, s.Leases[was]) {
				all = append(all, s.Leases[was])
			}
		case l.foreign:
		case was >= 0 && !v.touch:
			all = append(all, s.Leases[was])
		default:
			all = append(all, claim{l.id, v.self, expiry, time.Duration(v.lease)})
		}
	}
	slices.SortFunc(all, func(a, b claim) int { return cmp.Compare(a.Probe, b.Probe) })
	return all
}
