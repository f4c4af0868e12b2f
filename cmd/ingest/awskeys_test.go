package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
)

// A mounted secret ends in a line break, which no request can carry: five
// documents opened the breaker, and no request had been sent.
func TestKeysMayEndInALineBreak(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	c := newCommand(t, append(atS3(at, "line-breaks"),
		"AWS_ACCESS_KEY_ID="+at.AccessKey+"\n", "AWS_SECRET_ACCESS_KEY="+at.SecretKey+"\r\n",
		"AWS_REGION="+at.Region+"\n",
		"PENSTOCK_CREATE_BUCKET=true")...)
	c.write(t, "doc.md", "A text.")
	out := c.run(t, "doc.md")
	require.Equal(t, exitOK, out.code, "%s%s", out.stdout, out.stderr)
}

func TestKeyWithALineBreakInsideIsASetting(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(s.Close)
	good := []string{
		"PENSTOCK_S3_ENDPOINT=" + s.URL, "AWS_REGION=eu-west-1",
		"AWS_ACCESS_KEY_ID=penstock", "AWS_SECRET_ACCESS_KEY=penstock-secret", "AWS_SESSION_TOKEN=token",
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"} {
		c := newCommand(t, append(slices.Clip(good), name+"=half\nhalf")...)
		c.write(t, "doc.md", "A text.")
		out := c.run(t, "doc.md")
		assert.Equal(t, exitConfiguration, out.code, "%s: %s%s", name, out.stdout, out.stderr)
		assert.Contains(t, out.stderr, "U+000A", name)
		assert.NotContains(t, out.stderr, "half\nhalf", name)
	}
	assert.Zero(t, requests.Load())
}
