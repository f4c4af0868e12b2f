package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
	"github.com/penstock-go/penstock/testutil"
)

var errModel = errors.New("the GPU node is on fire")

// A pass waits for the last breaker that is open, and no longer.
func TestNextPass(t *testing.T) {
	clock := testutil.NewClock()
	breakers := resilience.NewRegistry(
		resilience.Config{Clock: clock, ResetTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	llm, s3 := breakers.MustRegister("llm", resilience.Config{}), breakers.MustRegister("s3", resilience.Config{})
	p := newPace(time.Hour, breakers.All()...)
	for _, step := range []struct {
		name string
		do   func()
		want time.Duration
	}{
		{"all closed", func() {}, time.Hour},
		{"one open", func() { llm.Trip("drill") }, time.Minute},
		{"two open", func() { clock.Advance(20 * time.Second); s3.Trip("drill") }, time.Minute},
		{"one of them waits for a probe", func() { clock.Advance(40 * time.Second) }, 20 * time.Second},
		{"both do", func() { clock.Advance(20 * time.Second) }, time.Hour},
		{"held open: time does not help", func() { llm.ForceOpen("maintenance") }, time.Hour},
	} {
		step.do()
		now := clock.Now()
		assert.Equal(t, step.want, p.next(now, pipeline.Summary{}, nil).Sub(now), step.name)
	}
}

// A breaker in shadow mode refuses nothing, and one that ramps up or is held
// closed admits calls: no pass waits for it.
func TestNextPassWaitsForNoBreakerThatAdmitsCalls(t *testing.T) {
	clock := testutil.NewClock()
	breakers := resilience.NewRegistry(
		resilience.Config{Clock: clock, FailMax: 1, ResetTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	shadow := breakers.MustRegister("llm", resilience.Config{Shadow: true})
	ramp := breakers.MustRegister("milvus", resilience.Config{Ramp: time.Minute})
	held := breakers.MustRegister("s3", resilience.Config{})
	ramp.Trip("drill")
	clock.Advance(time.Minute)
	require.NoError(t, ramp.Do(t.Context(), func(context.Context) error { return nil }))
	require.Less(t, ramp.Snapshot().RampShare, 1.0)
	shadow.Trip("drill")
	held.Trip("drill")
	held.ForceClose("migration")
	p := newPace(time.Hour, breakers.All()...)
	now := clock.Now()
	assert.Equal(t, time.Hour, p.next(now, pipeline.Summary{}, nil).Sub(now))
}

// paced are passes of a service over one upstream, in the time of a bubble.
type paced struct {
	*pace
	breaker *resilience.Breaker
	calls   int
}

func newPaced(t *testing.T, interval time.Duration) *paced {
	t.Helper()
	b, err := resilience.New("llm", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return &paced{pace: newPace(interval, b), breaker: b}
}

// pass makes calls with these results until the first failure, and waits for
// the next pass.
func (s *paced) pass(ctx context.Context, results ...error) {
	s.end(s.work(ctx, results))
}

func (s *paced) work(ctx context.Context, results []error) error {
	for _, result := range results {
		err := s.breaker.Do(ctx, func(context.Context) error { s.calls++; return result })
		if err != nil {
			return callOf(s.breaker, resilience.Failure, 0)
		}
	}
	return nil
}

func (s *paced) end(ended error) time.Duration {
	now := time.Now()
	next := s.next(now, pipeline.Summary{}, ended)
	<-time.After(next.Sub(now)) // of the bubble's clock
	return next.Sub(now)
}

// A dead upstream was called once per interval, so that the breaker stayed
// closed for minutes, or for hours.
func TestPassesOpenTheBreakerOfADeadUpstreamWithinAMinute(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 11 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		t.Run(interval.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := newPaced(t, interval), time.Now()
				for s.breaker.State() == resilience.Closed {
					require.Less(t, time.Since(began), time.Minute)
					s.end(s.work(t.Context(), []error{errModel}))
				}
				assert.LessOrEqual(t, s.calls, 5)

				for range 3 { // after that, a probe for each reset time
					before, at := s.calls, time.Now()
					s.pass(t.Context(), errModel)
					assert.Equal(t, 1, s.calls-before)
					assert.Equal(t, time.Minute, time.Since(at))
				}
				s.pass(t.Context(), nil)
				assert.Equal(t, resilience.Closed, s.breaker.State())
			})
		})
	}
}

// The upstream that failed one call is called again before the interval ends.
func TestPassesFindOutSoonThatAnUpstreamIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newPaced(t, time.Hour), time.Now()
		s.pass(t.Context(), errModel)
		assert.LessOrEqual(t, time.Since(began), 10*time.Second)
		assert.Equal(t, time.Hour, s.end(s.work(t.Context(), []error{nil})))
	})
}

// Where the check of an upstream succeeds and its work fails, no breaker opens,
// whatever the number of passes: their pace slows down to that of probes.
func TestPassesSlowDownWhereNoBreakerOpens(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, began := newPaced(t, interval), time.Now()
			for range 5 {
				s.pass(t.Context(), nil, errModel)
			}
			assert.LessOrEqual(t, time.Since(began), 100*time.Second)
			at := time.Now()
			s.pass(t.Context(), nil, errModel)
			assert.Equal(t, time.Minute, time.Since(at), "five doomed calls are enough")
			assert.Equal(t, resilience.Closed, s.breaker.State())
		})
	}
}

// callOf is the stop by a call with this verdict.
func callOf(b *resilience.Breaker, outcome resilience.Outcome, after time.Duration) error {
	return stop.Before(&stop.CallError{
		Upstream: "llm", Breaker: b, Err: errModel,
		Verdict: resilience.Verdict{Outcome: outcome, RetryAfter: after},
	})
}

// Each end of a pass has a pace of its own.
func TestPaceAfterAPass(t *testing.T) {
	with := func(outcome resilience.Outcome, after time.Duration) func(*resilience.Breaker) error {
		return func(b *resilience.Breaker) error { return callOf(b, outcome, after) }
	}
	always := func(err error) func(*resilience.Breaker) error {
		return func(*resilience.Breaker) error { return err }
	}
	misfit := stop.Before(&stop.CallError{Upstream: "llm", Err: errModel, Misfit: true})
	failed := &stop.CallError{Upstream: "llm", Err: errModel}
	left := stop.Later("llm", time.Time{}, &stop.LeftError{Documents: 2, Cause: failed})
	changed := stop.Later("", time.Time{}, &stop.LeftError{Documents: 2})
	lost := stop.Later("", time.Time{}, errModel)
	for name, row := range map[string]struct {
		ended               func(*resilience.Breaker) error
		ingested            int
		withSecond, withDay time.Duration // the pause, by the interval
	}{
		"it worked":     {always(nil), 0, time.Second, 24 * time.Hour},
		"a failed call": {with(resilience.Failure, 0), 0, time.Second, 10 * time.Second},
		"a throttle that names its end": {
			with(resilience.Throttled, 2*time.Hour), 0, 2 * time.Hour, 2 * time.Hour,
		},
		"a throttle without an end": {
			with(resilience.Throttled, 0), 0, time.Minute, time.Minute,
		},
		"a refused key": {
			with(resilience.Denied, 0), 0, time.Minute, time.Minute,
		},
		"a missing model":           {always(misfit), 0, time.Minute, time.Minute},
		"all that it began is left": {always(left), 0, time.Second, 10 * time.Second},
		"some documents are left":   {always(left), 3, time.Second, time.Minute},
		"files are being written":   {always(changed), 0, time.Second, time.Minute},
		"a lease that is lost":      {always(lost), 3, time.Second, 10 * time.Second},
		"a full disk": {
			always(&stop.Error{Kind: stop.Fault, Err: errModel}), 0, time.Second, time.Minute,
		},
		"missing inputs": {always(errModel), 0, time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock begins at a whole second
				for interval, want := range map[time.Duration]time.Duration{
					time.Second: row.withSecond, 24 * time.Hour: row.withDay,
				} {
					p, now := newPaced(t, interval), time.Now()
					got := p.next(now, pipeline.Summary{Ingested: row.ingested}, row.ended(p.breakers[0])).Sub(now)
					assert.Equal(t, want, got)
				}
			})
		})
	}
}

// Breakers that somebody else closes end the wait for them, and no other wait.
func TestPassBeginsWhenTheBreakersAreClosed(t *testing.T) {
	for name, row := range map[string]struct {
		closes func(llm, s3 *resilience.Breaker)
		asked  time.Duration // by a rate limit that ended the pass
		want   time.Duration
	}{
		"both closed": {
			closes: func(llm, s3 *resilience.Breaker) { llm.Reset(); s3.Reset() },
			want:   10 * time.Second,
		},
		"one still open": {
			closes: func(llm, _ *resilience.Breaker) { llm.Reset() },
			want:   time.Minute,
		},
		"longer rate limit": {
			closes: func(llm, s3 *resilience.Breaker) { llm.Reset(); s3.Reset() },
			asked:  time.Hour,
			want:   time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quiet := resilience.Config{Logger: slog.New(slog.DiscardHandler)}
				breakers := resilience.NewRegistry(quiet)
				llm, s3 := breakers.MustRegister("llm", quiet), breakers.MustRegister("s3", quiet)
				p := newPace(time.Hour, llm, s3)
				defer p.watch()()
				llm.Trip("drill")
				llm.Reset() // a token from before
				llm.Trip("drill")
				s3.Trip("drill")
				start := time.Now()
				ended := callOf(llm, resilience.Failure, 0)
				if row.asked > 0 {
					ended = callOf(llm, resilience.Throttled, row.asked)
				}
				next := p.next(start, pipeline.Summary{}, ended)
				time.AfterFunc(10*time.Second, func() { row.closes(llm, s3) })
				require.True(t, p.wait(t.Context(), next))
				assert.Equal(t, row.want, time.Since(start).Round(time.Second))

				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				assert.False(t, p.wait(ctx, start.Add(2*time.Hour)))
			})
		})
	}
}

// Of several services that share a breaker one sends the probe. The others wait
// for what becomes of it.
func TestPassWaitsForTheProbeOfAnotherProcess(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(*resilience.Permit)
		want time.Duration // from the deadline
	}{
		"good":   {func(p *resilience.Permit) { p.Done(nil) }, 3 * time.Second},
		"failed": {func(p *resilience.Permit) { p.Done(errModel) }, 63 * time.Second},
		"killed": {func(*resilience.Permit) {}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &storetest.Memory{}
				one, other := inFleet(t, store), inFleet(t, store)
				p := newPace(time.Hour, one)
				defer p.watch()()
				other.Trip("drill")
				synctest.Wait()
				start := time.Now()
				next := p.next(start, pipeline.Summary{}, stop.Of(refusalOf(t, one)))
				require.True(t, p.wait(t.Context(), next))
				assert.Equal(t, time.Minute, time.Since(start).Round(time.Second))

				start = time.Now()
				permit, err := other.Allow(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				ended := stop.Of(refusalOf(t, one))
				time.AfterFunc(3*time.Second, func() { row.end(permit) })
				require.True(t, p.wait(t.Context(), p.next(start, pipeline.Summary{}, ended)))
				assert.Equal(t, row.want, time.Since(start).Round(time.Second))
			})
		})
	}
}

func inFleet(t *testing.T, store *storetest.Memory) *resilience.Breaker {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	fleet := resilience.NewFleet(store.Client(), resilience.FleetConfig{Stagger: -1, Logger: quiet})
	t.Cleanup(func() { assert.NoError(t, fleet.Close()) })
	b, err := resilience.New("llm", resilience.Config{Shared: fleet, Logger: quiet})
	require.NoError(t, err)
	synctest.Wait()
	return b
}

func refusalOf(t *testing.T, b *resilience.Breaker) error {
	t.Helper()
	err := b.Do(t.Context(), func(context.Context) error { return nil })
	require.ErrorIs(t, err, resilience.ErrOpen)
	return err
}
