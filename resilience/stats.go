package resilience

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A stat is one of the totals that calls add to.
type stat uint8

// The first five are the outcomes, in their order.
const (
	statSuccess stat = iota
	statFailure
	statIgnored
	statThrottled
	statDenied
	statPanics
	statStale
	statRejected
	statLatched
	statShed
	statShadowed
	statStarted // kept only for the breakers of a family
	statEnded
	statCount
)

// stripe is the totals of the goroutines that hash to it, alone on its cache
// lines. One shared counter would double the cost of a call with two
// goroutines.
type stripe struct {
	n       [statCount]atomic.Uint64
	pending atomic.Uint64 // see pending.go
	_       [128 - (statCount+1)*8%128]byte
}

type totals struct {
	stripes []stripe // a power of two
	shift   atomic.Uint32
}

// hashShift is how far a hash is first shifted down.
const hashShift = 58

func (t *totals) init() {
	width := min(max(bits.Len(uint(4*runtime.GOMAXPROCS(0)-1)), 3), 6)
	t.stripes = make([]stripe, 1<<width)
	t.shift.Store(hashShift)
}

// mine is the stripe of the calling goroutine. It is chosen by where the
// goroutine's stack lies, which costs nothing to know and rarely changes.
func (t *totals) mine() *stripe {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9e3779b97f4a7c15
	return &t.stripes[h>>(t.shift.Load()&63)&uint64(len(t.stripes)-1)]
}

// add counts one.
func (t *totals) add(s stat) {
	counter := &t.mine().n[s]
	if n := counter.Add(1); n%watched == 0 {
		t.watch(counter, n)
	}
}

// watched is how often a counter is watched for a moment.
const watched = 256

// watch looks whether another goroutine counts on the same stripe. If so, all
// stripes are chosen by other bits of the hash, so that two goroutines do not
// share one for as long as they live.
func (t *totals) watch(counter *atomic.Uint64, n uint64) {
	for range 32 {
		if counter.Load() == n {
			continue
		}
		if shift := t.shift.Load(); shift > 24 {
			t.shift.Store(shift - 3)
		} else {
			t.shift.Store(hashShift)
		}
		return
	}
}

func (t *totals) sum(s stat) (n uint64) {
	for i := range t.stripes {
		n += t.stripes[i].n[s].Load()
	}
	return n
}
