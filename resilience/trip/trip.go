// Package trip has the rules that open a closed breaker, for the field Trip of
// resilience.Config.
package trip

import "time"

// Rule is Consecutive, CountWindow or TimeWindow, by value. No other package
// can add a rule.
type Rule interface{ rule() }

// Consecutive opens after FailMax counted failures with no success between
// them, however far apart in time they are. FailMax is a field of
// resilience.Config.
type Consecutive struct{}

// CountWindow opens on a failure that finds at least MinCalls of the last Size
// completed calls in the window and failures/calls at FailureRate or above.
type CountWindow struct {
	Size        int     // calls; default 100, at most 1048576
	MinCalls    int     // default 10, or Size if that is less
	FailureRate float64 // (0, 1]; default 0.5; kept in parts per million
	Slow        SlowCall
}

// TimeWindow is CountWindow over the calls of the last Period, kept in Buckets
// that slide.
type TimeWindow struct {
	Period      time.Duration // default 60 s
	Buckets     int           // default 10, at most 4096
	MinCalls    int           // default 10
	FailureRate float64       // (0, 1]; default 0.5; kept in parts per million
	Slow        SlowCall
}

// SlowCall lets slow calls open a window too: a call that takes Threshold or
// longer opens it if slow/calls is at Rate or above. The zero value is off.
type SlowCall struct {
	Threshold time.Duration
	Rate      float64 // (0, 1]; default 0.5; kept in parts per million
}

func (Consecutive) rule() {}
func (CountWindow) rule() {}
func (TimeWindow) rule()  {}
