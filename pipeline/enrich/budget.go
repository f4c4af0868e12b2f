package enrich

import "sync"

// budget is what may be spent, in tokens.
type budget struct {
	limit int // zero means unlimited

	mu       sync.Mutex
	settled  *sync.Cond
	spent    int
	promised int  // to questions on their way
	over     bool // a question was refused
}

func newBudget(limit int) *budget {
	b := &budget{limit: limit}
	b.settled = sync.NewCond(&b.mu)
	return b
}

// take promises tokens to a question. While others are on their way that may
// cost less than was promised to them, it waits. From the first refusal on
// everything is refused.
func (b *budget) take(tokens int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.limit > 0 && !b.over && b.spent+b.promised+tokens > b.limit {
		if b.promised == 0 {
			b.over = true
			break
		}
		b.settled.Wait()
	}
	if b.over {
		return false
	}
	b.promised += tokens
	return true
}

// settle replaces a promise by what was spent.
func (b *budget) settle(promised, spent int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.promised -= promised
	b.spent += spent
	b.settled.Broadcast()
}

func (b *budget) spentUp() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// total is what was spent.
func (b *budget) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}
