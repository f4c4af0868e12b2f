package parse

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/pipeline/block"
)

// A batch goes to the reader when it is full by either measure, so that the
// cost of changing goroutines is paid once for many small blocks.
const (
	batchBlocks = 64
	batchBytes  = 32 << 10
)

var errStopped = errors.New("the reader of the blocks has stopped")

// errCallerLeft marks the end of the caller's own context.
var errCallerLeft = errors.New("caller left")

type callerLeft struct{ error }

func (e callerLeft) Unwrap() error        { return e.error }
func (e callerLeft) Is(target error) bool { return target == errCallerLeft }

// run is one parser at work in its own goroutine, which is abandoned if it does
// not come back in time: Go cannot end it, but nobody waits for it.
type run struct {
	parser Parser
	in     Input
	source *guardedSource
	cancel context.CancelFunc
	out    chan batch
	done   <-chan struct{}
	crew   *crew
	state  atomic.Uint32 // atWork, then ended or abandoned, whichever comes first

	pending batch
	offset  int64
	text    bool
	unread  error // the first note
}

type batch struct {
	blocks []block.Block
	bytes  int
	err    error
	last   bool
}

const (
	atWork uint32 = iota
	ended
	abandoned
)

func startRun(ctx context.Context, parser Parser, in Input, source *guardedSource, crew *crew) *run {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{
		parser: parser, in: in, source: source, cancel: cancel, out: make(chan batch, 1), done: ctx.Done(),
		crew: crew,
	}
	crew.working.Add(1)
	go r.parse(ctx)
	return r
}

// stop ends the run for its reader. A parser that is still at work is counted
// until it comes back.
func (r *run) stop() {
	r.cancel()
	if r.state.CompareAndSwap(atWork, abandoned) {
		r.crew.addAbandoned(1)
	}
}

func (r *run) parse(ctx context.Context) {
	defer func() {
		if !r.state.CompareAndSwap(atWork, ended) {
			r.crew.addAbandoned(-1)
		}
		r.crew.working.Add(-1)
	}()
	err := r.parseRecovering(ctx)
	if err == nil {
		err = r.source.failure()
	}
	if err == nil && !r.text {
		err = refuse(empty, r.unread)
	}
	r.pending.err, r.pending.last = err, true
	_ = r.flush()
}

func (r *run) parseRecovering(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Kind: crashed, Err: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
		}
	}()
	if !streams(r.parser) {
		limit := r.in.budget.limits.MaxSize
		if r.in.Size > limit {
			return refuse(TooLarge, fmt.Errorf("%d bytes, and the limit is %d (MaxSize, --max-size)", r.in.Size, limit))
		}
	}
	return r.parser.Parse(ctx, r.in, r.emit)
}

// emit takes a block from the parser.
func (r *run) emit(b block.Block) error {
	select {
	case <-r.done:
		return errStopped // nobody waits any more
	default:
	}
	if err := r.in.budget.work.spend(unitsOfStep + unitsOfTextByte*int64(len(b.Text))); err != nil {
		return err
	}
	b = cleanBlock(b)
	if b.Text == "" {
		return nil
	}
	if b.Kind == block.Note && r.unread == nil {
		r.unread = errors.New(b.Section + ": " + b.Text)
	}
	b.Offset = r.offset
	if b.Kind != block.Title && b.Kind != block.Note {
		r.offset += int64(len(b.Text)) + 1
		r.text = true
	}
	r.pending.blocks = append(r.pending.blocks, b)
	r.pending.bytes += len(b.Text)
	if len(r.pending.blocks) < batchBlocks && r.pending.bytes < batchBytes {
		return nil
	}
	return r.flush()
}

func (r *run) flush() error {
	select {
	case r.out <- r.pending:
		r.pending = batch{}
		return nil
	case <-r.done:
		return errStopped
	}
}

// deliver hands the blocks to yield. Only the time spent waiting for the parser
// counts towards the limit.
func (r *run) deliver(ctx context.Context, yield func(block.Block, error) bool) error {
	looks := time.NewTicker(max(r.in.budget.limits.Timeout/looksPerLimit, time.Millisecond))
	defer looks.Stop()
	for {
		b, err := r.next(ctx, looks.C)
		if err != nil {
			return err
		}
		for _, one := range b.blocks {
			if !yield(one, nil) {
				return nil
			}
		}
		if b.last {
			return b.err
		}
	}
}

// looksPerLimit is how often the progress of a parser is looked at in the time
// that it may do without.
const looksPerLimit = 20

// next waits for a batch as long as the parser makes progress.
func (r *run) next(ctx context.Context, looks <-chan time.Time) (batch, error) {
	s := &silence{limit: r.in.budget.limits.Timeout}
	s.begin(r.now())
	for {
		select {
		case b := <-r.out:
			if b.err != nil && ctx.Err() != nil {
				return batch{}, callerLeft{ctx.Err()}
			}
			return b, nil
		case <-ctx.Done():
			return batch{}, callerLeft{ctx.Err()}
		case <-looks:
			if err := s.look(r.now()); err != nil {
				return batch{}, err
			}
		}
	}
}

func (r *run) now() moment {
	return moment{
		at: time.Now(), cpu: r.in.budget.limits.ProcessorTime(),
		progress: r.in.budget.work.done.Load(), parsers: r.crew.working.Load(),
	}
}

// maxLeftBehind is how many parsers of a Registry may be at work for nobody.
const maxLeftBehind = 16

// crew are the parsers of a Registry that are at work, and those among them
// that did not come back when their reader left.
type crew struct {
	working atomic.Int64

	mu      sync.Mutex
	left    int
	changed chan struct{} // closed when there is one less; nil if nobody waits
}

// addAbandoned adds to the number of parsers that are at work for nobody. A
// negative n is for those that have ended.
func (c *crew) addAbandoned(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left += n; n < 0 && c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// room returns nil, or what is closed once it is worth asking again.
func (c *crew) room() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < maxLeftBehind {
		return nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// wait returns when there is room for one more parser that may not come back.
func (c *crew) wait(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		changed := c.room()
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return callerLeft{ctx.Err()}
		case <-timer.C:
			err := fmt.Errorf("%d other parsers still work on documents that were given up; only a new process ends them",
				maxLeftBehind)
			return &Error{Kind: TimedOut, Later: true, Hint: "run again", Err: err}
		}
	}
}

// cleanBlock makes every string of a block fit to be shown and stored.
func cleanBlock(b block.Block) block.Block {
	b.Text, b.Header = clean(b.Text), clean(b.Header)
	b.Lang, b.Section = clean(b.Lang), clean(b.Section)
	if b.Kind == block.Code {
		b.Text = strings.TrimRight(strings.Trim(b.Text, "\n"), " \t\n")
		if strings.TrimSpace(b.Text) == "" {
			b.Text = ""
		}
		return b
	}
	b.Text = strings.TrimSpace(b.Text)
	return b
}
