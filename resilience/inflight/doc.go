// Package inflight bounds the calls in flight to one upstream, so that an
// outage costs FailMax calls however many goroutines make them.
//
// A breaker opens after FailMax failures in a row. By itself it cannot keep a
// thousand goroutines from sending a thousand calls before the first of them
// has failed. A Limiter never has more calls in flight than its breaker still
// tolerates failures: with FailMax 5 and no failure so far that is five, after
// two failures it is three. However many of those are doomed, the breaker is
// open before another is sent.
//
//	limiter, err := inflight.New(resilience.LLM, 0)
//	...
//	op := resilience.Op[T]{Name: "create_embeddings"}
//	v, err := inflight.Do(ctx, limiter, op, fn)
//
// # What it costs
//
// A healthy upstream sees at most FailMax calls at a time too, or fewer where
// New is given a lower limit. Where that is not enough, raise FailMax.
//
// # Operations
//
// The bound holds for all calls together, and for each named operation by
// itself. Behind one breaker there may be two servers, one that embeds and one
// that chats, or a store that reads and no longer writes: an operation that
// fails FailMax times in a row trips the breaker, however well the others are
// answered meanwhile. Names are meant to be few. A limiter remembers 128; for
// more it forgets those with no call in flight, those without failures first.
//
// # Early trip
//
// A good answer to a call that was in flight when the failures began clears the
// breaker's streak, yet says nothing about the upstream now. The limiter keeps
// a streak of its own, which such an answer leaves alone, and trips the breaker
// when it reaches FailMax.
//
// # Other policies
//
// A window has no streak, so under a window the limit alone rules, and New
// wants one. A breaker that is not closed is asked by as many callers at a time
// as may be in flight once it is closed, and refuses or sends its probes by
// itself.
//
// # What it does not see
//
// Calls through the breaker that do not enter the limiter are not counted among
// those in flight, though their failures shrink the room; their good answers do
// not clear the limiter's own streak.
//
// # Waiting
//
// Callers wait for calls in flight, each as long as its context lasts. So calls
// need a time limit: where one hangs and four others have failed, everybody
// waits for the one. A call lasts until its outcome is known, that of a stream,
// a body or an iterator until its end, error or Close. While it lasts its
// goroutine must not enter the limiter again: where there is room for one call,
// it would wait for itself.
package inflight
