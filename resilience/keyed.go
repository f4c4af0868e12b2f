package resilience

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"weak"
)

// Keyed is a family of breakers with one policy, such as one for each partner,
// tenant or model, each named PREFIX/KEY and made when its key is first asked
// for. Registry.Keyed makes one. It is safe for concurrent use.
//
// The key may join what tells upstreams apart (provider, operation,
// environment, the name of a credential) and must never hold a secret, since
// it stands in errors, logs and labels. Characters that cannot be printed
// become _ in the breaker's name, which then ends in a hash of the key, as the
// name of a long one does.
//
// A family is bounded by Config.MaxKeys. To make room it forgets a breaker that
// is closed, is not forced to be, and has no call in flight: the one that was
// asked for longest ago, preferably one that has counted no failure lately.
// While there is no such breaker, the keys that find no room share one, named
// PREFIX/(overflow). A large family is not searched for room at every key.
//
// A breaker that somebody holds stays the breaker of its key: a call through it
// takes its place in the family again, so no failure is counted where nobody
// looks.
type Keyed struct {
	registry *Registry
	prefix   string
	room     int    // MaxKeys
	cfg      Config // of each breaker

	mu       sync.Mutex
	fleet    *Fleet
	byKey    map[string]*list.Element
	recent   *list.List                       // of *Breaker, the latest first
	gone     map[string]weak.Pointer[Breaker] // forgotten, but perhaps held by somebody
	overflow *Breaker
	skip     int // keys without room until the whole family is searched again
}

// searchOldest bounds how many breakers are searched for room at each new key,
// however large the family is.
const searchOldest = 64

// membership is a breaker's place in its family.
type membership struct {
	family    *Keyed
	key       string
	forgotten atomic.Bool // written under the family's lock
}

// maxPrefix leaves room in a name for the hash that tells long keys apart.
const maxPrefix = maxName - hashLength - 1

// Keyed makes the family of a prefix of at most 110 bytes: cfg with the
// registry's defaults. A prefix can be taken once.
func (r *Registry) Keyed(prefix string, cfg Config) (*Keyed, error) {
	cfg = cfg.under(r.defaults)
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, defaultMaxKeys)
	fleet := cmp.Or(cfg.Shared, r.joined())
	cfg.Shared = nil // the overflow stands for other keys in each process
	overflow, err := newBreaker(prefix+"/(overflow)", cfg, within("length of the prefix", len(prefix), 1, maxPrefix))
	if err != nil {
		return nil, err
	}
	if err := cfg.affordable(overflow.core.window); err != nil {
		return nil, fmt.Errorf("resilience: breaker %q: %w", overflow.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.keyed[prefix]; taken {
		return nil, fmt.Errorf("resilience: breakers keyed %q are registered already", prefix)
	}
	if err := r.crossedLocked(prefix); err != nil {
		return nil, err
	}
	k := &Keyed{
		registry: r, fleet: fleet, prefix: prefix, room: cfg.MaxKeys, cfg: overflow.cfg, overflow: overflow,
		byKey: make(map[string]*list.Element), recent: list.New(), gone: make(map[string]weak.Pointer[Breaker]),
	}
	k.cfg.MaxKeys, overflow.cfg.MaxKeys = 0, 0 // so that what Breaker.Config returns may be used again
	overflow.family, overflow.latch = prefix, nameKey{r, overflow.name}
	r.keyed[prefix] = k
	return k, nil
}

// Get returns the breaker of key, to call through or to look at.
func (k *Keyed) Get(key string) *Breaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.byKey[key]; ok {
		k.recent.MoveToFront(e)
		return e.Value.(*Breaker)
	}
	if !k.roomLocked() {
		return k.overflow
	}
	b := k.gone[key].Value()
	if b == nil {
		b = k.makeLocked(key)
	}
	k.placeLocked(b)
	return b
}

// Do is Breaker.Do through the breaker of key.
func (k *Keyed) Do(ctx context.Context, key string, fn func(context.Context) error) error {
	return k.Get(key).Do(ctx, fn)
}

// Allow is Breaker.Allow through the breaker of key.
func (k *Keyed) Allow(ctx context.Context, key string) (*Permit, error) { return k.Get(key).Allow(ctx) }

// All yields the keys and their breakers as they are when it begins, sorted by
// key, without the one that keys without room share.
func (k *Keyed) All() iter.Seq2[string, *Breaker] {
	return func(yield func(string, *Breaker) bool) {
		k.mu.Lock()
		all := make(map[string]*Breaker, len(k.byKey))
		for key, e := range k.byKey {
			all[key] = e.Value.(*Breaker)
		}
		k.mu.Unlock()
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if !yield(key, all[key]) {
				return
			}
		}
	}
}

// Delete forgets the breaker of key whatever its state, as for a tenant that is
// gone, and reports whether there was one. It is reset, so that calls in flight
// become stale and its holders start from scratch.
func (k *Keyed) Delete(key string) bool {
	k.mu.Lock()
	b := k.gone[key].Value()
	if e, ok := k.byKey[key]; ok {
		b = e.Value.(*Breaker)
		k.removeLocked(e)
	}
	k.mu.Unlock()
	if b == nil {
		return false
	}
	b.apply(func(c *core) { c.restart(b.now()) })
	return true
}

// Family is the prefix of the family that the breaker belongs to, also for the
// one that keys without room share; empty for a single breaker.
func (b *Breaker) Family() string { return b.family }

// Forgotten reports whether the breaker's family has given its place away. A
// call through it takes a place again.
func (b *Breaker) Forgotten() bool { return b.member != nil && b.member.forgotten.Load() }

// crossedLocked keeps names unique: no name may belong to two families, or to a
// family and to a breaker of the registry.
func (r *Registry) crossedLocked(prefix string) error {
	for name := range r.breakers {
		if inFamily(name, prefix) {
			return fmt.Errorf("resilience: breaker %q would be among those keyed %q", name, prefix)
		}
	}
	for other := range r.keyed {
		outer, inner := other, prefix
		if inFamily(other, prefix) {
			outer, inner = prefix, other
		}
		if inFamily(inner, outer) {
			return fmt.Errorf("resilience: breakers keyed %q would be among those keyed %q", inner, outer)
		}
	}
	return nil
}

func inFamily(name, prefix string) bool { return strings.HasPrefix(name, prefix+"/") }

func (k *Keyed) makeLocked(key string) *Breaker {
	b := makeBreaker(k.name(key), k.cfg)
	b.family, b.member, b.extras = k.prefix, &membership{family: k, key: key}, true
	b.latch = nameKey{k.registry, b.name}
	runtime.AddCleanup(b, k.collected, key)
	return b
}

// collected is told that nobody holds a forgotten breaker any longer.
func (k *Keyed) collected(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.gone[key]; ok && p.Value() == nil {
		delete(k.gone, key)
	}
}

func (k *Keyed) placeLocked(b *Breaker) {
	delete(k.gone, b.member.key)
	k.byKey[b.member.key] = k.recent.PushFront(b)
	b.member.forgotten.Store(false)
	if k.fleet != nil {
		b.join(k.fleet)
	}
}

// join shares the breakers of the family.
func (k *Keyed) join(f *Fleet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fleet != nil {
		return
	}
	k.fleet = f
	for _, e := range k.byKey {
		e.Value.(*Breaker).join(f)
	}
}

func (k *Keyed) removeLocked(e *list.Element) {
	b := k.recent.Remove(e).(*Breaker)
	delete(k.byKey, b.member.key)
	k.gone[b.member.key] = weak.Make(b)
	b.member.forgotten.Store(true)
	b.quit()
}

// pin counts a call as in flight, so that its breaker is not forgotten, and
// returns the breaker that it goes through.
func (m *membership) pin(b *Breaker) *Breaker {
	b.totals.add(statStarted) // before the look, as the family looks after it has forgotten
	if !m.forgotten.Load() {
		return b
	}
	k := m.family
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !m.forgotten.Load():
		return b
	case k.roomLocked():
		k.placeLocked(b)
		return b
	}
	b.totals.add(statEnded)
	return k.overflow
}

// hold is pin for what an operator does, which exceeds the bound where there is
// no room.
func (m *membership) hold(b *Breaker) {
	b.totals.add(statStarted)
	k := m.family
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.forgotten.Load() {
		_ = k.roomLocked()
		k.placeLocked(b)
	}
}

// roomLocked makes room for another breaker. A family that exceeds its bound
// since an operator has acted shrinks as far as it can.
func (k *Keyed) roomLocked() bool {
	for len(k.byKey) >= k.room {
		if !k.evictLocked() {
			return false
		}
	}
	return true
}

// evictLocked forgets one idle breaker, preferably one that has nothing to
// forget.
func (k *Keyed) evictLocked() bool {
	blank := func(b *Breaker) bool { return b.blank() && b.idle() }
	if k.forgetLocked(blank, searchOldest) {
		return true
	}
	if k.skip > 0 {
		k.skip--
		return false
	}
	if k.forgetLocked((*Breaker).idle, len(k.byKey)) {
		return true
	}
	k.skip = len(k.byKey) / searchOldest
	return false
}

func (k *Keyed) forgetLocked(fits func(*Breaker) bool, most int) bool {
	for e := k.recent.Back(); e != nil && most > 0; e, most = e.Prev(), most-1 {
		b := e.Value.(*Breaker)
		if !fits(b) {
			continue
		}
		b.member.forgotten.Store(true) // before the second look, as a call looks after it was counted
		if !fits(b) {
			b.member.forgotten.Store(false)
			continue
		}
		k.removeLocked(e)
		return true
	}
	return false
}

// idle reports whether the breaker is closed for all calls and not forced to
// be, with no call in flight and no wait that its upstream asked for.
func (b *Breaker) idle() bool {
	if wordState(b.word.Load()) != Closed {
		return false
	}
	if c := b.view(); c.state != Closed || c.held != free || c.share() < 1 || c.pause > c.latest {
		return false
	}
	ended := b.totals.sum(statEnded) // before started, so that the difference errs on the safe side
	return b.totals.sum(statStarted) == ended
}

// blank reports whether a closed breaker remembers no failure.
func (b *Breaker) blank() bool {
	if w := b.word.Load(); b.plain || w&streakMask != 0 {
		return w&streakMask == 0
	}
	s := b.Snapshot()
	return s.WindowFailures+s.WindowSlow == 0
}

// name satisfies validName, and differs for different keys.
func (k *Keyed) name(key string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(key, "_"))
	name := k.prefix + "/" + clean
	if clean == key && len(name) <= maxName && name != k.overflow.name && !hashed.MatchString(key) {
		return name
	}
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(name[:min(len(name), maxName-hashLength)], ""), sum[:8])
}

// hashLength is that of hashed, in bytes.
const hashLength = 17

// hashed is how a name ends that is more than prefix and key.
var hashed = regexp.MustCompile(`~[0-9a-f]{16}$`)

func (k *Keyed) all() []*Breaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Breaker, 0, len(k.byKey)+1)
	for _, e := range k.byKey {
		all = append(all, e.Value.(*Breaker))
	}
	if s := k.overflow.Snapshot(); s.Calls+s.Rejected > 0 {
		all = append(all, k.overflow)
	}
	return all
}
