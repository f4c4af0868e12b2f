package journal

import "sync"

// hold says whether the journal's owner may continue.
type hold struct {
	mu     sync.Mutex
	tenure *tenure // nil until somebody asks
}

// tenure is a time without a break.
type tenure struct {
	over chan struct{} // closed at its end
	err  error         // why it ended; set before over is closed
}

func (h *hold) revoke(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.currentLocked(); t.err == nil {
		t.err = err
		close(t.over)
	}
}

func (h *hold) restore() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.currentLocked().err != nil {
		h.tenure = nil
	}
}

func (h *hold) current() *tenure {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.currentLocked()
}

func (h *hold) currentLocked() *tenure {
	if h.tenure == nil {
		h.tenure = &tenure{over: make(chan struct{})}
	}
	return h.tenure
}
