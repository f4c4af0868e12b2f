package statuspage

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// ended ends a pass that took a second.
func (f *fixture) ended(summary pipeline.Summary, fault error) time.Time {
	f.PassBegins(time.Now())
	time.Sleep(time.Second) // of the bubble's clock
	at := time.Now()
	f.PassEnds(summary, fault, at, at.Add(10*time.Second))
	return at
}

// early is a pass that was stopped by the model server.
func early(kind stop.Kind) (pipeline.Summary, error) {
	err := &stop.Error{Kind: kind, Upstream: "llm", Err: &stop.CallError{
		Upstream: "llm", Err: errors.New("the GPU node is on fire, api_key=hunter2hunter2"),
		Verdict: resilience.Verdict{Outcome: resilience.Failure},
	}}
	return pipeline.Summary{Stopped: err.Report(map[string]stop.Place{"llm": {Address: "http://gpu/v1"}})}, err
}

// A pass that stopped on its first call left every breaker closed, and the
// service said that it was ready for minutes.
func TestNotReadyAfterAPassThatAnUpstreamEnded(t *testing.T) {
	for _, kind := range []stop.Kind{stop.Deferred, stop.Denied, stop.Configuration, stop.Fault} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, nil)
			assert.Equal(t, "ready\n", f.get("/readyz").Body.String())
			at := f.ended(early(kind))
			w := f.get("/readyz")
			assert.Equal(t, http.StatusServiceUnavailable, w.Code, kind)
			assert.Equal(t, "not ready: the last pass ended early ("+string(kind)+", llm at http://gpu/v1): "+
				"the GPU node is on fire, api_key=***; since "+at.UTC().Format(time.RFC3339)+
				"; next pass at "+at.Add(10*time.Second).UTC().Format(time.RFC3339)+"\n", w.Body.String())

			f.ended(early(kind))
			assert.Equal(t, at, f.Readiness().Since, "since the first of them")
			f.ended(pipeline.Summary{}, nil)
			assert.Equal(t, Readiness{Ready: true, Next: time.Now().Add(10 * time.Second)}, f.Readiness())
		})
	}
}

func TestReadyOnceAPassIngests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.ended(early(stop.Deferred))
		f.PassBegins(time.Now())
		assert.Zero(t, f.Readiness().Next, "it has begun")
		f.Document(pipeline.Document{Result: pipeline.Unchanged})
		f.Document(pipeline.Document{Result: pipeline.Deferred})
		assert.False(t, f.Readiness().Ready)
		f.Document(pipeline.Document{Result: pipeline.Ingested})
		assert.True(t, f.Readiness().Ready, "a pass over a large backlog takes hours")
		f.PassEnds(pipeline.Summary{}, errors.New("cannot list docs"), time.Now(), time.Now())
		assert.Contains(t, f.Readiness().String(), "not ready: the last pass ended early (fault): cannot list docs;")
	})
}

// A pass that deferred some documents and ingested others shows that the
// upstreams work; one that got nothing through does not. A file that is being
// written is deferred by no upstream.
func TestReadinessAfterAPassThatLeftDocuments(t *testing.T) {
	failed := &stop.CallError{Upstream: "s3", Err: errors.New("500")}
	for _, row := range []struct {
		cause    error
		ingested int
		ready    bool
	}{{failed, 1, true}, {failed, 0, false}, {errors.New("the file has changed"), 0, true}, {nil, 0, true}} {
		synctest.Test(t, func(t *testing.T) {
			left := stop.Later("", time.Time{}, &stop.LeftError{Documents: 2, Cause: row.cause})
			f := newFixture(t, nil)
			f.ended(pipeline.Summary{Ingested: row.ingested, Deferred: 2, Stopped: left.Report(nil)}, left)
			assert.Equal(t, row.ready, f.Readiness().Ready, row)
		})
	}
}

func TestAnInterruptedPassShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		interrupted := &stop.Error{Kind: stop.Interrupted, Err: context.Canceled}
		f.ended(pipeline.Summary{Stopped: interrupted.Report(nil)}, interrupted)
		assert.True(t, f.Readiness().Ready)
		f.ended(early(stop.Denied))
		f.ended(pipeline.Summary{Stopped: interrupted.Report(nil)}, interrupted)
		assert.Equal(t, stop.Denied, f.Readiness().Early.Kind)
	})
}

// The time since when is that of the first sign, over probes that fail.
func TestNotReadySinceTheBreakerOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		before := f.own(t, resilience.Config{FailMax: 1})
		fail(before, "down")
		require.Equal(t, []string{"own"}, f.Readiness().Open)
		before.Reset()

		time.Sleep(time.Hour) // of the bubble's clock
		began := time.Now()
		fail(f.llm, "down")
		fail(f.llm, "down")
		f.ended(early(stop.Deferred))
		for range 3 {
			time.Sleep(time.Minute)
			assert.False(t, f.Readiness().Ready, "a probe is due and has not been made")
			fail(f.llm, "down")
			assert.Equal(t, []string{"llm"}, f.Readiness().Open)
			assert.Equal(t, began, f.Readiness().Since.Round(0))
		}
		f.ended(pipeline.Summary{}, nil)
		assert.False(t, f.Readiness().Ready, "the breaker is still open")
	})
}

// A page that begins to watch an open breaker knows when it last opened.
func TestNotReadySinceBeforeThePage(t *testing.T) {
	b, err := resilience.New("llm", resilience.Config{Logger: quiet})
	require.NoError(t, err)
	b.Trip("drill")
	f := newFixture(t, func(c *Config) { c.Breakers = []*resilience.Breaker{b} })
	assert.WithinDuration(t, b.Snapshot().LastOpened, f.Readiness().Since, time.Second,
		"each look dates it by the wall clock again")
}

// A stranger learns that the service is not ready, and no reason.
func TestReadinessNamesNoReasonWithoutTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *Config) { c.Token = testToken })
		f.ended(early(stop.Deferred))
		w := f.get("/readyz")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "not ready\n", w.Body.String())
		assert.Contains(t, f.get("/readyz", with("Authorization", "Bearer "+testToken)).Body.String(), "on fire")
	})
}
