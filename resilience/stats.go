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
	clashes atomic.Uint32
	_       [128 - (statCount*8+12)%128]byte
}

type totals struct {
	stripes []stripe
	shift   uint8
	salt    atomic.Uint64
}

func (t *totals) init() {
	width := min(max(bits.Len(uint(4*runtime.GOMAXPROCS(0)-1)), 3), 6)
	t.stripes, t.shift = make([]stripe, 1<<width), uint8(64-width)
}

// mine is the stripe of the calling goroutine. It is chosen by where the
// goroutine's stack lies, which costs nothing to know and rarely changes.
func (t *totals) mine() *stripe {
	var here byte
	h := (uint64(uintptr(unsafe.Pointer(&here)))>>11 ^ t.salt.Load()) * 0x9e3779b97f4a7c15
	return &t.stripes[h>>t.shift]
}

// add counts one.
func (t *totals) add(s stat) {
	mine := t.mine()
	if n := mine.n[s].Load(); !mine.n[s].CompareAndSwap(n, n+1) {
		mine.n[s].Add(1)
		t.clash(mine)
	}
}

// clashing is how many clashes on a stripe make the goroutines choose again.
const clashing = 64

// clash is told that two goroutines met on a stripe. Where they meet often, all
// are hashed again, so that two of them cannot share a stripe for as long as
// they live.
func (t *totals) clash(met *stripe) {
	if met.clashes.Add(1)%clashing == 0 {
		t.salt.Add(0x632be59bd9b4e019)
	}
}

func (t *totals) sum(s stat) (n uint64) {
	for i := range t.stripes {
		n += t.stripes[i].n[s].Load()
	}
	return n
}
