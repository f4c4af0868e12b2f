package resilience

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// standing is what a fleet knows of a breaker, as the store keeps it. Instants
// are nanoseconds since 1970 by the store's clock, 0 for none.
type standing struct {
	facts
	Leases []claim `json:"leases,omitempty"`
}

// facts are compared as one value.
type facts struct {
	State      State  `json:"state"`
	Generation uint64 `json:"generation"`

	Streak   int    `json:"streak,omitempty"`
	StreakOf string `json:"streak_of,omitempty"` // its origin, or several
	Suspect  string `json:"suspect,omitempty"`   // an origin whose streak was refuted

	Since    int64         `json:"since,omitempty"`
	Episode  int64         `json:"left_closed,omitempty"`
	OpenedAt int64         `json:"opened_at,omitempty"`
	Until    int64         `json:"open_until,omitempty"`
	Wait     time.Duration `json:"wait,omitempty"` // from the writing of Until until then
	Pause    int64         `json:"pause_until,omitempty"`
	PauseFor time.Duration `json:"pause,omitempty"` // likewise of Pause
	Reason   string        `json:"reason,omitempty"`
	Origin   string        `json:"origin,omitempty"` // who opened it

	Failed    int    `json:"failed_probes,omitempty"`
	FailedBy  string `json:"failed_by,omitempty"` // the origin of the last one
	Good      int    `json:"good_probes,omitempty"`
	LastProbe uint64 `json:"last_probe,omitempty"`

	Held       string `json:"held,omitempty"`
	HeldReason string `json:"held_reason,omitempty"`
	HeldSince  int64  `json:"held_since,omitempty"`
	Resets     uint64 `json:"resets,omitempty"`

	Mover  string `json:"moved_by,omitempty"` // the origin that made the last move
	By     string `json:"by,omitempty"`       // the origin that wrote it
	Before string `json:"before,omitempty"`   // the last other origin that did
	Policy string `json:"policy,omitempty"`
}

// claim is a probe's lease as other processes see it.
type claim struct {
	Probe  uint64        `json:"probe"`
	Owner  string        `json:"owner"` // a process
	Expiry int64         `json:"expiry"`
	For    time.Duration `json:"for"` // from the writing of Expiry until then
}

// several stands for the origin of a streak that has more than one.
const several = "*"

// maxStanding bounds what is read, in bytes.
const maxStanding = 1 << 20

// readStanding reads a record. An empty one is the standing of a closed breaker
// that nobody has written about.
func readStanding(r Record) (s standing, err error) {
	switch {
	case len(r.Value) == 0:
		return s, nil
	case len(r.Value) > maxStanding:
		return s, fmt.Errorf("it has %d bytes; at most %d are read", len(r.Value), maxStanding)
	}
	if err := json.Unmarshal(r.Value, &s); err != nil {
		return standing{}, err
	}
	return s, s.sensible()
}

func (s *standing) sensible() error {
	switch {
	case s.Generation > maxGeneration-1<<20, min(s.Streak, s.Failed, s.Good) < 0, len(s.Leases) > maxProbes:
		return fmt.Errorf("generation %d, streak %d, %d failed and %d good probes, %d leases are out of bounds",
			s.Generation, s.Streak, s.Failed, s.Good, len(s.Leases))
	case s.Held != heldOpen.String() && s.Held != heldClosed.String() && s.Held != "":
		return fmt.Errorf("%q is not an operator's hold", s.Held)
	}
	return nil
}

func (s *standing) bytes() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is no such value
	}
	return b
}

func (s *standing) same(o *standing) bool {
	return s.facts == o.facts && slices.Equal(s.Leases, o.Leases)
}

// quiet reports whether nobody needs to be told of it.
func (s *standing) quiet() bool { return s.State == Closed && s.Held == "" }

func (s *standing) hold() hold { return hold(max(0, slices.Index(holdNames[:], s.Held))) }

// keep is how long the record may be useful to somebody. now is of the store's
// clock.
func (s *standing) keep(reset time.Duration, now int64) time.Duration {
	switch {
	case s.Held != "":
		return 0
	case s.State == Closed && s.Streak > 0:
		return max(2*reset, 24*time.Hour)
	case s.State == Closed:
		return 2 * reset
	}
	at := max(now, s.Until, s.Pause)
	for _, l := range s.Leases {
		at = max(at, l.Expiry)
	}
	return 2*reset + time.Duration(at-now)
}
