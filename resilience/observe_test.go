package resilience_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// Rule 29.
func TestRule29TripRecoversByTimeAndForceDoesNot(t *testing.T) {
	const m = time.Minute
	r := newRig(t, resilience.Config{})
	r.Trip("drill")
	r.Trip("drill again") // open already
	assert.Equal(t, "drill", r.refused().Reason())
	r.at(m)
	r.Trip("not yet") // the wait was over: a new one begins
	r.want(resilience.Open)
	r.seen.Want("closed → open", "open → half_open", "half_open → open")
	assert.Equal(t, r.start.Add(2*m), r.Snapshot().OpenUntil)
	r.at(2 * m)
	r.act("ignored")
	r.Trip("half-open too")
	r.at(3 * m)
	r.succeed(1)

	r.ForceOpen("maintenance")
	r.ForceOpen("again")
	r.Trip("no effect")
	r.at(1000 * m)
	r.want(resilience.Open)
	err := r.refused()
	assert.Zero(t, err.RetryAt())
	assert.EqualError(t, err,
		`circuit breaker forced open for "milvus", failing fast; only a reset closes it: maintenance`)
	r.ForceClose("needed")
	r.ForceClose("again")
	r.want(resilience.Closed)
	r.fail(50)
	r.want(resilience.Closed)
	r.act("denied")
	r.Reset()
	r.fail(4)
	r.want(resilience.Closed)
	r.Reset()
	r.fail(4)
	r.want(resilience.Closed)
	r.fail(1)
	r.want(resilience.Open)
}

// Rule 29: force from every state, with windows and live probes.
func TestRule29ForceFromEveryState(t *testing.T) {
	for _, cfg := range []resilience.Config{{}, {Trip: trip.CountWindow{Size: 10}}} {
		r := newRig(t, cfg)
		r.Trip("drill")
		r.ForceOpen("hand")
		r.seen.Want("closed → open", "open → open")
		r.at(time.Hour)
		r.refused()
		r.Reset()
		r.Trip("drill")
		r.clock.Advance(time.Minute)
		probe := r.allow()
		r.ForceOpen("hand")
		probe.Done(nil)
		r.want(resilience.Open)
		r.ForceClose("hand")
		r.ForceOpen("hand")
		r.Reset()
		r.Reset()
		r.want(resilience.Closed)
		assert.Equal(t, uint64(1), r.Snapshot().Stale)
	}
}

// Rule 30: one consistent and complete picture.
func TestRule30Snapshot(t *testing.T) {
	r := newRig(t, resilience.Config{})
	same := testutil.NewBreaker(t, "other", resilience.Config{FailMax: 5})
	differs := testutil.NewBreaker(t, "other", resilience.Config{FailMax: 6})
	first := r.Snapshot()
	assert.Equal(t, resilience.Snapshot{
		Name: "milvus", PolicyVersion: first.PolicyVersion, FailMax: 5, RampShare: 1,
	}, first)
	assert.Equal(t, first.PolicyVersion, same.Snapshot().PolicyVersion)
	assert.NotEqual(t, first.PolicyVersion, differs.Snapshot().PolicyVersion)
	r.fail(5)
	r.at(time.Minute)
	r.succeed(1)
	r.fail(2)
	assert.Equal(t, resilience.Snapshot{
		Name: "milvus", PolicyVersion: first.PolicyVersion, State: resilience.Closed, Generation: 3,
		Reason: "consecutive failures", Streak: 2, FailMax: 5, Calls: 8, Successes: 1, Failures: 7,
		Probes: 1, Opened: 1, RampShare: 1,
		LastFailure: errDown, LastOpened: r.start, LastClosed: r.start.Add(time.Minute),
	}, r.Snapshot())
}

// Rule 31: what an event carries; the counts are those of the state that ends.
func TestRule31TransitionsCarryTheStateThatEnds(t *testing.T) {
	r := newRig(t, resilience.Config{SuccessThreshold: 2})
	version := r.Snapshot().PolicyVersion
	r.at(10 * time.Second)
	r.fail(5)
	r.refused()
	r.at(75 * time.Second)
	p := r.allow()
	r.at(76 * time.Second)
	p.Done(nil)
	r.succeed(1)
	r.fail(4)
	at := func(s int) time.Time { return r.start.Add(time.Duration(s) * time.Second) }
	assert.Equal(t, []resilience.Transition{
		{
			Upstream: "milvus", From: resilience.Closed, To: resilience.Open, At: at(10), Generation: 1,
			Reason: "consecutive failures", Cause: errDown,
			Eligible: 5, Failures: 5, OpenUntil: at(70), PolicyVersion: version, InState: 10 * time.Second,
		},
		{
			Upstream: "milvus", From: resilience.Open, To: resilience.HalfOpen, At: at(75), Generation: 2,
			Reason:  "reset timeout elapsed",
			ProbeID: 1, PolicyVersion: version, InState: 65 * time.Second, SinceOpened: 65 * time.Second,
		},
		{
			Upstream: "milvus", From: resilience.HalfOpen, To: resilience.Closed, At: at(76), Generation: 3,
			Reason:   "probe succeeded",
			Eligible: 2, ProbeID: 2, PolicyVersion: version, InState: time.Second,
			SinceOpened: 66 * time.Second, Refused: 1,
		},
	}, r.seen.Transitions())
}

// Rule 31: an observer may call the breaker back; events stay in order and come
// one at a time.
func TestRule31ObserverCallsTheBreakerBack(t *testing.T) {
	depth, seen := 0, []string{}
	var r *rig
	r = newRig(t, resilience.Config{OnTransition: func(e resilience.Transition) {
		depth++
		assert.Equal(t, 1, depth, "one at a time")
		seen = append(seen, e.From.String()+">"+e.To.String())
		assert.Equal(t, uint64(len(seen)), e.Generation)
		r.Snapshot()
		_ = r.Do(context.Background(), fine)
		if len(seen) < 10 {
			r.Reset()
			r.Trip("from the observer")
		}
		depth--
	}})
	r.fail(5)
	require.Len(t, seen, 19)
	assert.Equal(t, "closed>open open>closed closed>open", strings.Join(seen[:3], " "))
}

// Rule 31: an observer that panics, or ends its goroutine, wedges nothing and
// does not keep the others from being told.
func TestRule31ObserverPanicsOrLeaves(t *testing.T) {
	for name, bad := range map[string]func(resilience.Transition){
		"panic":  func(resilience.Transition) { panic("observer") },
		"goexit": func(resilience.Transition) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := newRig(t, resilience.Config{OnTransition: bad, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			got, _ := leave(func() { r.Trip("one") })
			assert.Nil(t, got)
			leave(r.Reset)
			leave(func() { r.Trip("two") })
			r.seen.Want("closed → open", "open → closed", "closed → open")
			if name == "panic" {
				assert.Equal(t, 3, strings.Count(log.String(), "observer panicked"))
			}
		})
	}
}

// Rule 31: a removed observer is not told.
func TestRule31RemovedObserver(t *testing.T) {
	r := newRig(t, resilience.Config{})
	heard := 0
	remove := r.Observe(func(resilience.Transition) { heard++ })
	r.Trip("one")
	remove()
	remove()
	r.Reset()
	assert.Equal(t, 1, heard)
	r.seen.Want("closed → open", "open → closed")
}

// Rule 31: the log of one episode, in full.
func TestRule31DefaultLog(t *testing.T) {
	var log bytes.Buffer
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	handler := slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: noTime})
	r := newRig(t, resilience.Config{Logger: slog.New(handler)})
	r.at(time.Hour)
	r.fail(5)
	task := resilience.WithTask(t.Context(), "embed/42")
	for range 3 {
		upsert := resilience.Op[int]{Name: "upsert"}
		_, _ = resilience.CallOp(task, r.Breaker, upsert, func(context.Context) (int, error) { return 0, nil })
	}
	r.refused()
	r.clock.Advance(time.Minute)
	r.succeed(1)
	r.Trip("drill")
	r.refused()
	assert.Equal(
		t,
		`level=WARN msg="circuit breaker changed state" upstream=milvus old_state=closed new_state=open reason="consecutive failures" cause="upstream is down" in_old_state=1h0m0s since_opened=0s generation=1 eligible=5 failures=5 policy_version=16c4e975 open_until=2030-01-01T01:01:00.000Z retry_in=1m0s
level=WARN msg="circuit breaker refuses calls" upstream=milvus error="circuit breaker open for \"milvus\", failing fast; next probe in 1m0s; last failure: upstream is down" operation=upsert task=embed/42
level=WARN msg="circuit breaker changed state" upstream=milvus old_state=open new_state=half_open reason="reset timeout elapsed" in_old_state=1m0s since_opened=1m0s generation=2 eligible=0 failures=0 policy_version=16c4e975 probe_id=1
level=WARN msg="circuit breaker changed state" upstream=milvus old_state=half_open new_state=closed reason="probe succeeded" in_old_state=0s since_opened=1m0s generation=3 eligible=1 failures=0 policy_version=16c4e975 probe_id=1 refused=4
level=WARN msg="circuit breaker changed state" upstream=milvus old_state=closed new_state=open reason=drill in_old_state=0s since_opened=0s generation=4 eligible=0 failures=0 policy_version=16c4e975 open_until=2030-01-01T01:02:00.000Z retry_in=1m0s
level=WARN msg="circuit breaker refuses calls" upstream=milvus error="circuit breaker open for \"milvus\", failing fast; next probe in 1m0s"
`,
		log.String(),
	)
}

// Rule 31: without a Logger the current default is used.
func TestRule31LogsToTheDefaultOfTheMoment(t *testing.T) {
	b := testutil.NewBreaker(t, "milvus", resilience.Config{})
	var log bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	b.Trip("drill")
	assert.Contains(t, log.String(), "old_state=closed new_state=open")
}
