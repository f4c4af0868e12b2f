// Package resilience is a circuit breaker: it stops calling an upstream that is
// down, tells callers at once, and tries again with one probe after a while.
//
// Most programs need one function:
//
//	v, err := resilience.Call(ctx, resilience.Milvus, ask)
//
// If ask fails, its own error comes back. If the breaker is open, ask does not
// run and err is an *OpenError, which errors.Is finds as ErrOpen. Breaker.Do is
// Call without a value, CallOp adds the classifier and the validator of an
// operation, Breaker.Allow splits the call in two for streams, and
// Breaker.Check asks on behalf of work that makes no call itself.
//
// # Policy
//
// The zero Config opens after five counted failures in a row, sends a probe
// after 60 seconds and closes on one good probe. Config.Trip may count failures
// in a window instead; package trip has the rules. MaxResetTimeout, Ramp and
// Shadow, all off by default, let the wait grow after failed probes, admit a
// growing share of calls after closing, and try a policy without refusing
// anything. Milvus, S3 and LLM exist from the start; New, Registry.Register and
// Registry.Keyed make other breakers.
//
// # What counts
//
// A classifier turns each error into a Verdict. Success and Failure alone move
// a closed breaker: the caller's own cancellation and bad requests are Ignored,
// a throttling upstream only holds probes back, and a denied credential stops
// the breaker if Config.StopOnDenied is set. A throttling upstream that is
// Unavailable counts as failing. A deadline is a Failure, no matter who set it.
// Whatever a classifier says, the failure of a caller that was cancelled and
// the refusal of another breaker are Ignored. A panic propagates to the caller
// and counts as neither.
//
// # Time
//
// Nothing runs in the background. An open breaker turns half-open when a call
// comes, and reads half-open from the instant its wait is over. Deadlines are
// monotonic, dates are those of the wall clock when they are read, and no clock
// is read by a successful call of a closed breaker under the default policy.
//
// # Retries
//
// A refusal must not be retried. Its methods tell retriers so, and a task
// enforces it for those that do not ask: NewTask where a worker takes a job,
// WithTask in a program that is one task. ExitCode and Breaker.RetryAt tell an
// orchestrator whether and when to run a task again.
//
// # Concurrency
//
// A Breaker, a Permit and a Registry are safe for concurrent use. Functions,
// classifiers, validators, probes and observers are called outside every lock,
// and may call the breaker. Package inflight bounds the calls in flight.
//
// # Compatibility
//
// Outcomes, states and reasons may be added; the numbers of the states and the
// text of OpenError up to its semicolon do not change.
package resilience
