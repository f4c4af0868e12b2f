package httpdoor

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// StatusSiteOverloaded is sent by some services that are busy, with and without
// a time to wait. It has no name in net/http.
const StatusSiteOverloaded = 529

// outcomes are the statuses that are not read by their hundred. RFC 9110 has
// all of them but 425 (RFC 8470) and 429 (RFC 6585).
var outcomes = map[int]resilience.Outcome{
	http.StatusUnauthorized:      resilience.Denied,
	http.StatusProxyAuthRequired: resilience.Denied,
	http.StatusTooManyRequests:   resilience.Throttled,

	// The server waited for the whole request, and did not get it.
	http.StatusRequestTimeout: resilience.Failure,
	// The caller's, or the way's that the request took.
	http.StatusForbidden:          resilience.Ignored,
	http.StatusMisdirectedRequest: resilience.Ignored,
	http.StatusTooEarly:           resilience.Ignored,
	// The service answers that it has no such thing, whatever the hundred.
	http.StatusNotImplemented:          resilience.Success,
	http.StatusHTTPVersionNotSupported: resilience.Success,
}

// Classify says what a response, or the error in its place, means for the
// breaker:
//
//   - 1xx, 2xx, 3xx, 4xx other than those below, 501 and 505: success; the
//     service answers, even if to say that the request is wrong
//   - 401 and 407: denied
//   - 429, and 503 and 529 that name a time to wait of more than none:
//     throttled; the latter are unavailable too, which counts towards opening
//   - 403, 421 and 425: ignored; the caller is at fault, or the way that the
//     request took
//   - 408, any other 5xx, and other numbers: failure
//   - what was never sent, such as a header with a line break, and the refusal
//     of another breaker: ignored
//   - the caller's own cancellation: ignored; any other error, a deadline of any
//     origin included: failure
//
// Exactly one of r and err is used; err takes precedence.
func Classify(caller context.Context, r *http.Response, err error) resilience.Verdict {
	if err == nil && r != nil {
		return ofStatus(r.StatusCode, r.Header, time.Now())
	}
	v := resilience.Verdict{Outcome: resilience.Failure}
	if err == nil || door.Unsent(err) || door.Refused(err) {
		v.Outcome = resilience.Ignored
	}
	return door.For(caller, v)
}

func ofStatus(status int, h http.Header, now time.Time) resilience.Verdict {
	v := resilience.Verdict{Outcome: resilience.Failure}
	switch out, ok := outcomes[status]; {
	case ok:
		v.Outcome = out
	case status >= 100 && status < 500:
		v.Outcome = resilience.Success
	}
	away := status == http.StatusServiceUnavailable || status == StatusSiteOverloaded
	if !away && v.Outcome != resilience.Throttled {
		return v
	}
	if wait, _ := RetryAfter(h, now); wait > 0 {
		v = resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: wait, Unavailable: away}
	}
	return v
}

// Reason is what Classify goes by in one word, for logs, labels and spans: the
// status as a number, circuit_open, unsent, contract, cancelled, timeout or
// connection; "" for an error that it knows nothing of.
func Reason(r *http.Response, err error) string {
	if err == nil && r != nil {
		return strconv.Itoa(r.StatusCode)
	}
	if failed, ok := errors.AsType[*StatusError](err); ok {
		return strconv.Itoa(failed.StatusCode)
	}
	var (
		contract *ContractError
		network  net.Error
		broken   *net.OpError
	)
	switch {
	case door.Refused(err):
		return "circuit_open"
	case door.Unsent(err):
		return "unsent"
	case errors.As(err, &contract):
		return "contract"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &broken), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "connection"
	}
	return ""
}

// longestWait bounds what a header can ask for. The breaker's MaxThrottle is
// far below it.
const longestWait = 365 * 24 * time.Hour

// RetryAfter reads the headers that name a time to wait: retry-after-ms, which
// some services send, or Retry-After in seconds or as an HTTP date. The date is
// compared with the server's own clock where the answer has a Date, and else
// with now. The second result says whether a header names one; none in the past
// is 0, and a year at most.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok && d > 0 {
		return d, true
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := number(value, time.Second); ok {
		return d, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), longestWait), true
}

// number reads a count of units, which may have a fraction. Negative ones are
// no wait, absurd ones a long one.
func number(value string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	return time.Duration(min(max(n, 0)*float64(unit), float64(longestWait))), true
}
