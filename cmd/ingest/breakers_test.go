package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// A pass waits for the last breaker that is open, and no longer.
func TestNextPass(t *testing.T) {
	clock := testutil.NewClock()
	breakers := resilience.NewRegistry(
		resilience.Config{Clock: clock, ResetTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	llm, s3 := breakers.MustRegister("llm", resilience.Config{}), breakers.MustRegister("s3", resilience.Config{})
	s := &service{command: &serveCmd{Interval: time.Hour}, breakers: breakers.All()}
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
		assert.Equal(t, step.want, s.next(now, nil).Sub(now), step.name)
	}

	now := time.Now()
	limited := &stop.CallError{
		Upstream: "llm", Reset: time.Minute, Err: errors.New("429"),
		Verdict: resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 2 * time.Hour},
	}
	assert.WithinDuration(t, now.Add(2*time.Hour), s.next(now, stop.Of(limited)), 2*time.Second, "asked for patience")
	limited.Verdict = resilience.Verdict{Outcome: resilience.Failure}
	assert.Equal(t, now.Add(time.Hour), s.next(now, stop.Before(limited)), "failed on the first call")
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
	s := &service{command: &serveCmd{Interval: time.Hour}, breakers: breakers.All()}
	now := clock.Now()
	assert.Equal(t, time.Hour, s.next(now, nil).Sub(now))
}

// A full disk costs the line, not the call that made the transition.
func TestAuditLogThatCannotBeWritten(t *testing.T) {
	file, err := os.Open(os.DevNull) // for reading only
	require.NoError(t, err)
	defer file.Close()
	var log bytes.Buffer
	l := &auditLog{to: file, log: slog.New(slog.NewTextHandler(&log, nil))}
	l.write(resilience.Transition{Upstream: "s3", To: resilience.Open})
	assert.Contains(t, log.String(), "missing from the audit log")
}

// A journal may be of a program that holds its breakers.
func TestStatusShowsHolds(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, settings: &Settings{}}
	at := time.Now()
	a.printStatus(destinationStatus{EndedAt: &at, LastRun: &pipeline.Summary{
		Breakers: map[string]string{"llm": "closed", "s3": "open"},
		Holds:    map[string]string{"s3": "forced_open: maintenance\nuntil noon"},
	}})
	assert.Contains(t, out.String(), "    breaker llm: closed\n")
	assert.Contains(t, out.String(), "    breaker s3: open, forced_open: maintenance until noon\n")
}
