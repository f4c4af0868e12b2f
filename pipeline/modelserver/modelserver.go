// Package modelserver is what the stages that use a model share about the
// server behind the LLM door: its rate, its rate limits, and what a failed
// request says about the text that was sent.
//
// A stage makes a [Model] of its server and sends every request through it:
//
//	m := server.Model(modelserver.Use{Stage: "embed", …})
//	if failed := m.Send(ctx, request); failed != nil {
//		switch judgment, err := m.Judge(ctx, failed, request); judgment { … }
//	}
//
// # When a text is to blame
//
// A failed request may be the fault of its text or of the server. Nothing is
// concluded until the same model has answered another request since: one of a
// real text, or a canary, which is a harmless text that any model answers. If
// the model fails on the canary too, no text is to blame.
//
//   - A refusal that the canary gets as well is a misfit of the configuration
//     and ends the run.
//   - A text that is refused while the canary is answered is guilty.
//   - A text on which the model fails is sent again, each time after several
//     canaries in a row were answered. It is guilty after so many failures.
//   - A timeout is no verdict on a text: a slow server is not the text's fault.
package modelserver

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// CanaryText is a harmless text that every model answers.
const CanaryText = "penstock: does the model answer?"

// patience is how many rate limits the check of a model waits out.
const patience = 5

// Config says how to use the server. Service and Ending are required.
type Config struct {
	// Service is how the server is called.
	Service *service.Service
	// Ending is told what ends the run, and ends every wait.
	Ending *stop.Ending
	// MaxPause is the longest time that a rate limit is waited out; a longer
	// one ends the run. Zero or less: none is waited out.
	MaxPause time.Duration
	// Rate is how many requests are sent in a second, spread evenly over time
	// and over all models. Zero means unlimited.
	Rate float64
}

// Server is one model server, whichever of its models are used. It is safe for
// concurrent use.
type Server struct {
	config Config
	pace   pacer
}

// New makes a server. It calls nothing.
func New(config Config) *Server {
	return &Server{config: config, pace: pacer{rate: config.Rate}}
}

// Ending is that of the run which the server is used by.
func (s *Server) Ending() *stop.Ending { return s.config.Ending }

// Breaker is that of the door which requests go through.
func (s *Server) Breaker() *resilience.Breaker { return s.config.Service.Breaker() }

// Request sends one request through the LLM door with told as the guard's
// Settled. What it does after the answer, such as to keep what was paid for, is
// done before another request takes its place.
type Request func(ctx context.Context, told func(resilience.Verdict)) error

// waitedOut reports whether an error was a rate limit that is over now. To wait
// is pacing, not a retry: the server said when the request is welcome.
func (s *Server) waitedOut(ctx context.Context, err error) bool {
	after := stop.RetryAfter(err)
	return after > 0 && after <= s.config.MaxPause && s.wait(ctx, after)
}

// wait lets time pass; false means that the run has ended.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if s.config.Ending.Over() {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.config.Ending.Done():
	case <-ctx.Done():
	}
	return false
}

// pacer spreads requests evenly over time.
type pacer struct {
	rate float64 // in a second; zero means unlimited

	mu   sync.Mutex
	free time.Time // when the next request may be sent
}

// next reserves the next place and says how long it is until then.
func (p *pacer) next(now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free.Before(now) {
		p.free = now
	}
	wait := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(float64(time.Second) / p.rate))
	return wait
}
