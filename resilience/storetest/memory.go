package storetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// Memory is a resilience.Store in memory. The zero value is an empty store. It
// has no timer and no goroutine, and what it does depends on the order of the
// calls alone, so it fits in a bubble of testing/synctest that it was made in.
//
// Client makes further clients of the same store. The faults of a client,
// which are Down, Freeze, LoseAnswers, HoldPushes and CutWatches, concern it
// and the clients made from it. On the store itself they concern all.
//
// Its methods are safe for concurrent use.
type Memory struct {
	// Now is the store's clock, time.Now by default. It is called under a lock,
	// and must be set before the first call. A client has the clock of its
	// store.
	Now func() time.Time
	// Traces makes removed records leave their version, as they do in NATS, in
	// place of no trace, as in Redis. It must be set before the first call.
	Traces bool

	up *Memory // nil for the store itself

	// The fields below are guarded by mu of the store itself.
	mu     sync.Mutex
	link   link
	server server // unused in a client
}

// Calls counts what a store was asked for.
type Calls struct {
	// Loads, Swaps and Watches are calls whose context had not ended, whatever
	// became of them.
	Loads, Swaps, Watches int
	// Conflicts are the Swaps that met another version.
	Conflicts int
	// Pushes are the changes that running watches were told, or will be.
	Pushes int
}

// link is what a client and those made from it have in common.
type link struct {
	calls  Calls
	down   error
	frozen bool
	held   bool // pushes are
	lose   int  // answers of Swap
	lost   error
}

type server struct {
	records map[string]entry
	version uint64 // the last that was assigned
	hung    []*request
	watches []*watch
}

type entry struct {
	value   []byte
	version uint64
	until   time.Time // zero: kept for ever
}

// request is a call that has reached the store.
type request struct {
	from   *Memory
	swap   bool
	run    func() (resilience.Record, error)
	answer chan answer
}

type answer struct {
	record resilience.Record
	err    error
}

// watch is one call of Watch.
type watch struct {
	from    *Memory
	started bool // what was there has been read
	present bool // what was there has been told
	queue   []event
	err     error
	wake    chan struct{} // of capacity 1
}

// event is a change, or the mark behind what was there.
type event struct {
	present bool
	key     string
	record  resilience.Record
}

// Client returns another client of the same store.
func (m *Memory) Client() *Memory { return &Memory{up: m} }

func (m *Memory) root() *Memory {
	for m.up != nil {
		m = m.up
	}
	return m
}

// lock locks the store itself and returns it.
func (m *Memory) lock() *Memory {
	root := m.root()
	root.mu.Lock()
	return root
}

// linksLocked yields the client's link and those it was made from.
func (m *Memory) linksLocked(yield func(*link) bool) {
	for ; m != nil; m = m.up {
		if !yield(&m.link) {
			return
		}
	}
}

func (m *Memory) countLocked(add func(*Calls)) {
	for l := range m.linksLocked {
		add(&l.calls)
	}
}

func (m *Memory) downLocked() error {
	for l := range m.linksLocked {
		if l.down != nil {
			return l.down
		}
	}
	return nil
}

func (m *Memory) frozenLocked() bool {
	for l := range m.linksLocked {
		if l.frozen {
			return true
		}
	}
	return false
}

func (m *Memory) heldLocked() bool {
	for l := range m.linksLocked {
		if l.held {
			return true
		}
	}
	return false
}

// loseLocked reports whether an answer of Swap is lost, and in which way.
func (m *Memory) loseLocked() (lost bool, err error) {
	for l := range m.linksLocked {
		if l.lose > 0 {
			l.lose--
			return true, l.lost
		}
	}
	return false, nil
}

// isOf reports whether the client is the other one or was made from it.
func (m *Memory) isOf(other *Memory) bool {
	for ; m != nil; m = m.up {
		if m == other {
			return true
		}
	}
	return false
}

// Down makes calls fail with err, which is not nil, ends the calls that hang,
// without doing what they ask for, and ends the watches that run. The records
// stay.
func (m *Memory) Down(err error) {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.down = err
	root.server.hung = slices.DeleteFunc(root.server.hung, func(r *request) bool {
		if r.from.isOf(m) {
			r.answer <- answer{err: err}
			return true
		}
		return false
	})
	root.cutLocked(m, err)
}

// Up ends Down.
func (m *Memory) Up() {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.down = nil
}

// Freeze makes calls hang until their context ends, or until Thaw or Down. No
// watch is told of anything meanwhile, and those that begin hang too.
func (m *Memory) Freeze() {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.frozen = true
}

// Thaw ends Freeze. What hung calls asked for is done now, in their order, even
// if their callers have left: a server that was stopped finds their commands in
// its sockets.
func (m *Memory) Thaw() {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.frozen = false
	root.server.hung = slices.DeleteFunc(root.server.hung, func(r *request) bool {
		if r.from.frozenLocked() {
			return false
		}
		r.serveLocked()
		return true
	})
	root.resumeLocked()
}

// LoseAnswers makes the next n calls of Swap write or meet a conflict, as ever,
// and fail with err. If err is nil their answer does not come before their
// context ends. A later call replaces n and err.
func (m *Memory) LoseAnswers(n int, err error) {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.lose, m.link.lost = n, err
}

// HoldPushes keeps changes from watches until ReleasePushes, which delivers
// them in their order.
func (m *Memory) HoldPushes() {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.held = true
}

// ReleasePushes ends HoldPushes.
func (m *Memory) ReleasePushes() {
	root := m.lock()
	defer root.mu.Unlock()
	m.link.held = false
	root.resumeLocked()
}

// CutWatches ends the watches that run with err, which is not nil. What they
// had not been told yet is lost.
func (m *Memory) CutWatches(err error) {
	root := m.lock()
	defer root.mu.Unlock()
	root.cutLocked(m, err)
}

func (m *Memory) cutLocked(from *Memory, err error) {
	for _, w := range m.server.watches {
		if w.from.isOf(from) && w.err == nil {
			w.err = err
			w.signal()
		}
	}
}

// Flush loses all records. Like Redis, it tells no watch.
func (m *Memory) Flush() {
	root := m.lock()
	defer root.mu.Unlock()
	clear(root.server.records)
}

// Save returns a function that brings back the records of now, as the restart
// of a server that had not written its last seconds to disk. It tells no watch.
// Versions do not return.
func (m *Memory) Save() (rollback func()) {
	root := m.lock()
	defer root.mu.Unlock()
	saved := maps.Clone(root.server.records)
	return func() {
		root.mu.Lock()
		defer root.mu.Unlock()
		root.server.records = maps.Clone(saved)
	}
}

// Records are the records of now, by key. It is not counted as a call, and
// works during all faults.
func (m *Memory) Records() map[string]resilience.Record {
	root := m.lock()
	defer root.mu.Unlock()
	all := make(map[string]resilience.Record)
	for key := range root.server.records {
		if r := root.recordLocked(key); len(r.Value) > 0 {
			all[key] = r
		}
	}
	return all
}

// Calls are those of this client and of the clients made from it, so far.
func (m *Memory) Calls() Calls {
	root := m.lock()
	defer root.mu.Unlock()
	return m.link.calls
}

// Load is that of resilience.Store.
func (m *Memory) Load(ctx context.Context, key string) (resilience.Record, error) {
	return m.do(ctx, false, func() (resilience.Record, error) {
		return m.root().recordLocked(key), nil
	})
}

// Swap is that of resilience.Store.
func (m *Memory) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	value = bytes.Clone(value)
	return m.do(ctx, true, func() (resilience.Record, error) {
		root := m.root()
		there := root.recordLocked(key)
		if there.Version != version && (version != 0 || len(there.Value) > 0) {
			m.countLocked(func(c *Calls) { c.Conflicts++ })
			return there, resilience.ErrConflict
		}
		root.writeLocked(key, value, keep)
		r := resilience.Record{Value: bytes.Clone(value), Version: root.server.version, Now: there.Now}
		root.pushLocked(key, r)
		return r, nil
	})
}

func (m *Memory) recordLocked(key string) resilience.Record {
	now := m.now()
	e, ok := m.server.records[key]
	if !ok || !e.until.IsZero() && !now.Before(e.until) {
		return resilience.Record{Now: now}
	}
	return resilience.Record{Value: bytes.Clone(e.value), Version: e.version, Now: now}
}

func (m *Memory) writeLocked(key string, value []byte, keep time.Duration) {
	s := &m.server
	s.version++
	e := entry{value: value, version: s.version}
	if keep > 0 {
		e.until = m.now().Add(keep)
	}
	switch {
	case len(value) == 0 && !m.Traces:
		delete(s.records, key)
	case s.records == nil:
		s.records = map[string]entry{key: e}
	default:
		s.records[key] = e
	}
}

func (m *Memory) pushLocked(key string, r resilience.Record) {
	for _, w := range m.server.watches {
		if w.started && w.err == nil {
			w.from.countLocked(func(c *Calls) { c.Pushes++ })
			w.addLocked(key, r)
		}
	}
}

// do has the store run a call, and waits for the answer.
func (m *Memory) do(
	ctx context.Context, swap bool, run func() (resilience.Record, error),
) (resilience.Record, error) {
	if err := ctx.Err(); err != nil {
		return resilience.Record{}, err
	}
	r := &request{from: m, swap: swap, run: run, answer: make(chan answer, 1)}
	m.submit(r)
	select {
	case a := <-r.answer:
		return a.record, a.err
	case <-ctx.Done():
	}
	select { // an answer that has come is not lost by chance
	case a := <-r.answer:
		return a.record, a.err
	default:
		return resilience.Record{}, ctx.Err()
	}
}

func (m *Memory) submit(r *request) {
	root := m.lock()
	defer root.mu.Unlock()
	m.countLocked(func(c *Calls) {
		if r.swap {
			c.Swaps++
		} else {
			c.Loads++
		}
	})
	switch down := m.downLocked(); {
	case down != nil:
		r.answer <- answer{err: down}
	case m.frozenLocked():
		root.server.hung = append(root.server.hung, r)
	default:
		r.serveLocked()
	}
}

func (r *request) serveLocked() {
	record, err := r.run()
	lost, fault := false, error(nil)
	if r.swap {
		lost, fault = r.from.loseLocked()
	}
	switch {
	case !lost:
		r.answer <- answer{record, err}
	case fault != nil:
		r.answer <- answer{err: fault}
	}
}

// Watch is that of resilience.Store. Records come with a zero Now.
func (m *Memory) Watch(ctx context.Context, present func(), changed func(string, resilience.Record)) error {
	if ctx.Err() != nil {
		return nil
	}
	w := m.subscribe()
	defer m.unsubscribe(w)
	for {
		e, ok, err := w.next()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !ok:
			select {
			case <-ctx.Done():
			case <-w.wake:
			}
		case e.present:
			present()
		default:
			changed(e.key, e.record)
		}
	}
}

func (m *Memory) subscribe() *watch {
	root := m.lock()
	defer root.mu.Unlock()
	m.countLocked(func(c *Calls) { c.Watches++ })
	w := &watch{from: m, err: m.downLocked(), wake: make(chan struct{}, 1)}
	root.server.watches = append(root.server.watches, w)
	root.resumeLocked()
	return w
}

func (m *Memory) unsubscribe(w *watch) {
	root := m.lock()
	defer root.mu.Unlock()
	root.server.watches = slices.DeleteFunc(root.server.watches, func(other *watch) bool { return other == w })
}

// resumeLocked starts and wakes the watches that may proceed.
func (m *Memory) resumeLocked() {
	for _, w := range m.server.watches {
		if !w.started && w.err == nil && !w.from.frozenLocked() {
			w.started = true
			m.presentLocked(w)
		}
		w.signal()
	}
}

func (m *Memory) presentLocked(w *watch) {
	for _, key := range slices.Sorted(maps.Keys(m.server.records)) {
		if r := m.recordLocked(key); len(r.Value) > 0 {
			w.addLocked(key, r)
		}
	}
	w.queue = append(w.queue, event{present: true})
	w.signal()
}

func (w *watch) addLocked(key string, r resilience.Record) {
	r.Value, r.Now = bytes.Clone(r.Value), time.Time{}
	w.queue = append(w.queue, event{key: key, record: r})
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next takes the next event. It is false if the watch has to wait.
func (w *watch) next() (e event, ok bool, err error) {
	root := w.from.lock()
	defer root.mu.Unlock()
	if w.err != nil || len(w.queue) == 0 || w.from.frozenLocked() || w.present && w.from.heldLocked() {
		return event{}, false, w.err
	}
	e, w.queue = w.queue[0], w.queue[1:]
	w.present = w.present || e.present
	return e, true, nil
}
