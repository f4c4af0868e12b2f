package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

var errDown = errors.New("upstream is down")

func down(context.Context) error { return errDown }
func fine(context.Context) error { return nil }

var quiet = slog.New(slog.DiscardHandler)

// rig is a breaker on a fake clock with its transitions.
type rig struct {
	*resilience.Breaker
	t     *testing.T
	clock *testutil.FakeClock
	seen  *testutil.Recorder
	start time.Time
}

func newRig(t *testing.T, cfg resilience.Config) *rig {
	t.Helper()
	clock := testutil.NewClock()
	cfg.Clock = clock
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	b, err := resilience.New("milvus", cfg)
	require.NoError(t, err)
	return &rig{b, t, clock, testutil.Record(t, b), clock.Now()}
}

// at moves the clock to d after the start.
func (r *rig) at(d time.Duration) { r.clock.Set(r.start.Add(d)) }

func (r *rig) fail(times int) {
	r.t.Helper()
	for i := range times {
		require.Same(r.t, errDown, r.Do(r.t.Context(), down), "failure %d", i+1)
	}
}

func (r *rig) succeed(times int) {
	r.t.Helper()
	for i := range times {
		require.NoError(r.t, r.Do(r.t.Context(), fine), "success %d", i+1)
	}
}

// due opens the breaker and waits until a probe may go out.
func (r *rig) due() {
	r.Trip("drill")
	r.at(time.Minute)
}

// refused asks once and wants a refusal without a call.
func (r *rig) refused() *resilience.OpenError {
	r.t.Helper()
	err := r.Do(r.t.Context(), func(context.Context) error {
		r.t.Error("the function ran")
		return nil
	})
	var open *resilience.OpenError
	require.ErrorAs(r.t, err, &open)
	return open
}

// allow is admission that must succeed.
func (r *rig) allow() *resilience.Permit {
	r.t.Helper()
	p, err := r.Allow(r.t.Context())
	require.NoError(r.t, err)
	return p
}

func (r *rig) want(state resilience.State) {
	r.t.Helper()
	require.Equal(r.t, state, r.State())
	require.Equal(r.t, state, r.Snapshot().State)
}

// A play is steps in words at instants, so that a failing row prints itself.
// Words: ok, fail, ignored, throttled, unavailable, denied, refused, trip,
// reset, look.
type step struct {
	at   time.Duration
	do   string
	want resilience.State
}

var verdicts = map[string]resilience.Verdict{
	"ignored":     {Outcome: resilience.Ignored},
	"throttled":   {Outcome: resilience.Throttled},
	"unavailable": {Outcome: resilience.Throttled, RetryAfter: time.Second, Unavailable: true},
	"denied":      {Outcome: resilience.Denied},
}

func (r *rig) play(steps []step) {
	r.t.Helper()
	for i, s := range steps {
		r.at(s.at)
		r.act(s.do)
		require.Equal(r.t, s.want, r.State(), "row %d: %+v", i, s)
	}
}

func (r *rig) act(word string) {
	r.t.Helper()
	switch word {
	case "ok":
		r.succeed(1)
	case "fail":
		r.fail(1)
	case "refused":
		r.refused()
	case "trip":
		r.Trip("drill")
	case "reset":
		r.Reset()
	case "look":
		r.Snapshot()
	default:
		verdict, ok := verdicts[word]
		require.True(r.t, ok, "no such word: %s", word)
		r.allow().Settle(verdict)
	}
}

// totals is the counts of a snapshot that are not zero, in words.
func totals(s resilience.Snapshot) string {
	var parts []string
	for _, c := range []struct {
		name string
		n    uint64
	}{
		{"calls", s.Calls},
		{"successes", s.Successes},
		{"failures", s.Failures},
		{"ignored", s.Ignored},
		{"throttled", s.Throttled},
		{"denied", s.Denied},
		{"panics", s.Panics},
		{"stale", s.Stale},
		{"rejected", s.Rejected},
		{"in task", s.RetriedInTask},
		{"probes", s.Probes},
		{"opened", s.Opened},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c.name, c.n))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *rig) wantTotals(want string) {
	r.t.Helper()
	assert.Equal(r.t, want, totals(r.Snapshot()))
}
