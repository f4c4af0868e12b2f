// Package resilience is a circuit breaker: it stops calling an upstream that is
// down, tells callers at once, and asks again with one probe after a while.
//
// Most programs need one function:
//
//	v, err := resilience.Call(ctx, resilience.Milvus, func(ctx context.Context) (T, error) {
//		return ask(ctx)
//	})
//
// Where ask fails, its own error comes back. Where the breaker is open, ask
// does not run and err is an *OpenError, which errors.Is finds as ErrOpen.
// Breaker.Do is Call without a value, CallOp adds the classifier and the
// validator of an operation, Breaker.Allow splits the call in two for streams,
// and Breaker.Check asks on behalf of work that makes no call itself.
//
// # Policy
//
// The zero Config opens after five counted failures in a row, sends a probe
// after 60 seconds and closes on one good probe. Config.Trip may count failures
// in a window instead. Milvus, S3 and LLM are breakers that are there from the
// start; New, Registry.Register and Registry.Keyed make others.
//
// # What counts
//
// A Classifier reads each error. Success, Failure and nothing else move a
// closed breaker: the caller's own cancellation and bad requests are Ignored, a
// throttling upstream only holds probes back, a denied credential stops the
// breaker where Config.StopOnDenied says so. A deadline is a Failure, whoever
// set it. A panic goes on to the caller and counts as neither.
//
// # Time
//
// Nothing runs in the background. An open breaker turns half-open when a call
// asks, and shows half-open to those who look, from the instant its wait is
// over. Only the monotonic clock is read, and not at all by a successful call
// of a closed breaker under the default policy.
//
// # Retries
//
// A refusal must not be retried: its methods tell retriers so, and WithTask
// makes sure of it for those that do not ask.
//
// # Concurrency
//
// A Breaker, a Permit and a Registry are safe for concurrent use.
// Functions, classifiers, validators, probes and observers are called outside
// every lock, and may call the breaker.
//
// # Compatibility
//
// Outcomes, states and reasons may be added; the numbers of the states and the
// text of OpenError up to its semicolon stay as they are.
package resilience
