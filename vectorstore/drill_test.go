package vectorstore_test

import (
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

// drill is a client and a door to it whose breaker has a clock of the test's.
type drill struct {
	t     *testing.T
	c     client.Client
	b     *resilience.Breaker
	door  vectorstore.Guard
	clock *testutil.FakeClock
}

func newDrill(t *testing.T, addr string) *drill {
	t.Helper()
	clock := testutil.NewClock()
	b, err := resilience.New("drill", resilience.Config{Clock: clock})
	require.NoError(t, err)
	return &drill{
		t: t, c: connect(t, vectorstore.Config{Address: addr, CallTimeout: time.Second}), b: b, clock: clock,
		door: vectorstore.Guard{Breaker: b},
	}
}

func (d *drill) call() error {
	_, err := d.door.HasCollection(d.t.Context(), d.c, "docs")
	return err
}

// opens makes five calls that fail by themselves and one that is refused. A
// server that hangs is a deadline at first, and a connection given up later.
func (d *drill) opens(want ...codes.Code) {
	d.t.Helper()
	for i := range 5 {
		err := d.call()
		require.NotErrorIs(d.t, err, resilience.ErrOpen, "call %d", i+1)
		require.Contains(d.t, want, status.Code(err), "call %d: %v", i+1, err)
	}
	require.ErrorIs(d.t, d.call(), resilience.ErrOpen)
	require.Equal(d.t, resilience.Open, d.b.State())
}

// closes lets the probe through once the server is back. The connection may
// need a moment longer than the server.
func (d *drill) closes() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		d.clock.Advance(time.Minute)
		return d.b.State() == resilience.HalfOpen && d.call() == nil
	}, 30*time.Second, 100*time.Millisecond)
	require.Equal(d.t, resilience.Closed, d.b.State())
}

func TestDrillKillAndRestart(t *testing.T) {
	p := upstreams.StartMilvus(t)
	d := newDrill(t, p.Addr)
	require.NoError(t, d.call())
	p.Kill(t)
	d.opens(codes.Unavailable)
	p.Start(t)
	d.closes()
	require.NoError(t, d.call())
}

func TestDrillHang(t *testing.T) {
	p := upstreams.StartMilvus(t)
	d := newDrill(t, p.Addr)
	require.NoError(t, d.call())
	p.Pause(t)
	require.Eventually(t, func() bool { return d.call() != nil }, 10*time.Second, time.Millisecond, "the signal takes a moment")
	d.b.Reset()
	d.opens(codes.DeadlineExceeded, codes.Unavailable)
	p.Resume(t)
	d.closes()
}

func TestDrillConnectionRefusedNamesTheAddress(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := lis.Addr().String()
	require.NoError(t, lis.Close())
	d := newDrill(t, addr)
	err = d.call()
	assert.ErrorContains(t, err, addr)
	assert.ErrorContains(t, err, "refused")
	d.b.Reset()
	d.opens(codes.Unavailable)
}

func TestDrillReset(t *testing.T) {
	d := newDrill(t, listen(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}))
	d.opens(codes.Unavailable)
}

func TestDrillServerThatAcceptsAndSaysNothing(t *testing.T) {
	newDrill(t, silent(t)).opens(codes.DeadlineExceeded, codes.Unavailable)
}

// silent accepts connections and never answers.
func silent(t *testing.T) string {
	return listen(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
}

// listen gives each connection to fn.
func listen(t *testing.T, fn func(net.Conn)) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			fn(c)
		}
	}()
	t.Cleanup(func() {
		_ = lis.Close()
		<-done
	})
	return lis.Addr().String()
}

func TestNothingLeaks(t *testing.T) {
	s, addr := serve(t)
	before := goleak.IgnoreCurrent()
	s.fail("HasCollection", status.Error(codes.Unavailable, "down"))
	for _, target := range []string{addr, "127.0.0.1:1"} {
		c, err := vectorstore.NewClient(t.Context(), vectorstore.Config{Address: target})
		require.NoError(t, err)
		g, _ := guard(t)
		for range 7 {
			_, err = g.HasCollection(t.Context(), c, "docs")
			require.Error(t, err)
		}
		require.NoError(t, c.Close())
	}
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("google.golang.org/grpc.(*Server).serveStreams"),
		goleak.IgnoreAnyFunction("google.golang.org/grpc.(*Server).handleRawConn"))
}

func TestImportMakesTheGauge(t *testing.T) {
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, w.Body.String(), `circuit_breaker_state{upstream="milvus"} 0`)
}
