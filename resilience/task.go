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
	refused map[any]error // by Breaker.latch
}

// nameKey is what a task knows a breaker of a registry by, so that one that was
// replaced, or forgotten and made again, is the same to the task.
type nameKey struct {
	registry *Registry
	name     string
}

// WithTask marks ctx, and every context derived from it, as one unit of
// orchestrated work, such as one activity attempt. Once a breaker has refused
// a call of the task, every later call of the task through that breaker gets
// that same error at once, even after the reset time: a retry loop inside a
// task cannot turn into a probe. Calls in flight finish.
//
// The latch belongs to the context that WithTask returns, not to the id, which
// is for logs: the next attempt starts afresh under the same id. A nested
// WithTask shares the outer task, so that a library may call it without
// knowing whether its caller has.
//
// A task should be as short as what the orchestrator runs again. A worker that
// lives long begins a new one for each job, with NewTask.
func WithTask(ctx context.Context, id string) context.Context {
	if taskOf(ctx) != nil {
		return ctx
	}
	return NewTask(ctx, id)
}

// NewTask is WithTask for a new unit of work, also where ctx belongs to a task
// already: nothing that the outer task was refused holds in it, or the other
// way round. It belongs where a worker takes a job, never inside one.
func NewTask(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, taskKey{}, &task{id: id})
}

// WithoutTask leaves the task of ctx, for work that outlives it, such as a
// connection that is kept for other tasks.
func WithoutTask(ctx context.Context) context.Context {
	if taskOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, taskKey{}, (*task)(nil))
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
	return t.refused[b.latch]
}

// latch keeps the first refusal of b and returns the one that is kept.
func (t *task) latch(b *Breaker, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first, ok := t.refused[b.latch]; ok {
		return first
	}
	if t.refused == nil {
		t.refused = make(map[any]error)
	}
	t.refused[b.latch] = err
	return err
}
