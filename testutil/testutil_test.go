package testutil_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// get asks the upstream once, on a connection of its own.
func get(ctx context.Context, url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d, retry after %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	return string(body), err
}

func TestUpstreamBehaviours(t *testing.T) {
	rows := []struct {
		name string
		do   testutil.Behaviour
		body string
		err  string // part of it
	}{
		{"healthy", testutil.Delay(0), "{}", ""},
		{"status", testutil.Status(500), "{}", "status 500"},
		{"status with a header", testutil.Status(429, "Retry-After", "7"), "{}", `retry after "7"`},
		{"garbage", testutil.Garbage(), "\x00\xff<<{not an answer", ""},
		{"reset", testutil.Reset(), "", "reset by peer"},
		{"truncated", testutil.Truncate(), `{"half":`, "unexpected EOF"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			u := testutil.NewFaultyServer(t, nil)
			u.Next(row.do)
			body, err := get(t.Context(), u.URL())
			if row.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.err)
			}
			assert.Equal(t, row.body, body)
			_, err = get(t.Context(), u.URL())
			require.NoError(t, err, "the script was for one request")
			u.WantRequests(2)
		})
	}
}

func TestUpstreamHangsUntilTheClientLeaves(t *testing.T) {
	for name, do := range map[string]testutil.Behaviour{
		"hang":       testutil.Hang(),
		"long delay": testutil.Delay(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			u := testutil.NewFaultyServer(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			u.Next(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				cancel()
				do(w, r, next)
			})
			_, err := get(ctx, u.URL())
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestUpstreamRefusesAndComesBackAtItsAddress(t *testing.T) {
	u := testutil.NewFaultyServer(t, nil)
	url := u.URL()
	u.Refuse()
	_, err := get(t.Context(), url)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	u.WantRequests(0)
	u.Accept()
	u.Accept() // twice is once
	_, err = get(t.Context(), url)
	require.NoError(t, err)
	assert.Equal(t, url, u.URL())
}

func TestUpstreamRulesByPath(t *testing.T) {
	u := testutil.NewFaultyServer(t, nil)
	u.Always(testutil.Status(500))
	u.AlwaysFor("/v1/models", testutil.Status(200))
	_, err := get(t.Context(), u.URL()+"/v1/models")
	require.NoError(t, err)
	_, err = get(t.Context(), u.URL()+"/v1/chat")
	require.ErrorContains(t, err, "500")
	assert.Equal(t, 1, u.Count("/v1/models"))
	assert.Equal(t, "/v1/chat", u.Requests()[1].Path)
	u.Recover()
	_, err = get(t.Context(), u.URL()+"/v1/chat")
	require.NoError(t, err)
}

func TestUpstreamShowsBodiesToBothSides(t *testing.T) {
	u := testutil.NewFaultyServer(t,
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	resp, err := http.Post(u.URL(), "text/plain", strings.NewReader("hello"))
	require.NoError(t, err)
	defer resp.Body.Close()
	echo, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(echo))
	assert.Equal(t, "hello", string(u.Requests()[0].Body))
}

func TestClockMovesOnlyWhenTold(t *testing.T) {
	c := testutil.NewClock()
	start := c.Now()
	assert.Equal(t, start, c.Now())
	assert.Equal(t, start.Add(time.Second), c.Advance(time.Second))
	c.Advance(-2 * time.Second)
	assert.Equal(t, start.Add(-time.Second), c.Now())
	c.Set(start)
	assert.Equal(t, start, c.Now())
}

func TestRecorderTellsTheStory(t *testing.T) {
	clock := testutil.NewClock()
	b := testutil.NewBreaker(t, "billing", resilience.Config{FailMax: 1, Clock: clock})
	r := testutil.Record(t, b)
	_ = b.Do(t.Context(), func(context.Context) error { return errors.New("down") })
	r.Want("closed → open")
	assert.Equal(t, "\t00:00:00.000 closed → open (consecutive failures, 1 of 1 failed, after 0s)\n", r.String())
	r.Forget()
	r.Want()
}

// failures is a testing.TB that keeps what would have failed the test.
type failures struct {
	testing.TB
	lines []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

func TestAssertionsSayWhatTheySaw(t *testing.T) {
	f := &failures{TB: t}
	testutil.Record(f, testutil.NewBreaker(t, "billing", resilience.Config{})).Want("closed → open")
	u := testutil.NewFaultyServer(f, nil)
	u.WantRequests(1)
	u.Refuse()
	taken, err := net.Listen("tcp", strings.TrimPrefix(u.URL(), "http://"))
	require.NoError(t, err)
	u.Accept()
	require.NoError(t, taken.Close())
	require.Len(t, f.lines, 3)
	assert.Equal(t, "transitions are\nwant\n\tclosed → open", f.lines[0])
	assert.Equal(t, "0 requests reached the server, want 1", f.lines[1])
	assert.Contains(t, f.lines[2], "address already in use")
}

// The guide's "test your own breaker in ten lines", as it stands there.
func TestBillingRecovers(t *testing.T) {
	charge := func(ctx context.Context, url string) error {
		_, err := get(ctx, url)
		return err
	}
	clock, upstream := testutil.NewClock(), testutil.NewFaultyServer(t, nil)
	b := testutil.NewBreaker(t, "billing", resilience.Config{Clock: clock})
	seen := testutil.Record(t, b)
	upstream.Always(testutil.Status(500))
	for range 100 {
		_ = b.Do(t.Context(), func(ctx context.Context) error { return charge(ctx, upstream.URL()) })
	}
	upstream.WantRequests(5)
	upstream.Recover()
	clock.Advance(time.Minute)
	require.NoError(t, b.Do(t.Context(), func(ctx context.Context) error { return charge(ctx, upstream.URL()) }))
	seen.Want("closed → open", "open → half_open", "half_open → closed")
}

func TestStampedeStartsTogetherAndWaitsForAll(t *testing.T) {
	var running atomic.Int64
	all := make(chan struct{})
	errs := testutil.Stampede(50, func() error {
		if running.Add(1) == 50 {
			close(all)
		}
		<-all
		return io.EOF
	})
	require.Len(t, errs, 50)
	assert.NotContains(t, errs, nil)
}

// crowd calls an upstream that lives in a function.
func crowd(t *testing.T, c resilience.Config, call func(down bool) error) testutil.Crowd {
	c.Logger = slog.New(slog.DiscardHandler)
	b := testutil.NewBreaker(t, "crowd", c)
	clock, _ := c.Clock.(*testutil.FakeClock)
	var seen atomic.Int64
	var down atomic.Bool
	var release atomic.Value
	return testutil.Crowd{
		N: 40, Breaker: b, Clock: clock,
		Call: func() error {
			return b.Do(context.Background(), func(context.Context) error {
				seen.Add(1)
				if held, ok := release.Load().(<-chan struct{}); ok {
					<-held
				}
				return call(down.Load())
			})
		},
		Fail: func() { down.Store(true) },
		Heal: func(r <-chan struct{}) { release.Store(r); down.Store(false) },
		Seen: func() int { return int(seen.Load()) },
	}
}

// broken is an upstream that fails while it is down.
func broken(down bool) error {
	if down {
		return io.EOF
	}
	return nil
}

func TestCrowdThroughAnOutage(t *testing.T) {
	crowd(t, resilience.Config{Clock: testutil.NewClock()}, broken).ThroughAnOutage(t)
	for name, call := range map[string]func(bool) error{
		"an upstream that never fails":  func(bool) error { return nil },
		"an upstream that stays away":   func(bool) error { return io.EOF },
		"a breaker that was left alone": nil,
	} {
		c, fake := crowd(t, resilience.Config{Clock: testutil.NewClock()}, call), &failures{TB: t}
		if call == nil {
			c.Call = func() error { return resilience.ErrOpen }
		}
		c.ThroughAnOutage(fake)
		assert.NotEmpty(t, fake.lines, name)
	}
}

func TestCrowdWhileItFlaps(t *testing.T) {
	quick := resilience.Config{ResetTimeout: time.Millisecond}
	c := crowd(t, quick, broken)
	c.WhileItFlaps(t, 10)
	assert.Positive(t, c.Breaker.Snapshot().Failures)

	aside := crowd(t, quick, broken)
	aside.Call = func() error { return nil }
	twice := crowd(t, quick, broken)
	once := twice.Seen
	twice.Seen = func() int { return 2 * once() }
	for name, c := range map[string]testutil.Crowd{
		"calls that pass the breaker by": aside,
		"two requests a call":            twice,
	} {
		fake := &failures{TB: t}
		c.WhileItFlaps(fake, 4)
		assert.NotEmpty(t, fake.lines, name)
	}
}

func TestIsolateSurvivesEachEnd(t *testing.T) {
	ends := map[string]func(){"return": func() {}, "panic": func() { panic("boom") }, "goexit": runtime.Goexit}
	for name, end := range ends {
		ran := false
		testutil.Isolate(func() { ran = true; end() })
		assert.True(t, ran, name)
	}
}
