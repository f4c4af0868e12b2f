package fleettest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/upstreams/network"
)

const (
	hour = time.Hour

	// solo is what as many breakers of their own would let through.
	solo = size * failMax
	// quick is the default of FleetConfig.Timeout.
	quick = 100 * time.Millisecond
)

// A store that loses what it knew closes nothing, and is told again.
func (d *drill) storeEmptied() {
	d.settings.Reset, d.settings.Stagger = hour, reset
	d.start(size)
	d.open()
	store := d.store()
	d.backend.Empty(d.T, d.server)
	d.tellAll("run")
	d.await("the record is there again", func() bool {
		return strings.Contains(d.record(store), `"open"`)
	})
	d.storeIsBack()
	before := d.refusals()
	d.await("calls are refused", func() bool { return d.refusals() > before+10*size })
	assert.Len(d, d.upstream.since(0), failMax)
	assert.Zero(d, d.closings())
	d.isReset()
}

// isReset heals the upstream and has an operator close the breaker of all.
func (d *drill) isReset() {
	d.Helper()
	d.tellAll("halt")
	d.upstream.become(up)
	d.tell(d.workers[1], "reset")
	again := time.Tick(5 * time.Second) // one that meets a lost link concerns its worker alone
	d.await("all are reset", func() bool {
		select {
		case <-again:
			d.tell(d.workers[1], "reset")
		default:
		}
		return d.every(func(s status) bool { return s.State == "closed" })
	})
	d.recovers()
}

// storeIsBack waits until the store answers all.
func (d *drill) storeIsBack() {
	d.Helper()
	d.await("the store answers all again", func() bool { return d.every(func(s status) bool { return s.StoreUp }) })
}

// storeIsLost waits until no worker has a store.
func (d *drill) storeIsLost() {
	d.Helper()
	d.await("the store answers nobody", func() bool { return d.every(func(s status) bool { return !s.StoreUp }) })
}

// A store that returns with old data, of a time when the breaker was closed,
// closes nothing.
func (d *drill) storeRestored() {
	d.settings.Reset, d.settings.Stagger = hour, reset
	d.start(size)
	d.backend.Save(d.T, d.server)
	d.storeIsBack()
	d.open()
	d.server.Kill(d)
	d.tellAll("run")
	d.storeIsLost()
	before := d.refusals()
	d.await("calls are refused", func() bool { return d.refusals() > before+10*size })
	d.backend.Restore(d.T, d.server)
	d.storeIsBack()
	store := d.store()
	d.await("the record is there again", func() bool { return strings.Contains(d.record(store), `"open"`) })
	before = d.refusals()
	d.await("calls are refused", func() bool { return d.refusals() > before+10*size })
	assert.Len(d, d.upstream.since(0), failMax)
	assert.Zero(d, d.closings())
	for _, s := range d.all() {
		assert.LessOrEqual(d, s.logged("does not answer"), 3)
	}
	d.isReset()
}

// One that returns with the record of an outage that is over is believed, by
// all, until its time is over or an operator knows better.
func (d *drill) storeRestoredOpen() {
	d.settings.Reset, d.settings.Stagger = hour, reset
	d.start(size)
	d.open()
	d.backend.Save(d.T, d.server)
	d.storeIsBack()
	d.isReset()
	d.server.Kill(d)
	d.storeIsLost()
	d.tellAll("run")
	d.await("calls are good", func() bool { return d.every(func(s status) bool { return s.Calls[good] > 10 }) })
	d.tellAll("halt")
	d.backend.Restore(d.T, d.server)
	d.storeIsBack()
	d.awaitAll("open")
	d.isReset()
}

// While the store stands still, each worker has a breaker of its own. A success
// does not wait for it, and a failure once.
func (d *drill) storeFrozen() {
	d.settings.Timeout, d.settings.Reset, d.settings.Stagger = quick, hour, reset
	d.start(size)
	d.tellAll("run")
	d.await("calls are good", func() bool { return d.every(func(s status) bool { return s.Calls[good] > 10 }) })
	d.server.Pause(d)
	before := d.all()
	d.await("calls are good", func() bool { return d.total(good) > sum(before, good)+50*size })
	success := d.longest(good)
	calls := d.upstream.become(down)
	d.notClosed()
	d.await("calls are refused", func() bool { return d.refusals() > 50*size })
	d.Logf("longest wait of a success %v, of a failure %v; %d calls met the outage, of %d with breakers of their own",
		success, d.longest(failed), len(d.upstream.since(calls)), solo)
	d.storeIsLost()
	d.server.Resume(d)
	d.storeIsBack()
	d.isReset()
}

func (d *drill) total(outcome string) int {
	d.Helper()
	return sum(d.all(), outcome)
}

func sum(all []status, outcome string) (n int) {
	for _, s := range all {
		n += s.Calls[outcome]
	}
	return n
}

// Half of the workers are cut off from the store in an outage: they are alone,
// the others are not, and all come together again.
func (d *drill) storeCutOff() {
	d.settings.Reset, d.settings.Stagger = hour, reset
	n := network.New(d, d.server.Addr)
	d.start(size / 2)
	d.settings.Addr = n.Addr()
	d.start(size / 2)
	cut := d.workers[size/2:]
	n.Set(`{"type":"timeout","attributes":{"timeout":0}}`)
	d.tellAll("run")
	d.await("half of them have no store", func() bool {
		for _, h := range cut {
			if d.status(h).StoreUp {
				return false
			}
		}
		return true
	})
	calls := d.upstream.become(down)
	d.notClosed()
	doomed := len(d.upstream.since(calls))
	d.Logf("%d calls met the outage; at most %d with breakers of their own", doomed, solo)
	assert.LessOrEqual(d, doomed, solo)
	n.Set("")
	d.storeIsBack()
	d.isReset()
}

// A store that takes longer than the timeout is none, and one that takes less
// is slow.
func (d *drill) storeSlow() {
	n := network.New(d, d.server.Addr)
	d.settings.Addr, d.settings.Reset, d.settings.Stagger = n.Addr(), hour, reset
	n.Set(`{"type":"latency","attributes":{"latency":500}}`)
	d.start(size)
	calls := d.upstream.become(down)
	d.tellAll("run")
	d.notClosed()
	doomed := len(d.upstream.since(calls))
	d.Logf("%d calls met the outage with answers that take 500 ms; longest wait of a failure %v", doomed, d.longest(failed))
	assert.LessOrEqual(d, doomed, failMax+size-1)
	n.Set("")
	d.storeIsBack()
	d.isReset()

	d.settings.Timeout = quick
	d.workers = nil
	n.Set(`{"type":"latency","attributes":{"latency":500}}`)
	for range size {
		d.startOne()
	}
	calls = d.upstream.become(down)
	d.tellAll("run")
	d.notClosed()
	doomed = len(d.upstream.since(calls))
	d.Logf("%d calls met the outage with a timeout of %v; longest wait of a failure %v", doomed, quick, d.longest(failed))
	assert.LessOrEqual(d, doomed, solo)
	n.Set("")
	d.storeIsBack()
	d.isReset()
}
