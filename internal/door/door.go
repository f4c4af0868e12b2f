// Package door is the one way through a door to an upstream. A call is
// admitted by its breaker, its answer is read once, and everybody who wants the
// verdict is told that one: the breaker, the span, the guard of the user.
//
// [Call] is for calls that end when they return, [Open] for those that hold a
// lease meanwhile or whose answer outlives them: a stream, a body, an iterator.
//
// It knows no SDK, no tracer and no metrics; what it has to tell them goes
// through the hooks of [Op].
package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// Guard is what the user of a door chooses. The Guard of each door has the same
// fields and converts to it.
type Guard struct {
	Breaker  *resilience.Breaker
	Settled  func(resilience.Verdict)
	InFlight *inflight.Limiter
}

// Or is g with a breaker: its own, its limiter's, or b.
func (g Guard) Or(b *resilience.Breaker) Guard {
	switch {
	case g.Breaker != nil:
	case g.InFlight != nil:
		g.Breaker = g.InFlight.Breaker()
	default:
		g.Breaker = b
	}
	return g
}

// check finds a limiter that counts the calls of another breaker.
func (g Guard) check() error {
	if g.InFlight == nil || g.InFlight.Breaker() == g.Breaker {
		return nil
	}
	return fmt.Errorf("the guard has the breaker %q and a limiter for another one, %q; leave its Breaker out",
		g.Breaker.Name(), g.InFlight.Breaker().Name())
}

func (g Guard) tell(v resilience.Verdict) {
	if g.Settled != nil {
		g.Settled(v)
	}
}

// Span is the trace of one call.
type Span interface {
	// Start is called first. The call continues with the context it returns.
	Start(ctx context.Context, b *resilience.Breaker) context.Context
	// End is called once with the verdict of an admitted call and its error.
	End(v resilience.Verdict, err error)
	// Refuse is called in place of End if the call was not admitted.
	Refuse(err error)
}

// Op is one call as its door describes it.
type Op struct {
	// Name is the operation in logs and metrics, such as create_embeddings.
	Name string
	// Invalid says why the call must not be made, if so; it is then the error
	// of the call.
	Invalid error
	// Classify reads an error of the call. It is asked at most once a call.
	Classify func(context.Context, error) resilience.Verdict
	// Span, where set, is told how the call begins and ends.
	Span Span
	// Observe, where set, is told how long an admitted call took, before the
	// call ends.
	Observe func(b *resilience.Breaker, operation string, took time.Duration)
}

func (o *Op) start(ctx context.Context, b *resilience.Breaker) context.Context {
	if o.Span == nil {
		return ctx
	}
	return o.Span.Start(ctx, b)
}

func (o *Op) refuse(err error) {
	if o.Span != nil {
		o.Span.Refuse(err)
	}
}

func (o *Op) end(v resilience.Verdict, err error) {
	if o.Span != nil {
		o.Span.End(v, err)
	}
}

// clock is when a call starts, if anybody wants to know.
func (o *Op) clock() (started time.Time) {
	if o.Observe != nil {
		started = time.Now()
	}
	return started
}

func (o *Op) observe(b *resilience.Breaker, started time.Time) {
	if o.Observe != nil {
		o.Observe(b, o.Name, time.Since(started))
	}
}

// ErrPanicked is what the span of a call is told through which a panic or
// runtime.Goexit went. Both continue.
var ErrPanicked = errors.New("the client panicked")

// ignored is the verdict of calls that say nothing about the upstream.
var ignored = resilience.Verdict{Outcome: resilience.Ignored}

// Call runs fn under the guard's breaker and returns what it returned. A call
// that is refused, or invalid, returns the error that says so, and fn does not
// run.
func Call[T any](ctx context.Context, g Guard, op Op, fn func(context.Context) (T, error)) (v T, err error) {
	ctx = op.start(ctx, g.Breaker)
	if err = cmp.Or(op.Invalid, g.check()); err != nil {
		op.refuse(err)
		return v, err
	}
	c := call{op: &op, guard: g}
	defer c.end(&err)
	timed := func(ctx context.Context) (T, error) {
		defer op.observe(g.Breaker, op.clock())
		c.admitted, c.scope = true, scope{ctx, nil}
		return fn(&c.scope)
	}
	o := resilience.Op[T]{Name: op.Name, Classify: op.Classify, Settled: c.settle}
	if g.InFlight != nil {
		v, err = inflight.Do(ctx, g.InFlight, o, timed)
	} else {
		v, err = resilience.CallOp(ctx, g.Breaker, o, timed)
	}
	c.returned = true
	return v, err
}

// scope is the context of a call that a door has admitted.
type scope struct {
	context.Context

	handle *Handle // nil for a Call
}

type countedKey struct{}

// Value is the context's, and says that it belongs to a call.
func (s *scope) Value(key any) any {
	if key == (countedKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// Counted reports whether ctx belongs to a call that a door has admitted, so
// that a guarded client below the door does not count it again.
func Counted(ctx context.Context) bool { return ctx.Value(countedKey{}) != nil }

// HandleOf is the handle of the call that ctx belongs to, or nil. What is below
// the door can renew its lease.
func HandleOf(ctx context.Context) *Handle {
	if s, ok := ctx.Value(countedKey{}).(*scope); ok {
		return s.handle
	}
	return nil
}

// call is what becomes of a Call.
type call struct {
	op       *Op
	guard    Guard
	scope    scope
	verdict  resilience.Verdict
	admitted bool
	returned bool
}

func (c *call) settle(v resilience.Verdict) {
	c.verdict = v
	c.guard.tell(v)
}

func (c *call) end(err *error) {
	switch {
	case !c.returned:
		c.op.end(ignored, ErrPanicked)
	case !c.admitted:
		c.op.refuse(*err)
	default:
		c.op.end(c.verdict, *err)
	}
}

// For is a classifier's verdict on a call of caller. What a call ends with
// after its caller has left, in whatever words, is no failure of the upstream.
// A deadline of any origin is another matter: a call that hangs is an outage.
func For(caller context.Context, v resilience.Verdict) resilience.Verdict {
	if v.Outcome == resilience.Failure && errors.Is(caller.Err(), context.Canceled) {
		return ignored
	}
	return v
}

// Refused reports whether err is the refusal of a breaker that is open or that
// stopped because its upstream refuses the credentials: nothing has left.
func Refused(err error) bool {
	var denied *resilience.DeniedError
	return errors.Is(err, resilience.ErrOpen) || errors.As(err, &denied)
}
