package statuspage

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline"
)

// passesKept is how many passes are listed, not counting idle ones.
const passesKept = 6

// passes follows the passes of a service.
type passes struct {
	mu      sync.Mutex
	running bool
	current passView   // the last one if none is running
	ended   bool       // current has
	last    []passView // without idle ones, newest first
	next    time.Time
}

// passView is a pass as the page shows it.
type passView struct {
	Number    int
	Began     time.Time
	Took      time.Duration
	Documents int
	Counts    []count // by result, in the order of results
	Chunks    int
	Embedded  int
	Stopped   string // why it ended early
	byResult  [len(results)]int
}

// count is how many documents had one result.
type count struct {
	Name string
	N    int
}

var results = [...]struct {
	result pipeline.Result
	name   string
}{
	{pipeline.Ingested, "ingested"},
	{pipeline.Unchanged, "unchanged"},
	{pipeline.DeadLetter, "new dead letters"},
	{pipeline.KnownDeadLetter, "known dead letters"},
	{pipeline.Deferred, "deferred"},
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
	p.current = passView{Number: p.current.Number + 1, Began: at}
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
	switch {
	case summary.Stopped != nil:
		ended.Stopped = clean(string(summary.Stopped.Kind) + ": " + summary.Stopped.Reason)
	case fault != nil:
		ended.Stopped = clean(fault.Error())
	}
	p.current, p.ended = ended, true
	if ended.eventful() {
		p.last = slices.Insert(p.last, 0, ended)
		p.last = p.last[:min(len(p.last), passesKept)]
	}
}

// eventful reports whether the pass did more than list the inputs.
func (v passView) eventful() bool {
	return v.Stopped != "" ||
		v.Documents > v.byResult[indexOf(pipeline.Unchanged)]+v.byResult[indexOf(pipeline.KnownDeadLetter)]
}

// counted fills in Counts.
func (v passView) counted() passView {
	v.Counts = nil
	for i, r := range results {
		v.Counts = append(v.Counts, count{r.name, v.byResult[i]})
	}
	return v
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
	Last    []passView
	Next    time.Time
}

func (p *passes) view() progressView {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := progressView{Running: p.running, Ended: p.ended, Current: p.current, Last: slices.Clone(p.last), Next: p.next}
	if p.running {
		v.Current = p.current.counted()
		v.Current.Took = time.Since(v.Current.Began)
	}
	return v
}
