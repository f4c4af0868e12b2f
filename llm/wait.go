package llm

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
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

// wait carries the time to wait from the transport, which sees each answer's
// headers, to the classifier, which sees the SDK's error alone. The SDK drops
// the headers for streams and base64 vectors.
type wait struct {
	operation string // tells the transport which call of a door it is
	told      atomic.Pointer[time.Duration]
}

type waitKey struct{}

// withWait returns a context in which note finds w.
func withWait(ctx context.Context, w *wait) context.Context {
	return context.WithValue(ctx, waitKey{}, w)
}

// operationOf is the call of a door that a request belongs to, or "".
func operationOf(ctx context.Context) string {
	if w, ok := ctx.Value(waitKey{}).(*wait); ok {
		return w.operation
	}
	return ""
}

// note keeps what the headers of an answer to a request with ctx say.
func note(ctx context.Context, h http.Header) {
	if w, ok := ctx.Value(waitKey{}).(*wait); ok {
		w.read(h)
	}
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
