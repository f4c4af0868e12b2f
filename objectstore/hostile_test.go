package objectstore_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// The SDK wraps its transport in one that cannot close idle connections: a
// client that was thrown away kept them.
func TestIdleConnectionsCanBeClosed(t *testing.T) {
	s := serve(t, says(200, ""))
	before := goleak.IgnoreCurrent()
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	g, _ := breaker(t, resilience.Config{})
	require.NoError(t, headBucket(t, client, "bucket")(g))
	idle(client)
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
}

// The SDK follows 307 and 308 without an end, and a GetObject has no deadline
// of its own.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, code := range []int{301, 302, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, code) })
		client := newClient(t, objectstore.Config{Endpoint: s.URL})
		g, _ := breaker(t, resilience.Config{FailMax: 100})
		for name, op := range operations(t, g, client) {
			s.requests.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.Error(t, op(ctx), name)
			require.NoError(t, ctx.Err(), "%s at %d went in a circle", name, code)
			assert.Equal(t, int32(1), s.requests.Load(), "%s at %d", name, code)
			cancel()
		}
		idle(client)
	}
}
