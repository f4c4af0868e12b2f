package journal

import "sync"

// hold is whether the journal's owner may still go on.
type hold struct {
	mu     sync.Mutex
	tenure *tenure // nil until somebody asks
}

// tenure is a time without a break.
type tenure struct {
	over chan struct{} // closed at its end
	err  error         // why it ended; set before over is closed
}

// Revoke says that whoever works by this journal must stop, and why: a lease
// that it was opened under has been lost. What the error's RetryAt method says,
// if it has one, is when to come again. The journal can still be written.
func (j *Journal) Revoke(err error) {
	j.hold.mu.Lock()
	defer j.hold.mu.Unlock()
	if t := j.hold.currentLocked(); t.err == nil {
		t.err = err
		close(t.over)
	}
}

// Restore takes Revoke back, for the work that begins after it.
func (j *Journal) Restore() {
	j.hold.mu.Lock()
	defer j.hold.mu.Unlock()
	if j.hold.currentLocked().err != nil {
		j.hold.tenure = nil
	}
}

// Revoked is closed when the journal is revoked, and why tells the reason after
// that. A journal that nobody revokes stays open for ever.
func (j *Journal) Revoked() (over <-chan struct{}, why func() error) {
	j.hold.mu.Lock()
	defer j.hold.mu.Unlock()
	t := j.hold.currentLocked()
	return t.over, func() error { <-t.over; return t.err }
}

func (h *hold) currentLocked() *tenure {
	if h.tenure == nil {
		h.tenure = &tenure{over: make(chan struct{})}
	}
	return h.tenure
}
