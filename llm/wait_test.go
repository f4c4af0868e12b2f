package llm

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, row := range []struct {
		name, after, ms, date string
		want                  time.Duration
		told                  bool
	}{
		{name: "none"},
		{name: "seconds", after: "7", want: 7 * time.Second, told: true},
		{name: "blanks", after: " 7 ", want: 7 * time.Second, told: true},
		{name: "a fraction", after: "0.25", want: 250 * time.Millisecond, told: true},
		{name: "zero", after: "0", told: true},
		{name: "negative", after: "-5", told: true},
		{name: "absurd", after: "99999999999999999999", want: longestWait, told: true},
		{name: "infinite", after: "+Inf", want: longestWait, told: true},
		{name: "not a number", after: "NaN"},
		{name: "nonsense", after: "soon"},
		{name: "milliseconds win", after: "7", ms: "1500", want: 1500 * time.Millisecond, told: true},
		{name: "a date", after: date(time.Minute), want: time.Minute, told: true},
		{name: "a date gone by", after: date(-time.Minute), told: true},
		{
			name: "a date by a clock that is an hour off", after: date(61 * time.Minute), date: date(time.Hour),
			want: time.Minute, told: true,
		},
		{name: "the end of time", after: "Fri, 31 Dec 9999 23:59:59 GMT", want: longestWait, told: true},
	} {
		h := http.Header{}
		for name, value := range map[string]string{
			"Retry-After":    row.after,
			"Retry-After-Ms": row.ms, "Date": row.date,
		} {
			if value != "" {
				h.Set(name, value)
			}
		}
		got, told := RetryAfter(h, now)
		assert.Equal(t, row.want, got, row.name)
		assert.Equal(t, row.told, told, row.name)
	}
}
