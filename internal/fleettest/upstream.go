package fleettest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// mode is how an upstream answers.
type mode int

const (
	up   mode = iota
	down      // with an error
	hung      // as the drill says
)

// upstream is called by the workers.
type upstream struct {
	*httptest.Server

	mu       sync.Mutex
	mode     mode
	arrivals []arrival
	waiting  []*waiting
	live     int
}

// arrival is a call.
type arrival struct {
	origin string
	at     time.Time
	mode   mode
}

// waiting is a call that hangs.
type waiting struct {
	arrival

	answer chan int // its status
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	t.Cleanup(u.CloseClientConnections) // Close waits for calls
	return u
}

// ServeHTTP is called by a worker, which its header Origin names.
func (u *upstream) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	a, hangs := u.arrive(r.Header.Get("Origin"))
	defer u.leave()
	switch a.mode {
	case up:
	case down:
		rw.WriteHeader(http.StatusInternalServerError)
	case hung:
		select {
		case code := <-hangs.answer:
			rw.WriteHeader(code)
		case <-r.Context().Done():
		}
	}
}

func (u *upstream) arrive(origin string) (a arrival, hangs *waiting) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a = arrival{origin, time.Now(), u.mode}
	u.arrivals = append(u.arrivals, a)
	u.live++
	if u.mode == hung {
		hangs = &waiting{a, make(chan int, 1)}
		u.waiting = append(u.waiting, hangs)
	}
	return a, hangs
}

func (u *upstream) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.live--
}

// become changes how the calls to come are answered, and returns how many there
// have been.
func (u *upstream) become(m mode) (calls int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mode = m
	return len(u.arrivals)
}

// since are the calls after the first n.
func (u *upstream) since(n int) []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]arrival(nil), u.arrivals[n:]...)
}

// hanging are the calls that have hung so far.
func (u *upstream) hanging() []*waiting {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*waiting(nil), u.waiting...)
}

// underWay is how many calls there are now.
func (u *upstream) underWay() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.live
}
