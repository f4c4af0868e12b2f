package parse

import (
	"cmp"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// Limits bound what one document may cost. A zero field means its default.
type Limits struct {
	// MaxSize is the largest document that is read whole, in bytes: 100 MB.
	// Text, CSV and JSON Lines stream and may be larger.
	MaxSize int64
	// Timeout is how long a parser may work on a document: one minute, plus a
	// second for each megabyte. Waiting for the reader of the blocks does not
	// count.
	Timeout time.Duration
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
}

const (
	megabyte   = 1 << 20
	ratioGrace = megabyte // small members may compress as well as they like
)

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxSize:     cmp.Or(l.MaxSize, 100*megabyte),
		Timeout:     cmp.Or(l.Timeout, time.Minute),
		MaxEntries:  cmp.Or(l.MaxEntries, 10_000),
		MaxUnpacked: cmp.Or(l.MaxUnpacked, 1024*megabyte),
		MaxRatio:    cmp.Or(l.MaxRatio, 200),
		MaxDepth:    cmp.Or(l.MaxDepth, 4),
	}
}

// timeout is the time a document of this size may take.
func (l Limits) timeout(size int64) time.Duration {
	return l.Timeout + time.Duration(size/megabyte)*time.Second
}

// budget is what is left for a container and all that is inside it.
type budget struct {
	limits   Limits
	depth    int
	entries  *atomic.Int64
	unpacked *atomic.Int64
}

func newBudget(l Limits) *budget {
	return &budget{limits: l, entries: new(atomic.Int64), unpacked: new(atomic.Int64)}
}

// inside is the budget for the members of a container in this one.
func (b *budget) inside() (*budget, error) {
	if b.depth >= b.limits.MaxDepth {
		return nil, refuse(tooLarge, fmt.Errorf("containers are nested more than %d deep (MaxDepth)",
			b.limits.MaxDepth))
	}
	inner := *b
	inner.depth++
	return &inner, nil
}

// entry takes one member from the budget.
func (b *budget) entry() error {
	if n := b.entries.Add(1); n > int64(b.limits.MaxEntries) {
		return refuse(tooLarge, fmt.Errorf("more than %d members (MaxEntries)", b.limits.MaxEntries))
	}
	return nil
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
		return refuse(tooLarge, fmt.Errorf("unpacks to more than %d bytes (MaxUnpacked)", b.limits.MaxUnpacked))
	case unpacked > b.limits.MaxSize:
		return refuse(tooLarge, fmt.Errorf("a member unpacks to more than %d bytes (MaxSize)", b.limits.MaxSize))
	case packed > 0 && unpacked > ratioGrace && unpacked/packed > b.limits.MaxRatio:
		return refuse(tooLarge, fmt.Errorf("a member unpacks to more than %d times its size (MaxRatio)",
			b.limits.MaxRatio))
	}
	return nil
}
