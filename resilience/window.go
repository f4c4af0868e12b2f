package resilience

import "time"

// counts is what a window holds.
type counts struct{ calls, failures, slow int }

func (c *counts) add(d counts, sign int) {
	c.calls += sign * d.calls
	c.failures += sign * d.failures
	c.slow += sign * d.slow
}

func (c counts) plus(d counts) counts { c.add(d, +1); return c }

// window is the memory of a rate rule. It is not safe for concurrent use and
// reads no clock.
type window interface {
	record(one counts, now int64)
	counts(now int64) counts
	clear()
	rule() rateRule
}

// rateRule is a threshold in integers: rates in parts per million.
type rateRule struct {
	minCalls  int
	failures  int64
	slow      int64
	threshold int64 // nanoseconds; 0 when slow calls do not matter
}

// broken says whether one more call, just recorded, opens the breaker, and why.
func (r rateRule) broken(one, all counts) string {
	switch {
	case all.calls < r.minCalls:
		return ""
	case one.failures > 0 && reaches(all.failures, all.calls, r.failures):
		return "failure rate"
	case one.slow > 0 && reaches(all.slow, all.calls, r.slow):
		return "slow call rate"
	}
	return ""
}

func reaches(part, whole int, ppm int64) bool { return int64(part)*1_000_000 >= ppm*int64(whole) }

func newRule(minCalls int, failureRate float64, slow SlowCall) rateRule {
	return rateRule{minCalls: minCalls, failures: ppm(failureRate), slow: ppm(slow.Rate), threshold: int64(slow.Threshold)}
}

func (Consecutive) window() window { return nil }

func (w CountWindow) window() window {
	return &countWindow{rateRule: newRule(w.MinCalls, w.FailureRate, w.Slow), ring: make([]counts, w.Size)}
}

func (w TimeWindow) window() window {
	width := (w.Period + time.Duration(w.Buckets) - 1) / time.Duration(w.Buckets)
	return &timeWindow{rateRule: newRule(w.MinCalls, w.FailureRate, w.Slow), width: int64(width), buckets: make([]counts, w.Buckets)}
}

// countWindow is a ring of the last calls.
type countWindow struct {
	rateRule
	ring []counts
	next int
	sum  counts
}

func (w *countWindow) record(one counts, _ int64) {
	w.sum.add(w.ring[w.next], -1)
	w.sum.add(one, +1)
	w.ring[w.next] = one
	if w.next++; w.next == len(w.ring) {
		w.next = 0
	}
}

func (w *countWindow) counts(int64) counts { return w.sum }

func (w *countWindow) clear() { clear(w.ring); w.next, w.sum = 0, counts{} }

func (w *countWindow) rule() rateRule { return w.rateRule }

// timeWindow is a ring of buckets; head is the number of the newest.
type timeWindow struct {
	rateRule
	width   int64
	buckets []counts
	head    int64
	sum     counts
}

func (w *timeWindow) record(one counts, now int64) {
	n := floorDiv(now, w.width)
	w.slide(n)
	n = max(n, w.head-int64(len(w.buckets))+1) // late: the oldest live bucket
	w.buckets[w.slot(n)].add(one, +1)
	w.sum.add(one, +1)
}

// slide makes n the newest bucket and empties those that fell out.
func (w *timeWindow) slide(n int64) {
	if n-w.head >= int64(len(w.buckets)) {
		clear(w.buckets)
		w.head, w.sum = n, counts{}
		return
	}
	for w.head < n {
		w.head++
		old := &w.buckets[w.slot(w.head)]
		w.sum.add(*old, -1)
		*old = counts{}
	}
}

func (w *timeWindow) slot(n int64) int64 {
	size := int64(len(w.buckets))
	return ((n % size) + size) % size
}

// counts sums the buckets that are live at now and changes nothing.
func (w *timeWindow) counts(now int64) counts {
	sum := w.sum
	size := int64(len(w.buckets))
	gone := min(max(floorDiv(now, w.width)-w.head, 0), size)
	for i := int64(1); i <= gone; i++ {
		sum.add(w.buckets[w.slot(w.head+i)], -1)
	}
	return sum
}

func (w *timeWindow) clear() { clear(w.buckets); w.sum = counts{} }

func (w *timeWindow) rule() rateRule { return w.rateRule }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
