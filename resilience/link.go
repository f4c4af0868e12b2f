package resilience

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// phase is how a breaker stands to its fleet.
type phase uint8

const (
	// apart: the store cannot be reached, or what it says cannot be read.
	apart phase = iota
	// following: the breaker is what the fleet's record says.
	following
	// alone: the breaker opened by itself while the fleet stays closed.
	alone
)

// link is a breaker's part in a fleet. An event that changes what is shared is
// stepped on a copy of the core, written to the store, and committed here only
// then; where another process was faster it is stepped again on what that one
// has written. One write is in flight at a time, and takes with it all the
// events that wait.
//
// Its methods whose name ends in Locked run under the breaker's lock. The
// fleet's lock is taken before it.
type link struct {
	b       *Breaker
	fleet   *Fleet
	key     string
	stagger time.Duration
	due     atomic.Bool // a success has cleared the streak

	// The rest is under the breaker's lock.
	phase    phase
	standing standing
	version  uint64
	queue    []*request
	flight   []*request
	working  bool
	owed     bool    // the store has lost the standing
	hint     *Record // pushed during a flight
	flights  uint64
	waits    bool  // for the answer to a request
	sent     int64 // when that was sent, of the fleet's clock
	closeAt  int64 // when this process takes over that the breaker is closed; 0 for now
	parted   parting
	keeping  bool     // the keeper's timer runs
	broken   Record   // one that cannot be read; its Version is 0 for none
	warned   []string // policies of others that were told of
}

// parting is what a breaker was when the store was lost.
type parting struct {
	generation uint64 // the fleet's
	quiet      bool
	failed     int
}

// request is an event that waits for the store.
type request struct {
	event func(*core) // may be nil: the streak was cleared
	then  func(*core) // given for an admission, which looks at the result
	told  bool        // of no concern to a breaker that is not what the record says
	touch bool        // this process keeps its probes
	moved bool
	here  bool          // settled without the store
	done  chan struct{} // nil if nobody waits
}

func newLink(b *Breaker, f *Fleet, key string) *link {
	l := &link{b: b, fleet: f, key: key, stagger: f.cfg.Stagger}
	if l.stagger == 0 {
		l.stagger = min(b.cfg.ResetTimeout/10, maxStagger)
	}
	return l
}

// join puts a breaker into a fleet.
func (b *Breaker) join(f *Fleet) {
	if b.shadow {
		return
	}
	if old := b.link.Load(); old != nil && old.fleet.isClosed() {
		b.quit()
	}
	b.mu.Lock()
	if b.link.Load() != nil {
		b.mu.Unlock()
		return
	}
	l := newLink(b, f, shareKey(b.name, b.addresses))
	b.stepLocked(func(c *core) { c.joining = true })
	b.link.Store(l)
	b.mu.Unlock()
	f.add(l)
}

// quit ends the breaker's part in its fleet.
func (b *Breaker) quit() {
	b.mu.Lock()
	l := b.link.Swap(nil)
	b.mu.Unlock()
	if l != nil {
		l.fleet.remove(l)
	}
}

// Locate says where the upstream is, such as https://api.example.com/v1, so that
// a fleet does not take another server behind the same breaker for it. It must
// not hold a secret. NewClient of the doors calls it; where a breaker has
// several addresses, all of them together tell it from others, up to the first
// sixteen.
func (b *Breaker) Locate(address string) {
	b.mu.Lock()
	known := b.addresses
	at, found := slices.BinarySearch(known, address)
	if address == "" || found || len(known) == maxAddresses {
		b.mu.Unlock()
		return
	}
	b.addresses = slices.Insert(slices.Clone(known), at, address)
	l := b.link.Load()
	b.mu.Unlock()
	if l != nil {
		b.quit()
		b.join(l.fleet)
	}
}

// shareKey is the record of a breaker. The number is that of its format.
func shareKey(name string, addresses []string) string {
	key := "1/" + name
	if len(addresses) > 0 {
		key += "@" + strings.Join(addresses, ",")
	}
	if len(key) <= maxShareKey {
		return key
	}
	return fmt.Sprintf("1/%s@%x", name, sha256.Sum256([]byte(key)))
}

const maxAddresses = 16

// maxShareKey bounds a key in bytes.
const maxShareKey = 512

// await waits for the store's first answer, or for its first failure, at most
// for FleetConfig.Timeout.
func (l *link) await(ctx context.Context) {
	select {
	case <-l.fleet.first:
	case <-ctx.Done():
	}
}

// mirrorsLocked reports whether the core is what the standing says.
func (l *link) mirrorsLocked() bool {
	c := &l.b.core
	return l.phase == following && c.held != heldDenied && l.closeAt == 0 &&
		c.state == l.standing.State && c.mirrored == l.standing.Generation
}

// viewer is at now of the breaker's clock.
func (l *link) viewer(now int64) *viewer {
	return &viewer{
		self: l.fleet.self, origin: l.fleet.cfg.Origin, shift: l.fleet.storeTime() - now,
		lease:  int64(min(l.fleet.cfg.Lease, l.b.cfg.ProbeTimeout)),
		slack:  int64(l.fleet.cfg.Timeout),
		policy: l.b.version,
	}
}

// generationEpoch is where generations begin to count, 2000 in milliseconds, so
// that four to a millisecond fit in the word until 2069.
const generationEpoch = 946_684_800_000

// highest is where generations of a clock end, in 2068: what comes after a
// later one is left for moves.
const highest = maxGeneration - 1<<32

// floorLocked is the least generation of the next move: one that no process has
// had, also if the store has lost what it knew.
func (l *link) floorLocked(v *viewer, now int64) uint64 {
	millis := (now+v.shift)/int64(time.Millisecond) - generationEpoch
	byClock := uint64(max(millis, 0)) * 4
	if byClock > highest {
		byClock = 0 // a clock that is wrong by decades
	}
	return max(l.standing.Generation+1, byClock)
}

// baseLocked is the fleet's breaker as it is known here.
func (l *link) baseLocked(v *viewer, now int64) core {
	c := l.b.core
	c.hear(l.b.word.Load())
	if !l.mirrorsLocked() {
		c = core{policy: c.policy, closedAt: never, random: c.random, latest: c.latest, gen: l.standing.Generation}
		v.show(&c, &l.standing, now)
	}
	c.window, c.out, c.joined = nil, nil, true
	c.floor, c.handicap = l.floorLocked(v, now), 0
	if l.standing.Before != "" || l.standing.By != "" && l.standing.By != v.origin {
		c.handicap = handicap
	}
	return c
}

// ask is for admission.
func (l *link) ask(question asking) (moved bool, a asking, err error) {
	a = question
	moved = l.step(a.event, func(core *core) { err = l.b.turnedAway(core, a.ok) })
	return moved, a, err
}

// settle is the end of a call.
func (l *link) settle(end settling) (moved bool, how count) {
	moved = l.step(end.event, nil)
	return moved, end.how
}

// renew keeps a probe of this process. Other processes need not know.
func (l *link) renew(t ticket, now, silence int64, extend bool) (renewed bool) {
	if l.step(func(c *core) { renewed = c.renew(t, now, silence, extend) }, nil) {
		l.b.deliver()
	}
	return renewed
}

// step is Breaker.step for a shared breaker.
func (l *link) step(event, then func(*core)) (moved bool) {
	b := l.b
	b.mu.Lock()
	moved = l.reviseLocked()
	var r *request
	switch {
	case !l.mirrorsLocked(), !b.plain && b.core.state == Closed:
		var local bool
		local, r = l.localLocked(event, then)
		moved = local || moved
	case l.sharedLocked(event):
		r = l.enqueueLocked(&request{event: event, then: then, done: make(chan struct{})})
	default:
		moved = l.commitLocked(event, then) || moved
	}
	b.mu.Unlock()
	return l.wait(r) || moved
}

// operate is step for what an operator does, which concerns the fleet whatever
// this process's breaker is.
func (l *link) operate(event func(*core)) {
	b := l.b
	l.await(context.Background())
	b.mu.Lock()
	r := &request{event: event, done: make(chan struct{})}
	l.reviseLocked()
	l.enqueueLocked(r)
	if l.phase == apart {
		l.settleApartLocked()
	}
	b.mu.Unlock()
	l.wait(r)
	if r.here {
		l.actedHere()
	}
	b.deliver()
}

func (l *link) actedHere() {
	why := "the store does not answer"
	l.b.mu.Lock()
	if l.broken.Version != 0 {
		why = "the record cannot be read"
	}
	l.b.mu.Unlock()
	l.b.log(slog.LevelWarn, "an operator's action on a shared circuit breaker applies to this process only",
		slog.String("upstream", l.b.name), l.fleet.about(), slog.String("because", why))
}

// commitLocked steps the core of this process.
func (l *link) commitLocked(event, then func(*core)) (moved bool) {
	moved = l.b.stepLocked(event)
	if l.b.core.alone {
		l.phase = alone
		l.b.stepLocked(func(c *core) { c.alone, c.joined, c.suspect, c.known = false, false, false, 0 })
	}
	if then != nil {
		then(&l.b.core)
	}
	return moved
}

// sharedLocked reports whether an event changes what the fleet has to know.
func (l *link) sharedLocked(event func(*core)) bool {
	now := l.b.now()
	next, _ := l.nextLocked(l.viewer(now), now, &request{event: event})
	return !next.same(&l.standing)
}

// localLocked steps the core of a process that is not what the fleet is, or
// whose window decides. It returns what the fleet is told of it, if anything.
func (l *link) localLocked(event, then func(*core)) (moved bool, told *request) {
	c := &l.b.core
	state, failed := c.state, c.failed
	moved = l.commitLocked(event, then)
	opened := state == Closed && c.state == Open && c.held == free
	switch {
	case l.phase == following && opened:
		at, until, w, tally := c.openedAt, c.until, why{reason: c.reason, cause: c.cause}, c.tally(c.latest)
		told = l.tellLocked(Closed, func(f *core) { f.open(at, until, w, tally) })
	case l.phase == alone && c.failed > failed:
		r := result{verdict: Verdict{Outcome: Failure}, err: c.lastFailure}
		now := c.latest
		told = l.tellLocked(Closed, func(f *core) { f.settleClosed(r, now, now) })
	case l.phase == alone && c.state == Closed && c.held == free: // its probe was good
		l.followLocked(false)
		told = l.enqueueLocked(&request{told: true, done: make(chan struct{}), event: (*core).works})
	}
	return moved, told
}

// tellLocked has the fleet take an event that this process has had by itself,
// if the fleet's breaker is in a state and not held there.
func (l *link) tellLocked(in State, event func(*core)) *request {
	return l.enqueueLocked(&request{told: true, done: make(chan struct{}), event: func(f *core) {
		if f.state == in && f.held == free {
			event(f)
		}
	}})
}

// enqueueLocked hands an event to the goroutine that writes.
func (l *link) enqueueLocked(r *request) *request {
	l.queue = append(l.queue, r)
	if !l.working {
		l.working = true
		l.fleet.tasks.run(l.work)
	}
	return r
}

// wait waits until r is settled, but not for a store that hangs.
func (l *link) wait(r *request) (moved bool) {
	if r == nil {
		return false
	}
	most := l.fleet.cfg.Timeout + l.fleet.cfg.Timeout/2
	patience := time.NewTimer(most)
	defer patience.Stop()
	for {
		select {
		case <-r.done:
			return r.moved
		case <-patience.C:
		}
		left := most - l.unanswered()
		if left <= 0 {
			l.fleet.lost(context.DeadlineExceeded)
			<-r.done
			return r.moved
		}
		patience.Reset(left)
	}
}

// unanswered is how long the request under way has waited for the store.
func (l *link) unanswered() time.Duration {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if !l.waits {
		return 0
	}
	return time.Duration(l.fleet.clock.now() - l.sent)
}

// sync is told by a success that it has cleared the streak.
func (l *link) sync() {
	if l.due.Swap(true) {
		return
	}
	l.fleet.tasks.run(func() {
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		l.due.Store(false)
		if l.phase == following {
			l.enqueueLocked(&request{})
		}
	})
}

// flush has what is being written, or is to be, finished. It returns nil where
// there is nothing, and else a request to wait for.
func (l *link) flush() *request {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.phase != following || !l.working && !l.due.Load() {
		return nil
	}
	return l.enqueueLocked(&request{done: make(chan struct{})})
}

// work writes until nothing waits.
func (l *link) work() {
	b := l.b
	b.mu.Lock()
	var cause error
	for cause == nil && l.phase != apart && len(l.queue) > 0 {
		cause = l.flyLocked()
	}
	l.working = false
	b.mu.Unlock()
	if cause != nil {
		l.fleet.lost(cause)
	}
	deliverAll([]*link{l})
}

// flyLocked writes what the events that wait make of the record. It returns why
// the store is lost, if it is.
func (l *link) flyLocked() error {
	l.flight, l.queue = l.queue, nil
	l.flights++
	flight := l.flights
	ctx, cancel := context.WithTimeout(l.fleet.ctx, l.fleet.cfg.Timeout)
	defer cancel()
	for conflicts := 0; ; conflicts++ {
		now := l.b.now()
		v := l.viewer(now)
		next, before := l.nextLocked(v, now, l.flight...)
		if !l.owed && next.same(&l.standing) {
			l.landLocked(nil, &before)
			return nil
		}
		version, value := l.version, next.bytes()
		keep := next.keep(l.b.cfg.ResetTimeout, now+v.shift)
		l.waits, l.sent = true, l.fleet.clock.now()
		l.b.mu.Unlock()
		r, err := l.fleet.store.Swap(ctx, l.key, version, value, keep)
		l.b.mu.Lock()
		l.waits = false
		if l.phase == apart || l.flights != flight {
			return nil // the events were settled without the store
		}
		switch {
		case err == nil:
			l.fleet.heard(r)
			l.version, l.owed = r.Version, false
			if l.viewer(l.b.now()).shift-v.shift > v.slack && conflicts == 0 {
				continue // its instants are long ago: this machine was suspended
			}
			l.landLocked(&next, &before)
			return nil
		case conflicts > 0 && ctx.Err() != nil && l.fleet.ctx.Err() == nil: // the store is well, others are faster
			l.refuseLocked()
			return nil
		case !errors.Is(err, ErrConflict):
			return err
		}
		l.fleet.heard(r)
		l.answeredLocked(r)
		if l.phase == apart {
			return nil
		}
	}
}

// nextLocked is the standing that events make of the fleet's breaker, and that
// breaker before them.
func (l *link) nextLocked(v *viewer, now int64, events ...*request) (next standing, before core) {
	before = l.baseLocked(v, now)
	after := before
	for _, r := range events {
		v.touch = v.touch || r.touch
		if r.event != nil {
			r.event(&after)
		}
	}
	return v.write(&l.standing, &before, &after), before
}

// landLocked commits the events of a flight, as they were tried on before.
func (l *link) landLocked(written *standing, before *core) {
	c := &l.b.core
	mirrors := l.mirrorsLocked()
	if written != nil {
		l.warnOfLostProbesLocked(written)
		l.standing = *written
	}
	if mirrors {
		c.floor, c.handicap = before.floor, before.handicap
		for _, r := range l.flight {
			if r.event != nil {
				r.moved = l.commitLocked(r.event, r.then) || r.moved
			}
		}
		c.floor, c.handicap = 0, 0
		if l.phase == following && c.state == l.standing.State {
			c.mirrored = l.standing.Generation
		}
	}
	staggers := written == nil && l.closeAt != 0
	if !staggers && (!mirrors || l.phase == following && !l.mirrorsLocked()) {
		l.followLocked(false)
	}
	if !mirrors && !l.mirrorsLocked() {
		l.aloneLocked(l.flight)
	}
	l.settleLocked()
}

// warnOfLostProbesLocked tells of leases of other processes that this one has
// found expired: those are gone, or do not run.
func (l *link) warnOfLostProbesLocked(written *standing) {
	if written.State != HalfOpen || written.Generation != l.standing.Generation {
		return
	}
	for _, c := range l.standing.Leases {
		if c.Owner != l.fleet.self && !slices.Contains(written.Leases, c) && c.Expiry <= l.fleet.storeTime() {
			l.say(slog.LevelWarn, "a probe of a shared circuit breaker ended without a result; another begins",
				slog.String("upstream", l.b.name), slog.String("process", c.Owner))
		}
	}
}

// settleLocked ends a flight.
func (l *link) settleLocked() {
	for _, r := range l.flight {
		if r.done != nil {
			close(r.done)
		}
	}
	l.flight = nil
	l.keepLocked()
	if hint := l.hint; hint != nil {
		l.hint = nil
		l.pushedLocked(*hint)
	}
}

// refuseLocked ends a flight that other processes have kept from landing
// for too long. Calls that asked for admission are refused; the rest is tried
// again.
func (l *link) refuseLocked() {
	var again []*request
	for _, r := range l.flight {
		if r.then == nil {
			again = append(again, r)
			continue
		}
		refusing := l.b.core
		refusing.window, refusing.state, refusing.held = nil, Open, heldOpen
		r.event(&refusing)
		r.then(&l.b.core)
		close(r.done)
	}
	l.flight, l.queue = nil, append(again, l.queue...)
}

// answeredLocked takes what the store says: it is the truth.
func (l *link) answeredLocked(r Record) {
	if r.Version == l.version {
		if l.mirrorsLocked() && l.standing.State == Open { // the store's clock is known better
			l.rebaseLocked()
			l.followLocked(true)
		}
		return
	}
	s, err := readStanding(r)
	if err != nil {
		l.unreadableLocked(r, err)
		return
	}
	l.version, l.owed = r.Version, false
	if s.Generation < l.standing.Generation && !l.standing.quiet() && l.phase == following {
		l.owed = true // the store has lost it, which closes nothing
		return
	}
	l.standing = s
	l.rebaseLocked()
	l.warnLocked()
	l.followLocked(true)
}

// rebaseLocked has the standing be written again if the store's clock has
// stepped back since it was. What was heard of that clock must be new: the one
// of this process may drift.
func (l *link) rebaseLocked() {
	now := l.b.now()
	if l.fleet.heardAgo() <= fresh && l.viewer(now).rebase(&l.standing, now) {
		l.owed = true
		l.enqueueLocked(&request{})
	}
}

// followLocked takes over what the standing says. remote says that another
// process has made it.
func (l *link) followLocked(remote bool) {
	s, c, now := &l.standing, &l.b.core, l.b.now()
	if s.Resets > c.resets && (c.held == heldDenied || l.phase == alone) {
		l.b.stepLocked(func(c *core) { c.restart(now) })
		l.phase = following
	}
	if c.held == heldDenied || l.phase == alone && s.quiet() && c.state != Closed {
		l.b.stepLocked(func(c *core) { c.resets = s.Resets })
		return
	}
	l.phase = following
	if remote && s.State == Closed && c.state != Closed && c.held == free && l.stagger > 0 {
		l.staggerLocked(now)
		return
	}
	l.closeAt = 0
	v := l.viewer(now)
	v.remote = remote
	l.b.stepLocked(func(c *core) {
		c.joined, c.joining = true, false
		v.show(c, s, now)
	})
	l.keepLocked()
}

// staggerLocked puts off the closing that another process has made.
func (l *link) staggerLocked(now int64) {
	if l.closeAt == 0 {
		l.closeAt = now + 1 + rand.N(int64(l.stagger))
		l.reviseAfter(time.Duration(l.closeAt - now))
	}
	l.b.stepLocked(func(c *core) {
		c.joined, c.joining = true, false
		c.closing = true
		c.until, c.late, c.pause, c.leases = l.closeAt, 0, max(c.pause, l.closeAt), nil
	})
}

func (l *link) reviseAfter(d time.Duration) {
	time.AfterFunc(max(d, time.Millisecond), func() {
		l.b.mu.Lock()
		moved := l.reviseLocked()
		if left := l.closeAt - l.b.now(); l.closeAt != 0 && l.fleet.ctx.Err() == nil {
			l.reviseAfter(time.Duration(left))
		}
		l.b.mu.Unlock()
		if moved {
			l.b.deliver()
		}
	})
}

// reviseLocked closes the breaker once the stagger is over.
func (l *link) reviseLocked() (moved bool) {
	if l.closeAt == 0 || l.b.now() < l.closeAt {
		return false
	}
	l.closeAt = 0
	before := l.b.events.waiting()
	v := l.viewer(l.b.now())
	v.remote = true
	moved = l.b.stepLocked(func(c *core) { v.show(c, &l.standing, l.b.now()) })
	return moved || before
}

// keepLocked keeps the claims of this process's probes while they live.
func (l *link) keepLocked() {
	if l.keeping || !l.probingLocked() {
		return
	}
	l.keeping = true
	each := min(l.fleet.cfg.Lease, l.b.cfg.ProbeTimeout) / 3
	time.AfterFunc(max(each, time.Millisecond), func() {
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		l.keeping = false
		if !l.probingLocked() {
			return
		}
		now := l.b.now()
		l.enqueueLocked(&request{touch: true, event: func(c *core) { c.tick(now) }})
	})
}

// probingLocked reports whether a probe of this process runs for the fleet.
func (l *link) probingLocked() bool {
	if l.phase != following || l.fleet.ctx.Err() != nil {
		return false
	}
	for _, own := range l.b.core.leases {
		if !own.foreign {
			return true
		}
	}
	return false
}

// part lets the breaker continue without the store, from what is known.
func (l *link) part() {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.partLocked()
}

func (l *link) partLocked() {
	if l.phase == apart {
		l.b.stepLocked(func(c *core) { c.joining = false })
		return
	}
	if l.closeAt != 0 {
		l.closeAt = l.b.now()
		l.reviseLocked()
	}
	l.parted = parting{l.standing.Generation, l.standing.quiet(), l.b.core.failed}
	l.phase, l.hint, l.owed = apart, nil, false
	l.b.stepLocked(func(c *core) {
		c.streak = c.longest()
		c.joined, c.joining, c.known, c.suspect = false, false, 0, false
	})
	l.settleApartLocked()
}

// settleApartLocked settles all events that wait without the store.
func (l *link) settleApartLocked() {
	waiting := append(l.flight, l.queue...)
	l.flight, l.queue = nil, nil
	l.flights++
	l.aloneLocked(waiting)
	for _, r := range waiting {
		r.here = true
		if r.done != nil {
			close(r.done)
		}
	}
}

// aloneLocked commits here what does not concern the fleet.
func (l *link) aloneLocked(all []*request) {
	for _, r := range all {
		if !r.told && r.event != nil {
			r.moved = l.commitLocked(r.event, r.then) || r.moved
		}
	}
}

// reached is told what the store holds when it answers again.
func (l *link) reached(r Record) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.reachedLocked(r)
}

func (l *link) reachedLocked(r Record) {
	s, err := readStanding(r)
	if err != nil {
		l.unreadableLocked(r, err)
		return
	}
	c, was := &l.b.core, l.parted
	failed := int64(0)
	if !was.quiet && c.state == Open && c.failed > was.failed {
		failed = c.until
	}
	l.broken, l.version = Record{}, r.Version
	switch {
	case s.Generation < was.generation && !was.quiet: // the store has lost it
		l.phase, l.owed = following, true
		l.followLocked(false)
		l.enqueueLocked(&request{})
	case !s.quiet(), c.state == Closed && c.held == free, s.Generation > was.generation:
		l.standing, l.phase = s, following
		l.rebaseLocked()
		l.followLocked(true)
	default: // opened here since, while nobody else has seen a reason to
		l.standing, l.phase = s, alone
		l.b.stepLocked(func(c *core) { c.joining, c.resets = false, s.Resets })
	}
	l.warnLocked()
	if failed != 0 && l.phase == following && l.standing.State == Open {
		// A probe failed while the store was lost: the later deadline holds.
		l.tellLocked(Open, func(f *core) { f.until = max(f.until, failed) })
	}
}

// pushed is told of a change in the store: a hint, which may be late.
func (l *link) pushed(r Record) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.pushedLocked(r)
}

func (l *link) pushedLocked(r Record) {
	switch {
	case l.broken.Version != 0 && r.Version > l.broken.Version:
		l.reachedLocked(r)
		return
	case l.phase == apart || r.Version <= l.version:
		return
	case l.flight != nil || len(l.queue) > 0:
		if l.hint == nil || l.hint.Version < r.Version {
			l.hint = &r
		}
		return
	}
	s, err := readStanding(r)
	if err != nil {
		l.unreadableLocked(r, err)
		return
	}
	if s.Generation < l.standing.Generation {
		return // an answer will tell
	}
	l.standing, l.version = s, r.Version
	l.warnLocked()
	l.followLocked(true)
}

// record is what the store holds, as far as it is known here.
func (l *link) record() Record {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.broken.Version != 0 || l.version == 0 {
		return l.broken
	}
	return Record{Value: l.standing.bytes(), Version: l.version}
}

func (l *link) restless() bool {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.phase != apart && !l.standing.quiet()
}

// poll asks the store for the record.
func (l *link) poll(ctx context.Context) error {
	l.b.mu.Lock()
	flight := l.flights
	l.b.mu.Unlock()
	r, err := l.fleet.load(ctx, l.key)
	if err != nil {
		return err
	}
	l.fleet.heard(r)
	l.b.mu.Lock()
	if l.phase != apart && l.flights == flight && l.flight == nil {
		l.answeredLocked(r)
		if l.owed {
			l.enqueueLocked(&request{})
		}
	}
	l.b.mu.Unlock()
	deliverAll([]*link{l})
	return nil
}

// unreadableLocked continues alone: only an operator's reset overwrites what
// cannot be read.
func (l *link) unreadableLocked(r Record, err error) {
	l.partLocked()
	known := l.broken.Version != 0
	l.broken = Record{Value: r.Value, Version: max(r.Version, 1)}
	if known {
		return
	}
	l.say(slog.LevelError, "the shared circuit breaker's record cannot be read; this process continues on its own "+
		"until the breaker is reset or the record is removed",
		slog.String("upstream", l.b.name), l.fleet.about(), slog.String("key", l.key), slog.Any("error", err))
}

// discard removes a record that cannot be read, for an operator who resets the
// breaker.
func (l *link) discard() {
	l.await(context.Background())
	l.b.mu.Lock()
	version := l.broken.Version
	l.b.mu.Unlock()
	if version == 0 || !l.fleet.Up() {
		return
	}
	ctx, cancel := context.WithTimeout(l.fleet.ctx, l.fleet.cfg.Timeout)
	defer cancel()
	r, err := l.fleet.store.Swap(ctx, l.key, version, nil, 0)
	if err != nil && !errors.Is(err, ErrConflict) {
		return // the act says that it holds here alone
	}
	l.fleet.heard(r)
	l.reached(r)
}

// maxWarned bounds how many policies of others are told of.
const maxWarned = 16

// say logs without the locks of those that call it: what a logger does may need
// them.
func (l *link) say(level slog.Level, what string, attrs ...slog.Attr) {
	l.fleet.lines.run(func() { l.b.log(level, what, attrs...) })
}

// warnLocked says once that another process has another policy.
func (l *link) warnLocked() {
	other := l.standing.Policy
	if other == "" || other == l.b.version || slices.Contains(l.warned, other) || len(l.warned) == maxWarned {
		return
	}
	l.warned = append(l.warned, other)
	l.say(slog.LevelWarn, "a process of the fleet has another policy for the circuit breaker",
		slog.String("upstream", l.b.name), slog.String("policy_version", l.b.version),
		slog.String("other_policy_version", other), slog.String("origin", cmp.Or(l.standing.By, "unknown")))
}
