package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// A summary said that an open breaker had stopped the run and that the breaker
// was closed, or half-open, since it had changed while the run ended.
func TestSummaryOfABreakerThatChangedAfterItRefused(t *testing.T) {
	clock := testutil.NewClock()
	quiet := resilience.Config{
		Clock: clock, FailMax: 1, ResetTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	fail := func(context.Context) error { return errors.New("down") }
	well := func(context.Context) error { return nil }
	for name, row := range map[string]struct {
		config func(*resilience.Config)
		before func(*resilience.Breaker) // until the refusal
		after  func(*resilience.Breaker)
		state  string
		hold   string
	}{
		"nothing changed": {nil, nil, func(*resilience.Breaker) {}, "open", ""},
		"reset time over": {nil, nil, func(*resilience.Breaker) { clock.Advance(time.Minute) }, "open", ""},
		"closed by a probe": {nil, nil, func(b *resilience.Breaker) {
			clock.Advance(time.Minute)
			require.NoError(t, b.Do(t.Context(), well))
		}, "open", ""},
		"reset":         {nil, nil, (*resilience.Breaker).Reset, "open", ""},
		"forced closed": {nil, nil, func(b *resilience.Breaker) { b.ForceClose("drill") }, "open", ""},
		"forced open, reset": {
			nil, func(b *resilience.Breaker) { b.ForceOpen("drill") }, (*resilience.Breaker).Reset,
			"open", "",
		},
		"forced open": {
			nil, func(b *resilience.Breaker) { b.ForceOpen("drill") }, func(*resilience.Breaker) {},
			"open", "forced_open: drill",
		},
		"denied, reset": {func(c *resilience.Config) {
			c.StopOnDenied = true
			c.Classify = func(context.Context, error) resilience.Verdict {
				return resilience.Verdict{Outcome: resilience.Denied}
			}
		}, nil, (*resilience.Breaker).Reset, "open", "denied: denied"},
	} {
		t.Run(name, func(t *testing.T) {
			config := quiet
			if row.config != nil {
				row.config(&config)
			}
			b := testutil.NewBreaker(t, "llm", config)
			require.Error(t, b.Do(t.Context(), fail))
			if row.before != nil {
				row.before(b)
			}
			refused := b.Do(t.Context(), well)
			require.Error(t, refused)
			row.after(b)
			var s pipeline.Summary
			s.SetBreakers(stop.Of(&stop.CallError{Upstream: "llm", Err: refused}), b.Snapshot())
			assert.Equal(t, map[string]string{"llm": row.state}, s.Breakers)
			assert.Equal(t, row.hold, s.Holds["llm"])
		})
	}
}

// A probe in flight, of a search for example, refuses a run's call, and may
// have closed the breaker by the end of the run.
func TestSummaryOfABreakerThatWasProbed(t *testing.T) {
	clock := testutil.NewClock()
	b := testutil.NewBreaker(t, "llm", resilience.Config{
		Clock: clock, FailMax: 1, ResetTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.Error(t, b.Do(t.Context(), func(context.Context) error { return errors.New("down") }))
	clock.Advance(time.Minute)
	var refused error
	require.NoError(t, b.Do(t.Context(), func(ctx context.Context) error {
		refused = b.Do(t.Context(), func(context.Context) error { return nil })
		return nil
	}))
	var s pipeline.Summary
	s.SetBreakers(stop.Of(refused), b.Snapshot())
	assert.Equal(t, "half_open", s.Breakers["llm"])
	s.SetBreakers(nil, b.Snapshot())
	assert.Equal(t, "closed", s.Breakers["llm"])
}

// A run that left a document behind said "1 documents were deferred", and not
// why.
func TestRunThatLeavesDocumentsSaysWhy(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(1)
	var log bytes.Buffer
	var once sync.Once
	summary, err := w.run(w.hooked(on("Upsert", func(context.Context, call) (err error) {
		once.Do(func() { err = status.Error(codes.Unavailable, "the disk of node 7 is full, token=hunter2hunter2") })
		return err
	}), nil), func(c *pipeline.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Places = map[string]stop.Place{"milvus": {Address: "milvus:19530"}}
	})
	ended := stopOf(t, err)
	assert.Equal(t, pipeline.StopDeferred, ended.Kind)
	assert.Equal(t, "milvus", summary.Stopped.Upstream)
	assert.Equal(t, "milvus:19530", summary.Stopped.Address)
	assert.Contains(t, summary.Stopped.Cause, "the disk of node 7 is full")
	assert.NotContains(t, summary.Stopped.Cause, "hunter2")
	assert.Contains(t, log.String(), "the disk of node 7 is full")
	assert.NotContains(t, log.String(), "hunter2")
	assert.Equal(t, "closed", summary.Breakers["milvus"])
}
