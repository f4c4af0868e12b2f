package resilience_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
	"github.com/penstock-go/penstock/testutil"
)

// model is the breaker as one would explain it: one call at a time, lists
// instead of words, bits and rings, written from the rules, not from the code.
type model struct {
	cfg  resilience.Config
	name string // of the state, as committed
	gen  int

	now, openedAt, openedUntil, notBefore, newest int
	streak, good, badProbes                       int
	rampFrom, rampUntil, credit                   int          // credit in parts per million of a call
	calls                                         []modelCall  // of the closed state
	probes                                        map[int]int  // id → end of lease
	silent                                        map[int]bool // counted when their leases ran out
	nextProbe                                     int
	forced                                        string // as Snapshot.Held says it
	opened, stale, rejected, shed, shadowed       int
	openUntil                                     func(opening int) int // as drawn by the breaker
	outcomes                                      [5]int
	moves                                         []string
}

type modelCall struct {
	at     int
	failed bool
}

type modelTicket struct {
	gen, probe int
	shadow     bool // let through in place of a refusal
}

const second = int(time.Second)

func (m *model) goTo(state string, why string) {
	m.moves = append(m.moves, m.name+">"+state+" "+why)
	if m.name == "closed" {
		m.badProbes = 0
	}
	m.name, m.gen, m.good, m.probes, m.rampUntil = state, m.gen+1, 0, map[int]int{}, 0
	switch state {
	case "open":
		m.opened++
	case "closed":
		m.streak, m.calls = 0, nil
	}
}

func (m *model) open(at, until int, why string) {
	m.openedUntil = max(until, m.notBefore)
	m.openedAt = at
	m.goTo("open", why)
}

func (m *model) reset() int { return int(m.cfg.ResetTimeout) }

// reopen is open after a failed probe: the wait is doubled for each in a row,
// up to the most, and may be anything from half of that on.
func (m *model) reopen(at int, why string) {
	m.badProbes++
	shortest, longest := m.reset(), m.reset()
	if most := int(m.cfg.MaxResetTimeout); most > 0 {
		for range m.badProbes {
			longest = min(2*longest, most)
		}
		shortest = max(m.reset(), longest/2)
	}
	until := m.openUntil(m.opened)
	if until < max(at+shortest, m.notBefore) || until > max(at+longest, m.notBefore) {
		panic(fmt.Sprintf("the wait after probe %d ends at %d, not between %d and %d after %d, hold %d",
			m.badProbes, until, shortest, longest, at, m.notBefore))
	}
	m.open(at, until, why)
}

// share is what part of the calls is admitted, in parts per million.
func (m *model) share() int {
	if m.rampUntil == 0 || m.newest >= m.rampUntil {
		return 1_000_000
	}
	return max(100_000, (m.newest-m.rampFrom)*1_000_000/int(m.cfg.Ramp))
}

// passTime ends the lease that ran out first.
func (m *model) passTime() {
	m.newest = max(m.newest, m.now)
	first, end := 0, -1
	for id, e := range m.probes {
		if end < 0 || e < end || e == end && id < first {
			first, end = id, e
		}
	}
	if m.name == "half_open" && end >= 0 && end <= m.newest {
		m.outcomes[resilience.Failure]++
		m.silent[first] = true
		m.reopen(end, "lease")
	}
}

func (m *model) reads() string {
	m.passTime()
	if m.name == "open" && m.forced == "" && m.newest >= m.openedUntil {
		return "half_open"
	}
	return m.name
}

func (m *model) ask() (modelTicket, bool) {
	m.passTime()
	switch {
	case m.name == "closed" && m.share() == 1_000_000:
		m.rampUntil = 0
		return modelTicket{gen: m.gen}, true
	case m.name == "closed":
		if m.credit += m.share(); m.credit >= 1_000_000 {
			m.credit -= 1_000_000
			return modelTicket{gen: m.gen}, true
		}
		if !m.cfg.Shadow {
			m.shed++
			return modelTicket{}, false
		}
		m.shadowed++
		return modelTicket{shadow: true}, true
	case m.forced != "", m.newest < m.notBefore,
		m.name == "open" && m.newest < m.openedUntil,
		m.name == "half_open" && len(m.probes) >= m.cfg.MaxProbes:
		if !m.cfg.Shadow {
			m.rejected++
			return modelTicket{}, false
		}
		m.shadowed++
		return modelTicket{shadow: true}, true
	}
	if m.name == "open" {
		m.goTo("half_open", "elapsed")
	}
	m.nextProbe++
	m.probes[m.nextProbe] = m.newest + int(m.cfg.ProbeTimeout)
	return modelTicket{gen: m.gen, probe: m.nextProbe}, true
}

func (m *model) end(t modelTicket, o resilience.Outcome, retryAfter int, unavailable bool) {
	m.passTime()
	if o == resilience.Throttled && retryAfter > 0 {
		m.notBefore = max(m.notBefore, m.newest+min(retryAfter, int(m.cfg.MaxThrottle)))
		if m.name == "open" && m.forced == "" {
			m.openedUntil = max(m.openedUntil, m.notBefore)
		}
	}
	if t.shadow {
		m.outcomes[o]++
		return
	}
	_, alive := m.probes[t.probe]
	if t.gen != m.gen || t.probe != 0 && !alive {
		if !m.silent[t.probe] {
			m.stale++
		}
		return
	}
	m.outcomes[o]++
	if t.probe != 0 {
		delete(m.probes, t.probe)
		m.endProbe(o, retryAfter)
	} else {
		m.endClosed(o, retryAfter, o == resilience.Failure || o == resilience.Throttled && unavailable)
	}
}

func (m *model) endProbe(o resilience.Outcome, retryAfter int) {
	switch o {
	case resilience.Success:
		if m.good++; m.good >= m.cfg.SuccessThreshold {
			m.goTo("closed", "probe")
			if m.cfg.Ramp > 0 {
				m.rampFrom, m.rampUntil, m.credit = m.newest, m.newest+int(m.cfg.Ramp), 900_000
			}
		}
	case resilience.Failure:
		m.reopen(m.newest, "probe")
	case resilience.Throttled:
		m.openThrottled(retryAfter)
	case resilience.Denied:
		m.deny()
	case resilience.Ignored:
	}
}

func (m *model) openThrottled(retryAfter int) {
	wait := m.reset()
	if retryAfter > 0 {
		wait = min(retryAfter, int(m.cfg.MaxThrottle))
	}
	m.open(m.newest, m.newest+wait, "throttled")
}

func (m *model) deny() {
	if m.cfg.StopOnDenied {
		m.forced = "denied"
		m.open(m.newest, 1<<62, "denied")
	}
}

func (m *model) endClosed(o resilience.Outcome, retryAfter int, failed bool) {
	switch {
	case m.forced == "forced_closed":
	case o == resilience.Success:
		m.streak = 0
		m.calls = append(m.calls, modelCall{m.now, false})
	case failed && m.fails():
	case o == resilience.Throttled && m.cfg.OpenOnThrottle:
		m.openThrottled(retryAfter)
	case o == resilience.Denied:
		m.deny()
	}
}

// fails takes one counted failure and reports whether it opened the breaker.
func (m *model) fails() bool {
	m.streak++
	m.calls = append(m.calls, modelCall{m.now, true})
	failed, all := m.window()
	if !m.breaks(failed, all) {
		return false
	}
	m.open(m.newest, m.newest+m.reset(), "failures")
	return true
}

// window counts the calls that the rule looks at.
func (m *model) window() (failed, all int) {
	in := func(int, modelCall) bool { return true }
	switch w := m.cfg.Trip.(type) {
	case trip.CountWindow:
		in = func(i int, _ modelCall) bool { return i >= len(m.calls)-w.Size }
	case trip.TimeWindow:
		width := int(w.Period) / w.Buckets
		in = func(_ int, c modelCall) bool { return c.at/width > m.now/width-w.Buckets }
	}
	for i, c := range m.calls {
		if in(i, c) {
			all++
			if c.failed {
				failed++
			}
		}
	}
	return failed, all
}

func (m *model) breaks(failed, all int) bool {
	switch w := m.cfg.Trip.(type) {
	case trip.CountWindow:
		return all >= w.MinCalls && failed*1000 >= int(w.FailureRate*1000)*all
	case trip.TimeWindow:
		return all >= w.MinCalls && failed*1000 >= int(w.FailureRate*1000)*all
	}
	return m.streak >= m.cfg.FailMax
}

func (m *model) trip() {
	m.passTime()
	if m.forced != "" || m.name == "open" && m.newest < m.openedUntil {
		return
	}
	if m.name == "open" {
		m.goTo("half_open", "elapsed")
	}
	m.open(m.newest, m.newest+m.reset(), "trip")
}

func (m *model) force(state string) {
	m.passTime()
	if m.forced == state {
		return
	}
	m.forced = state
	if state == "forced_open" && m.name != "open" {
		m.open(m.newest, 1<<62, "force")
	}
	if state == "forced_closed" && m.name != "closed" {
		m.goTo("closed", "force")
	}
	if state == "forced_closed" {
		m.streak, m.calls, m.rampUntil = 0, nil, 0
	}
}

func (m *model) resetAll() {
	m.passTime()
	m.forced, m.notBefore = "", 0
	if m.name != "closed" {
		m.goTo("closed", "reset")
		return
	}
	m.gen, m.streak, m.calls, m.rampUntil = m.gen+1, 0, nil, 0
}

// pair drives a breaker and its model with the same random operations.
type pair struct {
	t      *testing.T
	rng    *rand.Rand
	b      *resilience.Breaker
	clock  *testutil.FakeClock
	start  time.Time
	m      *model
	mine   []modelTicket
	its    []*resilience.Permit
	recent []string // the last operations, to print
}

// Rules 2 to 8, 14, 15, 17, 18, 21, 22, 29, 30 and 34 to 36 against the model.
// The seed is printed; PENSTOCK_SEED repeats a run, PENSTOCK_LONG=1 makes it a
// million operations.
func TestRandomOperationsAgainstTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("PENSTOCK_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err)
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	rounds := 300
	if os.Getenv("PENSTOCK_LONG") == "1" {
		rounds = 3000
	}
	for round := range rounds {
		newPair(t, rng).run(round, 350)
	}
}

func newPair(t *testing.T, rng *rand.Rand) *pair {
	n := func(most int) int { return 1 + rng.IntN(most) }
	cfg := resilience.Config{
		FailMax: n(5), ResetTimeout: time.Duration(n(10) * second), ProbeTimeout: time.Duration(n(10) * second),
		MaxThrottle: time.Duration(n(20) * second), MaxProbes: n(3), SuccessThreshold: n(3),
		OpenOnThrottle: rng.IntN(2) == 0, StopOnDenied: rng.IntN(4) == 0, Logger: quiet,
	}
	rate := float64(n(10)) / 10
	switch rng.IntN(4) {
	case 0:
		size := n(8)
		cfg.FailMax, cfg.Trip = 0, trip.CountWindow{Size: size, MinCalls: n(size), FailureRate: rate}
	case 1:
		buckets := n(5)
		period := time.Duration(buckets * n(4) * second)
		cfg.FailMax, cfg.Trip = 0, trip.TimeWindow{Period: period, Buckets: buckets, MinCalls: n(5), FailureRate: rate}
	}
	if rng.IntN(3) == 0 {
		cfg.Ramp = time.Duration(n(30) * second)
	}
	if rng.IntN(3) == 0 {
		cfg.MaxResetTimeout = cfg.ResetTimeout * time.Duration(n(8))
	}
	cfg.Shadow = rng.IntN(8) == 0
	clock := testutil.NewClock()
	cfg.Clock = clock
	b := testutil.NewBreaker(t, "model", cfg)
	m := &model{cfg: b.Config(), name: "closed", probes: map[int]int{}, silent: map[int]bool{}}
	p := &pair{t: t, rng: rng, b: b, clock: clock, start: clock.Now(), m: m}
	var opened []int
	m.openUntil = func(opening int) int {
		if opening < len(opened) {
			return opened[opening]
		}
		return int(b.Snapshot().OpenUntil.Sub(p.start)) // by a lease that nobody but a reader has looked at
	}
	b.Observe(func(e resilience.Transition) {
		if e.To == resilience.Open && e.From != e.To {
			opened = append(opened, int(e.OpenUntil.Sub(p.start)))
		}
		p.recent = append(p.recent, fmt.Sprintf("  %v>%v %s", e.From, e.To, e.Reason))
	})
	return p
}

func (p *pair) run(round, steps int) {
	for i := range steps {
		p.recent = append(p.recent, p.act())
		p.compare(round, i)
	}
}

// act does one operation to both and names it.
func (p *pair) act() string {
	switch dice := p.rng.IntN(100); {
	case dice < 20:
		d := []int{1, second / 2, second, 3 * second, 10 * second}[p.rng.IntN(5)]
		p.clock.Advance(time.Duration(d))
		p.m.now += d
		return fmt.Sprint("time ", p.m.now)
	case dice < 55:
		return p.ask()
	case dice < 95 && len(p.its) > 0:
		return p.end()
	case dice == 95:
		p.b.Trip("model")
		p.m.trip()
		return "trip"
	case dice == 96:
		p.b.ForceOpen("model")
		p.m.force("forced_open")
		return "force open"
	case dice == 97:
		p.b.ForceClose("model")
		p.m.force("forced_closed")
		return "force close"
	case dice >= 98:
		p.b.Reset()
		p.m.resetAll()
		return "reset"
	}
	return "look"
}

func (p *pair) ask() string {
	permit, err := p.b.Allow(context.Background())
	ticket, ok := p.m.ask()
	require.Equal(p.t, ok, err == nil, "admission\n%v", p.recent)
	if ok {
		p.its, p.mine = append(p.its, permit), append(p.mine, ticket)
	}
	return fmt.Sprint("ask ", ok)
}

func (p *pair) end() string {
	i := p.rng.IntN(len(p.its))
	permit, ticket := p.its[i], p.mine[i]
	p.its, p.mine = slices.Delete(p.its, i, i+1), slices.Delete(p.mine, i, i+1)
	outcome := []resilience.Outcome{0, 0, 0, 1, 1, 1, 1, 2, 3, 4}[p.rng.IntN(10)]
	after := p.rng.IntN(4) * 5 * second
	unavailable := p.rng.IntN(2) == 0
	permit.Settle(resilience.Verdict{Outcome: outcome, RetryAfter: time.Duration(after), Unavailable: unavailable})
	p.m.end(ticket, outcome, after, unavailable)
	return fmt.Sprint("end ", ticket, outcome, after, unavailable)
}

func (p *pair) compare(round, step int) {
	reads := p.m.reads()
	s := p.b.Snapshot()
	m := p.m
	got := fmt.Sprintln(s.State.String(), s.Generation, s.Streak, s.Opened, s.Stale, s.Rejected, s.Probes,
		[]uint64{s.Successes, s.Failures, s.Ignored, s.Throttled, s.Denied},
		s.Shed, s.Shadowed, math.Round(s.RampShare*1e6), s.Held)
	want := fmt.Sprintln(reads, m.gen, m.streak, m.opened, m.stale, m.rejected, m.nextProbe, m.outcomes,
		m.shed, m.shadowed, float64(m.share()), m.forced)
	if got != want {
		p.t.Fatalf(
			"round %d, step %d\n got %s\nwant %s\n%+v\n%v\nmodel %v",
			round,
			step,
			got,
			want,
			m.cfg,
			p.recent,
			m.moves,
		)
	}
	if s.Opened > 0 {
		require.Equal(p.t, m.openedAt, int(s.LastOpened.Sub(p.start)), "opened at\n%v", p.recent)
	}
	if s.State != resilience.Closed && !s.OpenUntil.IsZero() {
		require.Equal(p.t, m.openedUntil, int(s.OpenUntil.Sub(p.start)), "open until\n%v", p.recent)
	}
	if s.State == resilience.Closed && m.forced == "" && m.cfg.FailMax == 0 {
		failed, all := m.window()
		require.Equal(p.t, [2]int{failed, all}, [2]int{s.WindowFailures, s.WindowCalls}, "window\n%v", p.recent)
	}
}
