// Package testutil is what a test of a breaker needs: a clock that moves when
// it is told to, a recorder of transitions, and an HTTP upstream that fails on
// command and counts what reached it.
//
//	clock := testutil.NewClock()
//	b := testutil.NewBreaker(t, "billing", resilience.Config{Clock: clock})
//	seen := testutil.Record(t, b)
//	upstream := testutil.NewUpstream(t, nil)
//	upstream.Always(testutil.Status(500))
//	… call upstream.URL() five times through b …
//	clock.Advance(time.Minute)
//	upstream.Recover()
//	… call once more …
//	seen.Want("closed → open", "open → half_open", "half_open → closed")
//	upstream.WantRequests(6)
//
// The clock and the recorder work in any test. The upstream listens on a real
// socket of the loopback interface, so it does not belong in a
// testing/synctest bubble.
package testutil
