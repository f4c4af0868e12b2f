package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// want compares some of the series of a scrape.
func want(t *testing.T, got, want map[string]float64, when string) {
	t.Helper()
	for key, v := range want {
		assert.InDelta(t, v, got[key], 1e-6, "%s: %s", when, key)
	}
}

func TestAHoldIsShown(t *testing.T) {
	clock := testutil.NewClock()
	clock.Set(time.Unix(1_900_000_000, 0))
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1, StopOnDenied: true, Classify: denied})
	c := metrics.NewCollector(reg)
	for _, step := range []struct {
		name                  string
		do                    func()
		open, closed, refused float64
		since                 float64
	}{
		{"nothing", func() {}, 0, 0, 0, 0},
		{"forced open", func() { b.ForceOpen("maintenance") }, 1, 0, 0, 1_900_000_002},
		{"once more", func() { b.ForceOpen("maintenance") }, 1, 0, 0, 1_900_000_002},
		{"forced closed instead", func() { b.ForceClose("trust me") }, 0, 1, 0, 1_900_000_004},
		{"reset", b.Reset, 0, 0, 0, 0},
		{"denied", func() { fail(t, b, 1) }, 0, 0, 1, 1_900_000_006},
	} {
		clock.Advance(time.Second)
		step.do()
		want(t, values(t, c, "s3"), map[string]float64{
			"held forced_open": step.open, "held forced_closed": step.closed, "held denied": step.refused,
			"held_since_timestamp_seconds ": step.since,
		}, step.name)
	}
}

func denied(context.Context, error) resilience.Verdict {
	return resilience.Verdict{Outcome: resilience.Denied}
}

// TestSecondsUnderHolds forces a breaker that is open and past its wait, with
// and without scrapes between.
func TestSecondsUnderHolds(t *testing.T) {
	for name, scrapes := range map[string]bool{"scraped at each step": true, "scraped at the end": false} {
		clock := testutil.NewClock()
		reg := registry(clock)
		b := reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Minute})
		c := metrics.NewCollector(reg)
		for _, do := range []func(){
			func() { fail(t, b, 1) },      // 0: open until 60, half-open until 100
			func() { b.ForceOpen("op") },  // 100: open
			b.Reset,                       // 200: closed
			func() { b.ForceClose("op") }, // 300: closed
			func() { fail(t, b, 3) },      // 400: closed
			func() { b.ForceOpen("op") },  // 500: open
			func() { b.ForceClose("op") }, // 600: closed
			b.Reset,                       // 700: closed
			func() { b.Reset(); b.Trip("down"); b.Reset(); b.Trip("down") }, // 800: open until 860
		} {
			do()
			clock.Advance(100 * time.Second)
			if scrapes {
				values(t, c, "s3")
			}
		}
		want(t, values(t, c, "s3"), map[string]float64{
			"state_seconds_total closed":       500,
			"state_seconds_total open":         60 + 100 + 100 + 60,
			"state_seconds_total half_open":    40 + 40,
			"transitions_total closed open":    4,
			"transitions_total open closed":    3,
			"transitions_total closed closed":  0,
			"transitions_total open half_open": 0,
			"opened_total ":                    4,
		}, name)
	}
}

// TestAnOperatorIsNoProbe ends a half-open state by hand.
func TestAnOperatorIsNoProbe(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1})
	c := metrics.NewCollector(reg)
	for _, operate := range []func(){func() { b.ForceClose("op") }, func() { b.ForceOpen("op") }, b.Reset} {
		fail(t, b, 1)
		clock.Advance(time.Minute)
		probe, err := b.Allow(t.Context())
		require.NoError(t, err)
		operate()
		probe.Done(nil)
		b.Reset()
	}
	want(t, values(t, c, "s3"), map[string]float64{
		"probes_total ": 3, "probe_results_total closed": 0, "probe_results_total reopened": 0, "calls_total stale": 3,
	}, "three probes that an operator cut short")
}

// outcomes adds up calls_total.
func outcomes(got map[string]float64) (sum float64) {
	for _, outcome := range []string{
		"success", "failure", "ignored", "throttled", "denied", "panicked", "stale",
		"rejected", "retried_in_task", "shed",
	} {
		sum += got["calls_total "+outcome]
	}
	return sum
}

func TestAHungProbeIsInOneOutcome(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Minute})
	c := metrics.NewCollector(reg)
	fail(t, b, 1)
	clock.Advance(time.Minute)
	probe, err := b.Allow(t.Context())
	require.NoError(t, err)
	clock.Advance(90 * time.Second) // silent since 120
	for range 2 {
		got := values(t, c, "s3")
		assert.InDelta(t, 2, outcomes(got), 0)
		want(t, got, map[string]float64{
			"state ": 2, "calls_total failure": 2,
			"open_until_timestamp_seconds ": unix(clock.Now().Add(30 * time.Second)),
			"state_seconds_total closed":    0, "state_seconds_total open": 90, "state_seconds_total half_open": 60,
		}, "before and after it answers")
		probe.Done(nil)
	}
	want(t, values(t, c, "s3"), map[string]float64{
		"transitions_total half_open open": 1, "probe_results_total reopened": 1,
	}, "its lease ran out")
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func TestARampIsShown(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1, ResetTimeout: time.Minute, Ramp: 100 * time.Second})
	c := metrics.NewCollector(reg)
	want(t, values(t, c, "s3"), map[string]float64{"ramp_ratio ": 1, "calls_total shed": 0}, "before an outage")
	fail(t, b, 1)
	clock.Advance(time.Minute)
	succeed(t, b)
	clock.Advance(50 * time.Second)
	var shed float64
	for range 10 {
		if b.Do(t.Context(), func(context.Context) error { return nil }) != nil {
			shed++
		}
	}
	got := values(t, c, "s3")
	assert.Positive(t, shed)
	assert.InDelta(t, 12, outcomes(got), 0)
	want(t, got, map[string]float64{
		"state ": 0, "ramp_ratio ": 0.5, "calls_total shed": shed, "calls_total rejected": 0,
	}, "half way")
	clock.Advance(50 * time.Second)
	want(t, values(t, c, "s3"), map[string]float64{"ramp_ratio ": 1}, "after it")
}

// TestShadowModeIsShown also holds that such a breaker has no refusals, which
// the alerts rely on.
func TestShadowModeIsShown(t *testing.T) {
	clock := testutil.NewClock()
	reg := registry(clock)
	b := reg.MustRegister("s3", resilience.Config{FailMax: 1, Shadow: true})
	reg.MustRegister("llm", resilience.Config{})
	c := metrics.NewCollector(reg)
	fail(t, b, 3)
	task := resilience.WithTask(t.Context(), "t1")
	for range 2 {
		require.NoError(t, b.Do(task, func(context.Context) error { return nil }))
	}
	got := values(t, c, "s3")
	assert.InDelta(t, 5, outcomes(got), 0)
	want(t, got, map[string]float64{
		"state ": 2, "shadow ": 1, "shadowed_total ": 4, "calls_total failure": 3, "calls_total success": 2,
		"calls_total rejected": 0, "calls_total retried_in_task": 0, "transitions_total closed open": 1,
	}, "in shadow mode")
	want(t, values(t, c, "llm"), map[string]float64{"shadow ": 0, "shadowed_total ": 0}, "not in shadow mode")
}
