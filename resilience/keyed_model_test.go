package resilience_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// familyModel is a family as one would explain it: a list of keys, the latest
// first, and for each key what its breaker has counted.
type familyModel struct {
	room   int
	recent []string
	of     map[string]*keyModel
}

type keyModel struct {
	streak, flights int
	open            bool
	forced          bool
}

const familyFailMax = 3

// ask is Get, and reports whether the key has a place.
func (m *familyModel) ask(key string) bool {
	i := slices.Index(m.recent, key)
	if i < 0 && !m.makeRoom() {
		return false
	}
	if i >= 0 {
		m.recent = slices.Delete(m.recent, i, i+1)
	}
	m.recent = slices.Insert(m.recent, 0, key)
	return true
}

// makeRoom forgets the key that was asked for longest ago and is idle,
// preferably one without failures.
func (m *familyModel) makeRoom() bool {
	if len(m.recent) < m.room {
		return true
	}
	for _, most := range []int{0, familyFailMax} {
		for i, key := range slices.Backward(m.recent) {
			if k := m.of[key]; !k.open && !k.forced && k.flights == 0 && k.streak <= most {
				m.recent = slices.Delete(m.recent, i, i+1)
				return true
			}
		}
	}
	return false
}

// end is a call that ends.
func (k *keyModel) end(good bool) {
	switch {
	case k.forced || k.open:
	case good:
		k.streak = 0
	default:
		k.streak++
		k.open = k.streak >= familyFailMax
	}
}

// Rule 32 against the model: which keys have a place in the family, and that a
// breaker that lost its place keeps what it has counted as long as it is held.
func TestRandomFamilyAgainstTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		newFamilyPair(t, rng).run(300)
	}
}

type familyPair struct {
	t      *testing.T
	rng    *rand.Rand
	k      *resilience.Keyed
	m      *familyModel
	held   map[string]*resilience.Breaker
	flight []familyFlight
	recent []string
}

type familyFlight struct {
	key string
	p   *resilience.Permit
}

func newFamilyPair(t *testing.T, rng *rand.Rand) *familyPair {
	room := 1 + rng.IntN(4)
	k, _, _ := newFamily(t, resilience.Config{MaxKeys: room, FailMax: familyFailMax})
	return &familyPair{
		t: t, rng: rng, k: k, m: &familyModel{room: room, of: map[string]*keyModel{}},
		held: map[string]*resilience.Breaker{},
	}
}

func (p *familyPair) run(steps int) {
	for range steps {
		key := string(rune('a' + p.rng.IntN(7)))
		p.recent = append(p.recent, p.act(key))
		var keys []string
		for key, b := range p.k.All() {
			require.Same(p.t, p.held[key], b, "%v", p.recent)
			keys = append(keys, key)
		}
		require.Equal(p.t, slices.Sorted(slices.Values(p.m.recent)), keys, "%v", p.recent)
		for key, want := range p.m.of {
			b := p.held[key]
			require.Equal(p.t, want.open, b.State() == resilience.Open, "%s\n%v", key, p.recent)
			require.Equal(p.t, !slices.Contains(keys, key), b.Forgotten(), "%s\n%v", key, p.recent)
		}
	}
}

// get asks both for a key. A key without a place is not looked at further.
func (p *familyPair) get(key string) bool {
	b := p.k.Get(key)
	ok := p.m.ask(key)
	require.Equal(p.t, ok, b.Name() == "tenant/"+key, "a place for %s\n%v", key, p.recent)
	if ok {
		p.held[key] = b
		if p.m.of[key] == nil {
			p.m.of[key] = &keyModel{}
		}
	}
	return ok
}

func (p *familyPair) act(key string) string {
	switch dice := p.rng.IntN(20); {
	case dice < 4:
		return fmt.Sprint("get ", key, p.get(key))
	case dice < 10:
		good := p.rng.IntN(2) == 0
		if p.get(key) {
			_ = p.held[key].Do(p.t.Context(), map[bool]func(context.Context) error{true: fine, false: down}[good])
			p.m.of[key].end(good)
		}
		return fmt.Sprint("call ", key, good)
	case dice < 13:
		return p.through(key)
	case dice < 15 && len(p.flight) > 0:
		i := p.rng.IntN(len(p.flight))
		f := p.flight[i]
		p.flight = slices.Delete(p.flight, i, i+1)
		f.p.Settle(resilience.Verdict{Outcome: resilience.Ignored})
		p.m.of[f.key].flights--
		return "end " + f.key
	case dice < 18:
		return p.operate(key, dice)
	}
	return fmt.Sprint("delete ", key, p.delete(key))
}

// through is a call through a breaker that is held, whether it has a place or
// not, and stays in flight.
func (p *familyPair) through(key string) string {
	b, k := p.held[key], p.m.of[key]
	if b == nil || !slices.Contains(p.m.recent, key) && !p.m.ask(key) {
		return "nothing"
	}
	permit, err := b.Allow(p.t.Context())
	require.Equal(p.t, k.open, err != nil, "%s\n%v", key, p.recent)
	if err == nil {
		p.flight = append(p.flight, familyFlight{key, permit})
		k.flights++
	}
	return "allow " + key
}

func (p *familyPair) operate(key string, dice int) string {
	if !p.get(key) {
		return "nothing"
	}
	b, k := p.held[key], p.m.of[key]
	switch dice {
	case 15:
		b.ForceClose("drill")
		k.forced, k.open, k.streak = true, false, 0
		return "force " + key
	case 16:
		b.Trip("drill")
		k.open = !k.forced
		return "trip " + key
	}
	b.Reset()
	k.forced, k.open, k.streak = false, false, 0
	return "reset " + key
}

func (p *familyPair) delete(key string) bool {
	k := p.m.of[key] // held, so that it is found with or without a place
	require.Equal(p.t, k != nil, p.k.Delete(key), "%s\n%v", key, p.recent)
	p.m.recent = slices.DeleteFunc(p.m.recent, func(other string) bool { return other == key })
	if k != nil {
		k.forced, k.open, k.streak = false, false, 0
	}
	return k != nil
}
