package resilience

import (
	"container/list"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// family is the breakers of one Registry.Keyed.
type family struct {
	prefix string
	cfg    Config

	mu       sync.Mutex
	byKey    map[string]*list.Element
	recent   *list.List // of *member, the latest first
	overflow *Breaker
	skip     int // keys without room until the whole family is searched again
}

// searchOldest bounds how many breakers are searched for room at each new key,
// however large the family is.
const searchOldest = 64

type member struct {
	key string
	b   *Breaker
}

// Keyed makes a family of breakers with one policy, such as one for each
// partner, tenant or model: cfg with the registry's defaults. The function that
// it returns gives the breaker of a key, named PREFIX/KEY and made when it is
// first asked for. Ask for it at each call and keep it no longer than that. A
// prefix can be taken once.
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
func (r *Registry) Keyed(prefix string, cfg Config) (breakerOf func(key string) *Breaker, err error) {
	cfg = cfg.under(r.defaults)
	overflow, err := New(prefix+"/(overflow)", cfg)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.keyed[prefix]; taken {
		return nil, fmt.Errorf("resilience: breakers keyed %q are registered already", prefix)
	}
	if err := r.crossedLocked(prefix); err != nil {
		return nil, err
	}
	k := &family{
		prefix: prefix, cfg: overflow.cfg, byKey: make(map[string]*list.Element),
		recent: list.New(), overflow: overflow,
	}
	r.keyed[prefix] = k
	return k.get, nil
}

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

func (k *family) get(key string) *Breaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.byKey[key]; ok {
		k.recent.MoveToFront(e)
		return e.Value.(*member).b
	}
	if len(k.byKey) >= k.cfg.MaxKeys && !k.evictLocked() {
		return k.overflow
	}
	b := newBreaker(k.name(key), k.cfg)
	b.track()
	k.byKey[key] = k.recent.PushFront(&member{key, b})
	return b
}

// evictLocked forgets one idle breaker, preferably one that has nothing to
// forget.
func (k *family) evictLocked() bool {
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

func (k *family) forgetLocked(fits func(*Breaker) bool, most int) bool {
	for e := k.recent.Back(); e != nil && most > 0; e, most = e.Prev(), most-1 {
		if m := e.Value.(*member); fits(m.b) {
			k.recent.Remove(e)
			delete(k.byKey, m.key)
			return true
		}
	}
	return false
}

// idle reports whether the breaker is closed and not forced to be, with no call
// in flight.
func (b *Breaker) idle() bool {
	if wordState(b.word.Load()) != Closed || b.view().held != free {
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
func (k *family) name(key string) string {
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
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(name[:min(len(name), maxName-17)], ""), sum[:8])
}

// hashed is how a name ends that is more than prefix and key.
var hashed = regexp.MustCompile(`~[0-9a-f]{16}$`)

func (k *family) all() []*Breaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Breaker, 0, len(k.byKey))
	for _, e := range k.byKey {
		all = append(all, e.Value.(*member).b)
	}
	if s := k.overflow.Snapshot(); s.Calls+s.Rejected > 0 {
		all = append(all, k.overflow)
	}
	return all
}
