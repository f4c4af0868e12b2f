package statuspage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/resilience"
)

// strips draws the night as of now.
func (n *night) strips() timelineView {
	now := n.now()
	return newTimelineView(windowAt(n.began, now), n.breakers(now), &n.slots)
}

// An outage of a quarter of an hour was 24 entries that said the same.
func TestAnOutageIsOneSpan(t *testing.T) {
	n := situations["open"](t)
	n.clock.Set(threeOClock)
	changes := n.strips().Changes
	require.Len(t, changes, 2)
	now, before := changes[0], changes[1]
	assert.Equal(t, "Model server", now.Upstream.Title)
	assert.Equal(t, 16, now.Probes)
	assert.True(t, now.To.IsZero())
	assert.Equal(t, errOnFire.Error(), now.Because)
	assert.Equal(t, "7 min 13 s", before.Took(), "to the end of the probe that closed it")
	assert.Equal(t, 6, before.Probes)

	page := n.get("/changes").Body.String()
	assert.Equal(t, 2, strings.Count(page, `<li class="change`))
	assert.Contains(t, page, "5 of 5 calls failed; 16 probes failed after that")
	assert.Contains(t, n.strips().Strips[0].Label, "closed for 4 h 43 min; open for 17 min 48 s, 1 time")
}

// A breaker that waits long for its probe was half-open, which no event says.
func TestTheWaitForAProbeIsASpan(t *testing.T) {
	n := newNight(t, nil)
	n.clock.Set(threeOClock.Add(-time.Hour))
	calls(n.llm, 5, errOnFire)
	n.clock.Set(threeOClock)
	all := n.breakers(n.now())[0].spans
	require.Len(t, all, 3)
	assert.Equal(t, resilience.HalfOpen, all[2].State)
	assert.Equal(t, time.Minute, all[1].To.Sub(all[1].From))

	calls(n.llm, 1, errOnFire)
	all = n.breakers(n.now())[0].spans
	require.Len(t, all, 4)
	assert.Equal(t, []resilience.State{resilience.Closed, resilience.Open, resilience.HalfOpen, resilience.Open},
		[]resilience.State{all[0].State, all[1].State, all[2].State, all[3].State})
	assert.Equal(t, 59*time.Minute, all[2].To.Sub(all[2].From))
	assert.Equal(t, threeOClock.Add(-time.Hour), n.breakers(n.now())[0].Since, "since it left closed")
}

// Six hours of probes and a breaker that flaps take little memory.
func TestTimelineIsBounded(t *testing.T) {
	n := newNight(t, nil)
	calls(n.llm, 5, errOnFire)
	for range 400 {
		n.clock.Advance(time.Minute)
		calls(n.llm, 1, errOnFire)
	}
	assert.Len(t, n.timelines.spans["llm"], 2)
	assert.Equal(t, 400, n.timelines.spans["llm"][1].Probes)
	for range 2 * spansKept {
		n.s3.ForceOpen("drill")
		n.s3.Reset()
	}
	n.s3.ForceOpen("the last")
	assert.Len(t, n.timelines.spans["s3"], spansKept)
	assert.Equal(t, "the last", n.strips().Changes[0].Why)
	assert.Contains(t, n.get("/").Body.String(), `<a id="all-changes" href="/changes">All`)
	assert.Equal(t, changesShown, strings.Count(n.get("/").Body.String(), `<li class="change`))
}

// Blocks lie within the strip, short outages can be seen, and an outage is not
// covered by the closed state after it.
func TestBlocks(t *testing.T) {
	w := windowAt(threeOClock.Add(-8*time.Hour), threeOClock)
	assert.Equal(t, threeOClock.Truncate(time.Minute).Add(time.Minute), w.to)
	at := func(ago time.Duration) time.Time { return w.to.Add(-ago) }
	for name, row := range map[string]struct {
		span     span
		x, width float64
		ok       bool
	}{
		"over before":      {span{From: at(8 * time.Hour), To: at(7 * time.Hour)}, 0, 0, false},
		"reaches into it":  {span{From: at(8 * time.Hour), To: at(5 * time.Hour)}, 0, 60, true},
		"inside":           {span{From: at(2 * time.Hour), To: at(time.Hour)}, 240, 60, true},
		"lasts":            {span{From: at(time.Hour)}, 300, 60, true},
		"clock set back":   {span{From: at(time.Hour), To: at(2 * time.Hour)}, 300, 0, true},
		"short and open":   {span{State: resilience.Open, From: at(time.Hour), To: at(time.Hour - 1)}, 300, 2, true},
		"short at the end": {span{State: resilience.Open, From: at(time.Second)}, 358, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, ok := w.block(row.span)
			require.Equal(t, row.ok, ok)
			assert.InDelta(t, row.x, b.X, 0.001)
			assert.InDelta(t, row.width, b.Width, 0.001)
			assert.LessOrEqual(t, b.Y+b.Height, stripHeight)
		})
	}
	n := situations["quiet"](t)
	blocks := n.strips().Strips[1].Blocks
	assert.Equal(t, "open", blocks[len(blocks)-1].Class)
	assert.Contains(t, blocks[len(blocks)-1].Title, "6 probes failed: rpc error")
}

// The first hour of a service fills the strip.
func TestWindowOfAYoungService(t *testing.T) {
	for ago, want := range map[time.Duration]string{
		0: "The last hour", 59 * time.Minute: "The last hour", 61 * time.Minute: "The last six hours",
	} {
		w := windowAt(threeOClock.Add(-ago), threeOClock)
		assert.Equal(t, want, w.Name(), ago)
		assert.InDelta(t, w.Wide(), w.clip(w.to), 0.001)
		assert.Len(t, w.Ticks(), 3)
	}
}

// The strips move once a minute, so that an idle page is not sent again.
func TestTimelineMovesOncePerMinute(t *testing.T) {
	n := situations["open"](t)
	n.clock.Set(threeOClock)
	before := n.strips()
	n.clock.Advance(40 * time.Second)
	assert.Equal(t, before.Strips[1], n.strips().Strips[1])
	n.clock.Advance(10 * time.Second)
	assert.NotEqual(t, before.from, n.strips().from)
}

func TestChartOfDocuments(t *testing.T) {
	n := newNight(t, nil)
	n.clock.Set(threeOClock.Add(-7 * time.Hour))
	n.pass(time.Minute, nil, map[pipeline.Result]int{pipeline.Ingested: 5_000}) // out of sight by three
	n.clock.Set(threeOClock.Add(-30 * time.Minute))
	n.pass(time.Second, nil,
		map[pipeline.Result]int{pipeline.Ingested: 90, pipeline.DeadLetter: 10, pipeline.Unchanged: 7})
	n.clock.Advance(10 * time.Minute)
	n.pass(time.Second, nil, map[pipeline.Result]int{pipeline.Ingested: 1})
	n.clock.Advance(10 * time.Minute)
	n.PassBegins(n.clock.Now())
	n.PassEnds(pipeline.Summary{}, errors.New("cannot list docs"), n.clock.Now(), n.clock.Now())
	n.clock.Set(threeOClock)
	chart := n.strips().Chart
	assert.Equal(t, 100, chart.Most)
	assert.Equal(t, "The last six hours: 91 documents ingested, 10 new dead letters, 3 passes, 1 of them ended early",
		chart.Label)
	var drawn []string
	for _, b := range chart.Bars {
		drawn = append(drawn, fmt.Sprintf("%s %.0f+%.0f", b.Class, b.Y, b.Height))
		assert.LessOrEqual(t, b.X+b.Width, shown.Minutes())
	}
	assert.Equal(t, []string{"ingested 4+36", "dead 0+4", "ingested 38+2", "early 42+6"}, drawn)
	assert.Contains(t, chart.Bars[0].Title, "02:30 to 02:35 UTC: 90 documents ingested, 10 new dead letters, 1 pass")

	for range 1000 {
		n.clock.Advance(slotLength)
		n.pass(0, nil, map[pipeline.Result]int{pipeline.Ingested: 1})
	}
	assert.LessOrEqual(t, len(n.slots.all), int(shown/slotLength)+1)
}

// A wall clock that was set back adds to the last bar.
func TestChartWithAClockThatWasSetBack(t *testing.T) {
	var s slots
	s.document(threeOClock, pipeline.Ingested)
	s.document(threeOClock.Add(-time.Hour), pipeline.Ingested)
	require.Len(t, s.all, 1)
	assert.Equal(t, 2, s.all[0].ingested)
}

func TestPassesThatEndForTheSameReasonAreOneLine(t *testing.T) {
	n := situations["denied"](t)
	v := n.passes.view(n.now())
	require.NotEmpty(t, v.Last)
	assert.Equal(t, 11, v.Last[0].Times)
	body := n.get("/").Body.String()
	assert.Contains(t, body, "<strong>11 passes</strong>, the last one with 4 documents, 4 deferred")
	assert.Contains(t, body, `<span class="label">denied by llm</span> as above`)
}

func TestSpell(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "0 s", 400 * time.Millisecond: "0 s", time.Second: "1 s", 59*time.Second + 600*time.Millisecond: "1 min",
		61 * time.Second: "1 min 1 s", time.Hour: "1 h", time.Hour + time.Second: "1 h", 90 * time.Minute: "1 h 30 min",
		26 * time.Hour: "1 d 2 h", 30 * 24 * time.Hour: "30 d",
	} {
		assert.Equal(t, want, spell(in), in)
	}
	assert.Equal(t, "1,234,567", thousands("1234567"))
	assert.Equal(t, "123", thousands("123"))
	assert.Equal(t, "02:59", moment(threeOClock.Add(-time.Minute), threeOClock))
	assert.Equal(t, "2026-02-27 03:00", moment(threeOClock.Add(-48*time.Hour), threeOClock), "not just an hour")
}
