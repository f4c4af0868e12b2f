package resilience

import "math/bits"

// rampStart is the share of calls that a ramp begins with; whole is all of
// them. Both are in parts per million.
const (
	rampStart = 100_000
	whole     = 1_000_000
)

func (c *core) startRamp(now int64) {
	if c.policy.ramp > 0 {
		c.rampFrom, c.rampUntil = now, now+c.policy.ramp
		c.rampCredit = whole - rampStart // the first call is admitted
	}
}

// rampShare is the share of calls that are admitted: it rises in a straight
// line from nothing to all of them, and is never below rampStart.
func (c *core) rampShare(now int64) int64 {
	if now >= c.rampUntil {
		return whole
	}
	hi, lo := bits.Mul64(uint64(max(0, now-c.rampFrom)), whole)
	share, _ := bits.Div64(hi, lo, uint64(c.policy.ramp))
	return max(rampStart, int64(share))
}

// share is rampShare as of the last step.
func (c *core) share() float64 {
	if c.rampUntil == 0 {
		return 1
	}
	return float64(c.rampShare(c.latest)) / whole
}

// rampAdmits decides about one call. The shares of the calls add up, and each
// whole sum admits one.
func (c *core) rampAdmits(now int64) bool {
	if c.rampUntil == 0 {
		return true
	}
	share := c.rampShare(now)
	if share == whole {
		c.rampUntil = 0
		return true
	}
	if c.rampCredit += share; c.rampCredit < whole {
		return false
	}
	c.rampCredit = min(c.rampCredit-whole, whole)
	return true
}
