package resilience

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/penstock-go/penstock/resilience/trip"
)

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
	succeed(n int, now int64) // record of n good calls
	counts(now int64) counts
	span(now int64) (from, to int64) // calls in [from, to) are recorded alike
	clear()
	rule() rateRule
	bytes() int64
}

// rateRule is a threshold in integers: rates in parts per million.
type rateRule struct {
	minCalls  int
	failures  int64
	slow      int64
	threshold int64 // nanoseconds; 0 if slow calls do not matter
}

// broken is the reason to open after one more call was recorded, or nothing.
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

// ppm keeps a rate in parts per million, so that thresholds compare in
// integers: downwards, so that 2 of 3 reach 2.0/3, past the noise of floats.
func ppm(r float64) int64 { return int64(math.Floor(r*1e6 + 1e-3)) }

func newRateRule(minCalls int, failureRate float64, slow trip.SlowCall) rateRule {
	return rateRule{
		minCalls:  minCalls,
		failures:  ppm(failureRate),
		slow:      ppm(slow.Rate),
		threshold: int64(slow.Threshold),
	}
}

// newWindow is the memory of a normal rule, nil if the rule needs none.
func newWindow(rule trip.Rule) window {
	switch w := rule.(type) {
	case trip.CountWindow:
		return &countWindow{rateRule: newRateRule(w.MinCalls, w.FailureRate, w.Slow), ring: make([]mark, w.Size)}
	case trip.TimeWindow:
		width := (w.Period + time.Duration(w.Buckets) - 1) / time.Duration(w.Buckets)
		return &timeWindow{
			rateRule: newRateRule(w.MinCalls, w.FailureRate, w.Slow),
			width:    int64(width), buckets: make([]counts, w.Buckets),
		}
	}
	return nil
}

// normalRule fills in the defaults and reports what is out of bounds, such as a
// pointer to a rule, which the interface lets through.
func normalRule(rule trip.Rule) (trip.Rule, error) {
	switch w := rule.(type) {
	case trip.Consecutive:
		return w, nil
	case trip.CountWindow:
		return normalCountWindow(w)
	case trip.TimeWindow:
		return normalTimeWindow(w)
	}
	return trip.Consecutive{}, fmt.Errorf("Trip is a %T; give the value, not a pointer", rule)
}

func normalCountWindow(w trip.CountWindow) (trip.Rule, error) {
	w.Size = cmp.Or(w.Size, defaultWindow)
	w.MinCalls = cmp.Or(w.MinCalls, min(defaultMinCalls, w.Size))
	w.FailureRate = cmp.Or(w.FailureRate, defaultRate)
	slow, err := normalSlowCall(w.Slow)
	w.Slow = slow
	return w, errors.Join(err,
		within("CountWindow.Size", w.Size, 1, maxWindow),
		within("CountWindow.MinCalls", w.MinCalls, 1, max(w.Size, 1)),
		rate("CountWindow.FailureRate", w.FailureRate))
}

func normalTimeWindow(w trip.TimeWindow) (trip.Rule, error) {
	w.Period = cmp.Or(w.Period, defaultPeriod)
	w.Buckets = cmp.Or(w.Buckets, defaultBuckets)
	w.MinCalls = cmp.Or(w.MinCalls, defaultMinCalls)
	w.FailureRate = cmp.Or(w.FailureRate, defaultRate)
	slow, err := normalSlowCall(w.Slow)
	w.Slow = slow
	return w, errors.Join(err,
		within("TimeWindow.Buckets", w.Buckets, 1, maxBuckets),
		within("TimeWindow.Period", w.Period, time.Duration(max(w.Buckets, 1)), maxWait),
		within("TimeWindow.MinCalls", w.MinCalls, 1, maxWindow),
		rate("TimeWindow.FailureRate", w.FailureRate))
}

func normalSlowCall(s trip.SlowCall) (trip.SlowCall, error) {
	if s == (trip.SlowCall{}) {
		return s, nil
	}
	s.Rate = cmp.Or(s.Rate, defaultRate)
	return s, errors.Join(
		within("SlowCall.Threshold", s.Threshold, 1, maxWait),
		rate("SlowCall.Rate", s.Rate))
}

func rate(field string, r float64) error {
	if !(r >= 0.000001 && r <= 1) { // written so that NaN fails too
		return fmt.Errorf("%s is %v; it must be between 0.000001 and 1", field, r)
	}
	return nil
}

// countWindow is a ring of the last calls.
type countWindow struct {
	rateRule
	ring []mark
	next int
	sum  counts
}

// mark is what a window of calls keeps of one.
type mark uint8

const (
	called mark = 1 << iota
	failed
	slowly
)

func markOf(one counts) mark { return called | failed*mark(one.failures) | slowly*mark(one.slow) }

func (m mark) counts() counts {
	return counts{calls: int(m & called), failures: int(m & failed >> 1), slow: int(m & slowly >> 2)}
}

func (w *countWindow) record(one counts, _ int64) {
	w.sum.add(w.ring[w.next].counts(), -1)
	w.sum.add(one, +1)
	w.ring[w.next] = markOf(one)
	if w.next++; w.next == len(w.ring) {
		w.next = 0
	}
}

func (w *countWindow) succeed(n int, now int64) {
	for range min(n, len(w.ring)) {
		w.record(counts{calls: 1}, now)
	}
}

func (w *countWindow) counts(int64) counts { return w.sum }

func (w *countWindow) span(int64) (from, to int64) { return math.MinInt64, never }

func (w *countWindow) clear() { clear(w.ring); w.next, w.sum = 0, counts{} }

func (w *countWindow) rule() rateRule { return w.rateRule }

func (w *countWindow) bytes() int64 { return int64(len(w.ring)) }

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

// slide makes n the newest bucket and empties those that left the window.
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

func (w *timeWindow) succeed(n int, now int64) { w.record(counts{calls: n}, now) }

func (w *timeWindow) span(now int64) (from, to int64) {
	from = floorDiv(now, w.width) * w.width
	return from, from + w.width
}

func (w *timeWindow) bytes() int64 { return int64(len(w.buckets)) * int64(unsafe.Sizeof(counts{})) }

func (w *timeWindow) clear() { clear(w.buckets); w.sum = counts{} }

func (w *timeWindow) rule() rateRule { return w.rateRule }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
