package resilience

import (
	"errors"
	"fmt"
	"time"
)

// ErrOpen is what errors.Is finds in every *OpenError.
var ErrOpen = errors.New("circuit breaker open")

// OpenError is a breaker's refusal. The function did not run and the upstream
// was not called. It does not unwrap to the upstream's error, so that nothing
// takes it for an answer of the upstream; LastFailure returns that error.
//
// It is immutable and shared: all refusals up to one deadline are one value.
type OpenError struct {
	upstream    string
	state       State
	held        bool
	reason      string
	openedAt    time.Time
	retryAt     time.Time
	lastFailure error
	retry       int64        // retryAt on the breaker's own clock
	now         func() int64 // that clock
	gen         uint64
	busy        bool // half-open with every slot taken
}

// Upstream is the name of the breaker.
func (e *OpenError) Upstream() string { return e.upstream }

// State is Open, or HalfOpen if the probe slots were taken.
func (e *OpenError) State() State { return e.state }

// Reason is why the breaker opened.
func (e *OpenError) Reason() string { return e.reason }

// OpenedAt is when the breaker opened.
func (e *OpenError) OpenedAt() time.Time { return e.openedAt }

// RetryAt is the earliest time at which a call may be admitted. It is zero
// after ForceOpen, which only Reset ends. In HalfOpen it is when the running
// probe must be over.
func (e *OpenError) RetryAt() time.Time { return e.retryAt }

// LastFailure is the upstream's last counted error, or nil.
func (e *OpenError) LastFailure() error { return e.lastFailure }

// Error names the upstream and the wait that is left now.
func (e *OpenError) Error() string {
	if e.held {
		return fmt.Sprintf("circuit breaker forced open for %q, failing fast; only a reset closes it: %s",
			e.upstream, e.reason)
	}
	state := "open"
	if e.state == HalfOpen {
		state = "half-open"
	}
	return fmt.Sprintf("circuit breaker %s for %q, failing fast; %s", state, e.upstream, e.outlook())
}

func (e *OpenError) outlook() string {
	if e.busy {
		return "waiting for the probe in flight"
	}
	left := time.Duration(e.retry - e.now())
	if left <= 0 {
		return "next probe due"
	}
	return fmt.Sprintf("next probe in %v", roundUp(left))
}

// Is reports whether target is ErrOpen.
func (e *OpenError) Is(target error) bool { return target == ErrOpen }

// Timeout is false: a refusal is not a timeout, and retriers should not wait it
// out.
func (e *OpenError) Timeout() bool { return false }

// Temporary is false, for the same reason.
func (e *OpenError) Temporary() bool { return false }

// RetryableError is false: it tells the AWS SDK not to retry.
func (e *OpenError) RetryableError() bool { return false }

// roundUp keeps whole seconds above one second and whole milliseconds below.
func roundUp(d time.Duration) time.Duration {
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	return (d + unit - 1).Truncate(unit)
}

// DeniedError is the refusal of a breaker that stopped because the upstream
// denied its credential or its quota (Config.StopOnDenied). It is not an
// outage: errors.Is(err, ErrOpen) is false, and only Reset lifts it.
type DeniedError struct {
	upstream string
	since    time.Time
	cause    error
}

// Upstream is the name of the breaker.
func (e *DeniedError) Upstream() string { return e.upstream }

// Since is when the upstream denied the call.
func (e *DeniedError) Since() time.Time { return e.since }

// Cause is the upstream's error. The refusal does not unwrap to it.
func (e *DeniedError) Cause() error { return e.cause }

// Error names the upstream, its answer and the remedy.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("%q denied its credential or quota, not calling it again; fix that and reset the breaker: %v",
		e.upstream, e.cause)
}

// Timeout is false: retriers should not wait it out.
func (e *DeniedError) Timeout() bool { return false }

// Temporary is false, for the same reason.
func (e *DeniedError) Temporary() bool { return false }

// RetryableError is false: it tells the AWS SDK not to retry.
func (e *DeniedError) RetryableError() bool { return false }
