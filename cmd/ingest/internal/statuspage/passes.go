package statuspage

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// passesKept is how many passes are listed, not counting idle ones; passes in a
// row that ended early for the same reason count as one.
const passesKept = 5

// passes follows the passes of a service.
type passes struct {
	mu      sync.Mutex
	running bool
	current passView   // the last one if none is running
	ended   bool       // one has
	failed  *ending    // of the last one that was not interrupted
	last    []passView // without idle ones, newest first
	next    time.Time
	waiting backlog
}

// backlog is what a pass left for later ones.
type backlog struct {
	N     int
	Least bool      // more may wait: not all inputs could be listed
	Since time.Time // zero if it is not known
}

// passView is a pass as the page shows it, or passes in a row that ended early
// for the same reason.
type passView struct {
	Number    int
	Times     int       // passes in a row
	First     time.Time // when the first of them began
	Began     time.Time
	Took      time.Duration
	Documents int
	Counts    []count // by result, in the order of results
	Chunks    int
	Embedded  int
	Early     *ending // nil if it did not end early
	byResult  [len(results)]int
}

// ending says why a pass ended early.
type ending struct {
	kind      stop.Kind // empty if the inputs could not be read
	partly    bool      // some of them could be
	upstream  string    // empty where none is to blame
	throttled bool
	Since     time.Time // the end of the first pass in a row that it ended
	RetryAt   time.Time // zero if time does not help
	Text      string    // what the upstream said, else the reason
}

// same reports whether two passes ended early for the same reason. Its text can
// differ by a number of milliseconds.
func (e *ending) same(other *ending) bool {
	if e == nil || other == nil {
		return false
	}
	return e.kind == other.kind && e.upstream == other.upstream && e.throttled == other.throttled &&
		(e.upstream != "" || plain.Pattern(e.Text, "") == plain.Pattern(other.Text, ""))
}

func (e *ending) interrupted() bool { return e != nil && e.kind == stop.Interrupted }

// Is says how the pass ended.
func (e *ending) Is() string {
	switch {
	case e.partly:
		return "without some inputs"
	case e.kind == "":
		return "not begun"
	case e.upstream == "":
		return string(e.kind)
	}
	return string(e.kind) + " by " + e.upstream
}

// newEnding is nil for a pass that went through.
func newEnding(summary pipeline.Summary, fault error, at time.Time) *ending {
	stopped := summary.Stopped
	switch {
	case stopped != nil:
		e := &ending{
			kind: stopped.Kind, upstream: stopped.Upstream, Since: at, Text: clean(stopped.Reason),
			throttled: stop.Throttled(fault),
		}
		if stopped.Cause != "" {
			e.Text = clean(stopped.Cause)
		}
		if stopped.RetryAt != nil {
			e.RetryAt = *stopped.RetryAt
		}
		return e
	case fault != nil:
		return &ending{Since: at, Text: clean(fault.Error()), partly: len(summary.Unlisted) > 0}
	}
	return nil
}

// count is how many documents had one result.
type count struct {
	N         int
	one, many string // what the result is called
}

// Name is what the result of so many documents is called.
func (c count) Name() string { return plain.Noun(c.N, c.one, c.many) }

var results = [...]struct {
	result    pipeline.Result
	one, many string
}{
	{pipeline.Ingested, "ingested", "ingested"},
	{pipeline.Unchanged, "unchanged", "unchanged"},
	{pipeline.DeadLetter, "new dead letter", "new dead letters"},
	{pipeline.KnownDeadLetter, "known dead letter", "known dead letters"},
	{pipeline.Deferred, "deferred", "deferred"},
	{pipeline.Skipped, "skipped", "skipped"},
	{pipeline.Gone, "gone", "gone"},
}

// indexOf finds a result among those that a pass can have.
func indexOf(result pipeline.Result) int {
	for i, r := range results {
		if r.result == result {
			return i
		}
	}
	return -1
}

func (p *passes) begin(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = true
	p.current = passView{Number: p.current.Number + 1, Times: 1, First: at, Began: at}
}

func (p *passes) document(d pipeline.Document) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.Documents++
	if i := indexOf(d.Result); i >= 0 {
		p.current.byResult[i]++
	}
	p.current.Embedded += d.Embedded
	if d.Result == pipeline.Ingested {
		p.current.Chunks += d.Chunks
	}
}

func (p *passes) end(summary pipeline.Summary, fault error, at, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.next = false, next
	ended := p.current.counted()
	ended.Took = at.Sub(ended.Began)
	ended.Early = newEnding(summary, fault, at)
	if ended.Early.same(p.failed) {
		ended.Early.Since = p.failed.Since
	}
	if !ended.Early.interrupted() {
		p.failed = ended.Early
	}
	if summary.Stopped != nil || fault == nil {
		p.waiting = newBacklog(summary)
	}
	p.current, p.ended = ended, true
	p.listLocked(ended)
}

func newBacklog(summary pipeline.Summary) backlog {
	b := backlog{N: summary.Waiting, Least: summary.WaitingAtLeast}
	if summary.WaitingSince != nil {
		b.Since = *summary.WaitingSince
	}
	return b
}

// listLocked adds a pass to the list, unless it was idle.
func (p *passes) listLocked(ended passView) {
	if !ended.eventful() {
		return
	}
	if len(p.last) > 0 && p.last[0].Number == ended.Number-1 && ended.Early.same(p.last[0].Early) {
		ended.Times, ended.First = p.last[0].Times+1, p.last[0].First
		p.last[0] = ended
		return
	}
	p.last = slices.Insert(p.last, 0, ended)
	p.last = p.last[:min(len(p.last), passesKept)]
}

// eventful reports whether the pass did more than list the inputs.
func (v passView) eventful() bool {
	worked := 0
	for _, result := range []pipeline.Result{pipeline.Ingested, pipeline.DeadLetter, pipeline.Deferred} {
		worked += v.byResult[indexOf(result)]
	}
	return v.Early != nil || worked > 0
}

// counted fills in Counts.
func (v passView) counted() passView {
	v.Counts = nil
	for i, r := range results {
		v.Counts = append(v.Counts, count{v.byResult[i], r.one, r.many})
	}
	return v
}

// Did says what the pass did with documents.
func (v passView) Did() string {
	parts := []string{plural(v.Documents, "document", "documents")}
	for _, c := range v.Counts {
		if c.N > 0 {
			parts = append(parts, plural(c.N, c.one, c.many))
		}
	}
	return strings.Join(parts, ", ")
}

// rated is the shortest pass whose rate is meaningful.
const rated = 100 * time.Millisecond

// Rate is documents per second, or 0 if the pass was too short to tell.
func (v passView) Rate() float64 {
	if v.Took < rated {
		return 0
	}
	return float64(v.Documents) / v.Took.Seconds()
}

// progressView is all of that at one moment.
type progressView struct {
	Running bool
	Ended   bool     // a pass has
	Current passView // the last one, where none is running
	Failed  *ending  // of the last pass that was not interrupted
	Last    []passView
	Next    time.Time
	Waiting backlog
}

func (p *passes) view(now time.Time) progressView {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := progressView{
		Running: p.running, Ended: p.ended, Current: p.current, Failed: p.failed,
		Last: slices.Clone(p.last), Next: p.next, Waiting: p.waiting,
	}
	if p.running {
		v.Current = p.current.counted()
		v.Current.Took = now.Sub(v.Current.Began)
	}
	return v
}
