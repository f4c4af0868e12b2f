package resilience_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

func TestZeroConfigIsTheDefaultPolicy(t *testing.T) {
	cfg := testutil.NewBreaker(t, "milvus", resilience.Config{}).Config()
	cfg.Classify = nil
	assert.Equal(t, resilience.Config{
		FailMax: 5, ResetTimeout: time.Minute, ProbeTimeout: time.Minute, MaxThrottle: 5 * time.Minute,
		MaxProbes: 1, SuccessThreshold: 1, Trip: trip.Consecutive{},
	}, cfg)
}

func TestWindowDefaults(t *testing.T) {
	assert.Equal(t, trip.CountWindow{Size: 100, MinCalls: 10, FailureRate: 0.5},
		testutil.NewBreaker(t, "x", resilience.Config{Trip: trip.CountWindow{}}).Config().Trip)
	assert.Equal(t, trip.CountWindow{Size: 4, MinCalls: 4, FailureRate: 0.5},
		testutil.NewBreaker(t, "x", resilience.Config{Trip: trip.CountWindow{Size: 4}}).Config().Trip)
	slow := trip.TimeWindow{Slow: trip.SlowCall{Threshold: time.Second}}
	b := testutil.NewBreaker(t, "x", resilience.Config{Trip: slow})
	assert.Equal(t, trip.TimeWindow{
		Period: time.Minute, Buckets: 10, MinCalls: 10, FailureRate: 0.5,
		Slow: trip.SlowCall{Threshold: time.Second, Rate: 0.5},
	}, b.Config().Trip)
	assert.Zero(t, b.Config().FailMax, "a window replaces FailMax")
}

func TestBadConfigIsAnErrorAtConstruction(t *testing.T) {
	count := func(w trip.CountWindow) resilience.Config { return resilience.Config{Trip: w} }
	for _, row := range []struct {
		name string
		cfg  resilience.Config
		want string
	}{
		{"x", resilience.Config{FailMax: -1}, "FailMax is -1; it must be between 1 and 65535"},
		{"x", resilience.Config{FailMax: 65536}, "FailMax"},
		{"x", resilience.Config{ResetTimeout: -1}, "ResetTimeout is -1ns; it must be between 1ns and 87600h0m0s"},
		{"x", resilience.Config{ResetTimeout: math.MaxInt64}, "ResetTimeout"},
		{"x", resilience.Config{ProbeTimeout: -1}, "ProbeTimeout"},
		{"x", resilience.Config{CallTimeout: -1}, "CallTimeout"},
		{"x", resilience.Config{MaxThrottle: -1}, "MaxThrottle"},
		{"x", resilience.Config{MaxProbes: -1}, "MaxProbes"},
		{"x", resilience.Config{SuccessThreshold: -1}, "SuccessThreshold"},
		{"x", resilience.Config{MaxKeys: -1}, "MaxKeys"},
		{"x", count(trip.CountWindow{Size: -1}), "CountWindow.Size"},
		{"x", count(trip.CountWindow{Size: 5, MinCalls: 6}), "CountWindow.MinCalls is 6; it must be between 1 and 5"},
		{"x", count(trip.CountWindow{FailureRate: 1.1}), "CountWindow.FailureRate"},
		{"x", count(trip.CountWindow{FailureRate: math.NaN()}), "CountWindow.FailureRate is NaN"},
		{"x", count(trip.CountWindow{FailureRate: 1e-9}), "CountWindow.FailureRate"},
		{"x", count(trip.CountWindow{Slow: trip.SlowCall{Rate: 0.5}}), "SlowCall.Threshold"},
		{"x", count(trip.CountWindow{Slow: trip.SlowCall{Threshold: 1, Rate: 2}}), "SlowCall.Rate"},
		{"x", resilience.Config{Trip: trip.TimeWindow{Period: -1}}, "TimeWindow.Period"},
		{
			"x",
			resilience.Config{Trip: trip.TimeWindow{Period: 9, Buckets: 10}},
			"TimeWindow.Period is 9ns; it must be between 10ns",
		},
		{"x", resilience.Config{Trip: trip.TimeWindow{Buckets: 5000}}, "TimeWindow.Buckets"},
		{"x", resilience.Config{Trip: trip.TimeWindow{MinCalls: -1}}, "TimeWindow.MinCalls"},
		{"x", resilience.Config{ProbeTimeout: 1}, "ProbeTimeout is 1ns; it must be between 1ms"},
		{"x", resilience.Config{MaxResetTimeout: 59 * time.Second}, "MaxResetTimeout is 59s; it must be between 1m0s"},
		{"x", resilience.Config{Ramp: -1}, "Ramp is -1ns; it must be between 0s"},
		{
			"x",
			resilience.Config{FailMax: 3, Trip: trip.TimeWindow{}},
			"FailMax is 3 and Trip a trip.TimeWindow, which takes its place; set one of them",
		},
		{"x", resilience.Config{FailMax: -7, Trip: trip.CountWindow{}}, "FailMax is -7 and Trip a trip.CountWindow"},
		{"x", resilience.Config{MaxKeys: 3}, "MaxKeys is 3; it is for Registry.Keyed alone"},
		{"x", resilience.Config{Trip: &trip.CountWindow{}}, "Trip is a *trip.CountWindow; give the value"},
		{"x", resilience.Config{Trip: (*trip.Consecutive)(nil)}, "Trip is a *trip.Consecutive"},
		{"", resilience.Config{}, `name "" must be 1 to 128 bytes`},
		{"\xff", resilience.Config{}, "UTF-8"},
		{"a\nb", resilience.Config{}, `name "a\nb" must be printable`},
		{strings.Repeat("x", 129), resilience.Config{}, "128 bytes"},
	} {
		b, err := resilience.New(row.name, row.cfg)
		require.ErrorContains(t, err, row.want, "row %+v", row)
		require.Nil(t, b)
		empty := resilience.NewRegistry(resilience.Config{})
		assert.Panics(t, func() { empty.MustRegister(row.name, row.cfg) }, "row %+v", row)
	}
}

// An option of the defaults could not be switched off, and one that cannot work
// with them was dropped without a word.
func TestFaultInheritedOptions(t *testing.T) {
	probe := func(context.Context) error { return nil }
	reg := resilience.NewRegistry(resilience.Config{
		Logger: quiet, FailMax: 3, CallTimeout: time.Second, StopOnDenied: true, OpenOnThrottle: true, Shadow: true,
		Ramp: time.Minute, MaxResetTimeout: time.Hour, Probe: probe, MaxKeys: 3, Durations: true,
	})
	b := reg.MustRegister("all", resilience.Config{})
	assert.Equal(t, []any{3, time.Second, true, time.Minute},
		[]any{b.Config().FailMax, b.Config().CallTimeout, b.Config().Shadow, b.Config().Ramp})
	some := reg.Defaults()
	some.StopOnDenied, some.Probe, some.MaxKeys, some.Durations, some.Standalone = false, nil, 0, false, true
	b = reg.MustRegister("some", some)
	assert.False(t, b.Config().StopOnDenied)
	assert.Nil(t, b.Config().Probe)
	assert.Equal(t, time.Second, b.Config().CallTimeout)
	b = reg.MustRegister("none", resilience.Config{Standalone: true})
	assert.Equal(t, []any{5, time.Duration(0), false, time.Duration(0)},
		[]any{b.Config().FailMax, b.Config().CallTimeout, b.Config().Shadow, b.Config().Ramp})

	b = reg.MustRegister("a window of its own", resilience.Config{Trip: trip.CountWindow{}})
	assert.Zero(t, b.Config().FailMax)
	windows := resilience.NewRegistry(resilience.Config{Logger: quiet, Trip: trip.TimeWindow{}})
	_, err := windows.Register("x", resilience.Config{FailMax: 3})
	require.ErrorContains(t, err, "FailMax is 3 and Trip a trip.TimeWindow")
	b = windows.MustRegister("x", resilience.Config{FailMax: 3, Trip: trip.Consecutive{}})
	assert.Equal(t, 3, b.Config().FailMax)
	both := resilience.NewRegistry(resilience.Config{FailMax: 3, Trip: trip.TimeWindow{}})
	_, err = both.Register("x", resilience.Config{})
	require.Error(t, err, "defaults that cannot work together")
}

// A breaker's own Config, with its defaults filled in, was refused where it was
// used again, as for another ResetTimeout.
func TestFaultConfigOfABreakerIsRefused(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: quiet, MaxKeys: 7, Durations: true})
	family, err := reg.Keyed("k", resilience.Config{})
	require.NoError(t, err)
	for _, b := range []*resilience.Breaker{
		resilience.LLM,
		family.Get("a"),
		reg.MustRegister("window", resilience.Config{Trip: trip.TimeWindow{Slow: trip.SlowCall{Threshold: 1}}}),
		reg.MustRegister("all", resilience.Config{
			MaxResetTimeout: time.Hour, Ramp: time.Minute, Shadow: true, CallTimeout: time.Second, Probe: fine,
		}),
	} {
		cfg := b.Config()
		same, err := resilience.New("again", cfg)
		require.NoError(t, err, b.Name())
		assert.Equal(t, b.Snapshot().PolicyVersion, same.Snapshot().PolicyVersion, b.Name())
		cfg.ResetTimeout = 30 * time.Second
		again, err := reg.Replace("window", cfg)
		require.NoError(t, err, b.Name())
		assert.Equal(t, 30*time.Second, again.Config().ResetTimeout)
	}
}

// FuzzConfig: a configuration is refused, or makes a breaker that opens under
// failures, refuses, and recovers by time.
func FuzzConfig(f *testing.F) {
	f.Add("milvus", 5, int64(time.Minute), int64(0), 1, 1, uint8(0), 0, 0, 0.5)
	f.Add("s3", 1, int64(1), int64(1), 3, 2, uint8(1), 6, 6, 0.5)
	f.Add("llm", 0, int64(time.Hour), int64(time.Second), 0, 0, uint8(2), 10, 1, 1.0)
	f.Add("", -1, int64(-1), int64(-1), -1, -1, uint8(1), -1, -1, math.Inf(1))
	f.Fuzz(func(t *testing.T, name string, failMax int, reset, probe int64, probes, good int,
		kind uint8, size, minCalls int, rate float64,
	) {
		cfg := resilience.Config{
			FailMax: failMax, ResetTimeout: time.Duration(reset), ProbeTimeout: time.Duration(probe), MaxProbes: probes,
			SuccessThreshold: good, Clock: &countingClock{}, Logger: quiet,
		}
		switch kind % 3 {
		case 1:
			cfg.Trip = trip.CountWindow{Size: size, MinCalls: minCalls, FailureRate: rate}
		case 2:
			cfg.Trip = trip.TimeWindow{
				Period:      time.Duration(reset),
				Buckets:     size,
				MinCalls:    minCalls,
				FailureRate: rate,
			}
		}
		b, err := resilience.New(name, cfg)
		if err != nil {
			return
		}
		mustWork(t, b)
	})
}

func mustWork(t *testing.T, b *resilience.Breaker) {
	cfg := b.Config()
	for range 1 << 21 { // no more than the largest window
		if b.Do(context.Background(), down) != errDown { //nolint:errorlint // the very value
			break
		}
	}
	require.Equal(t, resilience.Open, b.State(), "%+v", cfg)
	clock := cfg.Clock.(*countingClock)
	clock.now = clock.now.Add(cfg.ResetTimeout)
	for i := range cfg.SuccessThreshold {
		require.NoError(t, b.Do(context.Background(), fine), "probe %d of %+v", i, cfg)
	}
	require.Equal(t, resilience.Closed, b.State(), "%+v", cfg)
}
