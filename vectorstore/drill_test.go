package vectorstore_test

import (
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/internal/upstreams/network"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/vectorstore"
)

// outage is a drill of the door to a server.
type outage struct {
	*doortest.Drill
	c client.Client
	t *testing.T
}

func newOutage(t *testing.T, addr string) outage {
	t.Helper()
	return outage{doortest.NewDrill(t), connect(t, vectorstore.Config{Address: addr, CallTimeout: time.Second}), t}
}

func (o outage) call() error {
	_, err := vectorstore.Guard{Breaker: o.Breaker}.HasCollection(o.t.Context(), o.c, "docs")
	return err
}

// opens wants one of the codes of each failure. A server that hangs is a
// deadline at first, and a connection given up later.
func (o outage) opens(want ...codes.Code) {
	o.t.Helper()
	o.Opens(o.call, func(err error) bool { return slices.Contains(want, status.Code(err)) })
}

func (o outage) closes() {
	o.t.Helper()
	o.Closes(o.call, 30*time.Second)
}

func TestDrillKillAndRestart(t *testing.T) {
	p := upstreams.StartMilvus(t)
	doortest.LeakFree(t)
	d := newOutage(t, p.Addr)
	require.NoError(t, d.call())
	p.Kill(t)
	d.opens(codes.Unavailable)
	p.Start(t)
	d.closes()
}

func TestDrillNetwork(t *testing.T) {
	addr := upstreams.Milvus(t)
	for name, toxic := range map[string]string{
		"latency beyond the timeout":          `{"name":"t","type":"latency","attributes":{"latency":3000}}`,
		"half-open, nothing comes back":       `{"name":"t","type":"timeout","attributes":{"timeout":0}}`,
		"half-open, nothing arrives":          `{"name":"t","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		"reset":                               `{"name":"t","type":"reset_peer","attributes":{"timeout":0}}`,
		"cut in the middle of the connection": `{"name":"t","type":"limit_data","attributes":{"bytes":20}}`,
	} {
		for how, strike := range map[string]func(*network.Network){
			"open connection": func(n *network.Network) { n.Spoil(toxic) },
			"new connections": func(n *network.Network) { n.Set(toxic) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				doortest.LeakFree(t)
				spoilt := network.New(t, addr)
				d := newOutage(t, spoilt.Addr())
				require.NoError(t, d.call())
				strike(spoilt)
				d.opens(codes.DeadlineExceeded, codes.Unavailable)
				spoilt.Set("")
				d.closes()
			})
		}
	}
}

func TestDrillHang(t *testing.T) {
	p := upstreams.StartMilvus(t)
	doortest.LeakFree(t)
	d := newOutage(t, p.Addr)
	require.NoError(t, d.call())
	p.Pause(t)
	require.Eventually(
		t,
		func() bool { return d.call() != nil },
		10*time.Second,
		time.Millisecond,
		"the signal takes a moment",
	)
	d.Breaker.Reset()
	d.opens(codes.DeadlineExceeded, codes.Unavailable)
	p.Resume(t)
	d.closes()
}

func TestDrillConnectionRefusedNamesTheAddress(t *testing.T) {
	doortest.LeakFree(t)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := lis.Addr().String()
	require.NoError(t, lis.Close())
	d := newOutage(t, addr)
	err = d.call()
	assert.ErrorContains(t, err, addr)
	assert.ErrorContains(t, err, "refused")
	d.Breaker.Reset()
	d.opens(codes.Unavailable)
}

func TestDrillReset(t *testing.T) {
	doortest.LeakFree(t)
	d := newOutage(t, listen(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}))
	d.opens(codes.Unavailable)
}

func TestDrillServerThatAcceptsAndSaysNothing(t *testing.T) {
	doortest.LeakFree(t)
	newOutage(t, silent(t)).opens(codes.DeadlineExceeded, codes.Unavailable)
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
