package httpdoor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
)

func TestEveryStatusHasItsOutcome(t *testing.T) {
	const success, failure, ignored, throttled, denied = resilience.Success, resilience.Failure, resilience.Ignored,
		resilience.Throttled, resilience.Denied
	exceptions := map[int]resilience.Outcome{
		401: denied, 407: denied, 403: ignored, 408: failure, 421: ignored, 425: ignored, 429: throttled,
		501: success, 505: success,
	}
	for status := range 700 {
		want, ok := exceptions[status]
		switch {
		case ok:
		case status < 100, status >= 500:
			want = failure
		default:
			want = success
		}
		got := httpdoor.Classify(t.Context(), &http.Response{StatusCode: status}, nil)
		assert.Equal(t, resilience.Verdict{Outcome: want}, got, status)
	}
}

func TestTimesToWait(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, row := range []struct {
		headers []string
		want    time.Duration
		named   bool
	}{
		{nil, 0, false},
		{[]string{"Retry-After", "7"}, 7 * time.Second, true},
		{[]string{"Retry-After", " 1.5 "}, 1500 * time.Millisecond, true},
		{[]string{"Retry-After", "0"}, 0, true},
		{[]string{"Retry-After", "-3"}, 0, true},
		{[]string{"Retry-After", "NaN"}, 0, false},
		{[]string{"Retry-After", "soon"}, 0, false},
		{[]string{"Retry-After", ""}, 0, false},
		{[]string{"Retry-After", "1e300"}, 365 * 24 * time.Hour, true},
		{[]string{"Retry-After", "+Inf"}, 365 * 24 * time.Hour, true},
		{[]string{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}, 365 * 24 * time.Hour, true},
		{[]string{"Retry-After", date(9 * time.Second)}, 9 * time.Second, true},
		{[]string{"Retry-After", date(-time.Hour)}, 0, true},
		{[]string{"Retry-After", date(time.Hour), "Date", date(59 * time.Minute)}, time.Minute, true},
		{[]string{"Retry-After", date(time.Hour), "Date", "now"}, time.Hour, true},
		{[]string{"Retry-After-Ms", "250", "Retry-After", "9"}, 250 * time.Millisecond, true},
		{[]string{"Retry-After-Ms", "0", "Retry-After", "9"}, 9 * time.Second, true},
	} {
		h := http.Header{}
		for pair := range slices.Chunk(row.headers, 2) {
			h.Set(pair[0], pair[1])
		}
		got, named := httpdoor.RetryAfter(h, now)
		assert.Equal(t, row.want, got, row.headers)
		assert.Equal(t, row.named, named, row.headers)
	}
}

// A wait of none is no wait: the server is down.
func TestUnavailableForATimeThrottles(t *testing.T) {
	for _, status := range []int{503, 529} {
		for value, unavailable := range map[string]bool{
			"5": true, "0": false, "-1": false, "soon": false, "Thu, 01 Jan 1970 00:00:00 GMT": false,
		} {
			want := resilience.Verdict{Outcome: resilience.Failure}
			if unavailable {
				want = resilience.Verdict{
					Outcome: resilience.Throttled, Unavailable: true, RetryAfter: 5 * time.Second,
				}
			}
			r := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {value}}}
			assert.Equal(t, want, httpdoor.Classify(t.Context(), r, nil), "%d %q", status, value)
		}
	}
	r := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"5"}}}
	want := resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 5 * time.Second}
	assert.Equal(t, want, httpdoor.Classify(t.Context(), r, nil))
	r.StatusCode = 500
	assert.Equal(t, resilience.Verdict{Outcome: resilience.Failure}, httpdoor.Classify(t.Context(), r, nil))
}

func TestErrorsInPlaceOfAResponse(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, row := range []struct {
		ctx  context.Context
		err  error
		want resilience.Outcome
	}{
		{t.Context(), errors.New("connection refused"), resilience.Failure},
		{t.Context(), context.DeadlineExceeded, resilience.Failure},
		{t.Context(), context.Canceled, resilience.Failure}, // not the caller's
		{left, errors.New("connection reset"), resilience.Ignored},
		{left, context.DeadlineExceeded, resilience.Ignored},
		{
			t.Context(), &url.Error{Op: "Get", Err: errors.New(`net/http: invalid header field value for "A"`)},
			resilience.Ignored,
		},
		{t.Context(), &url.Error{Op: "Get", Err: resilience.ErrOpen}, resilience.Ignored},
	} {
		assert.Equal(t, row.want, httpdoor.Classify(row.ctx, nil, row.err).Outcome, "%v", row.err)
	}
}

func TestReasonsAreOneWord(t *testing.T) {
	refused := &url.Error{Op: "Get", Err: resilience.ErrOpen}
	for want, err := range map[string]error{
		"503":          &httpdoor.StatusError{StatusCode: 503},
		"circuit_open": refused,
		"unsent":       &url.Error{Op: "Get", Err: errors.New(`net/http: invalid header field value for "A"`)},
		"contract":     &httpdoor.ContractError{},
		"cancelled":    &url.Error{Op: "Get", Err: context.Canceled},
		"timeout":      os.ErrDeadlineExceeded,
		"connection":   &net.OpError{Op: "dial", Err: errors.New("refused")},
		"":             errors.New("something"),
	} {
		assert.Equal(t, want, httpdoor.Reason(nil, err), "%v", err)
	}
	assert.Equal(t, "timeout", httpdoor.Reason(nil, context.DeadlineExceeded))
	assert.Equal(t, "connection", httpdoor.Reason(nil, io.ErrUnexpectedEOF))
	assert.Equal(t, "404", httpdoor.Reason(&http.Response{StatusCode: 404}, nil))
}
