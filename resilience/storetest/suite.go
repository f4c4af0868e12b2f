package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/resilience"
)

// Opened is a store to check, and what it can do beside resilience.Store.
type Opened struct {
	// Stores are two or more clients of one store that is empty.
	Stores []resilience.Store
	// Clock is the clock of the store's machine, within 5 s; nil is time.Now.
	Clock func() time.Time
	// Keep is the shortest keep that makes the store forget a record; 0 if it
	// never does.
	Keep time.Duration
	// Flush loses all records, and may end watches. Nil if nothing does that.
	Flush func(t *testing.T)
	// Cut takes down the connections of all clients for the rest of the test.
	// Nil if the store has none.
	Cut func(t *testing.T)
}

// patience is how long the suite waits for what must happen.
const patience = 30 * time.Second

// Run checks the store that open opens, once to see what it can do and again
// for each test. What open starts it stops in t.Cleanup; a goroutine that is
// left then is a failure.
func Run(t *testing.T, open func(t *testing.T) Opened) {
	t.Helper()
	var opened Opened
	t.Run("open", func(t *testing.T) {
		opened = open(t)
		require.GreaterOrEqual(t, len(opened.Stores), 2)
	})
	for _, test := range []struct {
		name string
		run  func(*suite)
		can  bool // the store is able to
	}{
		{"one record", (*suite).oneRecord, true},
		{"removal", (*suite).removal, true},
		{"racers", (*suite).racers, true},
		{"no update is lost", (*suite).noLostUpdate, true},
		{"clock", (*suite).clock, true},
		{"values", (*suite).values, true},
		{"keys", (*suite).keys, true},
		{"ended contexts", (*suite).endedContexts, true},
		{"keep", (*suite).keep, opened.Keep > 0},
		{"flush", (*suite).flush, opened.Flush != nil},
		{"watch", (*suite).watch, true},
		{"watch removals", (*suite).watchRemovals, true},
		{"watch many", (*suite).watchMany, true},
		{"watch from the middle", (*suite).watchFromTheMiddle, true},
		{"watch until the end", (*suite).watchUntilTheEnd, true},
		{"watch a cut connection", (*suite).watchCut, opened.Cut != nil},
	} {
		if !test.can {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			t.Cleanup(cancel)
			test.run(&suite{T: t, Opened: open(t), ctx: ctx})
		})
	}
}

type suite struct {
	*testing.T
	Opened
	ctx context.Context
}

func (s *suite) load(key string) resilience.Record {
	s.Helper()
	r, err := s.Stores[0].Load(s.ctx, key)
	require.NoError(s, err)
	return r
}

// write puts a value in place of what is there; "" removes it.
func (s *suite) write(key, value string) resilience.Record {
	s.Helper()
	there := s.load(key)
	r, err := s.Stores[0].Swap(s.ctx, key, there.Version, []byte(value), 0)
	require.NoError(s, err)
	assert.Equal(s, value, string(r.Value))
	assert.Greater(s, r.Version, there.Version)
	return r
}

// sees checks what each client finds.
func (s *suite) sees(key string, want resilience.Record) {
	s.Helper()
	for _, store := range s.Stores {
		r, err := store.Load(s.ctx, key)
		require.NoError(s, err)
		assert.Equal(s, string(want.Value), string(r.Value))
		assert.Equal(s, want.Version, r.Version)
		assert.NotZero(s, r.Now)
	}
}

// conflicts checks that a Swap meets what is there, and leaves it.
func (s *suite) conflicts(key string, version uint64, value string) {
	s.Helper()
	there := s.load(key)
	for _, store := range s.Stores {
		r, err := store.Swap(s.ctx, key, version, []byte(value), 0)
		require.ErrorIs(s, err, resilience.ErrConflict)
		assert.Equal(s, string(there.Value), string(r.Value))
		assert.Equal(s, there.Version, r.Version)
		assert.NotZero(s, r.Now)
	}
	s.sees(key, there)
}

func (s *suite) oneRecord() {
	s.sees("a", resilience.Record{})
	s.conflicts("a", 7, "out of nothing")

	first, err := s.Stores[0].Swap(s.ctx, "a", 0, []byte("1"), time.Hour)
	require.NoError(s, err)
	assert.Equal(s, "1", string(first.Value))
	assert.NotZero(s, first.Version)
	assert.NotZero(s, first.Now)
	s.sees("a", first)
	s.sees("b", resilience.Record{})
	s.conflicts("a", 0, "2")
	s.conflicts("a", first.Version+1, "2")
	s.conflicts("a", first.Version-1, "2")

	second, err := s.Stores[1].Swap(s.ctx, "a", first.Version, []byte("2"), 0)
	require.NoError(s, err)
	assert.Greater(s, second.Version, first.Version)
	s.sees("a", second)
	s.conflicts("a", first.Version, "3")
}

func (s *suite) removal() {
	first := s.write("a", "1")
	s.conflicts("a", first.Version+1, "") // nobody removes what he has not seen
	gone, err := s.Stores[1].Swap(s.ctx, "a", first.Version, nil, 0)
	require.NoError(s, err)
	assert.Empty(s, gone.Value)
	there := s.load("a")
	assert.Empty(s, there.Value)
	assert.Contains(s, []uint64{0, gone.Version}, there.Version, "without a trace, or with that of the removal")
	s.conflicts("a", first.Version, "of the old life")

	second := s.write("a", "2")
	assert.Greater(s, second.Version, gone.Version)
	s.write("a", "")
	third, err := s.Stores[1].Swap(s.ctx, "a", 0, []byte("3"), 0)
	require.NoError(s, err, "0 is the version of a key without a record, whatever was there")
	assert.Greater(s, third.Version, second.Version)

	_, err = s.Stores[0].Swap(s.ctx, "never", 0, nil, 0)
	require.NoError(s, err)
	assert.Empty(s, s.load("never").Value)
}

func (s *suite) racers() {
	type result struct {
		name   string
		record resilience.Record
		err    error
	}
	results := make([]result, 50)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			<-start
			name := strconv.Itoa(i)
			r, err := s.Stores[i%len(s.Stores)].Swap(s.ctx, "a", 0, []byte(name), time.Hour)
			results[i] = result{name, r, err}
		})
	}
	close(start)
	all.Wait()

	there := s.load("a")
	var won []string
	for _, r := range results {
		assert.Equal(s, there.Version, r.record.Version)
		assert.Equal(s, string(there.Value), string(r.record.Value))
		if r.err == nil {
			won = append(won, r.name)
		} else {
			require.ErrorIs(s, r.err, resilience.ErrConflict)
		}
	}
	assert.Equal(s, []string{string(there.Value)}, won)
}

func (s *suite) noLostUpdate() {
	const writers, writes = 8, 10
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for range writes {
				if err := increment(s.ctx, s.Stores[i%len(s.Stores)], "a"); err != nil {
					assert.NoError(s, err)
					return
				}
			}
		})
	}
	all.Wait()
	assert.Equal(s, strconv.Itoa(writers*writes), string(s.load("a").Value))
}

// increment adds one to a number, in the manner of a shared breaker: a conflict
// brings the record to try with next.
func increment(ctx context.Context, store resilience.Store, key string) error {
	there, err := store.Load(ctx, key)
	for err == nil {
		n, _ := strconv.Atoi(string(there.Value))
		there, err = store.Swap(ctx, key, there.Version, []byte(strconv.Itoa(n+1)), 0)
		if !errors.Is(err, resilience.ErrConflict) {
			return err
		}
		err = nil
	}
	return err
}

func (s *suite) clock() {
	const slack = 5 * time.Second
	clock := s.Clock
	if clock == nil {
		clock = wall
	}
	before := clock()
	there := s.write("a", "1")
	first := there.Now
	assert.WithinRange(s, first, before.Add(-slack), clock().Add(slack))
	for _, store := range s.Stores {
		assert.Eventually(s, func() bool {
			r, err := store.Load(s.ctx, "a")
			return assert.NoError(s, err) && r.Now.After(first)
		}, patience, time.Millisecond, "the clock stands")
		r, err := store.Load(s.ctx, "no record")
		require.NoError(s, err)
		assert.WithinRange(s, r.Now, before.Add(-slack), clock().Add(slack))
		r, err = store.Swap(s.ctx, "a", there.Version+1, []byte("2"), 0)
		require.ErrorIs(s, err, resilience.ErrConflict)
		assert.WithinRange(s, r.Now, before.Add(-slack), clock().Add(slack))
	}
}

func (s *suite) values() {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, value := range []string{
		"x", "\x00", "\r\n", " ", `{"a":"b"}`, "\xff\xfe", "für alle 🙂", "nil", string(all),
		strings.Repeat(string(all), 256), // 64 KiB
	} {
		key := fmt.Sprint("value ", i)
		s.sees(key, s.write(key, value))
	}
	value := []byte("mine")
	r, err := s.Stores[0].Swap(s.ctx, "a", 0, value, 0)
	require.NoError(s, err)
	copy(value, "MINE")
	copy(r.Value, "MINE")
	assert.Equal(s, "mine", string(s.load("a").Value), "nobody shares memory with the store")
}

// oddKeys are distinct, and a store that folds or cuts keys mixes them up.
var oddKeys = []string{
	"a", "A", "a b", "a_b", "a.b", "a/b", `a\b`, "a:b", "a%20b", "a+b", "a=b", "a-b", "a\tb", "a\nb", "a\x00b",
	".", "..", ".a", "a.", "a..b", "/", "*", "a*", ">", "a.>", "?", "[a]", "[^a]", "{a}", "{a}b", "a}", "$KV", "#",
	"milvus dns:///milvus.example.com:19530", "llm https://api.example.com/v1?version=2&x=y",
	"\u00e9", "e\u0301", "ключ", "鍵", "🙂", "\xff", "\xfe",
	strings.Repeat("n", 128) + " https://" + strings.Repeat("h", 200) + ".example.com:443",
}

func (s *suite) keys() {
	w := s.watching(s.Stores[1])
	for _, key := range oddKeys {
		s.write(key, "of "+key)
	}
	for _, key := range oddKeys {
		assert.Equal(s, "of "+key, string(s.load(key).Value), "%q", key)
		w.await(s, key, "of "+key)
	}
	late := s.watching(s.Stores[0])
	for _, key := range oddKeys {
		late.await(s, key, "of "+key)
	}
	assert.Len(s, late.records, len(oddKeys))
}

func (s *suite) endedContexts() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	there := s.write("a", "1")
	for _, store := range s.Stores {
		_, err := store.Load(ctx, "a")
		require.ErrorIs(s, err, context.Canceled)
		_, err = store.Swap(ctx, "a", there.Version, []byte("2"), 0)
		require.ErrorIs(s, err, context.Canceled)
		require.NoError(s, store.Watch(ctx, func() {}, func(string, resilience.Record) {}))
	}
	s.sees("a", there)

	passed, cancel := context.WithDeadline(s.ctx, time.Unix(1, 0))
	defer cancel()
	_, err := s.Stores[0].Load(passed, "a")
	require.ErrorIs(s, err, context.DeadlineExceeded)
}

func (s *suite) keep() {
	for _, key := range []string{"short", "then for ever", "then long"} {
		_, err := s.Stores[0].Swap(s.ctx, key, 0, []byte("1"), s.Keep)
		require.NoError(s, err)
	}
	for key, keep := range map[string]time.Duration{"then for ever": 0, "then long": time.Hour} {
		require.Eventually(s, func() bool { // it may be gone at once on a slow machine
			r := s.load(key)
			_, err := s.Stores[1].Swap(s.ctx, key, r.Version, []byte("2"), keep)
			return err == nil
		}, patience, time.Millisecond)
	}
	require.Eventually(s, func() bool { return len(s.load("short").Value) == 0 }, patience, 10*time.Millisecond)
	_, err := s.Stores[1].Swap(s.ctx, "short", 0, []byte("2"), 0)
	require.NoError(s, err)
	for _, key := range []string{"short", "then for ever", "then long"} {
		assert.Equal(s, "2", string(s.load(key).Value), key)
	}
}

func (s *suite) flush() {
	var last resilience.Record
	for i := range 20 {
		last = s.write("a", strconv.Itoa(i))
	}
	other := s.write("b", "1")
	s.Flush(s.T)
	for _, store := range s.Stores {
		// A client may see now that it was cut off.
		require.Eventually(s, func() bool {
			_, err := store.Load(s.ctx, "a")
			return err == nil
		}, patience, time.Millisecond)
	}
	s.sees("a", resilience.Record{})
	s.conflicts("a", last.Version, "of the old life")
	s.conflicts("b", other.Version, "of the old life")
	assert.Greater(s, s.write("a", "first").Version, last.Version)
	assert.Greater(s, s.write("b", "first").Version, other.Version)
	w := s.watching(s.Stores[1])
	w.await(s, "a", "first")
	assert.Len(s, w.records, 2)
}

// watching is a call of Watch that runs until it ends or the test does. The
// test's goroutine alone reads what it has been told.
type watching struct {
	events  chan event
	ended   chan error
	cancel  func()
	records map[string]resilience.Record // what the test has read
	present int
}

// watching starts a watch and reads what it is told until present.
func (s *suite) watching(store resilience.Store) *watching {
	s.Helper()
	w := s.watchFrom(store)
	for w.present == 0 {
		w.read(s)
	}
	return w
}

func (s *suite) watchFrom(store resilience.Store) *watching {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &watching{
		events: make(chan event, 10_000), ended: make(chan error, 1), cancel: cancel,
		records: map[string]resilience.Record{},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ended <- store.Watch(ctx, func() { w.events <- event{present: true} },
			func(key string, r resilience.Record) { w.events <- event{key: key, record: r} })
	}()
	s.Cleanup(func() { cancel(); <-done })
	return w
}

// read reads one event.
func (w *watching) read(s *suite) {
	s.Helper()
	select {
	case e := <-w.events:
		w.take(s, e)
	case err := <-w.ended:
		require.Fail(s, "the watch has ended", "%v", err)
	case <-time.After(patience):
		require.Fail(s, "the watch is told nothing")
	}
}

func (w *watching) take(s *suite, e event) {
	if e.present {
		w.present++
		require.Equal(s, 1, w.present, "present is called once")
		return
	}
	// What was there may be told again, by the push of its writing.
	require.GreaterOrEqual(s, e.record.Version, w.records[e.key].Version, "the order of %q", e.key)
	w.records[e.key] = e.record
}

// await reads until the watch has been told that a key has a value.
func (w *watching) await(s *suite, key, value string) {
	s.Helper()
	for {
		if r, ok := w.records[key]; ok && string(r.Value) == value {
			return
		}
		w.read(s)
	}
}

func (s *suite) watch() {
	there := s.write("there", "1")
	w, second := s.watching(s.Stores[1]), s.watching(s.Stores[1])
	assert.Equal(s, there.Version, w.records["there"].Version)
	assert.Equal(s, "1", string(w.records["there"].Value))
	assert.Len(s, w.records, 1)

	created := s.write("new", "1")
	changed := s.write("there", "2")
	for _, w := range []*watching{w, second} {
		w.await(s, "new", "1")
		w.await(s, "there", "2")
		assert.Equal(s, created.Version, w.records["new"].Version)
		assert.Equal(s, changed.Version, w.records["there"].Version)
	}
	second.cancel()
	require.NoError(s, <-second.ended)
	s.write("there", "3") // the other watch of the client is not concerned
	w.await(s, "there", "3")

	s.conflicts("there", there.Version, "no change, no push")
	last := bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, 16<<10)
	s.write("last", string(last))
	w.await(s, "last", string(last))
	assert.Equal(s, "3", string(w.records["there"].Value))
}

func (s *suite) watchRemovals() {
	s.write("before", "1")
	s.write("before", "")
	w := s.watching(s.Stores[1])
	assert.Empty(s, w.records["before"].Value)
	s.write("a", "1")
	w.await(s, "a", "1")
	there := s.load("a")
	gone, err := s.Stores[0].Swap(s.ctx, "a", there.Version, nil, 0)
	require.NoError(s, err)
	w.await(s, "a", "")
	assert.GreaterOrEqual(s, w.records["a"].Version, gone.Version)
	again := s.write("a", "1")
	w.await(s, "a", "1")
	assert.Equal(s, again.Version, w.records["a"].Version)
}

func (s *suite) watchMany() {
	for i := range 300 {
		s.write(fmt.Sprint("key ", i), "1")
	}
	w := s.watching(s.Stores[1])
	assert.Len(s, w.records, 300)
	for i := range 300 {
		s.write(fmt.Sprint("key ", i), "2")
	}
	for i := range 300 {
		w.await(s, fmt.Sprint("key ", i), "2")
	}
}

// Changes are told to watches that begin while they are made: nothing falls
// between what is there and what changes.
func (s *suite) watchFromTheMiddle() {
	const writes = 300
	written := make(chan error, 1)
	go func() {
		for range writes {
			if err := increment(s.ctx, s.Stores[0], "a"); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	var watches []*watching
	for range 10 {
		watches = append(watches, s.watching(s.Stores[1]))
	}
	require.NoError(s, <-written)
	for _, w := range watches {
		w.await(s, "a", strconv.Itoa(writes))
	}
}

func (s *suite) watchUntilTheEnd() {
	w := s.watching(s.Stores[0])
	w.cancel()
	select {
	case err := <-w.ended:
		require.NoError(s, err)
	case <-time.After(patience):
		require.Fail(s, "the watch outlives its context")
	}
}

func (s *suite) watchCut() {
	w := s.watching(s.Stores[0])
	s.write("a", "1")
	w.await(s, "a", "1")
	s.Cut(s.T)
	select {
	case err := <-w.ended:
		require.Error(s, err)
	case <-time.After(patience):
		require.Fail(s, "the watch has not noticed that its connection is lost")
	}
	again := s.watchFrom(s.Stores[0])
	select {
	case err := <-again.ended:
		require.Error(s, err)
	case <-time.After(patience):
		require.Fail(s, "a watch without a connection does not end")
	}
	assert.Zero(s, again.present)
}
