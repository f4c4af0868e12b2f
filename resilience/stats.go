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
	statStarted // kept only for the breakers of a family
	statEnded
	statCount
)

// stripe is the totals of the goroutines that hash to it, alone on its cache
// lines. One shared counter would double the cost of a call with two
// goroutines.
type stripe struct {
	n [statCount]atomic.Uint64
	_ [128 - statCount*8%128]byte
}

type totals struct {
	stripes []stripe
	shift   uint8
}

func newTotals() totals {
	width := min(max(bits.Len(uint(4*runtime.GOMAXPROCS(0)-1)), 3), 6)
	return totals{make([]stripe, 1<<width), uint8(64 - width)}
}

// add counts one. The stripe is chosen by where the goroutine's stack lies,
// which costs nothing to know and rarely changes.
func (t *totals) add(s stat) {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9e3779b97f4a7c15
	t.stripes[h>>t.shift].n[s].Add(1)
}

func (t *totals) sum(s stat) (n uint64) {
	for i := range t.stripes {
		n += t.stripes[i].n[s].Load()
	}
	return n
}
