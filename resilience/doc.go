// Package resilience is a circuit breaker for calls to upstreams.
//
// Most programs need one function:
//
//	v, err := resilience.Call(ctx, resilience.Milvus, func(ctx context.Context) (T, error) { … })
package resilience
