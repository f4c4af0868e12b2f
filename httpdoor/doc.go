// Package httpdoor is the door to any service that is called over HTTP: a
// circuit breaker below a client, where nothing can go around it.
//
//	client := &http.Client{Transport: httpdoor.Transport(nil, httpdoor.Config{Breaker: b})}
//
// Whatever calls through that client is a call of the breaker: net/http itself,
// or the SDK of a service that takes an *http.Client. Where one client asks
// several services, Config.Pick names a breaker for each, such as one of a
// family by host.
//
// # What a caller gets
//
// While the breaker is closed: the response and the error of the transport
// below, as they are. A 503 is a response, not an error, and still a failure to
// the breaker; see [Classify]. While it is open: a *[resilience.OpenError],
// which errors.As finds in the client's *url.Error, and nothing is sent.
//
// A call lasts until its body has been read to the end or closed. A body that
// breaks off is a failure, one that is closed early says nothing; but what is
// left of it at Close is read, if that is next to nothing, since a decoder of
// JSON stops before the end. Where nobody closes it, what the call holds (the
// slot of a probe, a place in a limiter) comes back with the end of its
// context, or when the body is garbage-collected.
//
// # Calls instead of requests
//
// [Do] is one call of the breaker from its request to its last redirect, where
// the transport sees a call in each. [JSON] reads an answer too, and takes one
// that is not what was asked for as a failure of the service.
//
// # What it does not do
//
// Nothing here retries. net/http itself sends a request again when a reused
// connection turns out dead, if the request can be repeated; that is one call.
// The client's timeouts are its own: set http.Client.Timeout or give requests a
// context with a deadline, since a call that hangs is only counted once it
// ends.
//
// The package imports the standard library and the breaker. A program that does
// not import package metrics has no gauge of these breakers.
package httpdoor
