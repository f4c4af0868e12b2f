package fleettest

import (
	"net/http"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Five failures of any worker open the breaker of all, and then there is
// one probe each ResetTimeout.
func (d *drill) fiveFailures() {
	d.start(size)
	d.upstream.become(down)
	for i := range failMax {
		require.Equal(d, failed, d.tell(d.workers[i], "call"))
	}
	d.notClosed()
	assert.Len(d, d.upstream.since(0), failMax)

	d.tellAll("run")
	const probes = 4
	d.await("probes are sent", func() bool { return len(d.upstream.since(failMax)) >= probes })
	d.oneProbeAtATime(failMax)
	d.recovers()
	d.oneProbeAtATime(failMax)
	d.Logf("longest wait of a call that failed %v, was refused %v, was good %v",
		d.longest(failed), d.longest(refused), d.longest(good))
}

// oneProbeAtATime checks the calls to an upstream that was down after the first
// n: each came a ResetTimeout after the one before. It is early by as much as a
// worker thinks the store's time is behind, which is what its fastest answer
// took.
func (d *drill) oneProbeAtATime(n int) {
	d.Helper()
	all := d.upstream.since(n - 1)
	var late []time.Duration
	for i := 1; i < len(all) && all[i].mode == down; i++ {
		wait := all[i].at.Sub(all[i-1].at)
		assert.Greater(d, wait, reset/2, "probe %d, of %s, after one of %s", i, all[i].origin, all[i-1].origin)
		late = append(late, (wait - reset).Round(time.Millisecond))
	}
	d.Logf("%d probes, late by %v", len(late), late)
}

// When workers call at the same time, each may have one call under way while
// the breaker opens.
func (d *drill) openingUnderWay() {
	d.settings.Reset, d.settings.Stagger = hour, reset // no probe
	d.start(size)
	d.tellAll("run")
	d.await("calls are good", func() bool { return d.every(func(s status) bool { return s.Calls[good] > 10 }) })
	d.tellAll("halt") // so that no success ends the streak
	before := d.upstream.become(down)
	for _, h := range d.workers {
		go func() { _, _ = request(d.Context(), http.MethodPost, h.Addr, "/run") }()
	}
	d.notClosed()
	doomed := len(d.upstream.since(before))
	d.Logf("%d calls met the outage before all of %d workers knew it", doomed, size)
	assert.GreaterOrEqual(d, doomed, failMax)
	assert.LessOrEqual(d, doomed, failMax+size-1)
	d.isReset()
	d.Logf("longest wait of a call that was good %v, failed %v", d.longest(good), d.longest(failed))
}

// An opening and a Reset of one worker are seen by all others.
func (d *drill) openingsElsewhere() {
	d.settings.Stagger, d.settings.Reset = -1, time.Hour
	d.start(size)
	const rounds = 30
	for i := range rounds {
		d.tell(d.workers[i%size], "trip")
		d.awaitAll("open")
		d.tell(d.workers[(i+1)%size], "reset")
		d.awaitAll("closed")
	}
	delays := d.delays()
	require.Len(d, delays, rounds*(size-1))
	slices.Sort(delays)
	d.Logf("openings are seen elsewhere %v (median), %v (99 %%), %v (the last of %d) after the worker that opened has",
		delays[len(delays)/2], delays[len(delays)*99/100], delays[len(delays)-1], len(delays))
}

// delays are how long after the worker that opened others knew.
func (d *drill) delays() (delays []time.Duration) {
	opened := map[uint64]time.Time{}
	all := d.all()
	for _, s := range all {
		for _, m := range s.Moves {
			if m.To == "open" && m.Origin == "" {
				opened[m.Generation] = m.At
			}
		}
	}
	for _, s := range all {
		for _, m := range s.Moves {
			if m.To == "open" && m.Origin != "" {
				delays = append(delays, m.At.Sub(opened[m.Generation]).Round(10*time.Microsecond))
			}
		}
	}
	return delays
}

const lease = 4 * time.Second

// probing opens the breaker, and returns once the probe of a worker hangs.
func (d *drill) probing() *handle {
	d.settings.Lease = lease
	d.start(size)
	d.open()
	d.upstream.become(hung)
	d.tellAll("run")
	return d.prober(1)
}

// prober is the worker whose call is the nth that hangs.
func (d *drill) prober(n int) *handle {
	d.Helper()
	d.await("a probe is sent", func() bool { return len(d.upstream.hanging()) >= n })
	all := d.upstream.hanging()
	require.Len(d, all, n, "one at a time")
	origin := all[n-1].origin
	i := slices.IndexFunc(d.workers, func(h *handle) bool { return h.origin == origin })
	require.GreaterOrEqual(d, i, 0, origin)
	return d.workers[i]
}

func (d *drill) without(gone *handle) {
	d.workers = slices.DeleteFunc(slices.Clone(d.workers), func(h *handle) bool { return h == gone })
}

// takeOver is the loss of a probing process, and the one that probes next.
func (d *drill) takeOver(how string, lose func(*handle)) (lost, next *handle) {
	d.Helper()
	lost = d.probing()
	began := time.Now()
	lose(lost)
	d.without(lost)
	next = d.prober(2)
	d.Logf("%s probes %v after %s was %s; the lease is %v",
		next.origin, time.Since(began).Round(10*time.Millisecond), lost.origin, how, lease)
	return lost, next
}

// A probe whose process was killed gives its slot back after the lease.
func (d *drill) proberKilled() {
	d.takeOver("killed", func(h *handle) { h.Kill(d) })
	d.await("the call of the killed process has ended", func() bool { return d.upstream.underWay() == 1 })
	failures := d.failedProbes()
	d.upstream.hanging()[1].answer <- http.StatusOK
	d.recovers()
	assert.Zero(d, failures, "a lost probe is no failure")
}

// failedProbes are the moves for a probe that failed.
func (d *drill) failedProbes() (n int) {
	d.Helper()
	for _, s := range d.all() {
		for _, m := range s.Moves {
			if m.To == "open" && m.Reason != "consecutive failures" {
				n++
			}
		}
	}
	return n
}

// So does one whose process was stopped, and what it answers when the process
// continues moves no other.
func (d *drill) proberStopped() {
	stopped, next := d.takeOver("stopped", func(h *handle) { h.Pause(d) })
	d.upstream.hanging()[0].answer <- http.StatusOK // to the stopped one
	stopped.Resume(d)
	d.await("it has its answer", func() bool { return d.status(stopped).Calls[good] > 0 })
	// It may have lost its link to the store meanwhile, and be alone for now.
	d.await("it follows again", func() bool { s := d.status(stopped); return s.StoreUp && s.State != "closed" })
	d.notClosed()
	assert.Zero(d, d.closings(), "a stale answer closes nothing")
	d.upstream.become(down)
	d.upstream.hanging()[1].answer <- http.StatusInternalServerError
	d.await("the probe has failed", func() bool { return d.status(next).Calls[failed] > 0 })
	d.workers = append(d.workers, stopped)
	d.recovers()
}
