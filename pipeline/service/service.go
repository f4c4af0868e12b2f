// Package service is how the stages of the pipeline call the object store, the
// vector store and the models: through the door, within the limit of calls in
// flight, and with the door's one verdict attached to the error.
package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

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
	name     string
	breaker  *resilience.Breaker
	misfit   func(error) bool
	answered func(error) bool         // the error is an answer of the service
	settled  func(resilience.Verdict) // the user's; nil for none
	own      *inflight.Limiter        // of this pipeline; nil where calls are not limited
	worked   *atomic.Bool             // a limited call went well; nil where calls are not limited
	users    *inflight.Limiter        // of the guard; likewise
}

// Objects is the object store behind a guard.
func Objects(g objectstore.Guard) *Service {
	return &Service{
		name: ObjectStore, breaker: breakerOf(g.Breaker, g.InFlight, resilience.S3),
		settled: g.Settled, users: g.InFlight,
		misfit:   noBucket,
		answered: func(err error) bool { return objectstore.StatusCode(err) != 0 },
	}
}

// Vectors is the vector store behind a guard.
func Vectors(g vectorstore.Guard) *Service {
	return &Service{
		name: VectorStore, breaker: breakerOf(g.Breaker, g.InFlight, resilience.Milvus),
		settled: g.Settled, users: g.InFlight,
		misfit:   noCollection,
		answered: func(err error) bool { _, ok := status.FromError(err); return ok },
	}
}

// Models is the model server behind a guard.
func Models(g llm.Guard) *Service {
	return &Service{
		name: Model, breaker: breakerOf(g.Breaker, g.InFlight, resilience.LLM), settled: g.Settled, users: g.InFlight,
		misfit:   noModel,
		answered: func(err error) bool { return StatusOf(err) != 0 },
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
// than its breaker still tolerates failures. The error is that of
// [inflight.New], or says that the guard has a limiter for another breaker.
func (s Service) Limited(limit int) (*Service, error) {
	if s.users != nil && s.users.Breaker() != s.breaker {
		return nil, fmt.Errorf("the guard has the breaker %q and a limiter for another one, %q; leave its Breaker out",
			s.breaker.Name(), s.users.Breaker().Name())
	}
	limiter, err := inflight.New(s.breaker, limit)
	s.own, s.worked = limiter, new(atomic.Bool)
	return &s, err
}

// Close refuses the calls that have not begun, with cause.
func (s *Service) Close(cause error) {
	if s.own != nil {
		s.own.Close(cause)
	}
}

// Worked reports whether a call of the service has gone well, where it is
// limited.
func (s *Service) Worked() bool { return s.worked != nil && s.worked.Load() }

// Breaker is the breaker that guards the service.
func (s *Service) Breaker() *resilience.Breaker { return s.breaker }

// CallObjects is Call for the object store. fn is given the guard to call with.
func (s *Service) CallObjects(ctx context.Context, operation string, fn func(objectstore.Guard) error) error {
	return s.Call(ctx, operation, func(told func(resilience.Verdict)) error {
		return fn(objectstore.Guard{Breaker: s.breaker, Settled: told})
	})
}

// CallVectors is Call for the vector store. fn is given the guard to call with.
func (s *Service) CallVectors(ctx context.Context, operation string, fn func(vectorstore.Guard) error) error {
	return s.Call(ctx, operation, func(told func(resilience.Verdict)) error {
		return fn(vectorstore.Guard{Breaker: s.breaker, Settled: told})
	})
}

// Call runs fn, which calls the service once through its door, with told as the
// Guard's Settled and no limiter of its own. Call waits for its turn where the
// service is limited, and what fn does after the answer still belongs to its
// turn. The error of fn comes back as a [*stop.CallError]; one of waiting is
// the context's, that of Close, or a deferral where the guard's limiter is
// closed.
func (s *Service) Call(ctx context.Context, operation string, fn func(told func(resilience.Verdict)) error) error {
	return s.Within(ctx, operation, func(counted func(resilience.Verdict)) error {
		if s.users != nil {
			slot, err := s.users.Enter(ctx, operation)
			if err != nil {
				return s.shut(ctx, err)
			}
			defer slot.Leave()
			counted = both(slot.Settled, counted)
		}
		h := &hearing{verdict: resilience.Verdict{Outcome: resilience.Ignored}}
		err := fn(both(h.hear, both(s.settled, counted)))
		return s.callError(h.end(), err)
	})
}

// Within runs fn in its turn where the service is limited. fn tells what came
// of the call, for the limit alone.
func (s *Service) Within(ctx context.Context, operation string, fn func(counted func(resilience.Verdict)) error) error {
	if s.own == nil {
		return fn(func(resilience.Verdict) {})
	}
	slot, err := s.own.Enter(ctx, operation)
	if err != nil {
		return err
	}
	defer slot.Leave()
	return fn(both(slot.Settled, s.note))
}

func (s *Service) note(v resilience.Verdict) {
	if v.Outcome == resilience.Success {
		s.worked.Store(true)
	}
}

// shut is the error of waiting at the guard's limiter. Nothing was sent.
func (s *Service) shut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return stop.Later(s.name, time.Time{}, err)
}

// callError attaches a verdict to the error of a call. A good answer that could
// not be used is a failure.
func (s *Service) callError(verdict resilience.Verdict, err error) error {
	if err == nil {
		return nil
	}
	if verdict.Outcome == resilience.Success && !s.answered(err) {
		verdict.Outcome = resilience.Failure
	}
	return &stop.CallError{
		Upstream: s.name, Verdict: verdict, Misfit: s.misfit(err), Breaker: s.breaker, Err: err,
	}
}

// both tells two listeners; the first may be nil.
func both(first, second func(resilience.Verdict)) func(resilience.Verdict) {
	if first == nil {
		return second
	}
	return func(v resilience.Verdict) {
		first(v)
		second(v)
	}
}

// hearing is the verdict of a call as heard until its end: the end of a body or
// an iterator that is abandoned may be told in another goroutine, and later.
type hearing struct {
	mu      sync.Mutex
	verdict resilience.Verdict
	over    bool
}

func (h *hearing) hear(v resilience.Verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.verdict = v
	}
}

func (h *hearing) end() resilience.Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	return h.verdict
}
