package resilience

// reopen is open after a failed probe: the wait may have grown.
func (c *core) reopen(at int64, w why, tally counts) {
	c.failed++
	c.open(at, at+c.wait(), w, tally)
	c.late = c.handicap
}

// first is the time from an opening to the first probe.
func (c *core) first() int64 { return c.policy.reset + c.jitter() }

// jitter is drawn once for each opening.
func (c *core) jitter() int64 {
	if c.policy.jitter == 0 {
		return 0
	}
	return int64(c.draw() % uint64(c.policy.jitter+1))
}

// wait is the time to the next probe after so many failed ones: exponential
// backoff with equal jitter, between half of the doubled wait and all of it.
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter
func (c *core) wait() int64 {
	reset, most := c.policy.reset, c.policy.maxReset
	if most == 0 {
		return c.first()
	}
	grown := most
	if c.failed < 63 && reset <= most>>c.failed {
		grown = reset << c.failed
	}
	half := grown / 2
	return max(reset, half+int64(c.draw()%uint64(grown-half+1))) + c.jitter()
}

// draw is a step of SplitMix64 (Steele, Lea and Flood, 2014). The generator is
// part of the core, so that a step that is repeated draws the same number.
func (c *core) draw() uint64 {
	c.random += 0x9e3779b97f4a7c15
	z := c.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
