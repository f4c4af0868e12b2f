// Package testutil helps to test breakers: it has a manual clock, a recorder of
// transitions, and an HTTP server that fails on demand and counts requests.
//
//	clock := testutil.NewClock()
//	b := testutil.NewBreaker(t, "billing", resilience.Config{Clock: clock})
//	seen := testutil.Record(t, b)
//	server := testutil.NewFaultyServer(t, nil)
//	server.Always(testutil.Status(500))
//	… call server.URL() five times through b …
//	clock.Advance(time.Minute)
//	server.Recover()
//	… call once more …
//	seen.Want("closed → open", "open → half_open", "half_open → closed")
//	server.WantRequests(6)
//
// The clock and the recorder work in any test. The server listens on a real
// loopback socket, so it cannot be used in a testing/synctest bubble.
package testutil
