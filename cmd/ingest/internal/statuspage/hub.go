package statuspage

import (
	"context"
	"sync"
	"time"
)

const (
	// watchers bounds the event streams at a time.
	watchers = 64
	// look is how often what changes without a word, such as a streak or the
	// end of a wait, is looked at while somebody watches.
	look = 500 * time.Millisecond
	// gap is the least time between two looks.
	gap = 100 * time.Millisecond
)

// fragment is a part of the page, by the id of its element.
type fragment struct {
	id, html string
	version  int // of the hub, when it last changed
}

// hub renders the parts of the page once for all who watch. A watcher that is
// slow misses versions and holds nobody up.
type hub struct {
	render func(context.Context) []fragment
	wake   chan struct{}

	mu        sync.Mutex
	watching  int
	version   int
	fragments []fragment
	changed   chan struct{} // closed and replaced at each version
	over      bool
}

func newHub(render func(context.Context) []fragment) *hub {
	return &hub{render: render, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// wakeUp has the hub look at once.
func (h *hub) wakeUp() {
	select {
	case h.wake <- struct{}{}:
	default: // it is awake
	}
}

// run looks until ctx ends.
func (h *hub) run(ctx context.Context) {
	defer h.end()
	for {
		var tick <-chan time.Time
		if h.watched() {
			h.publish(h.render(ctx))
			tick = time.After(look)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-tick:
		}
	}
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watching > 0
}

// publish makes a version of what has changed.
func (h *hub) publish(now []fragment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next, news := h.version+1, false
	for i := range now {
		if i < len(h.fragments) && now[i].html == h.fragments[i].html {
			now[i].version = h.fragments[i].version
			continue
		}
		now[i].version, news = next, true
	}
	if news {
		h.version, h.fragments = next, now
		h.announceLocked()
	}
}

func (h *hub) announceLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.announceLocked()
}

// join takes a place among the watchers; ok is false if all are taken.
func (h *hub) join() (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.watching == watchers {
		return false
	}
	h.watching++
	h.wakeUp()
	return true
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watching--
}

// since returns what has changed after a version, and what to wait on for more.
func (h *hub) since(seen int) (news []fragment, version int, more <-chan struct{}, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.fragments {
		if f.version > seen {
			news = append(news, f)
		}
	}
	return news, h.version, h.changed, h.over
}
