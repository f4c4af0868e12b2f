package testutil

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// Stampede runs call in n goroutines, which all start at the same moment, waits
// for all of them, and returns their results.
func Stampede(n int, call func() error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var ready, group sync.WaitGroup
	ready.Add(n)
	for i := range n {
		group.Go(func() {
			ready.Done()
			<-start
			errs[i] = call()
		})
	}
	ready.Wait()
	close(start)
	group.Wait()
	return errs
}

// Crowd is a number of callers that share one client and one breaker.
type Crowd struct {
	N       int                 // callers at a time
	Breaker *resilience.Breaker // new; on Clock for ThroughAnOutage, on the real one for WhileItFlaps
	Clock   *FakeClock
	Call    func() error // one call through Breaker, safe for concurrent use

	Fail func()                        // takes the upstream down, also while calls run
	Heal func(release <-chan struct{}) // brings it back, to answer once release is closed
	Seen func() (requests int)         // how many calls reached the upstream so far; WhileItFlaps takes nil
}

// ThroughAnOutage takes the crowd through an outage and fails the test unless
// all callers at the reset time but one are refused while that one probes, all
// succeed after it, and each call that was counted is one that reached the
// upstream.
func (c Crowd) ThroughAnOutage(t testing.TB) {
	t.Helper()
	c.Fail()
	for i, err := range Stampede(c.N, c.Call) {
		if err == nil {
			t.Errorf("caller %d of a crowd in an outage had an answer", i)
		}
	}
	c.account(t, 1)

	c.Clock.Advance(c.Breaker.Config().ResetTimeout)
	if good := c.probe(); good != 1 {
		t.Errorf("%d of a crowd at the reset time had an answer, want 1", good)
	}
	for i, err := range Stampede(c.N, c.Call) {
		if err != nil {
			t.Errorf("caller %d of a crowd after the outage: %v", i, err)
		}
	}
	c.account(t, 3)
}

// probe holds the answers back until each caller has returned or reached the
// upstream, and returns how many got one.
func (c Crowd) probe() (good int) {
	var back atomic.Int64
	before, release, held := c.Seen(), make(chan struct{}), make(chan struct{})
	c.Heal(release)
	go func() {
		defer close(held)
		defer close(release)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for int(back.Load())+c.Seen()-before < c.N {
			<-tick.C
		}
	}()
	for _, err := range Stampede(c.N, func() error {
		defer back.Add(1)
		return c.Call()
	}) {
		if err == nil {
			good++
		}
	}
	<-held
	return good
}

func (c Crowd) account(t testing.TB, waves uint64) {
	t.Helper()
	s := c.Breaker.Snapshot()
	if reached := uint64(c.Seen()); reached != s.Calls+s.Stale || s.Calls+s.Stale+s.Rejected != waves*uint64(c.N) ||
		s.Opened != 1 {
		t.Errorf("%d callers in %d waves, %d calls reached the upstream: %+v", c.N, waves, reached, s)
	}
}

// WhileItFlaps has each caller make so many calls while the upstream goes down
// and comes back, and fails the test unless every call is counted once, each
// request belongs to a counted call, and the breaker closes within ten seconds
// after the upstream is back for good. It wants a ResetTimeout of a few
// milliseconds.
func (c Crowd) WhileItFlaps(t testing.TB, calls int) {
	t.Helper()
	healthy := make(chan struct{})
	close(healthy)
	var first, refused atomic.Int64
	Stampede(c.N, func() error {
		flaps := first.Add(1) == 1
		for turn := range calls {
			switch {
			case flaps && turn%2 == 1:
				c.Fail()
			case flaps:
				c.Heal(healthy)
			}
			if errors.Is(c.Call(), resilience.ErrOpen) {
				refused.Add(1)
			}
		}
		return nil
	})
	s := c.Breaker.Snapshot()
	counted, made := s.Calls+s.Stale+s.Rejected, uint64(c.N*calls)
	twice := s.Probes // one whose lease ran out counts as a failure, and as stale when it comes back
	if refused := uint64(refused.Load()); refused != s.Rejected || counted < made || counted > made+twice {
		t.Errorf("%d callers made %d calls each, %d were refused: %+v", c.N, calls, refused, s)
	}
	c.Heal(healthy)
	c.recovers(t)
}

// recovers waits until a call succeeds, and checks the counts.
func (c Crowd) recovers(t testing.TB) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for err := c.Call(); err != nil; err = c.Call() {
		select {
		case <-late:
			t.Errorf("ten seconds after the upstream is back: %v", err)
			return
		case <-tick.C:
		}
	}
	s := c.Breaker.Snapshot()
	if s.Calls != s.Successes+s.Failures+s.Ignored+s.Throttled+s.Denied+s.Panics || !c.Breaker.Ready() {
		t.Errorf("a healthy upstream leaves the breaker at %v: %+v", c.Breaker.State(), s)
	}
	if c.Seen != nil && uint64(c.Seen()) > s.Calls+s.Stale {
		t.Errorf("%d requests reached the upstream, more than the calls: %+v", c.Seen(), s)
	}
}
