// Package grpcdoor is the door to any service that is called over gRPC: a
// circuit breaker in the interceptors of a connection, where nothing can go
// around it.
//
//	conn, err := grpc.NewClient(target, append(grpcdoor.DialOptions(grpcdoor.Config{Breaker: b}), more...)...)
//
// Each call on the connection is a call of the breaker, a stream from its
// opening to its end. While the breaker is closed, the caller gets the client's
// own error, the same value. While it is open, a *[resilience.OpenError], and
// nothing is sent. [Classify] says what an error means.
//
// # Streams
//
// The end of a stream decides its outcome: io.EOF is a success, an error counts
// by its code. Messages in either direction renew a probe's lease. A stream
// whose context ends before gives its slot back and counts as nothing; so does
// one that nobody holds any more, once it is garbage-collected. As gRPC itself
// asks, read a stream to its end or end its context.
//
// # Nothing is retried here
//
// A service config can make gRPC repeat calls, of which the breaker sees one.
// [DialOptions] switch that off. What gRPC calls transparent retries (a request
// that provably never reached the server) remain. Calls do not wait for the
// connection to become ready, unless an option of their own says so: a server
// that is down is met at once, and counted.
//
// gRPC bounds no call in time. Give each context a deadline: a call that hangs
// is only counted once it ends.
//
// Without an import of package metrics there is no gauge of these breakers.
package grpcdoor
