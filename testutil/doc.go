// Package testutil helps to test breakers: it has a manual clock, a recorder of
// transitions, and an HTTP upstream that fails on demand and counts requests.
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
// loopback socket, so it cannot be used in a testing/synctest bubble.
package testutil
