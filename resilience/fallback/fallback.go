// Package fallback answers for an upstream that is unavailable, with the last
// good value of a key or with a default, and always says so.
//
//	rates, err := fallback.New(fallback.Config[Rate]{MaxAge: time.Hour})
//	a, err := rates.Call(ctx, breaker, "EUR", fetch)
//	if a.Source != fallback.Live { … tell the reader how old a.Value is … }
//
// It answers only if the breaker refused the call or counted it towards opening
// (resilience.Verdict.Failed). A caller's cancellation, a bad request, a 429
// and a denied call keep their own error. With neither a value nor a default
// the caller gets the error.
//
// Of two answers for a key the cache keeps the one whose call began later,
// whichever arrives first. The earlier one is not kept even if the later one
// has expired or made room by the time it arrives: what a key had once been
// does not come back.
package fallback

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/internal/mask"
)

// Source is where an answer came from. The zero value is no source: that of an
// Answer returned with an error.
type Source uint8

const (
	none Source = iota
	// Live is an answer of the upstream to this call.
	Live
	// Cache is the upstream's last good answer for the key.
	Cache
	// Default is Config.Default.
	Default
)

// String returns live, cache or default, and none for the zero value.
func (s Source) String() string {
	switch s {
	case none:
		return "none"
	case Live:
		return "live"
	case Cache:
		return "cache"
	case Default:
		return "default"
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}

// Answer is a value with its origin.
type Answer[T any] struct {
	Value  T
	Source Source
	Stale  bool          // true for every answer from the cache
	Age    time.Duration // since the upstream gave the value; 0 unless Stale
	Cause  error         // why the answer is not live; nil if it is
}

// Config is the policy of a Store. Its zero value keeps 1024 keys for an hour
// and has no default.
type Config[T any] struct {
	// MaxKeys bounds the cache; the key used longest ago makes room. Default
	// 1024.
	MaxKeys int
	// MaxAge is how old a cached answer may be. Default 1 h.
	MaxAge time.Duration
	// Default, when set, answers for keys that are not in the cache. It returns
	// false if it has no answer either.
	Default func(key string) (T, bool)
	// Clock dates the answers. Default: the system's.
	Clock interface{ Now() time.Time }
	// Logger is told at warning of each answer that is not live, without its
	// key and with the secrets in its cause masked. Default: slog.Default() at
	// the time of the event.
	Logger *slog.Logger
}

// Counts is how often a Store was asked to answer.
type Counts struct {
	Cache, Default uint64 // answers given
	None           uint64 // errors without an answer
}

// Store keeps the last good value of each key. It is safe for concurrent use.
// Values are returned as they are, not copied, so treat them as read-only.
type Store[T any] struct {
	cfg Config[T]

	mu     sync.Mutex
	byKey  map[string]*list.Element
	recent *list.List // of *entry[T], the latest first
	begun  uint64     // calls so far
	flying map[string]flight
	counts Counts
}

// flight is about the calls for a key that have not ended. It outlives the
// cached answer, so that an earlier call still finds that a later one was kept.
type flight struct {
	calls int
	kept  uint64 // which call the last answer kept was of
}

type entry[T any] struct {
	key   string
	value T
	at    time.Time
}

// New makes an empty store. The error says which bound is out of range.
func New[T any](cfg Config[T]) (*Store[T], error) {
	if cfg.MaxKeys < 0 || cfg.MaxAge < 0 {
		return nil, fmt.Errorf("fallback: MaxKeys %d and MaxAge %v must not be negative", cfg.MaxKeys, cfg.MaxAge)
	}
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, 1024)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, time.Hour)
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	return &Store[T]{
		cfg:    cfg,
		byKey:  make(map[string]*list.Element),
		recent: list.New(),
		flying: make(map[string]flight),
	}, nil
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() } //nolint:forbidigo // the edge

// Call runs fn under b as resilience.Call does and keeps its value for key. If
// fn failed or was refused, the store answers.
func (s *Store[T]) Call(
	ctx context.Context, b *resilience.Breaker, key string, fn func(context.Context) (T, error),
) (Answer[T], error) {
	return s.CallOp(ctx, b, resilience.Op[T]{}, key, fn)
}

// CallOp is Call with the classifier and the validator of an operation.
func (s *Store[T]) CallOp(
	ctx context.Context, b *resilience.Breaker, op resilience.Op[T], key string, fn func(context.Context) (T, error),
) (Answer[T], error) {
	failed, told := false, op.Settled
	op.Settled = func(v resilience.Verdict) {
		failed = v.Failed()
		if told != nil {
			told(v)
		}
	}
	call := s.begin(key)
	defer s.end(key)
	v, err := resilience.CallOp(ctx, b, op, fn)
	if err == nil {
		s.keep(call, key, v)
		return Answer[T]{Value: v, Source: Live}, nil
	}
	if !failed && !refusedBy(b, err) {
		return Answer[T]{Value: v}, err
	}
	return s.answer(b.Name(), key, err)
}

// refusedBy reports whether err is a refusal by b, and not one by another
// breaker that the function returned.
func refusedBy(b *resilience.Breaker, err error) bool {
	refusal, ok := errors.AsType[interface {
		error
		By(*resilience.Breaker) bool
	}](err)
	return ok && refusal.By(b)
}

// begin returns the number of a call for key, in the order of their beginnings.
func (s *Store[T]) begin(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	f := s.flying[key]
	f.calls++
	s.flying[key] = f
	return s.begun
}

func (s *Store[T]) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flying[key]
	if f.calls--; f.calls == 0 {
		delete(s.flying, key)
		return
	}
	s.flying[key] = f
}

// keep caches the answer of a call, unless that of a later call was kept.
func (s *Store[T]) keep(call uint64, key string, v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flying[key]
	if call < f.kept {
		return
	}
	f.kept = call
	s.flying[key] = f
	fresh := &entry[T]{key, v, s.cfg.Clock.Now()}
	if e, ok := s.byKey[key]; ok {
		e.Value = fresh
		s.recent.MoveToFront(e)
		return
	}
	s.byKey[key] = s.recent.PushFront(fresh)
	if s.recent.Len() > s.cfg.MaxKeys {
		s.dropLocked(s.recent.Back())
	}
}

func (s *Store[T]) dropLocked(e *list.Element) {
	s.recent.Remove(e)
	delete(s.byKey, e.Value.(*entry[T]).key)
}

// cached is the last good value of key, unless it is too old.
func (s *Store[T]) cached(key string) (v T, age time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byKey[key]
	if !ok {
		return v, 0, false
	}
	kept := e.Value.(*entry[T])
	age = max(s.cfg.Clock.Now().Sub(kept.at), 0)
	if age > s.cfg.MaxAge {
		s.dropLocked(e)
		return v, 0, false
	}
	s.recent.MoveToFront(e)
	return kept.value, age, true
}

func (s *Store[T]) answer(upstream, key string, cause error) (Answer[T], error) {
	if v, age, ok := s.cached(key); ok {
		s.note(upstream, Cache, age, cause)
		return Answer[T]{Value: v, Source: Cache, Stale: true, Age: age, Cause: cause}, nil
	}
	if s.cfg.Default != nil {
		if v, ok := s.cfg.Default(key); ok {
			s.note(upstream, Default, 0, cause)
			return Answer[T]{Value: v, Source: Default, Cause: cause}, nil
		}
	}
	s.count(none)
	return Answer[T]{}, cause
}

func (s *Store[T]) note(upstream string, from Source, age time.Duration, cause error) {
	s.count(from)
	cmp.Or(s.cfg.Logger, slog.Default()).Warn("answered from a fallback",
		"upstream", upstream, "source", from.String(), "age", age, "cause", mask.Text(cause))
}

// count counts an answer that is not live, or that there was no answer.
func (s *Store[T]) count(from Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch from {
	case none, Live:
		s.counts.None++
	case Cache:
		s.counts.Cache++
	case Default:
		s.counts.Default++
	}
}

// Counts returns how often the store was asked to answer so far.
func (s *Store[T]) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}
