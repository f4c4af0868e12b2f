package vectorstore

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/milvus-io/milvus-sdk-go/v2/client"

	"github.com/penstock-go/penstock/internal/trace"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore/internal/sdkopt"
)

// Iterator reads the rows of a query a batch at a time. The whole iteration is
// one call at the breaker, decided at its end, at the first error or at Close.
// It is for one goroutine at a time.
type Iterator struct {
	it     *client.QueryIterator
	o      op
	expr   string
	permit *resilience.Permit
	tell   func(resilience.Verdict)
	span   *trace.Span
	timed  func() // records how long it took
	caller context.Context
	busy   atomic.Bool
	stop   func() bool

	once sync.Once
	done error // what Next gives after the end
}

// QueryIterator starts reading the rows that the option's expression matches;
// the first batch is fetched at once. Among the output fields must be the
// primary key. The SDK reads with the collection's consistency. Close the
// iterator; where ctx ends, the call's slot comes back even if nobody does.
func QueryIterator(ctx context.Context, c QueryIterable, opt *client.QueryIteratorOption) (*Iterator, error) {
	return Guard{}.QueryIterator(ctx, c, opt)
}

// QueryIterator is the package's QueryIterator through the guard's breaker.
func (g Guard) QueryIterator(ctx context.Context, c QueryIterable, opt *client.QueryIteratorOption) (*Iterator, error) {
	o := op{name: "QueryIterator", label: "query_iterator", client: c}
	if opt == nil {
		return nil, &ArgumentError{Op: o.name, Reason: "no option"}
	}
	if isNil(c) {
		return nil, &ArgumentError{Op: o.name, Reason: errNoClient.Error()}
	}
	asked := sdkopt.ReadIterator(opt)
	o.collection = asked.Collection
	b := g.breaker()
	ctx, span := o.start(ctx, b)
	permit, err := b.Allow(ctx)
	if err != nil {
		span.End(err, o.classify, errorType)
		return nil, err
	}
	i := &Iterator{o: o, expr: asked.Expr, permit: permit, tell: g.Settled, span: span, timed: stopwatch(b, o.label), caller: ctx}
	defer i.watch(&err)
	err = errPanicked
	if i.it, err = c.QueryIterator(context.WithValue(permit.Context(), pageKey{}, i.expr), opt); err != nil {
		i.end(ctx, err)
		return nil, err
	}
	i.stop = context.AfterFunc(ctx, i.forsaken)
	return i, nil
}

// forsaken ends the call when its context ends and nobody reads. A Next that
// is under way gets an error and decides itself.
func (i *Iterator) forsaken() {
	if i.busy.Load() {
		return
	}
	i.once.Do(func() {
		i.timed()
		i.settled(resilience.Verdict{Outcome: resilience.Ignored}, nil)
		i.span.End(context.Cause(i.caller), ignore, errorType)
	})
}

func (i *Iterator) settled(v resilience.Verdict, err error) {
	i.permit.Settle(v, err)
	if i.tell != nil {
		i.tell(v)
	}
}

// rest is the end of a Next. Where the context ended meanwhile, nobody may come
// back.
func (i *Iterator) rest() {
	i.busy.Store(false)
	if i.caller.Err() != nil {
		i.forsaken()
	}
}

// watch ends the call where the SDK panics or ends the goroutine, both of
// which go on: err is errPanicked until it has returned.
func (i *Iterator) watch(err *error) {
	if *err != errPanicked { //nolint:errorlint // the very value
		return
	}
	i.once.Do(func() {
		i.timed()
		i.done = errPanicked
		i.permit.Panicked()
		i.span.End(errPanicked, ignore, errorType)
	})
}

// Next returns the next batch, or io.EOF after the last one. After an error it
// returns that error again.
func (i *Iterator) Next(ctx context.Context) (client.ResultSet, error) {
	if i.done != nil {
		return nil, i.done
	}
	i.busy.Store(true)
	defer i.rest()
	ctx, cancel := context.WithCancel(context.WithValue(ctx, pageKey{}, i.expr))
	defer cancel()
	defer context.AfterFunc(i.permit.Context(), cancel)()
	err := errPanicked
	defer i.watch(&err)
	set, err := i.it.Next(ctx)
	if err == nil {
		err = i.accept(set)
	}
	if err != nil {
		switch {
		case errors.Is(i.permit.Context().Err(), context.DeadlineExceeded):
			err = context.DeadlineExceeded // the iteration's own, which reached the SDK as a cancellation
		case err != io.EOF && errors.Is(err, io.EOF): //nolint:errorlint // callers do compare with errors.Is
			err = &ContractError{Op: i.o.name, Reason: "it broke off: " + err.Error()}
		}
		i.end(ctx, err)
		return nil, err
	}
	i.permit.Renew()
	return set, nil
}

func (i *Iterator) accept(set client.ResultSet) error {
	if err := evenRows(set); err != nil {
		return &ContractError{Op: i.o.name, Reason: err.Error()}
	}
	return nil
}

// Close ends the iteration early and gives the call's slot back. A healthy
// iteration that is cut short is a success. It never fails and may be called
// again.
func (i *Iterator) Close() error {
	i.end(context.Background(), io.EOF)
	return nil
}

func (i *Iterator) end(ctx context.Context, err error) {
	if i.stop != nil {
		i.stop()
	}
	i.once.Do(func() {
		i.timed()
		i.done = err
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the end; a broken connection may wrap one
			err = nil
		}
		verdict := resilience.Verdict{Outcome: resilience.Success}
		if err != nil {
			verdict = i.o.classify(ctx, err)
		}
		i.settled(verdict, err)
		i.span.End(err, i.o.classify, errorType)
	})
}
