package llm

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/internal/door"
)

// wait is one call of a door, as it stands in the call's context. The transport
// tells the door through it what the SDK drops: headers, the status of an error
// that broke off, the last line of a stream, the keys that were sent. The door
// lends the transport the lease of a probe.
type wait struct {
	operation string       // "" where the request is no door's
	lease     *door.Handle // nil where the call holds none
	outer     *wait        // of a door around this one, or nil

	told   atomic.Pointer[http.Header] // with the time that the server wants
	status atomic.Int32                // of an error that broke off
	done   atomic.Bool                 // its stream has said [DONE]
	sent   atomic.Pointer[[]string]    // keys
}

type waitKey struct{}

// withWait returns a context in which waitOf finds w.
func withWait(ctx context.Context, w *wait) context.Context {
	w.outer, _ = ctx.Value(waitKey{}).(*wait)
	return context.WithValue(ctx, waitKey{}, w)
}

// waitOf is the call of a door that a request belongs to, or an empty one.
func waitOf(ctx context.Context) *wait {
	if w, ok := ctx.Value(waitKey{}).(*wait); ok {
		return w
	}
	return &wait{lease: door.HandleOf(ctx)}
}

// read keeps the headers of an answer, if they name a time to wait.
func (w *wait) read(h http.Header) {
	if _, ok := httpdoor.RetryAfter(h, time.Now()); ok {
		w.told.Store(&h)
	}
}

// header is what read has kept, or nil.
func (w *wait) header() http.Header {
	if h := w.told.Load(); h != nil {
		return *h
	}
	return nil
}

// settling is what it takes to end a call that has run out of its time.
const settling = time.Second

// hold keeps a probe's lease through a silence that the client ends itself.
func (w *wait) hold(silence time.Duration) {
	for ; w != nil; w = w.outer {
		if w.lease != nil {
			w.lease.RenewFor(max(silence, silence+settling)) // no overflow
		}
	}
}

// heard ends what hold began: the lease has its usual time again.
func (w *wait) heard() {
	for ; w != nil; w = w.outer {
		if w.lease != nil {
			w.lease.Renew()
		}
	}
}

// keys are those that were sent, none with a client of another make.
func (w *wait) keys() []string {
	if sent := w.sent.Load(); sent != nil {
		return *sent
	}
	return nil
}
