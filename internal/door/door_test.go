package door_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil"
)

// watched is a door in which everybody writes down what they are told.
type watched struct {
	guard    door.Guard
	read     int                  // times an answer was classified
	settled  []resilience.Verdict // what the guard was told
	ended    []resilience.Verdict // what the span was told, and with which error
	errs     []error
	refused  []error
	observed []string
	verdict  resilience.Verdict // what the classifier says
	caller   context.Context    // whom it was asked for
}

type traced struct{}

func (w *watched) Start(ctx context.Context, b *resilience.Breaker) context.Context {
	return context.WithValue(ctx, traced{}, b.Name())
}

func (w *watched) End(v resilience.Verdict, err error) {
	w.ended, w.errs = append(w.ended, v), append(w.errs, err)
}

func (w *watched) Refuse(err error) { w.refused = append(w.refused, err) }

func watch(t *testing.T, cfg resilience.Config) *watched {
	cfg.Logger = slog.New(slog.DiscardHandler)
	b, err := resilience.New("upstream", cfg)
	require.NoError(t, err)
	w := &watched{verdict: resilience.Verdict{Outcome: resilience.Failure}}
	w.guard = door.Guard{Breaker: b, Settled: func(v resilience.Verdict) { w.settled = append(w.settled, v) }}
	return w
}

func (w *watched) limit(t *testing.T, n int) *watched {
	limiter, err := inflight.New(w.guard.Breaker, n)
	require.NoError(t, err)
	w.guard.InFlight = limiter
	return w
}

func (w *watched) op() door.Op {
	return door.Op{
		Name: "read", Span: w,
		Classify: func(caller context.Context, _ error) resilience.Verdict {
			w.read++
			w.caller = caller
			return w.verdict
		},
		Observe: func(b *resilience.Breaker, operation string, _ time.Duration) {
			w.observed = append(w.observed, b.Name()+" "+operation)
		},
	}
}

// ways are the ways of a call that returns err.
var ways = map[string]func(context.Context, *watched, error) error{
	"Call": func(ctx context.Context, w *watched, err error) error {
		_, got := door.Call(ctx, w.guard, w.op(), func(context.Context) (int, error) { return 0, err })
		return got
	},
	"Open": func(ctx context.Context, w *watched, err error) error {
		_, got := door.Open(ctx, w.guard, w.op(), func(*door.Handle) (int, error) { return 0, err })
		return got
	},
	"a handle that is kept": func(ctx context.Context, w *watched, err error) error {
		h, got := door.Open(ctx, w.guard, w.op(), func(h *door.Handle) (*door.Handle, error) {
			h.Keep()
			return h, nil
		})
		if got != nil {
			return got
		}
		h.Use(func() { h.End(err) })
		h.Abandon() // too late
		return err
	},
}

func TestOneVerdictACallForEverybody(t *testing.T) {
	gone := errors.New("status 500")
	for name, call := range ways {
		for _, row := range []struct {
			err  error
			want resilience.Verdict
			read int
		}{
			{nil, resilience.Verdict{}, 0},
			{gone, resilience.Verdict{Outcome: resilience.Success}, 1},
			{gone, resilience.Verdict{Outcome: resilience.Failure}, 1},
			{gone, resilience.Verdict{Outcome: resilience.Denied}, 1},
			{gone, resilience.Verdict{Outcome: resilience.Ignored}, 1},
			{gone, resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Minute, Unavailable: true}, 1},
		} {
			for _, w := range []*watched{watch(t, resilience.Config{}), watch(t, resilience.Config{}).limit(t, 1)} {
				w.verdict = row.want
				assert.Equal(t, row.err, call(t.Context(), w, row.err), name)
				assert.Equal(t, row.read, w.read, "%s, %v: the answer is read once", name, row.want)
				assert.Equal(t, []resilience.Verdict{row.want}, w.settled, name)
				assert.Equal(t, []resilience.Verdict{row.want}, w.ended, name)
				assert.Equal(t, []error{row.err}, w.errs, name)
				assert.Equal(t, []string{"upstream read"}, w.observed, name)
				assert.Empty(t, w.refused, name)
				assert.Equal(t, uint64(1), w.guard.Breaker.Snapshot().Calls, name)
			}
		}
	}
}

func TestTheLimiterHearsTheVerdictToo(t *testing.T) {
	for name, call := range ways {
		w := watch(t, resilience.Config{FailMax: 3}).limit(t, 2)
		for range 3 {
			require.EqualError(t, call(t.Context(), w, errors.New("down")), "down", name)
		}
		require.ErrorIs(t, call(t.Context(), w, nil), resilience.ErrOpen, name)
		w.guard.Breaker.Reset()
		require.NoError(t, call(t.Context(), w, nil), "%s: the slots are back", name)
		w.guard.InFlight.Close(errors.New("the run is over"))
		require.EqualError(t, call(t.Context(), w, nil), "the run is over", name)
		assert.Len(t, w.refused, 2, name)
		assert.Equal(t, 3, w.read, name)
	}
}

func TestSlotIsHeldUntilTheOutcome(t *testing.T) {
	w := watch(t, resilience.Config{}).limit(t, 1)
	h := keep(t, t.Context(), w)
	full, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no room"))
	_, err := door.Call(full, w.guard, w.op(), func(context.Context) (int, error) { return 0, nil })
	require.Equal(t, context.Canceled, err)
	h.Abandon()
	require.NoError(t, ways["Call"](t.Context(), w, nil))
}

func keep(t *testing.T, ctx context.Context, w *watched) *door.Handle {
	h, err := door.Open(ctx, w.guard, w.op(), func(h *door.Handle) (*door.Handle, error) {
		h.Keep()
		return h, nil
	})
	require.NoError(t, err)
	return h
}

func TestCallsThatAreNotAdmittedHaveNoVerdict(t *testing.T) {
	other, err := inflight.New(testutil.NewBreaker(t, "other", resilience.Config{}), 0)
	require.NoError(t, err)
	past, cancel := context.WithCancel(t.Context())
	cancel()
	invalid := errors.New("no text")
	for name, row := range map[string]struct {
		ctx     context.Context
		prepare func(*watched) door.Op
		want    string
	}{
		"open": {
			t.Context(),
			func(w *watched) door.Op { w.guard.Breaker.ForceOpen("maintenance"); return w.op() },
			`circuit breaker forced open for "upstream", failing fast; only a reset closes it: maintenance`,
		},
		"invalid": {
			t.Context(),
			func(w *watched) door.Op { op := w.op(); op.Invalid = invalid; return op },
			"no text",
		},
		"left already": {past, (*watched).op, "context canceled"},
		"a limiter for another breaker": {
			t.Context(),
			func(w *watched) door.Op { w.guard.InFlight = other; return w.op() },
			`the guard has the breaker "upstream" and a limiter for another one, "other"; leave its Breaker out`,
		},
	} {
		w := watch(t, resilience.Config{})
		op := row.prepare(w)
		_, err := door.Call(row.ctx, w.guard, op, func(context.Context) (int, error) { panic("it must not run") })
		require.EqualError(t, err, row.want, name)
		_, err = door.Open(row.ctx, w.guard, op, func(*door.Handle) (int, error) { panic("it must not run") })
		require.EqualError(t, err, row.want, name)
		assert.Len(t, w.refused, 2, name)
		assert.Zero(t, w.read, name)
		assert.Empty(t, w.settled, name)
		assert.Empty(t, w.ended, name)
		assert.Empty(t, w.observed, name)
		assert.Zero(t, w.guard.Breaker.Snapshot().Calls, name)
	}
}

func TestPanicsAndGoexitContinueAndHaveNoVerdict(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("a bug") }, "goexit": runtime.Goexit} {
		for way, call := range map[string]func(context.Context, *watched){
			"Call": func(ctx context.Context, w *watched) {
				_, _ = door.Call(ctx, w.guard, w.op(), func(context.Context) (int, error) { leave(); return 0, nil })
			},
			"Open": func(ctx context.Context, w *watched) {
				_, _ = door.Open(ctx, w.guard, w.op(), func(*door.Handle) (int, error) { leave(); return 0, nil })
			},
			"Use": func(ctx context.Context, w *watched) { keep(t, ctx, w).Use(leave) },
		} {
			w := watch(t, resilience.Config{}).limit(t, 1)
			returned := false
			testutil.Isolate(func() {
				call(t.Context(), w)
				returned = true
			})
			assert.False(t, returned, "%s in %s continues", name, way)
			s := w.guard.Breaker.Snapshot()
			assert.Equal(t, [2]uint64{1, 1}, [2]uint64{s.Calls, s.Panics}, "%s in %s", name, way)
			assert.Equal(t, []error{door.ErrPanicked}, w.errs, "%s in %s", name, way)
			assert.Equal(t, []resilience.Verdict{{Outcome: resilience.Ignored}}, w.ended, "%s in %s", name, way)
			assert.Len(t, w.observed, 1, "%s in %s", name, way)
			assert.Empty(t, w.settled, "%s in %s", name, way)
			require.NoError(t, ways["Call"](t.Context(), w, nil), "%s in %s: the slot is back", name, way)
		}
	}
}

func TestCallRunsInTheSpansContext(t *testing.T) {
	w := watch(t, resilience.Config{})
	_, err := door.Call(t.Context(), w.guard, w.op(), func(ctx context.Context) (int, error) {
		assert.Equal(t, "upstream", ctx.Value(traced{}))
		return 0, nil
	})
	require.NoError(t, err)
	_, err = door.Open(t.Context(), w.guard, w.op(), func(h *door.Handle) (int, error) {
		assert.Equal(t, "upstream", h.Context().Value(traced{}))
		return 0, nil
	})
	require.NoError(t, err)
}

func TestBreakerOfAGuard(t *testing.T) {
	named := func(name string) *resilience.Breaker { return testutil.NewBreaker(t, name, resilience.Config{}) }
	own, limited, spare := named("own"), named("limited"), named("spare")
	limiter, err := inflight.New(limited, 0)
	require.NoError(t, err)
	assert.Same(t, own, door.Guard{Breaker: own}.Or(spare).Breaker)
	assert.Same(t, limited, door.Guard{InFlight: limiter}.Or(spare).Breaker)
	assert.Same(t, spare, door.Guard{}.Or(spare).Breaker)
}

func TestForACallerWhoHasLeft(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the run is over"))
	late, done := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer done()
	failure := resilience.Verdict{Outcome: resilience.Failure}
	for _, caller := range []context.Context{t.Context(), late} {
		assert.Equal(t, failure, door.For(caller, failure))
	}
	assert.Equal(t, resilience.Verdict{Outcome: resilience.Ignored}, door.For(cancelled, failure))
	for _, answer := range []resilience.Verdict{
		{},
		{Outcome: resilience.Denied},
		{Outcome: resilience.Throttled, RetryAfter: time.Second, Unavailable: true},
	} {
		assert.Equal(t, answer, door.For(cancelled, answer), "an answer is one, with or without a caller")
	}
}

// The verdict that the breaker counted is the one that everybody is told.
func TestRefusalFurtherInIsToldAsIgnored(t *testing.T) {
	inner := testutil.NewBreaker(t, "inner", resilience.Config{})
	inner.Trip("drill")
	refusal := inner.Do(t.Context(), func(context.Context) error { return nil })
	for name, call := range ways {
		w := watch(t, resilience.Config{FailMax: 1})
		require.Equal(t, refusal, call(t.Context(), w, refusal), name)
		assert.Equal(t, []resilience.Verdict{{Outcome: resilience.Ignored}}, w.settled, name)
		assert.Equal(t, w.settled, w.ended, name)
		assert.Equal(t, resilience.Closed, w.guard.Breaker.State(), name)
	}
}
