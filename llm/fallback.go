package llm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/resilience"
)

// Provider is one place that can answer.
type Provider struct {
	// Name says who gave the answer.
	Name string
	// Guard has the provider's own breaker, from resilience.New or a registry.
	// Providers that share one fall together.
	Guard Guard
	// Client reaches the provider.
	Client ChatClient
	// Model replaces the request's model where it is set.
	Model string
}

// Fallback asks providers in order until one answers. Embeddings have no
// fallback: vectors of two models do not belong in one collection, and one
// model on two servers is one server behind a load balancer.
type Fallback []Provider

// Answer is a chat completion and where it comes from.
type Answer struct {
	openai.ChatCompletionResponse
	// Provider is the Name of the one that answered.
	Provider string
	// Passed are the providers before it, with what was wrong with each.
	Passed []*ProviderError
}

// ProviderError is the error of one provider of a [Fallback].
type ProviderError struct {
	Provider string
	Err      error
}

// Error names the provider.
func (e *ProviderError) Error() string { return fmt.Sprintf("llm: provider %q: %v", e.Provider, e.Err) }

// Unwrap is the error of the call.
func (e *ProviderError) Unwrap() error { return e.Err }

// CreateChatCompletion asks each provider whose breaker lets it, until one
// answers. It proceeds to the next after a refusal of the breaker, a failure
// and a throttled call. It stops with a *[ProviderError] after anything that
// the next provider would not cure or should not hide: the caller's
// cancellation, a request that is wrong, a credential or quota that is refused.
// If all fail, the error joins a *[ProviderError] for each.
func (f Fallback) CreateChatCompletion(ctx context.Context, request openai.ChatCompletionRequest) (Answer, error) {
	var passed []*ProviderError
	for _, p := range f {
		r := request
		if p.Model != "" {
			r.Model = p.Model
		}
		var verdict resilience.Verdict
		response, err := p.Guard.hearing(&verdict).CreateChatCompletion(ctx, p.Client, r)
		if err == nil {
			return Answer{ChatCompletionResponse: response, Provider: p.Name, Passed: passed}, nil
		}
		failed := &ProviderError{Provider: p.Name, Err: err}
		if !passOn(ctx, err, verdict) {
			return Answer{Passed: passed}, failed
		}
		passed = append(passed, failed)
	}
	return Answer{Passed: passed}, noProvider(passed)
}

// hearing is g with a copy of the verdict for its caller.
func (g Guard) hearing(copied *resilience.Verdict) Guard {
	settled := g.Settled
	g.Settled = func(v resilience.Verdict) {
		*copied = v
		if settled != nil {
			settled(v)
		}
	}
	return g
}

// passOn says whether the next provider is asked after an error, which has a
// verdict unless the call was refused.
func passOn(ctx context.Context, err error, v resilience.Verdict) bool {
	switch {
	case errors.Is(err, resilience.ErrOpen):
		return true
	case ctx.Err() != nil:
		return false
	}
	return v.Outcome == resilience.Failure || v.Outcome == resilience.Throttled
}

// noProvider is a Fallback in which nobody answered.
type noProvider []*ProviderError

func (e noProvider) Error() string {
	if len(e) == 0 {
		return "llm: fallback without providers"
	}
	texts := make([]string, len(e))
	for i, p := range e {
		texts[i] = p.Error()
	}
	return "llm: no provider answered: " + strings.Join(texts, "; ")
}

func (e noProvider) Unwrap() []error {
	errs := make([]error, len(e))
	for i, p := range e {
		errs[i] = p
	}
	return errs
}
