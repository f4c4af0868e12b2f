package resilience

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

var stateNames = [...]string{Closed: "closed", HalfOpen: "half_open", Open: "open"}

// String returns closed, half_open or open.
func (s State) String() string { return nameOf(stateNames[:], uint8(s), "State") }

// MarshalText returns the text of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes for a state, and nothing else.
func (s *State) UnmarshalText(text []byte) error {
	return readName(stateNames[:], text, (*uint8)(s), "state")
}

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
func (o Outcome) String() string { return nameOf(outcomeNames[:], uint8(o), "Outcome") }

// MarshalText returns the text of String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText writes for an outcome, and nothing else.
func (o *Outcome) UnmarshalText(text []byte) error {
	return readName(outcomeNames[:], text, (*uint8)(o), "outcome")
}

func nameOf(names []string, n uint8, kind string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", kind, n)
}

func readName(names []string, text []byte, into *uint8, kind string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("resilience: %q is no %s; it is one of %s", text, kind, strings.Join(names, ", "))
	}
	*into = uint8(i)
	return nil
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

// classifyDefault counts every error. What a caller that has left ended with is
// ignored by the breaker itself.
func classifyDefault(callerCtx context.Context, _ error) Verdict {
	if left(callerCtx) {
		return Verdict{Outcome: Ignored}
	}
	return Verdict{Outcome: Failure}
}
