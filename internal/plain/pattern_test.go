package plain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPatternsThatAreTheSame(t *testing.T) {
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"page 3: no text", "page 40: no text", true},
		{"error, status code: 500, request a1b2", "error, status code: 500, request 77zz", true},
		{"error, status code: 500", "error, status code: 502", false},
		{"HTTP 500", "HTTP 503", false},
		{"status=500", "status=503", false},
		{"HTTP/1.1 500", "HTTP/1.1 503", false},
		{"(500)", "(503)", false},
		{"500: no", "503: no", false},
		{"500 bytes", "5000 bytes", false},
		{"5000 bytes", "6000 bytes", true},
		{"399 bytes", "600 bytes", true},
		{"400 bytes", "599 bytes", false},
		{"docs/one.pdf: no text", "docs/two.pdf: no text", true},
		{"cannot open one.pdf", "cannot open two.pdf", true},
		{"no text", "no header", false},
		{"next probe in 59.3s", "next probe in 1m0s", true},
		{"next probe in 56s", "next probe in 58s", true},
		{"read 10.0.0.1:4711->10.0.0.2:80", "read 10.0.0.1:4712->10.0.0.2:80", true},
		{"request 0b7d-ffff", "request ffff-0b7d", true},
		{"", "", true},
		{strings.Repeat("x", compared) + "a", strings.Repeat("x", compared) + "b", true},
		{strings.Repeat("x", compared-1) + "a", strings.Repeat("x", compared-1) + "b", false},
	} {
		a, b := Pattern(row.a, "docs/one.pdf"), Pattern(row.b, "docs/two.pdf")
		assert.Equal(t, row.same, a == b, "%q and %q", row.a, row.b)
	}
}

func TestShortNamesAreNotTakenOutOfAReason(t *testing.T) {
	assert.Equal(t, "no text in a", Pattern("no text in a", "a"))
	assert.Equal(t, "no text in …", Pattern("no text in a.md", "a.md"))
}
