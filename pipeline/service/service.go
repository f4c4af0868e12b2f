// Package service is how the stages of the pipeline call the object store, the
// vector store and the models: through the door, within the limit of calls in
// flight, and with the door's one verdict attached to the error.
package service

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/smithy-go"
	openai "github.com/sashabaranov/go-openai"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/vectorstore"
)

// Names of the services, as errors and stops give them.
const (
	ObjectStore = "s3"
	VectorStore = "milvus"
	Model       = "llm"
)

// Service is one of the three. It is safe for concurrent use; make one with
// Objects, Vectors or Models.
type Service struct {
	name    string
	breaker *resilience.Breaker
	misfit  func(error) bool
	settled func(resilience.Verdict) // the user's; nil for none
	limiter *inflight.Limiter        // nil where calls are not limited
}

// Objects is the object store behind a guard.
func Objects(g objectstore.Guard) *Service {
	return &Service{
		name:    ObjectStore,
		breaker: breakerOf(g.Breaker, g.InFlight, resilience.S3),
		misfit:  noBucket,
		settled: g.Settled,
	}
}

// Vectors is the vector store behind a guard.
func Vectors(g vectorstore.Guard) *Service {
	return &Service{
		name:    VectorStore,
		breaker: breakerOf(g.Breaker, g.InFlight, resilience.Milvus),
		misfit:  noCollection,
		settled: g.Settled,
	}
}

// Models is the model server behind a guard.
func Models(g llm.Guard) *Service {
	return &Service{
		name:    Model,
		breaker: breakerOf(g.Breaker, g.InFlight, resilience.LLM),
		misfit:  noModel,
		settled: g.Settled,
	}
}

// breakerOf is the breaker that a door uses for its guard.
func breakerOf(own *resilience.Breaker, limiter *inflight.Limiter, singleton *resilience.Breaker) *resilience.Breaker {
	switch {
	case own != nil:
		return own
	case limiter != nil:
		return limiter.Breaker()
	}
	return singleton
}

// noBucket also holds for a bucket that is elsewhere.
func noBucket(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (api.ErrorCode() == "NoSuchBucket" || api.ErrorCode() == "PermanentRedirect")
}

func noCollection(err error) bool { return status.Code(err) == codes.NotFound }

// noModel holds for a server that does not know the model or the address.
func noModel(err error) bool { return StatusOf(err) == http.StatusNotFound }

// StatusOf is the HTTP status of a model server's answer in err, 0 without one.
func StatusOf(err error) int {
	if answer, ok := errors.AsType[*openai.RequestError](err); ok && answer.HTTPStatusCode != 0 {
		return answer.HTTPStatusCode
	}
	if answer, ok := errors.AsType[*openai.APIError](err); ok {
		return answer.HTTPStatusCode
	}
	return 0
}

// Limited is the service with at most limit calls in flight, and never more
// than its breaker still tolerates failures. See [inflight.New] for the error.
func (s Service) Limited(limit int) (*Service, error) {
	limiter, err := inflight.New(s.breaker, limit)
	s.limiter = limiter
	return &s, err
}

// Close refuses the calls that have not begun, with cause.
func (s *Service) Close(cause error) {
	if s.limiter != nil {
		s.limiter.Close(cause)
	}
}

// Breaker is the breaker that guards the service.
func (s *Service) Breaker() *resilience.Breaker { return s.breaker }

// Call runs fn, which calls the service once through its door with told as the
// Guard's Settled. Where the service is limited it waits for its turn, and what
// fn does after the answer still belongs to its turn. The error of fn comes
// back as a [*stop.CallError]; one of waiting is the context's or that of
// Close.
func (s *Service) Call(ctx context.Context, operation string, fn func(told func(resilience.Verdict)) error) error {
	verdict := resilience.Verdict{Outcome: resilience.Ignored}
	told := []func(resilience.Verdict){func(v resilience.Verdict) { verdict = v }}
	if s.settled != nil {
		told = append(told, s.settled)
	}
	if s.limiter != nil {
		slot, err := s.limiter.Enter(ctx, operation)
		if err != nil {
			return err
		}
		defer slot.Leave()
		told = append(told, slot.Settled)
	}
	err := fn(func(v resilience.Verdict) {
		for _, tell := range told {
			tell(v)
		}
	})
	if err == nil {
		return nil
	}
	return s.Error(verdict, err)
}

// Error attaches a verdict to the error of a call.
func (s *Service) Error(verdict resilience.Verdict, err error) error {
	return &stop.CallError{
		Upstream: s.name, Verdict: verdict, Misfit: s.misfit(err), Reset: s.breaker.Config().ResetTimeout, Err: err,
	}
}
