package vectorstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/milvus-io/milvus-sdk-go/v2/client"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/vectorstore/internal/sdkopt"
)

// Iterator reads the rows of a query a batch at a time. The whole iteration is
// one call at the breaker, decided at its end, at the first error or at Close.
// It is for one goroutine at a time.
type Iterator struct {
	it   *client.QueryIterator
	expr string
	call *door.Handle
	done error // what Next gives after the end
}

// QueryIterator starts reading the rows that the option's expression matches;
// the first batch is fetched at once. Among the output fields must be the
// primary key. The SDK reads with the collection's consistency; see [Strong].
// Close the iterator; where ctx ends, the call's slot comes back even if nobody
// does.
func QueryIterator(ctx context.Context, c Server, opt *client.QueryIteratorOption) (*Iterator, error) {
	return Guard{}.QueryIterator(ctx, c, opt)
}

// QueryIterator is the package's QueryIterator through the guard's breaker.
func (g Guard) QueryIterator(ctx context.Context, c Server, opt *client.QueryIteratorOption) (*Iterator, error) {
	t := target{name: nameIterator, label: "query_iterator", client: c, invalid: checkStrong(ctx, c)}
	if opt == nil {
		return nil, &ArgumentError{Op: t.name, Reason: "no option"}
	}
	asked := sdkopt.ReadIterator(opt)
	t.collection = asked.Collection
	if asked.BatchSize > math.MaxInt32 { // the SDK would read everything
		return nil, &ArgumentError{Op: t.name, Reason: fmt.Sprintf("batches of %d rows", asked.BatchSize)}
	}
	return door.Open(ctx, g.through(), t.operation(), func(h *door.Handle) (*Iterator, error) {
		it, err := c.QueryIterator(context.WithValue(h.Context(), pageKey{}, asked.Expr), opt)
		if err != nil {
			return nil, err
		}
		h.Keep()
		return &Iterator{it: it, expr: asked.Expr, call: h}, nil
	})
}

const nameIterator = "QueryIterator"

// Next returns the next batch, or io.EOF after the last one. After an error it
// returns that error again.
func (i *Iterator) Next(ctx context.Context) (set client.ResultSet, err error) {
	if i.done != nil {
		return nil, i.done
	}
	i.done = door.ErrPanicked // unless it returns
	i.call.Use(func() { set, err = i.next(ctx) })
	i.done = err
	return set, err
}

func (i *Iterator) next(ctx context.Context) (client.ResultSet, error) {
	iteration := i.call.Context()
	page, cancel := context.WithCancel(asKept(context.WithValue(ctx, pageKey{}, i.expr)))
	defer cancel()
	defer context.AfterFunc(iteration, cancel)()
	if strong(iteration) {
		page = Strong(page)
	}
	set, err := i.it.Next(page)
	if err == nil {
		if wrong := evenRows(set); wrong != nil {
			err = &ContractError{Op: nameIterator, Reason: wrong.Error()}
		}
	}
	switch {
	case err == nil:
		i.call.Renew()
		return set, nil
	case iteration.Err() != nil:
		err = endOf(iteration) // which reached the SDK as a cancellation of the page
	case err != io.EOF && errors.Is(err, io.EOF): //nolint:errorlint // callers do compare with errors.Is
		err = &ContractError{Op: nameIterator, Reason: "it broke off: " + err.Error()}
	}
	if iteration.Err() != nil {
		ctx = iteration // its caller has left, or its time is up
	}
	i.call.EndFor(ctx, err)
	return nil, err
}

// Close ends the iteration early and gives the call's slot back. A healthy
// iteration that is cut short is a success. It never fails and may be called
// again.
func (i *Iterator) Close() error {
	i.call.End(nil)
	if i.done == nil {
		i.done = io.EOF
	}
	return nil
}
