package resilience

import (
	"context"
	"sync"
)

type taskKey struct{}

// task is the latch of one unit of orchestrated work: the refusal that it got
// from each breaker.
type task struct {
	id string

	mu      sync.Mutex
	refused map[*Breaker]error
}

// WithTask marks ctx, and every context derived from it, as one unit of
// orchestrated work, such as one activity attempt. Once a breaker has refused
// a call of the task, every later call of the task through that breaker gets
// that same error at once, even after the reset time: a retry loop inside a
// task cannot turn into a probe. Calls in flight finish.
//
// The latch belongs to the context that WithTask returns, not to the id, which
// is for logs: the next attempt starts afresh under the same id. A nested
// WithTask shares the outer task.
func WithTask(ctx context.Context, id string) context.Context {
	if taskOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, taskKey{}, &task{id: id})
}

func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(taskKey{}).(*task)
	return t
}

// refusal is what b told the task before, or nil. t may be nil.
func (t *task) refusal(b *Breaker) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[b]
}

// latch keeps the first refusal of b and returns the one that is kept.
func (t *task) latch(b *Breaker, err error) error {
	if t == nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first, ok := t.refused[b]; ok {
		return first
	}
	if t.refused == nil {
		t.refused = make(map[*Breaker]error)
	}
	t.refused[b] = err
	return err
}
