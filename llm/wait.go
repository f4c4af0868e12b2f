package llm

import (
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/door"
)

// longestWait bounds what a header can ask for; the breaker's MaxThrottle is
// far below it.
const longestWait = 365 * 24 * time.Hour

// number reads a count of units, which may have a fraction. Negative ones are
// no wait, absurd ones a long one.
func number(value string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	return time.Duration(min(max(n, 0)*float64(unit), float64(longestWait))), true
}

// wait is one call of a door, as it stands in the call's context. The transport
// tells the door through it what the SDK drops: headers, the status of an error
// that broke off, the last line of a stream, the keys that were sent. The door
// lends the transport the lease of a probe.
type wait struct {
	operation string       // "" where the request is no door's
	lease     *door.Handle // nil where the call holds none
	outer     *wait        // of a door around this one, or nil

	told   atomic.Pointer[time.Duration] // the time that the server wants
	status atomic.Int32                  // of an error that broke off
	done   atomic.Bool                   // its stream has said [DONE]
	sent   atomic.Pointer[[]string]      // keys
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
	return new(wait)
}

// readError reads an error of the server's. Where it breaks off, the SDK says
// nothing of its status.
func (w *wait) readError(r io.Reader, status int) ([]byte, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		w.status.Store(int32(status))
	}
	return text, err
}

func (w *wait) read(h http.Header) {
	if d, ok := RetryAfter(h, time.Now()); ok {
		w.told.Store(&d)
	}
}

// get is the time to wait, zero where none was named.
func (w *wait) get() time.Duration {
	if d := w.told.Load(); d != nil {
		return *d
	}
	return 0
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
