package resilience

import (
	"math"
	"time"
)

// sharing is what the core of a breaker knows of its fleet. All of it is zero
// for a breaker of its own.
//
// The streak of such a breaker is two: core.streak is of the failures of this
// process alone, known of those of the whole fleet, as far as they are known
// here. The longer one counts, and a success of this process ends both.
type sharing struct {
	joined  bool // the fleet's record is followed: its streak counts here, and failures here count in it
	joining bool // the first answer of the store is awaited
	known   int  // the fleet's streak
	suspect bool // failures here say nothing about the upstream until a call succeeds
	alone   bool // opened by this process's failures, which the fleet does not share

	opener  string // the host of the process that opened it, if that is another one
	closing bool   // a probe of another process was good: it closes after its part of the stagger

	mirrored uint64 // the fleet's generation that the present one stands for
	voice    string // who made the changes that are being taken over
	floor    uint64 // the next generation is at least this
	resets   uint64 // grows whenever an operator resets the breaker
	handicap int64  // what this process waits beyond the deadline of a probe that failed here
	late     int64  // the handicap of the present deadline
}

// handicap is how long after the deadline the origin of a failed probe waits
// before it asks for another, so that one bad host does not win every lease.
const handicap = int64(2 * time.Second)

// failedOnce counts a failure of the closed state.
func (c *core) failedOnce() {
	c.streak = min(c.streak+1, maxStreak)
	if c.joined && !c.suspect {
		c.known = min(c.known+1, maxStreak)
	}
}

// works ends every streak.
func (c *core) works() { c.streak, c.known, c.suspect = 0, 0, false }

// longest is the streak that counts.
func (c *core) longest() int { return max(c.streak, c.known) }

// hear learns from the word whether a call has succeeded since the last commit:
// a success clears the streak there, without a step.
func (c *core) hear(w uint64) {
	if w&(streakMask|suspectBit) == 0 {
		c.works()
	}
}

// due is the end of open for this process.
func (c *core) due() int64 {
	if c.until > math.MaxInt64-c.late {
		return never
	}
	return c.until + c.late
}

func (c *core) nextGeneration() { c.gen = max(c.gen+1, c.floor) }
