package pipeline

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/smithy-go"
	openai "github.com/sashabaranov/go-openai"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// upstream is one of the three, as the run sees it.
type upstream struct {
	name     string
	classify func(context.Context, error) resilience.Verdict
	breaker  func(*run) *resilience.Breaker
	misfit   func(error) bool // the error says that the configuration does not fit
}

var (
	upstreamS3     = upstream{"s3", objectstore.Classify, func(r *run) *resilience.Breaker { return r.objects.breaker }, noBucket}
	upstreamMilvus = upstream{"milvus", vectorstore.Classify, func(r *run) *resilience.Breaker { return r.vectors.breaker }, noCollection}
	upstreamLLM    = upstream{"llm", classify, func(r *run) *resilience.Breaker { return r.llm.breaker }, noModel}
)

func noBucket(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (api.ErrorCode() == "NoSuchBucket" || api.ErrorCode() == "PermanentRedirect")
}

func noCollection(err error) bool { return status.Code(err) == codes.NotFound }

// noModel holds for a server that does not know the model or the address.
func noModel(err error) bool { return statusOfLLM(err) == http.StatusNotFound }

// statusOfLLM is the HTTP status of an answer, 0 if there was none.
func statusOfLLM(err error) int {
	if answer, ok := errors.AsType[*openai.RequestError](err); ok && answer.HTTPStatusCode != 0 {
		return answer.HTTPStatusCode
	}
	if answer, ok := errors.AsType[*openai.APIError](err); ok {
		return answer.HTTPStatusCode
	}
	return 0
}

// blame decides what the error of a call means: it ends the run where going on
// makes no sense, and returns what it means for the document that the call was
// for. The error of a step that did not run comes back as a deferral.
func (r *run) blame(up upstream, stage string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if errors.Is(err, errStopped) || r.ctx.Err() != nil {
		return deferral(stage, "stopped", err)
	}
	verdict := up.classify(r.ctx, err)
	if stop := r.stopFor(up, verdict, err); stop != nil {
		r.end.with(stop)
		return deferral(stage, string(stop.Kind), err)
	}
	if verdict.Outcome == resilience.Failure {
		return deferral(stage, "upstream failed", err)
	}
	return deadLetter(stage, "refused by upstream", err)
}

// stopFor is the end of the run that an error calls for, nil for one that
// concerns the call alone.
func (r *run) stopFor(up upstream, verdict resilience.Verdict, err error) *StopError {
	if open, ok := errors.AsType[*resilience.OpenError](err); ok {
		return &StopError{Kind: StopDeferred, Upstream: open.Upstream(), RetryAt: open.RetryAt(), Err: err}
	}
	if stop, ok := errors.AsType[*StopError](err); ok {
		return stop
	}
	_, stopped := errors.AsType[*resilience.DeniedError](err)
	switch {
	case stopped || verdict.Outcome == resilience.Denied:
		return &StopError{Kind: StopDenied, Upstream: up.name, Err: err}
	case verdict.Outcome == resilience.Throttled:
		return r.later(up, verdict.RetryAfter, err)
	case up.misfit(err):
		return &StopError{Kind: StopConfiguration, Upstream: up.name, Err: err}
	}
	return nil
}

// later is a deferral until the upstream said, or until its breaker would
// probe.
func (r *run) later(up upstream, after time.Duration, err error) *StopError {
	if after <= 0 {
		after = up.breaker(r).Config().ResetTimeout
	}
	return &StopError{Kind: StopDeferred, Upstream: up.name, RetryAt: time.Now().Add(after), Err: err}
}

// beforeFirst is blame for the calls that check the upstreams before the first
// use: any failure ends the run, since no work has been paid for yet.
func (r *run) beforeFirst(up upstream, err error) error {
	if err == nil {
		return nil
	}
	blamed := r.blame(up, "check", err)
	if r.end.over() {
		return blamed
	}
	if up.classify(r.ctx, err).Outcome == resilience.Failure || errors.Is(err, context.DeadlineExceeded) {
		r.end.with(r.later(up, 0, err))
	} else {
		r.end.with(&StopError{Kind: StopConfiguration, Upstream: up.name, Err: err})
	}
	return deferral("check", "stopped", err)
}

// stopOrError is blame for one who has no run: an upstream that is away, or
// refuses whoever asks, is a stop; any other error stays what it is.
func stopOrError(ctx context.Context, up upstream, err error) error {
	verdict := up.classify(ctx, err)
	stop := &StopError{Kind: StopDeferred, Upstream: up.name, Err: err}
	if open, ok := errors.AsType[*resilience.OpenError](err); ok {
		stop.RetryAt = open.RetryAt()
		return stop
	}
	if verdict.RetryAfter > 0 {
		stop.RetryAt = time.Now().Add(verdict.RetryAfter)
	}
	switch verdict.Outcome {
	case resilience.Failure, resilience.Throttled:
		return stop
	case resilience.Denied:
		stop.Kind = StopDenied
		return stop
	case resilience.Success, resilience.Ignored:
	}
	return err
}

// probe sends a model something harmless after a failure. An error that this
// gets too is no fault of the text that failed: a refusal ends the run as a
// misfit, and a failure leaves it to the breaker, whose refusal ends the run
// after FailMax of them.
func (r *run) probe(stage string, cause error, canary func() error) error {
	err := canary()
	if err == nil {
		return nil
	}
	verdict := classify(r.ctx, err)
	switch {
	case errors.Is(err, errStopped) || r.ctx.Err() != nil:
		return deferral(stage, "stopped", errStopped)
	case verdict.Outcome == resilience.Throttled && r.embed.pause(verdict.RetryAfter):
		return nil
	case r.stopFor(upstreamLLM, verdict, err) != nil:
		return r.blame(upstreamLLM, stage, err)
	case verdict.Outcome == resilience.Failure:
		return r.failedProbe(stage, err)
	}
	r.end.with(&StopError{Kind: StopConfiguration, Upstream: upstreamLLM.name, Err: cause})
	return deferral(stage, string(StopConfiguration), cause)
}

// failedProbe goes on probing only under a breaker that counts the streak and
// so ends it.
func (r *run) failedProbe(stage string, err error) error {
	if r.llm.breaker.Snapshot().FailMax > 0 {
		return nil
	}
	r.end.with(r.later(upstreamLLM, 0, err))
	return deferral(stage, "upstream failed", err)
}
