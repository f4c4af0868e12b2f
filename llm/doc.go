// Package llm is the door to an OpenAI-compatible server: the SDK's own calls,
// each through a circuit breaker.
//
//	client, err := llm.NewClient(llm.Config{})               // once
//	resp, err := client.CreateEmbeddings(ctx, request)       // before
//	resp, err := llm.CreateEmbeddings(ctx, client, request)  // after
//
// The package functions go through [resilience.LLM], which opens after five
// failures in a row and lets a probe through a minute later. A [Guard] has the
// same calls with another breaker, for one model or one provider. Any client
// with the SDK's method fits: the real one, the embedded model in
// llm/staticmodel, a test's double. [Fallback] tries several providers in turn.
//
// # What a caller gets
//
// While the breaker is closed: the SDK's result and the SDK's error, unwrapped.
// While it is open: a *[resilience.OpenError] at once, and nothing is sent. A
// response that is not the answer, although its status is a success, is a
// *[ContractError]. See [Classify] for what counts as a failure of the server.
//
// # What the SDK leaves out
//
// go-openai has no timeout of any kind, does not bound the size of an answer,
// follows redirects with another method, takes an error body under status 200
// for an empty answer and one that failed in its middle for a whole one, trusts
// the order and number of vectors, and drops the Retry-After header of streams.
// [NewClient] and the doors see to each of these; docs/llm.md has the whole
// list. A client made otherwise works too, within what can be done from
// outside: give each call's context a deadline then.
//
// A model may think for minutes before it answers. With a client of [NewClient]
// that is no failure, see Config.ChatTimeout.
//
// Nothing in this package retries, and [NewClient] makes sure that net/http
// does not either.
//
// Each call leaves an OpenTelemetry span after the GenAI conventions, refused
// calls included, if a tracer provider is set. Importing this package makes the
// breaker's gauge exist in the default Prometheus registry.
package llm
