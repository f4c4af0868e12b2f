package fleettest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A hold is for all workers, also for those that start later, until one of them
// lifts it.
func (d *drill) operator() {
	d.start(size)
	d.tell(d.workers[3], "force")
	held := func(hold string) func() bool {
		return func() bool { return d.every(func(s status) bool { return s.Held == hold }) }
	}
	d.await("all are held", held("forced_open"))
	d.tellAll("run")
	late := d.startOne()
	d.await("a late one is held", held("forced_open"))
	assert.Equal(d, refused, d.tell(late, "call"))
	before := d.refusals()
	d.await("calls are refused", func() bool { return d.refusals() > before+10*size })
	assert.Empty(d, d.upstream.since(0))
	d.tellAll("halt")
	d.tell(d.workers[5], "reset")
	d.await("none is held", held(""))
	d.recovers()
}

func (d *drill) refusals() (n int) {
	d.Helper()
	for _, s := range d.all() {
		n += s.Calls[refused]
	}
	return n
}

// Workers are replaced by those with another policy while the upstream is down:
// none of them asks it again, each says once that there are two policies, and
// each steps by its own.
func (d *drill) otherPolicy() {
	d.settings.Reset, d.settings.Stagger = hour, -1
	d.start(size)
	d.open()
	calls := len(d.upstream.since(0))
	d.settings.FailMax, d.settings.Reset = 3, reset
	for range size {
		d.workers[0].Stop(d)
		d.workers = d.workers[1:]
		next := d.startOne()
		require.Equal(d, refused, d.tell(next, "call"), "a new worker knows of the outage")
		assert.Equal(d, 1, d.status(next).logged("another policy"))
	}
	assert.Len(d, d.upstream.since(0), calls)
	d.notClosed()
	d.tell(d.workers[0], "reset")
	d.awaitAll("closed")
	for i := range 3 {
		require.Equal(d, failed, d.tell(d.workers[i], "call"))
	}
	d.notClosed()
	d.recovers()
}
