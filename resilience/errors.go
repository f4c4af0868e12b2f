package resilience

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/resilience/internal/mask"
)

// ErrOpen is what errors.Is finds in every *OpenError.
var ErrOpen = errors.New("circuit breaker open")

// OpenError is a breaker's refusal. The function did not run and the upstream
// was not called. It does not unwrap to the upstream's error, so that nothing
// takes it for an answer of the upstream; LastFailure returns that error.
//
// All refusals up to one deadline are one shared value, safe for concurrent
// use. Its dates are those of the wall clock at the time they are asked for.
type OpenError struct {
	b           *Breaker
	state       State
	held        bool
	busy        bool // half-open with every slot taken
	closing     bool // a probe of another process was good
	opener      string
	reason      string
	openedAt    int64
	cause       error // of the opening
	lastFailure error
	retry       int64
	until       *atomic.Int64 // where busy, the later of it and retry counts; may be nil

	shown shown // of cause
}

// shown is an error's text for display, made when it is first asked for. An
// error whose text is being made is not waited for long: it may include the
// text of the refusal that shows it.
type shown struct {
	making atomic.Pointer[chan struct{}] // closed once the text is made
	text   atomic.Pointer[string]
}

// patience is how long the text that another goroutine makes is waited for.
const patience = 20 * time.Millisecond

func (s *shown) of(err error) string {
	if text := s.text.Load(); text != nil {
		return *text
	}
	made := make(chan struct{})
	if s.making.CompareAndSwap(nil, &made) {
		defer close(made)
		text := mask.Text(err)
		s.text.Store(&text)
		return text
	}
	select {
	case <-*s.making.Load():
	case <-time.After(patience): // this goroutine makes it, and asks within
	}
	if text := s.text.Load(); text != nil {
		return *text
	}
	return ""
}

// Upstream is the name of the breaker.
func (e *OpenError) Upstream() string { return e.b.name }

// By reports whether the refusal is b's, or that of the breaker which it shares
// with others of its family that find no room, or of one that b replaced.
func (e *OpenError) By(b *Breaker) bool { return e.b.speaksFor(b) }

// State is Open; HalfOpen if the probe slots were taken; Closed if the call was
// turned away while the breaker lets a growing share of calls through
// (Config.Ramp).
func (e *OpenError) State() State { return e.state }

// Origin is the host whose process opened a shared breaker; empty if this
// process did.
func (e *OpenError) Origin() string { return e.opener }

// Reason is why the breaker opened.
func (e *OpenError) Reason() string { return e.reason }

// OpenedAt is when the breaker opened.
func (e *OpenError) OpenedAt() time.Time { return e.b.wall(e.openedAt) }

// RetryAt is the earliest time at which a call may be admitted. It is zero
// after ForceOpen, which only Reset ends. In HalfOpen it is when the running
// probe must be over, which moves while the probe renews its lease. In Closed
// it is when every call is admitted again.
func (e *OpenError) RetryAt() time.Time {
	if e.held {
		return time.Time{}
	}
	return e.b.wall(e.deadline())
}

func (e *OpenError) deadline() int64 {
	if e.busy && e.until != nil {
		return max(e.retry, e.until.Load())
	}
	return e.retry
}

// LastFailure is the upstream's last counted error, or nil.
func (e *OpenError) LastFailure() error { return e.lastFailure }

// Error names the upstream, the wait that is left now, and the failure that
// opened the breaker, shortened and without secrets.
func (e *OpenError) Error() string {
	switch {
	case e.held:
		text := fmt.Sprintf("circuit breaker forced open for %q, failing fast; only a reset closes it", e.b.name)
		if e.reason != "" {
			text += ": " + mask.String(e.reason)
		}
		return text
	case e.state == Closed:
		return fmt.Sprintf("circuit breaker ramping up for %q, failing fast; %s", e.b.name, e.outlook())
	}
	if e.closing {
		return fmt.Sprintf("circuit breaker closing for %q, failing fast; %s", e.b.name, e.outlook())
	}
	state := "open"
	if e.state == HalfOpen {
		state = "half-open"
	}
	text := fmt.Sprintf("circuit breaker %s for %q, failing fast; %s", state, e.b.name, e.outlook())
	if cause := e.shown.of(e.cause); cause != "" {
		text += "; last failure: " + cause
	}
	return text
}

func (e *OpenError) outlook() string {
	if e.busy {
		return "waiting for the probe in flight"
	}
	left := time.Duration(e.deadline() - e.b.now())
	switch {
	case e.state == Closed && left > 0:
		return fmt.Sprintf("all calls admitted in %v", roundUp(left))
	case e.state == Closed:
		return "all calls admitted"
	case e.closing:
		return fmt.Sprintf("the probe was good, calls are admitted in %v", roundUp(max(left, time.Millisecond)))
	case left <= 0:
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
	b     *Breaker
	since int64
	cause error
	shown shown // of cause
}

// Upstream is the name of the breaker.
func (e *DeniedError) Upstream() string { return e.b.name }

// By reports whether the refusal is b's, as OpenError.By does.
func (e *DeniedError) By(b *Breaker) bool { return e.b.speaksFor(b) }

// Since is when the upstream denied the call.
func (e *DeniedError) Since() time.Time { return e.b.wall(e.since) }

// Cause is the upstream's error. The refusal does not unwrap to it.
func (e *DeniedError) Cause() error { return e.cause }

// Error names the upstream, the remedy, and its answer, shortened and without
// secrets.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("%q denied its credential or quota, not calling it again; fix that and reset the breaker: %s",
		e.b.name, e.shown.of(e.cause))
}

// Timeout is false: retriers should not wait it out.
func (e *DeniedError) Timeout() bool { return false }

// Temporary is false, for the same reason.
func (e *DeniedError) Temporary() bool { return false }

// RetryableError is false: it tells the AWS SDK not to retry.
func (e *DeniedError) RetryableError() bool { return false }

func (b *Breaker) speaksFor(other *Breaker) bool {
	return b.latch == other.latch || other.member != nil && other.member.family.overflow == b
}

// refusal marks what a breaker refuses with.
type refusal interface {
	error
	refusal()
}

func (*OpenError) refusal()   {}
func (*DeniedError) refusal() {}

// isRefusal reports whether err is a refusal, or wraps one.
func isRefusal(err error) bool {
	_, ok := errors.AsType[refusal](err)
	return ok
}
