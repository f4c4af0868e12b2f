package resilience

import (
	"context"
	"errors"
	"time"
)

// The codes of ExitCode: those of sysexits.h, and the shell's for SIGTERM.
const (
	exitFault     = 1
	exitData      = 65  // EX_DATAERR
	exitTemporary = 75  // EX_TEMPFAIL
	exitDenied    = 77  // EX_NOPERM
	exitStopped   = 143 // 128 + SIGTERM
)

// ExitCode is the exit code for a task that is a process of its own and ended
// with err, the error of a call to an upstream. Such a process rarely lives to
// see its breaker open, so the code of a first failure is that of a refusal.
//
//	code  err is                                      run again?
//	  0   nil
//	 65   Ignored, or Success such as a missing key   no, the input is wrong
//	 75   an *OpenError, Failure, Throttled, or a     yes, at Breaker.RetryAt;
//	      deadline of any origin                      if that is zero, after Reset
//	 77   a *DeniedError, Denied                      no, until that is fixed
//	143   context.Canceled, with or without           yes
//	      classify: the task was told to stop
//	  1   classify is nil, and no other row           no
//	      applies: a deadline, for example
//
// classify is the classifier of the upstream that err comes from, such as
// llm.Classify, or a function that returns the verdict that Guard.Settled or
// Op.Settled was told. It is called at most once, with context.Background.
//
// Pass nil for an error of the task's own code, such as a missing file: a
// door's classifier takes what it does not know for a failure of the upstream.
//
// Some SDKs have an error of their own for a call whose context was cancelled,
// as gRPC does. Wrap context.Cause(ctx) as well, or the code is 65.
//
// If several apply, the first of *DeniedError, *OpenError, context.Canceled, a
// nil classify and the verdict decides. Refusals precede a cancellation
// because the other calls of a task are often cancelled after one.
func ExitCode(err error, classify func(callerCtx context.Context, err error) Verdict) int {
	switch {
	case err == nil:
		return 0
	case isDenied(err):
		return exitDenied
	case errors.Is(err, ErrOpen):
		return exitTemporary
	case errors.Is(err, context.Canceled):
		return exitStopped
	case classify == nil:
		return exitFault
	}
	switch classify(context.Background(), err).Outcome {
	case Denied:
		return exitDenied
	case Success, Ignored:
		if !errors.Is(err, context.DeadlineExceeded) {
			return exitData
		}
	case Failure, Throttled:
	}
	return exitTemporary
}

// RetryAt is when a task that ended with err should run again, if ExitCode says
// 75. For an *OpenError, of any breaker, it is the error's own RetryAt. For
// another error, which is taken for one of b's upstream, it is ResetTimeout
// from now on b's clock, as if b had opened, or later if b is open for longer
// or its upstream asked for a longer wait, up to MaxThrottle.
//
// It is zero if waiting does not help: for nil, for a *DeniedError, and while
// b, or the breaker that refused, is held open until Reset. After that it is
// when the next call may be admitted. RetryAt changes nothing.
func (b *Breaker) RetryAt(err error) time.Time {
	if err == nil || isDenied(err) {
		return time.Time{}
	}
	open, refused := errors.AsType[*OpenError](err)
	if refused {
		b = open.b
	}
	c := b.view()
	switch {
	case c.held == heldOpen || c.held == heldDenied:
		return time.Time{}
	case refused && !open.held:
		return open.RetryAt()
	}
	at := max(c.latest, c.pause)
	if !refused {
		at = max(at, c.latest+b.policy.reset)
	}
	if c.state == Open {
		at = max(at, c.due())
	}
	return b.wall(at)
}

func isDenied(err error) bool {
	_, denied := errors.AsType[*DeniedError](err)
	return denied
}
