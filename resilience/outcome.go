package resilience

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State is what a breaker does with the next call. Its numbers are the values
// of the circuit_breaker_state gauge.
type State uint8

const (
	// Closed lets every call through.
	Closed State = iota
	// HalfOpen lets a bounded number of probes through.
	HalfOpen
	// Open refuses every call.
	Open
)

// String returns closed, half_open or open.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	case Open:
		return "open"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns the same text as String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Outcome is what a finished call says about the upstream.
type Outcome uint8

const (
	// Success is an answer that proves the upstream works, a 404 included.
	Success Outcome = iota
	// Failure counts against the upstream.
	Failure
	// Ignored says nothing about the upstream: the caller left, or asked badly.
	Ignored
	// Throttled is an upstream that asks to be left alone for a while.
	Throttled
	// Denied is a credential or a quota that waiting will not restore.
	Denied
)

var outcomeNames = [...]string{"success", "failure", "ignored", "throttled", "denied"}

// String returns success, failure, ignored, throttled or denied.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Verdict is a classifier's reading of one error.
type Verdict struct {
	Outcome Outcome
	// RetryAfter goes with Throttled: how long the upstream asked to be left
	// alone. Zero if it did not say.
	RetryAfter time.Duration
	// Unavailable goes with Throttled, and with no other outcome: the upstream
	// cannot serve any caller now, as a 503 or a 529 with a time to wait says.
	// The answer is waited out like a 429 and is in the totals as Throttled,
	// yet it counts towards opening the breaker as a Failure does.
	Unavailable bool
}

// Failed reports whether the breaker counts the call towards opening: it is a
// Failure, or Throttled by an upstream that is Unavailable.
func (v Verdict) Failed() bool {
	return v.Outcome == Failure || v.Outcome == Throttled && v.Unavailable
}

// final is the verdict as the breaker counts it: an unknown outcome is a
// failure, and Unavailable goes with Throttled alone.
func (v Verdict) final() Verdict {
	if v.Outcome > Denied {
		v.Outcome = Failure
	}
	v.RetryAfter = max(v.RetryAfter, 0)
	v.Unavailable = v.Unavailable && v.Outcome == Throttled
	return v
}

// classifyDefault ignores the caller's own cancellation, or its cause, which
// net/http returns in its place, and counts every other error. A deadline is a
// failure, no matter who set it: a call that hangs is an outage.
func classifyDefault(callerCtx context.Context, err error) Verdict {
	if errors.Is(callerCtx.Err(), context.Canceled) &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(callerCtx))) {
		return Verdict{Outcome: Ignored}
	}
	return Verdict{Outcome: Failure}
}
