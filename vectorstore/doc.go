// Package vectorstore is the door to a vector store: the operations of the
// Milvus SDK, with its own names, arguments and results, each one a call
// through a circuit breaker.
//
// To bring a call behind the breaker, put the package's name before it and the
// client second:
//
//	ids, err := milvus.Upsert(ctx, "docs", "", columns...)              // before
//	ids, err := vectorstore.Upsert(ctx, milvus, "docs", "", columns...) // after
//
// The client is an interface of a few methods cut from the SDK's client.Client,
// so that the real client (best made by [NewClient]), the embedded store in
// package sqlitestore and a double in a test all fit. [Store] is what a
// retrieval pipeline asks of one.
//
// The package functions go through the breaker resilience.Milvus. A [Guard]
// with a breaker of its own has the same operations as methods; operations of
// one upstream should share one breaker.
//
// # What comes back
//
// An error of the upstream reaches the caller as it is. Once the breaker is
// open, calls fail at once with a *resilience.OpenError. Three kinds are made
// here:
//
//   - [*ArgumentError]: the call was wrong and was not sent: a vector of another
//     length than its column or of another type than its field, a number in it
//     that is not finite, a key twice in one call, a value or a message over its
//     limit, a value that would be stored as another one.
//     (Package sqlitestore finds some of these itself, with an error of its own.)
//   - [*ServerError]: what the server said, with its code, which the SDK drops.
//     Only clients made by NewClient give it.
//   - [*ContractError]: the answer breaks the rules of the protocol, such as a
//     search result with more rows than were asked for. It counts as a failure.
//
// All of them, and the embedded store's errors, carry a gRPC status, so
// google.golang.org/grpc/status.Code(err) is one way to look at any of them.
// [Classify] says what the breaker makes of an error.
//
// # Nothing is retried here
//
// One call is one attempt. (A write that a kept schema has had refused, of
// which the server has taken nothing, goes out by the schema of today; see
// [NewClient].) The SDK's two hidden retriers are off in clients made by
// NewClient; a client made otherwise keeps them, and its breaker then sees one
// call where the server sees many. The SDK waits by asking again and again in
// Flush, CreateIndex, LoadCollection and LoadPartitions unless they are
// asynchronous; such a wait ends at the first error, and after ten minutes if
// the context has no deadline.
//
// Each call makes an OpenTelemetry span of the database conventions, refused
// calls included, if a tracer provider is set.
//
// The functions are safe for concurrent use if the client is. The names and
// arguments follow the SDK's v2.
package vectorstore
