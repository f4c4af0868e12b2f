package door

import (
	"cmp"
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// Handle is an admitted call that somebody holds. The first of End, EndFor and
// Abandon decides its outcome, later ones do nothing. It is safe for concurrent
// use.
type Handle struct {
	guard   Guard
	op      Op
	permit  *resilience.Permit
	scope   scope
	slot    *inflight.Slot // nil without a limiter
	caller  context.Context
	started time.Time

	kept bool
	stop func() bool  // the watch over caller, once the call is kept
	busy atomic.Int32 // uses of what the call has opened
	over atomic.Bool  // the outcome is decided

	// OnEnd, if set before fn of Open returns, is called at the end of the
	// call, whichever it is.
	OnEnd func()
}

// Open is Call for an fn that needs the handle of its call. The call ends with
// fn, unless fn keeps it and returns no error.
func Open[T any](ctx context.Context, g Guard, op Op, fn func(*Handle) (T, error)) (v T, err error) {
	h, err := Begin(ctx, g, op)
	if err != nil {
		return v, err
	}
	returned := false
	defer func() {
		if !returned {
			h.Panicked()
		}
	}()
	v, err = fn(h)
	returned = true
	if err != nil || !h.kept {
		h.End(err)
	}
	return v, err
}

// Begin admits a call, which its handle must end: it is Open without its fn.
func Begin(ctx context.Context, g Guard, op Op) (*Handle, error) {
	h := &Handle{guard: g, op: op, caller: op.start(ctx, g.Breaker)}
	err := cmp.Or(op.Invalid, g.check())
	if err == nil {
		err = h.enter()
	}
	if err != nil {
		h.op.refuse(err)
		return nil, err
	}
	h.scope, h.started = scope{h.permit.Context(), h}, h.op.clock()
	return h, nil
}

func (h *Handle) enter() (err error) {
	if h.guard.InFlight != nil {
		if h.slot, err = h.guard.InFlight.Enter(h.caller, h.op.Name); err != nil {
			return err
		}
	}
	if h.permit, err = h.guard.Breaker.Allow(h.caller); err != nil {
		h.leave()
		return err
	}
	if h.slot != nil {
		h.slot.Admitted()
	}
	return nil
}

func (h *Handle) leave() {
	if h.slot != nil {
		h.slot.Leave()
	}
}

// Context is the context to call the upstream with. What is called with it is
// part of the call, see Counted.
func (h *Handle) Context() context.Context { return &h.scope }

// Renew says that data still flows: the lease of a probe starts again.
func (h *Handle) Renew() { h.permit.Renew() }

// RenewFor is Renew before a silence that the client bounds.
func (h *Handle) RenewFor(silence time.Duration) { h.permit.RenewFor(silence) }

// Over reports whether the outcome is decided.
func (h *Handle) Over() bool { return h.over.Load() }

// Keep leaves the outcome open when fn of Open returns: what fn has opened
// decides it later. If the caller's context ends while nobody uses that, the
// call is abandoned.
func (h *Handle) Keep() {
	h.kept = true
	if h.Holds() {
		h.stop = context.AfterFunc(h.caller, h.forsaken)
	}
}

// Holds reports whether somebody waits for the end of the call: a breaker for
// its probe, a limiter for its place, a span or a caller for the outcome. Where
// nobody does, an abandoned call may be forgotten.
func (h *Handle) Holds() bool {
	return h.slot != nil || h.op.Span != nil || h.guard.Settled != nil || h.OnEnd != nil || h.permit.Holds()
}

// Use runs fn, which uses what the call has opened. While it runs the call is
// not abandoned: fn gets an error if the caller's context ends, and decides
// itself.
func (h *Handle) Use(fn func()) {
	u := h.Using()
	defer u.Done()
	fn()
	u.Returned = true
}

// Using is Use in two steps, which allocates nothing: Done is deferred, and
// Returned set before it.
func (h *Handle) Using() Usage {
	h.busy.Add(1)
	return Usage{h: h}
}

// InUse reports whether somebody uses what the call has opened.
func (h *Handle) InUse() bool { return h.busy.Load() > 0 }

// Usage is one use of what a call has opened.
type Usage struct {
	h        *Handle
	Returned bool // without a panic
}

// Done ends the use.
func (u *Usage) Done() {
	u.h.busy.Add(-1)
	switch {
	case !u.Returned:
		u.h.Panicked()
	case u.h.caller.Err() != nil: // it ended meanwhile, and nobody may come back
		u.h.forsaken()
	}
}

// End decides the outcome by the call's error. The end itself, nil or io.EOF
// (not an error that wraps it, as a broken connection may), is a success.
func (h *Handle) End(err error) { h.EndFor(h.caller, err) }

// EndFor is End for a caller with a context of its own, who may have left while
// the caller of Open is still there.
func (h *Handle) EndFor(caller context.Context, err error) {
	h.unwatch()
	if err == io.EOF { //nolint:errorlint // the very value
		err = nil
	}
	h.settle(func() (v resilience.Verdict) {
		if err != nil {
			v = h.op.Classify(caller, err)
		}
		return v
	}, err)
}

// Abandon ends a call whose answer nobody waited for, which says nothing about
// the upstream.
func (h *Handle) Abandon() {
	h.unwatch()
	h.settle(func() resilience.Verdict { return ignored }, nil)
}

// forsaken ends the call when its context ends and nobody uses it.
func (h *Handle) forsaken() {
	if !h.InUse() {
		h.settle(func() resilience.Verdict { return ignored }, context.Cause(h.caller))
	}
}

func (h *Handle) unwatch() {
	if h.stop != nil {
		h.stop()
	}
}

func (h *Handle) settle(read func() resilience.Verdict, err error) {
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	v := ignored // of a classifier that panics
	defer func() {
		h.permit.Panicked() // unless it is settled
		h.end(v, err)
	}()
	h.op.observe(h.guard.Breaker, h.started)
	v = h.permit.Settle(read(), err)
	if h.slot != nil {
		h.slot.Settled(v)
	}
	h.guard.tell(v)
}

// Panicked ends a call through which a panic or runtime.Goexit goes.
func (h *Handle) Panicked() {
	h.unwatch()
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	h.op.observe(h.guard.Breaker, h.started)
	h.permit.Panicked()
	h.end(ignored, ErrPanicked)
}

func (h *Handle) end(v resilience.Verdict, err error) {
	h.leave()
	h.op.end(v, err)
	if h.OnEnd != nil {
		h.OnEnd()
	}
}
