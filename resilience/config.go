package resilience

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/resilience/trip"
)

// Defaults of a Config and of the windows.
const (
	defaultFailMax     = 5
	defaultReset       = time.Minute
	defaultMaxThrottle = 5 * time.Minute
	defaultMaxKeys     = 1024
	defaultWindow      = 100
	defaultPeriod      = time.Minute
	defaultBuckets     = 10
	defaultMinCalls    = 10
	defaultRate        = 0.5
)

// Upper bounds, so that a configuration cannot ask for more memory than there
// is, or overflow.
const (
	maxStreak  = 1<<streakBits - 1
	maxWindow  = 1 << 20
	maxBuckets = 1 << 12
	maxProbes  = 1 << 10
	maxKeys    = 1 << 20
	maxMemory  = 256 << 20 // bytes, of the windows of a family
	minProbe   = time.Millisecond
	maxWait    = 10 * 365 * 24 * time.Hour
	maxName    = 128
)

// Config is the policy of a breaker. Its zero value is the default policy:
// five consecutive failures open it, after 60 seconds one probe goes out, and
// one good probe closes it.
type Config struct {
	// FailMax is how many consecutive failures open the breaker. Default 5, at
	// most 65535. It cannot be set with a window in Trip, which takes its
	// place.
	FailMax int
	// ResetTimeout is how long the breaker stays open before a probe. Default
	// 60 s.
	ResetTimeout time.Duration
	// MaxResetTimeout, when set, lets the wait grow: each failed probe in a row
	// doubles it, up to this, less a random part of up to half. It is never
	// shorter than ResetTimeout. Default: no wait grows.
	MaxResetTimeout time.Duration
	// Jitter, when set, adds a random time of at most Jitter to each wait, save
	// the one that a throttling upstream has asked for, so that not all runs
	// again at once when it is over. Default: none.
	Jitter time.Duration
	// Ramp, when set, is how long after a good probe has closed the breaker the
	// share of calls that are admitted grows: it is the part of Ramp that has
	// passed, and at least 10 %. The others get an *OpenError whose State is
	// Closed. Default: all calls are admitted at once.
	Ramp time.Duration
	// ProbeTimeout is how long a probe may stay silent before its slot is taken
	// back and it counts as a failure. Default ResetTimeout, at least 1 ms.
	ProbeTimeout time.Duration
	// CallTimeout bounds the context of every call. Default none.
	CallTimeout time.Duration
	// MaxThrottle caps the wait that a throttling upstream can ask for. Default
	// 5 min.
	MaxThrottle time.Duration
	// MaxProbes is how many probes may run at a time. Default 1.
	MaxProbes int
	// SuccessThreshold is how many consecutive good probes close the breaker.
	// Default 1.
	SuccessThreshold int
	// Trip is the rule that opens the breaker: trip.Consecutive{} (the
	// default), trip.CountWindow or trip.TimeWindow.
	Trip trip.Rule
	// Classify reads the errors of operations without a classifier of their
	// own; Op.Classify says how. Default: the caller's own cancellation is
	// ignored, every other error is a failure.
	Classify func(callerCtx context.Context, err error) Verdict
	// OpenOnThrottle makes a throttled call open a closed breaker.
	OpenOnThrottle bool
	// StopOnDenied makes a denied call stop the breaker until Reset.
	StopOnDenied bool
	// Shadow makes the breaker refuse nothing, to try a policy on real traffic:
	// it counts and tells what it would have done (Snapshot.Shadowed). Calls
	// that it would have refused are counted by outcome and move no state.
	Shadow bool
	// Probe, when set, is the designated probe. Once the wait is over it runs
	// before any real call, in the goroutine of the first caller and bounded by
	// ProbeTimeout; real calls are admitted when it has closed the breaker. It
	// must honour its context.
	Probe func(ctx context.Context) error
	// Clock is the time source, safe for concurrent use; it must not call the
	// breaker. Default: the system's clocks, the monotonic one for deadlines
	// and the wall clock for dates. A Clock that also has the method
	// Monotonic() time.Duration tells them apart likewise; without it, a Clock
	// that steps moves the deadlines.
	Clock interface{ Now() time.Time }
	// Logger receives transitions and first refusals at warning. Default:
	// slog.Default() at the time of the event. slog.New(slog.DiscardHandler)
	// silences it.
	Logger *slog.Logger
	// OnTransition is the first observer; Breaker.Observe adds more.
	OnTransition func(Transition)
	// MaxKeys bounds the breakers of one Registry.Keyed. Default 1024. It
	// cannot be set for a single breaker.
	MaxKeys int
	// Durations makes package metrics keep the durations of the calls through
	// the breakers of one Registry.Keyed, for each key and operation. It always
	// has those of single breakers.
	Durations bool
	// Shared is the fleet that the breaker belongs to. Default: that of
	// Registry.Join, if any. A breaker in shadow mode belongs to none.
	Shared *Fleet
	// Standalone makes the Config complete: nothing is taken from the
	// registry's defaults. See Registry.Defaults.
	Standalone bool
}

// normal fills in the defaults and reports what is out of bounds.
func (c Config) normal() (Config, error) {
	c.ResetTimeout = cmp.Or(c.ResetTimeout, defaultReset)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, max(c.ResetTimeout, minProbe))
	c.MaxThrottle = cmp.Or(c.MaxThrottle, defaultMaxThrottle)
	c.MaxProbes = cmp.Or(c.MaxProbes, 1)
	c.SuccessThreshold = cmp.Or(c.SuccessThreshold, 1)
	if c.Trip == nil {
		c.Trip = trip.Consecutive{}
	}
	if c.Classify == nil {
		c.Classify = classifyDefault
	}
	rule, err := normalRule(c.Trip)
	c.Trip = rule
	if _, consecutive := rule.(trip.Consecutive); consecutive {
		c.FailMax = cmp.Or(c.FailMax, defaultFailMax)
		err = errors.Join(err, within("FailMax", c.FailMax, 1, maxStreak))
	} else if c.FailMax != 0 {
		err = errors.Join(err, fmt.Errorf("FailMax is %d and Trip a %T, which takes its place; set one of them",
			c.FailMax, rule))
	}
	return c, errors.Join(err, c.bounds())
}

// single reports what a single breaker has no use for.
func (c Config) single() error {
	if c.MaxKeys != 0 {
		return fmt.Errorf("MaxKeys is %d; it is for Registry.Keyed alone", c.MaxKeys)
	}
	return nil
}

// affordable bounds the memory of a family whose windows are all in use. w is
// one of them, nil without windows.
func (c Config) affordable(w window) error {
	if w == nil {
		return nil
	}
	if all := int64(c.MaxKeys) * w.bytes(); all > maxMemory {
		return fmt.Errorf("MaxKeys %d times a window of %d bytes is %d MiB; it must be at most %d MiB",
			c.MaxKeys, w.bytes(), all>>20, int64(maxMemory)>>20)
	}
	return nil
}

func (c Config) bounds() error {
	return errors.Join(
		within("ResetTimeout", c.ResetTimeout, 1, maxWait),
		within("MaxResetTimeout", cmp.Or(c.MaxResetTimeout, c.ResetTimeout), c.ResetTimeout, maxWait),
		within("Jitter", c.Jitter, 0, maxWait),
		within("Ramp", c.Ramp, 0, maxWait),
		within("ProbeTimeout", c.ProbeTimeout, minProbe, maxWait),
		within("CallTimeout", c.CallTimeout, 0, maxWait),
		within("MaxThrottle", c.MaxThrottle, 1, maxWait),
		within("MaxProbes", c.MaxProbes, 1, maxProbes),
		within("SuccessThreshold", c.SuccessThreshold, 1, maxStreak),
		within("MaxKeys", c.MaxKeys, 0, maxKeys))
}

// under fills the zero fields of c from defaults. A rule of its own leaves out
// the FailMax of the defaults if it is a window.
func (c Config) under(d Config) Config {
	if c.Standalone {
		return c
	}
	if _, consecutive := c.Trip.(trip.Consecutive); consecutive || c.Trip == nil {
		c.FailMax = cmp.Or(c.FailMax, d.FailMax)
	}
	c.ResetTimeout = cmp.Or(c.ResetTimeout, d.ResetTimeout)
	c.MaxResetTimeout = cmp.Or(c.MaxResetTimeout, d.MaxResetTimeout)
	c.Jitter = cmp.Or(c.Jitter, d.Jitter)
	c.Ramp = cmp.Or(c.Ramp, d.Ramp)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, d.ProbeTimeout)
	c.CallTimeout = cmp.Or(c.CallTimeout, d.CallTimeout)
	c.MaxThrottle = cmp.Or(c.MaxThrottle, d.MaxThrottle)
	c.MaxProbes = cmp.Or(c.MaxProbes, d.MaxProbes)
	c.SuccessThreshold = cmp.Or(c.SuccessThreshold, d.SuccessThreshold)
	c.MaxKeys = cmp.Or(c.MaxKeys, d.MaxKeys)
	c.OpenOnThrottle = c.OpenOnThrottle || d.OpenOnThrottle
	c.StopOnDenied = c.StopOnDenied || d.StopOnDenied
	c.Shadow = c.Shadow || d.Shadow
	c.Durations = c.Durations || d.Durations
	c.Logger = cmp.Or(c.Logger, d.Logger)
	c.Shared = cmp.Or(c.Shared, d.Shared)
	if c.Trip == nil {
		c.Trip = d.Trip
	}
	if c.Clock == nil {
		c.Clock = d.Clock
	}
	return c.funcsUnder(d)
}

func (c Config) funcsUnder(d Config) Config {
	if c.Classify == nil {
		c.Classify = d.Classify
	}
	if c.Probe == nil {
		c.Probe = d.Probe
	}
	if c.OnTransition == nil {
		c.OnTransition = d.OnTransition
	}
	return c
}

// version is a hash of a normal policy: equal policies have equal versions, in
// every process.
func (c Config) version() string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%T%v", c.Trip, c.Trip)
	for _, n := range []int64{
		int64(c.FailMax), int64(c.ResetTimeout), int64(c.ProbeTimeout), int64(c.CallTimeout),
		int64(c.MaxThrottle), int64(c.MaxProbes), int64(c.SuccessThreshold),
		flag(c.OpenOnThrottle), flag(c.StopOnDenied),
	} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	if c.MaxResetTimeout != 0 || c.Ramp != 0 || c.Shadow { // younger than the hashes of other policies
		_, _ = fmt.Fprint(h, int64(c.MaxResetTimeout), int64(c.Ramp), c.Shadow)
	}
	if c.Jitter != 0 {
		_, _ = fmt.Fprint(h, "jitter", int64(c.Jitter))
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func within[T int | time.Duration](field string, v, lo, hi T) error {
	if v < lo || v > hi {
		return fmt.Errorf("%s is %v; it must be between %v and %v", field, v, lo, hi)
	}
	return nil
}

// validName accepts what can be a metric label and fits on a line of a log.
func validName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return fmt.Errorf("name %q must be 1 to %d bytes of UTF-8", name, maxName)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("name %q must be printable", name)
		}
	}
	return nil
}
