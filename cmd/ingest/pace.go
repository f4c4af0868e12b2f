package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// longestProbing is the longest pause between the passes that find out whether
// an upstream is down while its breaker is still closed.
const longestProbing = 10 * time.Second

// pace says when the passes of a service begin. After a pass that did not work
// they follow the breakers, not the interval, which may be a second or a day.
type pace struct {
	interval time.Duration
	breakers []*resilience.Breaker
	failed   int  // passes in a row that an upstream failed, with all breakers closed
	probes   bool // the next pass waits for open breakers only
	// closed has a token once a breaker has closed.
	closed chan struct{}
}

func newPace(interval time.Duration, breakers ...*resilience.Breaker) *pace {
	return &pace{interval: interval, breakers: breakers, closed: make(chan struct{}, 1)}
}

// watch begins to notice breakers that close.
func (p *pace) watch() (end func()) {
	var removes []func()
	for _, b := range p.breakers {
		removes = append(removes, b.Observe(func(t resilience.Transition) {
			if t.To != resilience.Closed {
				return
			}
			select {
			case p.closed <- struct{}{}:
			default: // it has one
			}
		}))
	}
	return func() {
		for _, remove := range removes {
			remove()
		}
	}
}

// wait waits for the time that next has returned, and reports whether a pass is
// to begin. Where it waits for breakers, it ends as soon as they are closed by
// something else, and lasts longer where they have opened again: by another
// process that shares them, or an operator.
func (p *pace) wait(ctx context.Context, next time.Time) bool {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			left := time.Until(p.refused())
			if !p.probes || left <= 0 {
				return true
			}
			timer.Reset(left)
		case <-p.closed:
			if p.probes && p.allClosed() {
				return ctx.Err() == nil
			}
		}
	}
}

// next returns when the pass after one that ended now begins:
//
//   - as soon as all breakers admit a probe and the time that an upstream asked
//     for is over. An earlier pass would be refused, a later one wastes time;
//   - after probing, if an upstream failed and its breaker is still closed: a
//     pass makes a call or two, so a few of them open the breaker or show that
//     the upstream works;
//   - after the breaker's reset time, if they have not opened it, and for
//     credentials or a configuration that were refused, since each pass is
//     refused once more until an operator has fixed that;
//   - else after the interval, or after the reset time if something is left
//     to do.
func (p *pace) next(now time.Time, summary pipeline.Summary, ended error) time.Time {
	probe := p.probe(ended)
	p.probes = !probe.IsZero() && !throttledUntil(ended, probe)
	p.failed++
	if !probe.IsZero() || !failedUpstream(ended) || summary.Worked(ended) {
		p.failed = 0
	}
	reset, failMax := p.policy(ended)
	switch {
	case !probe.IsZero():
		return probe
	case ended == nil:
		return now.Add(p.interval)
	case p.failed > 0 && p.failed < failMax:
		return now.Add(min(p.interval, longestProbing, reset/time.Duration(failMax+1)))
	case p.failed > 0 || needsOperator(ended):
		return now.Add(reset)
	}
	return now.Add(min(p.interval, reset))
}

// probe is when the last breaker admits a probe, when that of another process
// must be over, or when the time is over that an upstream asked for, whichever
// is latest; zero if there is nothing to wait for.
func (p *pace) probe(ended error) time.Time {
	probe := p.refused()
	stopped, ok := errors.AsType[*pipeline.StopError](ended)
	if ok && (stop.Throttled(ended) || probed(ended)) && stopped.RetryAt.After(probe) {
		probe = stopped.RetryAt
	}
	return probe
}

// throttledUntil reports whether an instant is the one that an upstream asked
// to wait for.
func throttledUntil(ended error, at time.Time) bool {
	stopped, ok := errors.AsType[*pipeline.StopError](ended)
	return ok && stop.Throttled(ended) && stopped.RetryAt.Equal(at)
}

// probed reports whether a pass was refused because another process probes.
func probed(ended error) bool {
	open, refused := errors.AsType[*resilience.OpenError](ended)
	return refused && open.State() == resilience.HalfOpen
}

func (p *pace) allClosed() bool {
	return !slices.ContainsFunc(p.breakers, func(b *resilience.Breaker) bool {
		s := b.Snapshot()
		return s.State != resilience.Closed && !s.Shadow
	})
}

// refused is until when an open breaker refuses calls; zero without one.
func (p *pace) refused() (until time.Time) {
	for _, b := range p.breakers {
		snapshot := b.Snapshot()
		if snapshot.State == resilience.Open && !snapshot.Shadow && snapshot.OpenUntil.After(until) {
			until = snapshot.OpenUntil
		}
	}
	return until
}

// policy is that of the breaker of the upstream that ended a pass. The service
// gives all its breakers one policy, so any of them does for a pass that was
// ended by none.
func (p *pace) policy(ended error) (reset time.Duration, failMax int) {
	blamed := p.breakers[0]
	if stopped, ok := errors.AsType[*pipeline.StopError](ended); ok {
		for _, b := range p.breakers {
			if b.Name() == stopped.Upstream {
				blamed = b
			}
		}
	}
	config := blamed.Config()
	return config.ResetTimeout, max(config.FailMax, 1)
}

// failedUpstream reports whether a pass was deferred by a failure, rather than
// by an upstream that asked for patience.
func failedUpstream(ended error) bool {
	stopped, ok := errors.AsType[*pipeline.StopError](ended)
	return ok && stopped.Kind == pipeline.StopDeferred && !stop.Throttled(ended)
}

// needsOperator reports whether an upstream answers and needs an operator.
func needsOperator(ended error) bool {
	stopped, ok := errors.AsType[*pipeline.StopError](ended)
	return ok && (stopped.Kind == pipeline.StopDenied || stopped.Kind == pipeline.StopConfiguration)
}
