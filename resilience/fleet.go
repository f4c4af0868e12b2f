package resilience

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// FleetConfig says how a process takes part in a fleet. Its zero value has the
// defaults.
type FleetConfig struct {
	// Origin names the host in transitions and refusals, and tells a host whose
	// calls alone fail from an upstream that fails for everybody. Default: the
	// hostname.
	Origin string
	// Timeout bounds every request to the store, and what a call waits for it.
	// Default 100 ms.
	Timeout time.Duration
	// Lease is how long the probe of a process that has died, or does not run,
	// keeps other probes out. Default 10 s.
	Lease time.Duration
	// Stagger spreads the moments at which the processes let calls through
	// again after the upstream has recovered. Default a tenth of each breaker's
	// ResetTimeout, at most 5 s; negative for none.
	Stagger time.Duration
	// Clock is the time source between two answers of the store, as
	// Config.Clock is that of a breaker. Default: the system's.
	Clock interface{ Now() time.Time }
	// Logger is told when the store is lost and reached again. Default:
	// slog.Default() at the time of the event.
	Logger *slog.Logger
}

// Bounds and defaults of a FleetConfig.
const (
	defaultFleetTimeout = 100 * time.Millisecond
	defaultLease        = 10 * time.Second
	maxStagger          = 5 * time.Second

	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
	fresh      = time.Minute      // in which no clock drifts far
	steady     = 10 * time.Second // up for so long, the store is trusted again
	pollEvery  = 5 * time.Second  // give or take a fifth
)

// Fleet shares breakers between processes: an outage costs all of them together
// FailMax failures and one probe each ResetTimeout. Registry.Join shares the
// breakers of a registry, Config.Shared a single one.
//
// The store is asked when something changes, never for the success of a closed
// breaker. Without it each process continues alone from what it knows: no call
// fails because of the store, and none waits longer for an answer than one and
// a half FleetConfig.Timeout.
//
// What is shared is the state, its deadlines, probes, an operator's holds and
// the streak of failures. Windows stay local: the first of N processes whose
// window breaks its rule opens the breaker for all. The stop for a denied
// credential (Config.StopOnDenied) stays local too, so that one bad key stops
// no other process. Failures are shared as an origin and a reason, never as
// text.
type Fleet struct {
	store guarded
	cfg   FleetConfig
	self  string
	clock timer

	ctx    context.Context //nolint:containedctx // that of the fleet's goroutines, from NewFleet to Close
	cancel context.CancelFunc
	tasks  tasks
	lines  tasks // of the log

	offset atomic.Int64 // from clock to the store's, in nanoseconds
	asOf   atomic.Int64 // when the store's clock was heard last, of clock
	synced atomic.Bool  // offset is known

	first chan struct{} // closed once the store has answered, or has failed to

	live atomic.Bool // as up

	mu      sync.Mutex
	up      bool
	closed  bool
	answer  sync.Once // closes first
	links   map[string]map[*link]struct{}
	records map[string]Record // of keys that nobody here has asked for yet
	abort   context.CancelCauseFunc
	upSince int64         // of clock
	lasted  time.Duration // how long the store was up when it was lost
	// warned: the log says that the store does not answer; unexplained: it does
	// not say why.
	warned, unexplained bool
}

// NewFleet connects a process to a store. It returns at once; the first call
// through a shared breaker waits for the store's first answer, at most
// FleetConfig.Timeout. Close ends it.
func NewFleet(store Store, cfg FleetConfig) *Fleet {
	host, _ := os.Hostname()
	cfg.Origin = cmp.Or(cfg.Origin, host, "unknown")
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), defaultFleetTimeout)
	cfg.Lease = cmp.Or(max(cfg.Lease, 0), defaultLease)
	f := &Fleet{
		store: guarded{store}, cfg: cfg, clock: newTimer(cfg.Clock),
		self:  fmt.Sprintf("%s/%016x", cfg.Origin, rand.Uint64()),
		first: make(chan struct{}), links: map[string]map[*link]struct{}{}, records: map[string]Record{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.tasks.run(f.run)
	return f
}

// Close leaves the fleet: its breakers continue on their own. It waits for
// what is being written, at most FleetConfig.Timeout, and for the fleet's
// goroutines, at most twice as long: a Store may hang in spite of its contexts.
func (f *Fleet) Close() error {
	f.flush()
	f.cancel()
	f.lost(nil)
	ended := make(chan struct{})
	go func() { f.tasks.end(); f.lines.end(); close(ended) }()
	patience := time.NewTimer(2 * f.cfg.Timeout)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
		go f.log(slog.LevelWarn, "the store of shared circuit breakers does not end its calls; they are abandoned")
	}
	return nil
}

// flush begins no session any more, and waits for the writes that are under
// way: a process that ends at once must still tell of its last success.
func (f *Fleet) flush() {
	f.mu.Lock()
	f.closed = true
	var all []*request
	for _, links := range f.links {
		for l := range links {
			if r := l.flush(); r != nil {
				all = append(all, r)
			}
		}
	}
	f.mu.Unlock()
	patience := time.NewTimer(f.cfg.Timeout)
	defer patience.Stop()
	for _, r := range all {
		select {
		case <-r.done:
		case <-patience.C:
			return
		}
	}
}

func (f *Fleet) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// Up reports whether the store answers.
func (f *Fleet) Up() bool { return f.live.Load() }

// storeTime is the store's clock now, as far as it is known: never ahead of it.
func (f *Fleet) storeTime() int64 { return f.clock.now() + f.offset.Load() }

// heard takes the store's clock from an answer. The largest difference is the
// one of the fastest answer; a store whose clock has stepped back is believed.
func (f *Fleet) heard(r Record) {
	if r.Now.IsZero() {
		return
	}
	now := f.clock.now()
	f.asOf.Store(now)
	offset := r.Now.UnixNano() - now
	for {
		old := f.offset.Load()
		if f.synced.Load() && offset <= old && offset >= old-int64(f.cfg.Timeout) {
			return
		}
		if f.offset.CompareAndSwap(old, offset) {
			f.synced.Store(true)
			return
		}
	}
}

// heardAgo is the age of what is known of the store's clock.
func (f *Fleet) heardAgo() time.Duration { return time.Duration(f.clock.now() - f.asOf.Load()) }

// run keeps a session with the store.
func (f *Fleet) run() {
	wait := firstRetry
	for f.ctx.Err() == nil {
		f.lost(f.session())
		if f.tookUp() >= steady {
			wait = firstRetry
		}
		pause := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-pause.C:
		case <-f.ctx.Done():
			pause.Stop()
		}
		wait = min(2*wait, lastRetry)
	}
}

// silence is a store that does not answer in time.
type silence struct {
	waited time.Duration
	first  bool // since the start, while it is still asked
}

func (s *silence) Error() string { return fmt.Sprintf("no answer within %v", s.waited) }

// session is the time between reaching the store and losing it.
func (f *Fleet) session() error {
	ctx, abort := context.WithCancelCause(f.ctx)
	defer abort(nil)
	f.mu.Lock()
	f.abort = abort
	f.mu.Unlock()
	patience := time.AfterFunc(f.cfg.Timeout, func() { f.giveUpWaiting() })
	defer patience.Stop()

	found := map[string]Record{}
	var failed error
	err := f.store.Watch(ctx, func() {
		now, err := f.load(ctx, "clock")
		if err != nil {
			failed = err
			abort(err)
			return
		}
		f.heard(now)
		f.reached(found)
		found = nil
		f.tasks.run(func() { f.poll(ctx) })
	}, func(key string, r Record) {
		if found != nil {
			found[key] = r
			return
		}
		f.pushed(key, r)
	})
	return cmp.Or(failed, context.Cause(ctx), err)
}

func (f *Fleet) load(ctx context.Context, key string) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	return f.store.Load(ctx, key)
}

// giveUpWaiting lets the calls that wait for the first answer continue alone.
func (f *Fleet) giveUpWaiting() {
	f.mu.Lock()
	up := f.up
	f.mu.Unlock()
	if !up {
		f.lost(&silence{f.cfg.Timeout, true})
	}
}

// reached is told what the store holds.
func (f *Fleet) reached(found map[string]Record) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.up, f.upSince, f.records = true, f.clock.now(), found
	level := slog.LevelInfo
	if f.warned {
		level = slog.LevelWarn // it ends a warning
	}
	f.warned, f.unexplained = false, false
	f.live.Store(true)
	var all []*link
	for key, links := range f.links {
		for l := range links {
			l.reached(found[key])
			all = append(all, l)
		}
		delete(found, key)
	}
	f.mu.Unlock()
	f.answer.Do(func() { close(f.first) })
	f.log(level, "the store of shared circuit breakers answers")
	deliverAll(all)
}

// tookUp is how long the store that was lost last was up.
func (f *Fleet) tookUp() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	lasted := f.lasted
	f.lasted = 0
	return lasted
}

// lost parts every breaker from the store.
func (f *Fleet) lost(cause error) {
	f.mu.Lock()
	was := f.up
	if was {
		f.lasted = time.Duration(f.clock.now() - f.upSince)
	}
	f.up, f.records = false, nil
	f.live.Store(false)
	var all []*link
	for _, links := range f.links {
		for l := range links {
			l.part()
			all = append(all, l)
		}
	}
	if cause == context.DeadlineExceeded { //nolint:errorlint // another error says more
		cause = &silence{waited: f.cfg.Timeout}
	}
	silent, _ := cause.(*silence) //nolint:errorlint // made here, wrapped by nobody
	waits := silent != nil && silent.first
	if f.abort != nil && !waits {
		f.abort(cause)
	}
	told := was || f.unexplained && !waits
	f.answer.Do(func() { close(f.first); told = true })
	f.unexplained = waits && (told || f.unexplained)
	f.warned = f.warned || told
	f.mu.Unlock()
	if told && f.ctx.Err() == nil {
		f.log(slog.LevelWarn, "the store of shared circuit breakers does not answer; each process continues on its own",
			slog.Any("error", cause))
	}
	deliverAll(all)
}

func (f *Fleet) log(level slog.Level, what string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	attrs = append(attrs, f.about(), slog.String("origin", f.cfg.Origin))
	cmp.Or(f.cfg.Logger, slog.Default()).LogAttrs(context.Background(), level, what, attrs...)
}

// about names the store, if that has a name.
func (f *Fleet) about() slog.Attr {
	if named, ok := f.store.Store.(fmt.Stringer); ok {
		return slog.String("store", named.String())
	}
	return slog.Attr{} // which handlers leave out
}

// pushed is told of a change in the store.
func (f *Fleet) pushed(key string, r Record) {
	f.heard(r)
	f.mu.Lock()
	links := f.links[key]
	if !f.up {
		f.mu.Unlock()
		return
	}
	if len(links) == 0 {
		f.rememberLocked(key, r)
	}
	var all []*link
	for l := range links {
		l.pushed(r)
		all = append(all, l)
	}
	f.mu.Unlock()
	deliverAll(all)
}

// rememberLocked keeps what a breaker that is yet to be made has to know.
func (f *Fleet) rememberLocked(key string, r Record) {
	if s, err := readStanding(r); err == nil && s.quiet() && s.Streak == 0 {
		delete(f.records, key)
		return
	}
	f.records[key] = r
}

// poll asks for the records that are not closed, since a push may be lost.
func (f *Fleet) poll(ctx context.Context) {
	for {
		wait := time.NewTimer(pollEvery*4/5 + rand.N(pollEvery*2/5))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
		for _, l := range f.restless() {
			if err := l.poll(ctx); err != nil {
				f.lost(err)
				return
			}
		}
	}
}

// restless are the breakers that are not closed.
func (f *Fleet) restless() (all []*link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, links := range f.links {
		for l := range links {
			if l.restless() {
				all = append(all, l)
			}
		}
	}
	return all
}

// add makes l follow the fleet.
func (f *Fleet) add(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if f.links[l.key] == nil {
		f.links[l.key] = map[*link]struct{}{}
	}
	known := f.knownLocked(l.key)
	f.links[l.key][l] = struct{}{}
	switch {
	case f.up:
		l.reached(known)
	case f.answered():
		l.part()
	}
}

// knownLocked is the record of a key as another breaker of it knows it, or as
// it was kept for the first one.
func (f *Fleet) knownLocked(key string) Record {
	for l := range f.links[key] {
		return l.record()
	}
	kept := f.records[key]
	delete(f.records, key)
	return kept
}

func (f *Fleet) answered() bool {
	select {
	case <-f.first:
		return true
	default:
		return false
	}
}

func (f *Fleet) remove(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links[l.key], l)
	if len(f.links[l.key]) == 0 {
		delete(f.links, l.key)
		if f.up {
			f.rememberLocked(l.key, l.record())
		}
	}
	l.part()
}

// tasks are goroutines that can be waited for once no more of them begin.
type tasks struct {
	mu    sync.Mutex
	ended bool
	group sync.WaitGroup
}

func (t *tasks) run(task func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.group.Go(task)
	}
}

func (t *tasks) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.group.Wait()
}

func deliverAll(all []*link) {
	for _, l := range all {
		if l.b.events.waiting() {
			go l.b.deliver()
		}
	}
}
