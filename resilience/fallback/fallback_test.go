package fallback_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/fallback"
	"github.com/penstock-go/penstock/testutil"
)

var (
	errDown = errors.New("upstream is down")
	quiet   = slog.New(slog.DiscardHandler)
)

// rig is a store and a breaker on one clock.
type rig struct {
	t     *testing.T
	clock *testutil.FakeClock
	b     *resilience.Breaker
	s     *fallback.Store[string]
}

func newRig(t *testing.T, cfg fallback.Config[string], policy resilience.Config) *rig {
	clock := testutil.NewClock()
	cfg.Clock, policy.Clock, policy.Logger = clock, clock, quiet
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	s, err := fallback.New(cfg)
	require.NoError(t, err)
	return &rig{t, clock, testutil.NewBreaker(t, "rates", policy), s}
}

func (r *rig) ask(key, answer string, err error) (fallback.Answer[string], error) {
	return r.s.Call(r.t.Context(), r.b, key, func(context.Context) (string, error) { return answer, err })
}

// Rule 33: live while it works; the last good value on failure and on refusal.
func TestRule33CacheAnswersAndSaysSo(t *testing.T) {
	r := newRig(t, fallback.Config[string]{}, resilience.Config{FailMax: 1})
	a, err := r.ask("EUR", "1.08", nil)
	require.NoError(t, err)
	assert.Equal(t, fallback.Answer[string]{Value: "1.08", Source: fallback.Live}, a)
	r.clock.Advance(10 * time.Minute)
	a, err = r.ask("EUR", "", errDown)
	require.NoError(t, err)
	assert.Equal(t, fallback.Answer[string]{
		Value: "1.08", Source: fallback.Cache, Stale: true, Age: 10 * time.Minute, Cause: errDown,
	}, a)
	a, err = r.ask("EUR", "never called", nil)
	require.NoError(t, err)
	require.ErrorIs(t, a.Cause, resilience.ErrOpen)
	assert.Equal(t, []any{"1.08", fallback.Cache, true}, []any{a.Value, a.Source, a.Stale})
	a, err = r.ask("USD", "", nil)
	require.ErrorIs(t, err, resilience.ErrOpen, "with neither, the caller gets the error")
	assert.Zero(t, a, "and an answer without a source")
	r.clock.Advance(time.Minute)
	a, err = r.ask("EUR", "1.09", nil)
	require.NoError(t, err)
	assert.Equal(t, fallback.Answer[string]{Value: "1.09", Source: fallback.Live}, a)
	assert.Equal(t, fallback.Counts{Cache: 2, None: 1}, r.s.Counts())
}

// Rule 33: a default, where it has one.
func TestRule33Default(t *testing.T) {
	euro := func(key string) (string, bool) { return "1.00", key == "EUR" }
	r := newRig(t, fallback.Config[string]{Default: euro}, resilience.Config{})
	a, err := r.ask("EUR", "", errDown)
	require.NoError(t, err)
	assert.Equal(t, fallback.Answer[string]{Value: "1.00", Source: fallback.Default, Cause: errDown}, a)
	_, err = r.ask("USD", "", errDown)
	assert.Same(t, errDown, err)
	assert.Equal(t, fallback.Counts{Default: 1, None: 1}, r.s.Counts())
}

// Rule 33: on refusal or failure only.
func TestRule33OtherOutcomesKeepTheirError(t *testing.T) {
	for _, outcome := range []resilience.Outcome{
		resilience.Success, resilience.Ignored, resilience.Throttled, resilience.Denied,
	} {
		r := newRig(t, fallback.Config[string]{}, resilience.Config{})
		_, _ = r.ask("EUR", "1.08", nil)
		op := resilience.Op[string]{Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: outcome}
		}}
		a, err := r.s.CallOp(
			t.Context(),
			r.b,
			op,
			"EUR",
			func(context.Context) (string, error) { return "partial", errDown },
		)
		assert.Same(t, errDown, err, "%v", outcome)
		assert.Equal(t, fallback.Answer[string]{Value: "partial"}, a)
	}
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	_, _ = r.ask("EUR", "1.08", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.s.Call(ctx, r.b, "EUR", func(context.Context) (string, error) { return "", nil })
	require.Equal(t, context.Canceled, err, "a context that is done gets its own error")
	assert.Zero(t, r.s.Counts())
}

// Rules 17 and 33: an upstream that serves nobody has failed.
func TestRule33UnavailableUpstream(t *testing.T) {
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	_, _ = r.ask("EUR", "1.08", nil)
	var told []resilience.Verdict
	unavailable := resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: time.Second, Unavailable: true}
	op := resilience.Op[string]{
		Classify: func(context.Context, error) resilience.Verdict { return unavailable },
		Settled:  func(v resilience.Verdict) { told = append(told, v) },
	}
	a, err := r.s.CallOp(t.Context(), r.b, op, "EUR", func(context.Context) (string, error) { return "", errDown })
	require.NoError(t, err)
	assert.Equal(t, "1.08", a.Value)
	assert.Same(t, errDown, a.Cause)
	assert.Equal(t, []resilience.Verdict{unavailable}, told, "the caller hears it too")
}

// Rule 33: a refusal that the function brought back from another breaker is
// what the classifier says it is.
func TestRule33RefusalOfAnotherBreaker(t *testing.T) {
	other := testutil.NewBreaker(t, "other", resilience.Config{Logger: quiet})
	other.ForceOpen("drill")
	ignore := resilience.Op[string]{Classify: func(context.Context, error) resilience.Verdict {
		return resilience.Verdict{Outcome: resilience.Ignored}
	}}
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	_, _ = r.ask("EUR", "1.08", nil)
	_, err := r.s.CallOp(t.Context(), r.b, ignore, "EUR", func(ctx context.Context) (string, error) {
		return "", other.Do(ctx, func(context.Context) error { return nil })
	})
	require.ErrorIs(t, err, resilience.ErrOpen)
}

// Rule 33: a credential stop is a refusal too.
func TestRule33DeniedBreaker(t *testing.T) {
	r := newRig(t, fallback.Config[string]{}, resilience.Config{StopOnDenied: true})
	_, _ = r.ask("EUR", "1.08", nil)
	p, err := r.b.Allow(t.Context())
	require.NoError(t, err)
	p.Settle(resilience.Verdict{Outcome: resilience.Denied})
	a, err := r.ask("EUR", "", nil)
	require.NoError(t, err)
	var denied *resilience.DeniedError
	require.ErrorAs(t, a.Cause, &denied)
}

// Rule 33: expiring, at −1 ns, 0 and +1 ns.
func TestRule33AnswersExpire(t *testing.T) {
	for _, row := range []struct {
		offset time.Duration
		served bool
	}{{-1, true}, {0, true}, {1, false}} {
		r := newRig(t, fallback.Config[string]{MaxAge: time.Minute}, resilience.Config{})
		_, _ = r.ask("EUR", "1.08", nil)
		r.clock.Advance(time.Minute + row.offset)
		_, err := r.ask("EUR", "", errDown)
		assert.Equal(t, row.served, err == nil, "row %+v", row)
	}
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	_, _ = r.ask("EUR", "1.08", nil)
	r.clock.Advance(-time.Hour)
	a, err := r.ask("EUR", "", errDown)
	require.NoError(t, err)
	assert.Zero(t, a.Age, "a clock that goes backwards makes nothing younger than now")
}

// Rule 33: bounded; the key used longest ago makes room.
func TestRule33CacheIsBounded(t *testing.T) {
	r := newRig(t, fallback.Config[string]{MaxKeys: 2}, resilience.Config{FailMax: 100})
	for _, key := range []string{"a", "b", "a", "c"} {
		_, err := r.ask(key, key, nil)
		require.NoError(t, err)
	}
	for key, kept := range map[string]bool{"a": true, "b": false, "c": true} {
		_, err := r.ask(key, "", errDown)
		assert.Equal(t, kept, err == nil, key)
	}
}

// Rule 33: each use is logged, without its key.
func TestRule33EachUseIsLogged(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, fallback.Config[string]{Logger: slog.New(slog.NewTextHandler(&log, nil))}, resilience.Config{})
	_, _ = r.ask("tenant-7", "1.08", nil)
	r.clock.Advance(time.Second)
	_, _ = r.ask("tenant-7", "", errDown)
	assert.Contains(t, log.String(),
		`level=WARN msg="answered from a fallback" upstream=rates source=cache age=1s cause="upstream is down"`)
	assert.NotContains(t, log.String(), "tenant-7")
}

// Rule 33: no secret of a failure gets into the log; the caller has the error
// as it is.
func TestRule33LogMasksTheCause(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, fallback.Config[string]{Logger: slog.New(slog.NewTextHandler(&log, nil))}, resilience.Config{})
	_, _ = r.ask("EUR", "1.08", nil)
	failed := errors.New("dial https://bob:hunter2@rates.example.com:\nrefused")
	a, err := r.ask("EUR", "", failed)
	require.NoError(t, err)
	assert.Same(t, failed, a.Cause)
	assert.Contains(t, log.String(), `cause="dial https://***@rates.example.com: refused"`)
}

// started is a call that has begun and ends when it is told to.
type started struct {
	answer chan string
	ended  chan struct{}
}

func (r *rig) start(key string) started {
	c := started{make(chan string), make(chan struct{})}
	begun := make(chan struct{})
	go func() {
		defer close(c.ended)
		a, err := r.s.Call(r.t.Context(), r.b, key, func(context.Context) (string, error) {
			close(begun)
			return <-c.answer, nil
		})
		assert.NoError(r.t, err)
		assert.Equal(r.t, fallback.Live, a.Source, "each caller gets its own answer")
	}()
	<-begun
	return c
}

func (c started) end(answer string) {
	c.answer <- answer
	<-c.ended
}

// Rule 33: the answer of the later call stays, whichever arrives first.
func TestRule33OlderAnswerNeverReplacesANewerOne(t *testing.T) {
	for _, row := range []struct {
		name      string
		before    func(r *rig) // between the two answers
		want      string
		inOrder   bool
		otherwise error
	}{
		{name: "in order", inOrder: true, want: "new"},
		{name: "in reverse", want: "new"},
		{name: "expired unseen", before: func(r *rig) { r.clock.Advance(time.Minute + 1) }, otherwise: errDown},
		{name: "expired and dropped", before: func(r *rig) {
			r.clock.Advance(time.Minute + 1)
			_, _ = r.ask("EUR", "", errDown)
		}, otherwise: errDown},
		{name: "evicted", before: func(r *rig) { _, _ = r.ask("USD", "other", nil) }, otherwise: errDown},
		{name: "evicted and asked again", before: func(r *rig) {
			_, _ = r.ask("USD", "other", nil)
			_, _ = r.ask("EUR", "newest", nil)
		}, want: "newest"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, fallback.Config[string]{MaxKeys: 1, MaxAge: time.Minute}, resilience.Config{})
			older, newer := r.start("EUR"), r.start("EUR")
			if row.inOrder {
				older.end("old")
				newer.end("new")
			} else {
				newer.end("new")
				if row.before != nil {
					row.before(r)
				}
				older.end("old")
			}
			a, err := r.ask("EUR", "", errDown)
			require.Equal(t, row.otherwise, err)
			assert.Equal(t, row.want, a.Value)
		})
	}
}

// Rule 33: an older answer that is not kept leaves other keys and later calls
// alone.
func TestRule33OrderIsByKey(t *testing.T) {
	r := newRig(t, fallback.Config[string]{MaxKeys: 1}, resilience.Config{})
	slow := r.start("EUR")
	_, _ = r.ask("USD", "1", nil)
	_, _ = r.ask("CHF", "2", nil)
	slow.end("1.08")
	a, err := r.ask("EUR", "", errDown)
	require.NoError(t, err, "no newer answer for its key")
	assert.Equal(t, "1.08", a.Value)
	_, _ = r.ask("EUR", "1.09", nil)
	a, err = r.ask("EUR", "", errDown)
	require.NoError(t, err)
	assert.Equal(t, "1.09", a.Value)
}

// Rule 33: a call that failed or panicked after a later answer changes nothing.
func TestRule33CallsWithoutAnAnswerKeepNoPlace(t *testing.T) {
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	assert.Panics(t, func() {
		_, _ = r.s.Call(t.Context(), r.b, "EUR", func(context.Context) (string, error) {
			_, _ = r.ask("EUR", "inner", nil)
			panic("bug")
		})
	})
	for _, want := range []string{"inner", "next"} {
		a, err := r.ask("EUR", "", errDown)
		require.NoError(t, err)
		assert.Equal(t, want, a.Value)
		_, _ = r.ask("EUR", "next", nil)
	}
}

// Rule 33: with many calls at once, a key never goes back.
func TestRule33ConcurrentAnswersKeepTheirOrder(t *testing.T) {
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	var calls []started
	for range 50 {
		calls = append(calls, r.start("EUR"))
	}
	var group sync.WaitGroup
	for i, c := range calls {
		group.Go(func() { c.end(strconv.Itoa(i)) })
		group.Go(func() { _, _ = r.ask(strconv.Itoa(i), "other", nil) })
	}
	group.Wait()
	a, err := r.ask("EUR", "", errDown)
	require.NoError(t, err)
	assert.Equal(t, "49", a.Value)
}

func TestDefaultsAndBadConfig(t *testing.T) {
	_, err := fallback.New(fallback.Config[int]{MaxKeys: -1})
	require.EqualError(t, err, "fallback: MaxKeys -1 and MaxAge 0s must not be negative")
	s, err := fallback.New(fallback.Config[int]{})
	require.NoError(t, err)
	var log bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	b := testutil.NewBreaker(t, "rates", resilience.Config{Logger: quiet})
	for _, failure := range []error{nil, errDown} {
		a, err := s.Call(t.Context(), b, "k", func(context.Context) (int, error) { return 1, failure })
		require.NoError(t, err)
		assert.Equal(t, 1, a.Value)
	}
	assert.Contains(t, log.String(), "source=cache")
	assert.Equal(t, "[none live cache default Source(9)]",
		fmt.Sprint([]fallback.Source{0, fallback.Live, fallback.Cache, fallback.Default, 9}))
}

// Rule 33, end to end: 500s → open → stale answers → recovery → live.
func TestRule33EndToEnd(t *testing.T) {
	r := newRig(t, fallback.Config[string]{}, resilience.Config{})
	seen := testutil.Record(t, r.b)
	u := testutil.NewFaultyServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "1.08")
	}))
	ask := func() fallback.Answer[string] {
		a, err := r.s.Call(
			t.Context(),
			r.b,
			"EUR",
			func(ctx context.Context) (string, error) { return fetch(ctx, u.URL()) },
		)
		require.NoError(t, err)
		return a
	}
	assert.Equal(t, fallback.Live, ask().Source)
	u.Always(testutil.Status(http.StatusInternalServerError))
	for i := range 20 {
		r.clock.Advance(time.Second)
		a := ask()
		require.Equal(t, fallback.Cache, a.Source)
		require.Equal(t, time.Duration(i+1)*time.Second, a.Age)
		require.Equal(t, i >= 5, errors.Is(a.Cause, resilience.ErrOpen), "answer %d: %v", i, a.Cause)
	}
	u.WantRequests(6)
	u.Recover()
	r.clock.Advance(time.Minute)
	assert.Equal(t, fallback.Live, ask().Source)
	u.WantRequests(7)
	seen.Want("closed → open", "open → half_open", "half_open → closed")
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

func Example() {
	clock := testutil.NewClock()
	b := resilience.NewRegistry(resilience.Config{}).
		MustRegister("rates", resilience.Config{Clock: clock, Logger: quiet})
	rates, err := fallback.New(fallback.Config[string]{
		MaxAge:  time.Hour,
		Default: func(string) (string, bool) { return "unknown", true },
		Clock:   clock,
		Logger:  quiet,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(key string, failure error) {
		a, err := rates.Call(
			context.Background(),
			b,
			key,
			func(context.Context) (string, error) { return "1.08", failure },
		)
		fmt.Println(a.Value, a.Source, "stale:", a.Stale, "age:", a.Age, "cause:", a.Cause, err)
	}
	ask("EUR", nil)
	clock.Advance(10 * time.Minute)
	ask("EUR", errors.New("connection refused"))
	ask("USD", errors.New("connection refused"))
	// Output:
	// 1.08 live stale: false age: 0s cause: <nil> <nil>
	// 1.08 cache stale: true age: 10m0s cause: connection refused <nil>
	// unknown default stale: false age: 0s cause: connection refused <nil>
}

// A call that ran out of Config.CallTimeout, and a verdict without a name, are
// failures to the breaker, whatever the classifier says, but had no answer.
func TestFaultFailureThatTheClassifierDoesNotCallOneHasNoAnswer(t *testing.T) {
	for _, outcome := range []resilience.Outcome{resilience.Ignored, resilience.Denied + 1} {
		r := newRig(t, fallback.Config[string]{}, resilience.Config{CallTimeout: time.Millisecond})
		_, _ = r.ask("EUR", "1.08", nil)
		op := resilience.Op[string]{Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: outcome}
		}}
		a, err := r.s.CallOp(t.Context(), r.b, op, "EUR", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", errDown
		})
		require.NoError(t, err)
		assert.Equal(t, fallback.Cache, a.Source)
		assert.EqualValues(t, 1, r.b.Snapshot().Failures)
	}
}

// A thousand goroutines in and out of an outage: each gets an answer, and the
// counts are those of the answers.
func TestThousandCallersThroughAnOutage(t *testing.T) {
	r := newRig(t, fallback.Config[string]{MaxKeys: 8}, resilience.Config{})
	for i := range 8 {
		_, _ = r.ask(strconv.Itoa(i), "kept", nil)
	}
	var live, cached atomic.Uint64
	var group sync.WaitGroup
	for i := range 1000 {
		group.Go(func() {
			a, err := r.ask(strconv.Itoa(i%8), "fresh", map[bool]error{true: errDown}[i%3 > 0])
			assert.NoError(t, err)
			if a.Source == fallback.Live {
				live.Add(1)
			} else {
				cached.Add(1)
			}
		})
	}
	group.Wait()
	assert.Equal(t, uint64(1000), live.Load()+cached.Load())
	assert.Equal(t, fallback.Counts{Cache: cached.Load()}, r.s.Counts())
}

// The refusal of the breaker that a family's keys share is the key's own, and
// that of another breaker of the same name is not.
func TestFaultRefusalOfAnotherByTheSameName(t *testing.T) {
	family, err := resilience.NewRegistry(resilience.Config{Logger: quiet}).
		Keyed("p", resilience.Config{MaxKeys: 1, FailMax: 1})
	require.NoError(t, err)
	held := family.Get("a")
	family.Get("b").Trip("drill")
	store, err := fallback.New(fallback.Config[int]{
		Logger: quiet, Default: func(string) (int, bool) { return 7, true },
	})
	require.NoError(t, err)
	errDown := errors.New("down")
	for range 2 { // it fails, and is refused by p/(overflow)
		a, err := store.Call(t.Context(), held, "k", func(context.Context) (int, error) { return 0, errDown })
		require.NoError(t, err)
		assert.Equal(t, 7, a.Value)
	}
	inner := testutil.NewBreaker(t, "x", resilience.Config{Logger: quiet})
	inner.Trip("drill")
	outer := testutil.NewBreaker(t, "x", resilience.Config{Logger: quiet})
	_, err = store.Call(t.Context(), outer, "k", func(ctx context.Context) (int, error) {
		return resilience.Call(ctx, inner, func(context.Context) (int, error) { return 1, nil })
	})
	require.ErrorIs(t, err, resilience.ErrOpen)
}
