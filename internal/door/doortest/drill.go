package doortest

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// Drill takes a door through an outage. Its breaker opens after five failures
// and is seen by Prometheus at each step.
type Drill struct {
	t       testing.TB
	Breaker *resilience.Breaker // on Clock, the defaults otherwise
	Clock   *testutil.FakeClock
	seen    *testutil.Recorder
}

// NewDrill makes the breaker of a drill.
func NewDrill(t testing.TB) *Drill {
	t.Helper()
	clock := testutil.NewClock()
	name, cfg := "drill "+t.Name(), resilience.Config{Clock: clock}
	b, err := resilience.Default.Register(name, cfg)
	if err != nil { // the test runs more than once
		b, err = resilience.Default.Replace(name, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &Drill{t: t, Breaker: b, Clock: clock, seen: testutil.Record(t, b)}
	d.Gauge(resilience.Closed)
	return d
}

// Gauge holds circuit_breaker_state, as Prometheus reads it, against a state.
func (d *Drill) Gauge(want resilience.State) {
	d.t.Helper()
	page := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(d.t.Context(), "GET", "/metrics", nil))
	line := fmt.Sprintf("circuit_breaker_state{upstream=%q} %d\n", d.Breaker.Name(), want)
	if !strings.Contains(page.Body.String(), line) {
		d.t.Fatalf("the gauge of a breaker that is %v does not read %d", want, want)
	}
}

// Opens makes five calls that fail by themselves, one that is refused, one that
// probes in vain at the reset time, and one that is refused after it. Each
// failure must pass check, unless that is nil.
func (d *Drill) Opens(call func() error, check func(error) bool) {
	d.t.Helper()
	for i := range 5 {
		d.fails(call(), fmt.Sprintf("call %d", i+1), check)
	}
	d.refuses(call())
	d.Clock.Advance(d.Breaker.Config().ResetTimeout)
	d.Gauge(resilience.HalfOpen)
	d.fails(call(), "the probe", check)
	d.refuses(call())
}

func (d *Drill) fails(err error, which string, check func(error) bool) {
	d.t.Helper()
	if err == nil || errors.Is(err, resilience.ErrOpen) || check != nil && !check(err) {
		d.t.Fatalf("%s of an outage must fail with the upstream's own error: %v", which, err)
	}
}

func (d *Drill) refuses(err error) {
	d.t.Helper()
	if !errors.Is(err, resilience.ErrOpen) {
		d.t.Fatalf("the breaker must refuse in the outage: %v", err)
	}
	d.Gauge(resilience.Open)
}

// Closes sees the breaker close by one probe, after an outage that Opens has
// seen begin and that has ended by now. With patience it lets more probes fail,
// each after its wait: a connection may need a moment longer than its server.
func (d *Drill) Closes(call func() error, patience time.Duration) {
	d.t.Helper()
	d.refuses(call()) // until the wait is over
	for deadline := time.Now().Add(patience); ; {
		d.Clock.Advance(d.Breaker.Config().ResetTimeout)
		d.Gauge(resilience.HalfOpen)
		err := call()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the probe after the outage: %v", err)
		}
	}
	d.Gauge(resilience.Closed)
	if err := call(); err != nil {
		d.t.Fatalf("a call after the outage: %v", err)
	}
	if patience == 0 {
		d.seen.Want("closed → open", "open → half_open", "half_open → open",
			"open → half_open", "half_open → closed")
	}
}
