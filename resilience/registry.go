package resilience

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The upstreams of this kit. Their doors bring their own classifiers.
var (
	Default = NewRegistry(Config{})

	Milvus = Default.MustRegister("milvus", Config{FailMax: 5, ResetTimeout: time.Minute})
	S3     = Default.MustRegister("s3", Config{FailMax: 5, ResetTimeout: time.Minute})
	LLM    = Default.MustRegister("llm", Config{FailMax: 5, ResetTimeout: time.Minute})
)

// Registry keeps breakers by name, so that metrics and operators find them. It
// is safe for concurrent use.
//
// A registry knows only its own process: N processes are N breakers, which
// together send up to N probes and take up to N times FailMax failures. Join
// makes them one.
type Registry struct {
	defaults Config

	mu       sync.Mutex
	breakers map[string]*Breaker
	keyed    map[string]*Keyed
	fleet    *Fleet
}

// NewRegistry makes an empty registry. The zero fields of each Config that is
// registered are taken from defaults, and fields that are zero there too have
// the defaults of Config.
func NewRegistry(defaults Config) *Registry {
	return &Registry{defaults: defaults, breakers: make(map[string]*Breaker), keyed: make(map[string]*Keyed)}
}

// Defaults is the Config that NewRegistry was given. To leave out one of its
// options, change the copy and register it as Standalone.
func (r *Registry) Defaults() Config { return r.defaults }

// breaker makes a breaker of the registry.
func (r *Registry) breaker(name string, cfg Config) (*Breaker, error) {
	problem := cfg.single()
	cfg = cfg.under(r.defaults)
	cfg.MaxKeys = 0 // of the defaults, for families
	b, err := newBreaker(name, cfg, problem)
	if err == nil {
		b.latch = nameKey{r, name}
	}
	return b, err
}

// Register makes the breaker of name. A name can be registered once.
func (r *Registry) Register(name string, cfg Config) (*Breaker, error) {
	b, err := r.breaker(name, cfg)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.breakers[name]; taken {
		return nil, fmt.Errorf("resilience: breaker %q is registered already", name)
	}
	for prefix := range r.keyed {
		if inFamily(name, prefix) {
			return nil, fmt.Errorf("resilience: breaker %q would be among those keyed %q", name, prefix)
		}
	}
	r.breakers[name] = b
	r.shareLocked(b)
	return b, nil
}

// Join shares the breakers of the registry, those of Keyed and those to come
// included, with the processes that join fleets of the same store. It leaves
// out the ones in shadow mode and those whose fleet is not closed. The records
// are told apart by the breakers' names and by the addresses that Locate gave
// them.
func (r *Registry) Join(f *Fleet) {
	if f == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fleet = f
	for _, b := range r.breakers {
		b.join(f)
	}
	for _, k := range r.keyed {
		k.join(f)
	}
}

// joined is the fleet of the breakers to come, or nil.
func (r *Registry) joined() *Fleet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

func (r *Registry) shareLocked(b *Breaker) {
	if r.fleet != nil {
		b.join(r.fleet)
	}
}

// MustRegister is Register for package variables: it panics instead of
// returning an error.
func (r *Registry) MustRegister(name string, cfg Config) *Breaker {
	b, err := r.Register(name, cfg)
	if err != nil {
		panic(err)
	}
	return b
}

// Replace puts a new breaker in place of the one registered as name, for a
// program that wants another policy. It is meant for the start of the program:
// code that holds the old breaker continues to use it, unseen by the registry,
// and so do the variables of this package until they are set:
//
//	policy := resilience.Config{ResetTimeout: 30 * time.Second}
//	resilience.LLM, err = resilience.Default.Replace("llm", policy)
func (r *Registry) Replace(name string, cfg Config) (*Breaker, error) {
	b, err := r.breaker(name, cfg)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.breakers[name]; !known {
		return nil, fmt.Errorf("resilience: there is no breaker %q to replace", name)
	}
	b.core.veteran = true // a task that the old one refused is refused by the new one
	b.word.Store(b.core.word())
	r.breakers[name].quit()
	r.breakers[name] = b
	r.shareLocked(b)
	return b, nil
}

// Get returns the breaker registered as name.
func (r *Registry) Get(name string) (*Breaker, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.breakers[name]
	return b, ok
}

// All returns every breaker, those of Keyed included, sorted by name.
func (r *Registry) All() []*Breaker {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*Breaker
	for _, b := range r.breakers {
		all = append(all, b)
	}
	for _, k := range r.keyed {
		all = append(all, k.all()...)
	}
	slices.SortFunc(all, func(a, b *Breaker) int { return cmp.Compare(a.name, b.name) })
	return all
}
