package resilience

import (
	"container/list"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"unicode"
)

// Keyed is a family of breakers with one policy: one for each partner, tenant
// or model. The key may join what tells upstreams apart (provider, operation,
// environment, the name of a credential) and must never hold a secret, since
// it stands in errors, logs and labels. It is safe for concurrent use.
//
// A family is bounded by Config.MaxKeys. To make room it forgets the breaker
// that was asked for longest ago among those that are closed, with no streak
// and no call in flight. Where there is none, the keys that found no room
// share one breaker, named PREFIX/(overflow), until there is.
type Keyed struct {
	prefix string
	cfg    Config

	mu       sync.Mutex
	byKey    map[string]*list.Element
	recent   *list.List // of *member, the latest first
	overflow *Breaker
}

type member struct {
	key string
	b   *Breaker
}

// Keyed makes the family of prefix, once, with the registry's defaults under
// cfg. Its breakers are named PREFIX/KEY.
func (r *Registry) Keyed(prefix string, cfg Config) (*Keyed, error) {
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
	k := &Keyed{prefix: prefix, cfg: overflow.cfg, byKey: make(map[string]*list.Element), recent: list.New(), overflow: overflow}
	r.keyed[prefix] = k
	return k, nil
}

// Get is the breaker of key, made when it is first asked for. Ask for it at
// each call and keep it no longer than that. Characters that cannot be printed
// become _ in its name, and a long name ends in a hash.
func (k *Keyed) Get(key string) *Breaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.byKey[key]; ok {
		k.recent.MoveToFront(e)
		return e.Value.(*member).b
	}
	if len(k.byKey) >= k.cfg.MaxKeys && !k.evictLocked() {
		return k.overflow
	}
	b := MustNew(k.name(key), k.cfg)
	b.track()
	k.byKey[key] = k.recent.PushFront(&member{key, b})
	return b
}

// evictLocked forgets one idle breaker.
func (k *Keyed) evictLocked() bool {
	for e := k.recent.Back(); e != nil; e = e.Prev() {
		if m := e.Value.(*member); m.b.idle() {
			k.recent.Remove(e)
			delete(k.byKey, m.key)
			return true
		}
	}
	return false
}

// idle reports whether forgetting the breaker would lose nothing.
func (b *Breaker) idle() bool {
	w := b.word.Load()
	ended := b.totals.sum(statEnded) // before started, so that the difference errs on the safe side
	return wordState(w) == Closed && w&streakMask == 0 && b.totals.sum(statStarted) == ended
}

// name keeps within validName.
func (k *Keyed) name(key string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(key, "_"))
	name := k.prefix + "/" + clean
	if len(name) <= maxName {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return fmt.Sprintf("%s~%08x", strings.ToValidUTF8(name[:maxName-9], ""), h.Sum32())
}

func (k *Keyed) all() []*Breaker {
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
