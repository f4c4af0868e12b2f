package parse

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"
)

// Limits bound what one document may cost. A field of zero or less means its
// default. Messages name the field and the flag of cmd/ingest that sets it.
type Limits struct {
	// MaxSize is the largest document that is read whole, in bytes: 100 MB.
	// Text, CSV and JSON Lines stream and may be larger.
	MaxSize int64
	// Timeout is how much processor time a parser may use without progress: one
	// minute. Progress is a page, an entry, a row, a block, or bytes that are
	// read. Waiting for the reader of the blocks does not count.
	//
	// Which goroutine had the processor is not known. What the process has used
	// is divided among the parsers at work, so a parser that waits while the
	// machine is busy with something else uses none. One that makes no progress
	// for ten times as long by the clock is given up too, but nothing is known
	// of its document (Error.Later).
	Timeout time.Duration
	// MaxWork is how many steps of work a document may take for each of its
	// bytes, those that it unpacks to included: 1. Any document may take
	// 131,072 besides. A page, an entry, a row, a block, 32 bytes of text and a
	// kilobyte read or unpacked are one step each.
	MaxWork int64
	// MaxEntries is how many members a container may have, those of containers
	// inside it included: 10,000.
	MaxEntries int
	// MaxUnpacked is how many bytes a container may unpack to, containers
	// inside it included: 1 GB.
	MaxUnpacked int64
	// MaxRatio is how many times its packed size a member may unpack to, once
	// it is over a megabyte: 200.
	MaxRatio int64
	// MaxDepth is how deep containers may be nested: 4.
	MaxDepth int
	// MaxMemory is how many bytes of memory the engine that reads PDF may take
	// for one document, besides its size: 128 MB. As many documents as there
	// are processors are read at a time.
	MaxMemory int64

	// ProcessorTime is how much processor time this process has used. Default:
	// what the operating system says; where it does not say, the time since the
	// start.
	ProcessorTime func() time.Duration
}

const (
	megabyte   = 1 << 20
	ratioGrace = megabyte // small members may compress as well as they like
)

func (l Limits) withDefaults() Limits {
	if l.ProcessorTime == nil {
		l.ProcessorTime = processorTime
	}
	return Limits{
		MaxSize:       orDefault(l.MaxSize, 100*megabyte),
		Timeout:       orDefault(l.Timeout, time.Minute),
		MaxWork:       orDefault(l.MaxWork, 1),
		MaxEntries:    orDefault(l.MaxEntries, 10_000),
		MaxUnpacked:   orDefault(l.MaxUnpacked, 1024*megabyte),
		MaxRatio:      orDefault(l.MaxRatio, 200),
		MaxDepth:      orDefault(l.MaxDepth, 4),
		MaxMemory:     orDefault(l.MaxMemory, 128*megabyte),
		ProcessorTime: l.ProcessorTime,
	}
}

// String lists the limits in a form that is equal for equal ones.
func (l Limits) String() string {
	return fmt.Sprintf("%d bytes, %s, %d steps, %d entries, %d unpacked, ratio %d, depth %d, %d of memory",
		l.MaxSize, l.Timeout, l.MaxWork, l.MaxEntries, l.MaxUnpacked, l.MaxRatio, l.MaxDepth, l.MaxMemory)
}

func orDefault[N int | int64 | time.Duration](n, standard N) N {
	if n <= 0 {
		return standard
	}
	return n
}

// Units of work.
const (
	unitsOfStep     = 1024
	unitsOfTextByte = unitsOfStep / 32
	stepsForAny     = 128 << 10 // steps that any document may take
)

// meter counts the work on one document: a parser that makes progress adds to
// it, and what it may add is bounded by the size of the document.
type meter struct {
	perByte int64 // MaxWork
	done    atomic.Int64
	bytes   atomic.Int64 // of the document, and what it has unpacked to
}

// spend adds units of work.
func (m *meter) spend(units int64) error {
	if done := m.done.Add(units); done > m.allowed() {
		return refuse(TooLarge, fmt.Errorf("it takes more than %d steps to parse (MaxWork, --max-work)",
			m.allowed()/unitsOfStep))
	}
	return nil
}

// allowed is how many units the work may take.
func (m *meter) allowed() int64 {
	units := (stepsForAny + float64(m.perByte)*float64(m.bytes.Load())) * unitsOfStep
	return int64(min(units, math.MaxInt64/2))
}

// budget is what is left for a container and all that is inside it.
type budget struct {
	limits   Limits
	depth    int
	entries  *atomic.Int64
	unpacked *atomic.Int64
	work     *meter
}

func newBudget(l Limits, size int64) *budget {
	b := &budget{limits: l, entries: new(atomic.Int64), unpacked: new(atomic.Int64), work: &meter{perByte: l.MaxWork}}
	b.work.bytes.Store(size)
	return b
}

// inside is the budget for the members of a container in this one.
func (b *budget) inside() (*budget, error) {
	if b.depth >= b.limits.MaxDepth {
		return nil, refuse(TooLarge, fmt.Errorf("containers are nested more than %d deep (MaxDepth, --max-depth)",
			b.limits.MaxDepth))
	}
	inner := *b
	inner.depth++
	return &inner, nil
}

// entry takes one member from the budget.
func (b *budget) entry() error {
	if n := b.entries.Add(1); n > int64(b.limits.MaxEntries) {
		return b.tooManyEntries()
	}
	return b.step()
}

func (b *budget) tooManyEntries() error {
	return refuse(TooLarge, fmt.Errorf("more than %d members (MaxEntries, --max-entries)", b.limits.MaxEntries))
}

// step takes one step of work from the budget.
func (b *budget) step() error { return b.work.spend(unitsOfStep) }

// passing counts what a parser reads of a text that is in memory.
func (b *budget) passing(r io.Reader) io.Reader { return &passingReader{r: r, work: b.work} }

type passingReader struct {
	r    io.Reader
	work *meter
}

func (r *passingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if over := r.work.spend(int64(n)); over != nil {
		return 0, over
	}
	return n, err
}

// reader bounds what r may give: packed is the size of the member before it was
// unpacked, or 0 if that is not known.
func (b *budget) reader(r io.Reader, packed int64) io.Reader {
	return &budgetReader{r: r, budget: b, packed: packed}
}

type budgetReader struct {
	r      io.Reader
	budget *budget
	packed int64
	read   int64
}

func (r *budgetReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.read += int64(n)
	if over := r.budget.spend(int64(n), r.read, r.packed); over != nil {
		return 0, over
	}
	return n, err
}

// spend takes n bytes of a member from the budget; unpacked is how many there
// have been of the member, and packed its size before.
func (b *budget) spend(n, unpacked, packed int64) error {
	switch total := b.unpacked.Add(n); {
	case total > b.limits.MaxUnpacked:
		return refuse(TooLarge, fmt.Errorf("unpacks to more than %d bytes (MaxUnpacked, --max-unpacked)",
			b.limits.MaxUnpacked))
	case unpacked > b.limits.MaxSize:
		return refuse(TooLarge, fmt.Errorf("a member unpacks to more than %d bytes (MaxSize, --max-size)",
			b.limits.MaxSize))
	case packed > 0 && unpacked > ratioGrace && unpacked/packed > b.limits.MaxRatio:
		return refuse(TooLarge, fmt.Errorf("a member unpacks to more than %d times its size (MaxRatio, --max-ratio)",
			b.limits.MaxRatio))
	}
	b.work.bytes.Add(n)
	return b.work.spend(n)
}

// patience is how many times Limits.Timeout a parser may make no progress by
// the clock.
const patience = 10

// silence is the time in which a parser makes no progress.
type silence struct {
	limit    time.Duration
	began    time.Time
	progress int64 // as last seen

	at   time.Time     // of the last look
	cpu  time.Duration // that the process had used then
	used time.Duration // by the parser, in the silence
}

// moment is what is seen at one look.
type moment struct {
	at       time.Time
	cpu      time.Duration // that the process has used
	progress int64
	parsers  int64 // at work, this one included
}

// begin starts a silence.
func (s *silence) begin(now moment) {
	s.began, s.progress, s.at, s.cpu, s.used = now.at, now.progress, now.at, now.cpu, 0
}

// look reports that the parser is to be given up.
func (s *silence) look(now moment) error {
	if now.progress != s.progress {
		s.begin(now)
		return nil
	}
	share := (now.cpu - s.cpu) / time.Duration(max(1, now.parsers))
	s.used += min(share, now.at.Sub(s.at)) // a parser is one goroutine
	s.at, s.cpu = now.at, now.cpu
	switch silent := now.at.Sub(s.began); {
	case s.used >= s.limit:
		return refuse(TimedOut, fmt.Errorf(
			"the parser made no progress in %s of processor time (Timeout, --parse-timeout)", s.limit))
	case silent >= patience*s.limit:
		return &Error{Kind: TimedOut, Later: true, Hint: laterHint, Err: fmt.Errorf(
			"the parser made no progress in %s, and had %s of processor time: the machine may be busy, or it waits "+
				"for something; run again, or give it more time (Timeout, --parse-timeout)",
			silent.Round(time.Second), s.used.Round(time.Millisecond))}
	}
	return nil
}
