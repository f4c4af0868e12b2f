package resilience

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"time"
	"unicode"
	"unicode/utf8"
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

// Upper bounds, so that a configuration cannot ask for memory or arithmetic
// that does not fit.
const (
	maxStreak  = 1<<streakBits - 1
	maxWindow  = 1 << 20
	maxBuckets = 1 << 12
	maxProbes  = 1 << 10
	maxWait    = 10 * 365 * 24 * time.Hour
	maxName    = 128
)

// Clock tells the time. Implementations must be safe for concurrent use.
type Clock interface{ Now() time.Time }

// Config is the policy of a breaker. Its zero value is the default policy:
// five consecutive failures open it, after 60 seconds one probe goes out, and
// one good probe closes it.
type Config struct {
	// FailMax is how many consecutive failures open the breaker. Default 5, at
	// most 65535. A window in Trip replaces it.
	FailMax int
	// ResetTimeout is how long the breaker stays open before a probe. Default 60 s.
	ResetTimeout time.Duration
	// ProbeTimeout is how long a probe may stay silent before its slot is taken
	// back and it counts as a failure. Default ResetTimeout.
	ProbeTimeout time.Duration
	// CallTimeout bounds the context of every call. Default none.
	CallTimeout time.Duration
	// MaxThrottle caps the wait that a throttling upstream can ask for. Default 5 min.
	MaxThrottle time.Duration
	// MaxProbes is how many probes may run at a time. Default 1.
	MaxProbes int
	// SuccessThreshold is how many consecutive good probes close the breaker. Default 1.
	SuccessThreshold int
	// Trip chooses when the breaker opens: Consecutive{} (the default),
	// CountWindow or TimeWindow.
	Trip Trip
	// Classify reads errors where the operation brings no classifier of its
	// own. Default: nil is a success, the caller's own cancellation is ignored,
	// every other error is a failure.
	Classify Classifier
	// OpenOnThrottle makes a throttled call open a closed breaker.
	OpenOnThrottle bool
	// StopOnDenied makes a denied call stop the breaker until Reset.
	StopOnDenied bool
	// Probe, when set, is the designated probe: once the wait is over it runs
	// before any real call, in the goroutine of the first caller and bounded by
	// ProbeTimeout, and real calls are admitted when it has closed the breaker.
	// It must honour its context.
	Probe func(ctx context.Context) error
	// Clock is the time source. Default: the system's monotonic clock.
	Clock Clock
	// Logger receives transitions and first refusals at warning. Default:
	// slog.Default() at the time of the event. slog.New(slog.DiscardHandler)
	// silences it.
	Logger *slog.Logger
	// OnTransition is the first observer; Breaker.Observe adds more.
	OnTransition func(Transition)
	// MaxKeys bounds the breakers of one Keyed. Default 1024. It means nothing
	// to a single breaker.
	MaxKeys int
}

// Trip is the rule that opens a closed breaker: Consecutive, CountWindow or
// TimeWindow. No other package can add one.
type Trip interface {
	normal() (Trip, error)
	window() window
}

// Consecutive opens after Config.FailMax counted failures with no success
// between them, however far apart in time they are.
type Consecutive struct{}

// CountWindow opens on a failure that finds at least MinCalls of the last Size
// completed calls in the window and failures/calls at FailureRate or above.
type CountWindow struct {
	Size        int     // calls; default 100, at most 1048576
	MinCalls    int     // default 10, or Size where that is less
	FailureRate float64 // (0, 1]; default 0.5; kept in parts per million
	Slow        SlowCall
}

// TimeWindow is CountWindow over the calls of the last Period, kept in Buckets
// that slide.
type TimeWindow struct {
	Period      time.Duration // default 60 s
	Buckets     int           // default 10, at most 4096
	MinCalls    int           // default 10
	FailureRate float64       // (0, 1]; default 0.5; kept in parts per million
	Slow        SlowCall
}

// SlowCall lets calls that take Threshold or longer open a window too, on a
// slow call that finds slow/calls at Rate or above. The zero value is off.
type SlowCall struct {
	Threshold time.Duration
	Rate      float64 // (0, 1]; default 0.5; kept in parts per million
}

func (Consecutive) normal() (Trip, error) { return Consecutive{}, nil }

func (w CountWindow) normal() (Trip, error) {
	w.Size = or(w.Size, defaultWindow)
	w.MinCalls = or(w.MinCalls, min(defaultMinCalls, w.Size))
	w.FailureRate = or(w.FailureRate, defaultRate)
	slow, err := w.Slow.normal()
	w.Slow = slow
	return w, errors.Join(err,
		within("CountWindow.Size", w.Size, 1, maxWindow),
		within("CountWindow.MinCalls", w.MinCalls, 1, max(w.Size, 1)),
		rate("CountWindow.FailureRate", w.FailureRate))
}

func (w TimeWindow) normal() (Trip, error) {
	w.Period = or(w.Period, defaultPeriod)
	w.Buckets = or(w.Buckets, defaultBuckets)
	w.MinCalls = or(w.MinCalls, defaultMinCalls)
	w.FailureRate = or(w.FailureRate, defaultRate)
	slow, err := w.Slow.normal()
	w.Slow = slow
	return w, errors.Join(err,
		within("TimeWindow.Buckets", w.Buckets, 1, maxBuckets),
		within("TimeWindow.Period", w.Period, time.Duration(max(w.Buckets, 1)), maxWait),
		within("TimeWindow.MinCalls", w.MinCalls, 1, maxWindow),
		rate("TimeWindow.FailureRate", w.FailureRate))
}

func (s SlowCall) normal() (SlowCall, error) {
	if s == (SlowCall{}) {
		return s, nil
	}
	s.Rate = or(s.Rate, defaultRate)
	return s, errors.Join(
		within("SlowCall.Threshold", s.Threshold, 1, maxWait),
		rate("SlowCall.Rate", s.Rate))
}

// normal fills in the defaults and says what is wrong with the rest.
func (c Config) normal() (Config, error) {
	c.ResetTimeout = or(c.ResetTimeout, defaultReset)
	c.ProbeTimeout = or(c.ProbeTimeout, c.ResetTimeout)
	c.MaxThrottle = or(c.MaxThrottle, defaultMaxThrottle)
	c.MaxProbes = or(c.MaxProbes, 1)
	c.SuccessThreshold = or(c.SuccessThreshold, 1)
	c.MaxKeys = or(c.MaxKeys, defaultMaxKeys)
	if c.Trip == nil {
		c.Trip = Consecutive{}
	}
	if c.Classify == nil {
		c.Classify = classifyDefault
	}
	trip, err := normalTrip(c.Trip)
	c.Trip = trip
	if _, consecutive := trip.(Consecutive); consecutive {
		c.FailMax = or(c.FailMax, defaultFailMax)
		err = errors.Join(err, within("FailMax", c.FailMax, 1, maxStreak))
	} else {
		c.FailMax = 0
	}
	return c, errors.Join(err, c.bounds())
}

// normalTrip also takes a pointer to one of the three, which the interface
// lets through, for what it is: a mistake.
func normalTrip(t Trip) (Trip, error) {
	switch t.(type) {
	case Consecutive, CountWindow, TimeWindow:
		return t.normal()
	}
	return Consecutive{}, fmt.Errorf("Trip is a %T; give the value, not a pointer", t)
}

func (c Config) bounds() error {
	return errors.Join(
		within("ResetTimeout", c.ResetTimeout, 1, maxWait),
		within("ProbeTimeout", c.ProbeTimeout, 1, maxWait),
		within("CallTimeout", c.CallTimeout, 0, maxWait),
		within("MaxThrottle", c.MaxThrottle, 1, maxWait),
		within("MaxProbes", c.MaxProbes, 1, maxProbes),
		within("SuccessThreshold", c.SuccessThreshold, 1, maxStreak),
		within("MaxKeys", c.MaxKeys, 1, maxWindow))
}

// under fills the zero fields of c from defaults.
func (c Config) under(d Config) Config {
	c.FailMax = or(c.FailMax, d.FailMax)
	c.ResetTimeout = or(c.ResetTimeout, d.ResetTimeout)
	c.ProbeTimeout = or(c.ProbeTimeout, d.ProbeTimeout)
	c.CallTimeout = or(c.CallTimeout, d.CallTimeout)
	c.MaxThrottle = or(c.MaxThrottle, d.MaxThrottle)
	c.MaxProbes = or(c.MaxProbes, d.MaxProbes)
	c.SuccessThreshold = or(c.SuccessThreshold, d.SuccessThreshold)
	c.MaxKeys = or(c.MaxKeys, d.MaxKeys)
	c.OpenOnThrottle = c.OpenOnThrottle || d.OpenOnThrottle
	c.StopOnDenied = c.StopOnDenied || d.StopOnDenied
	c.Logger = or(c.Logger, d.Logger)
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

// version names the numbers of a normal policy: equal policies have equal
// versions, in every process.
func (c Config) version() string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%T%v", c.Trip, c.Trip)
	for _, n := range []int64{
		int64(c.FailMax), int64(c.ResetTimeout), int64(c.ProbeTimeout), int64(c.CallTimeout),
		int64(c.MaxThrottle), int64(c.MaxProbes), int64(c.SuccessThreshold), flag(c.OpenOnThrottle), flag(c.StopOnDenied),
	} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func within[T int | time.Duration](field string, v, lo, hi T) error {
	if v < lo || v > hi {
		return fmt.Errorf("%s is %v; it must be between %v and %v", field, v, lo, hi)
	}
	return nil
}

func rate(field string, r float64) error {
	if !(r >= 0.000001 && r <= 1) { // written so that NaN fails too
		return fmt.Errorf("%s is %v; it must be between 0.000001 and 1", field, r)
	}
	return nil
}

// ppm keeps a rate in parts per million, so that thresholds compare in
// integers: downwards, so that 2 of 3 reach 2.0/3, past the noise of floats.
func ppm(r float64) int64 { return int64(math.Floor(r*1e6 + 1e-3)) }

// validName wants what can be a metric label and a line of a log.
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
