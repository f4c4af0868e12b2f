package vectorstore_test

import (
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
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

// drill is a client and a door to it whose breaker has a clock of the test's
// and a gauge in a Prometheus registry.
type drill struct {
	t        *testing.T
	c        client.Client
	b        *resilience.Breaker
	registry *resilience.Registry
	door     vectorstore.Guard
	clock    *testutil.FakeClock
}

func newDrill(t *testing.T, addr string) *drill {
	t.Helper()
	clock, registry := testutil.NewClock(), resilience.NewRegistry(resilience.Config{})
	b := registry.MustRegister("drill", resilience.Config{Clock: clock})
	d := &drill{
		t: t, c: connect(t, vectorstore.Config{Address: addr, CallTimeout: time.Second}), b: b, registry: registry, clock: clock,
		door: vectorstore.Guard{Breaker: b},
	}
	d.gauge(resilience.Closed)
	return d
}

// leakFree fails the test if goroutines are left when everything is closed. An
// open connection has some of them, so it is a connection too that leaks here.
func leakFree(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, before,
			// toxiproxy's own: a toxic that holds a chunk, or ended a stream that its source goes on filling
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"))
	})
}

// gauge holds circuit_breaker_state against a state.
func (d *drill) gauge(want resilience.State) {
	d.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(d.registry))
	families, err := reg.Gather()
	require.NoError(d.t, err)
	for _, f := range families {
		if f.GetName() == "circuit_breaker_state" {
			assert.InDelta(d.t, float64(want), f.GetMetric()[0].GetGauge().GetValue(), 0, "the gauge of a breaker that is %v", want)
			return
		}
	}
	d.t.Error("there is no gauge")
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
	d.gauge(resilience.Open)
	d.clock.Advance(time.Minute)
	d.gauge(resilience.HalfOpen)
	require.NotErrorIs(d.t, d.call(), resilience.ErrOpen, "the probe meets the outage")
	require.ErrorIs(d.t, d.call(), resilience.ErrOpen)
	d.gauge(resilience.Open)
}

// closes lets the probe through once the server is back. The connection may
// need a moment longer than the server.
func (d *drill) closes() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		d.clock.Advance(time.Minute)
		d.gauge(resilience.HalfOpen)
		return d.call() == nil
	}, 30*time.Second, 100*time.Millisecond)
	d.gauge(resilience.Closed)
	require.NoError(d.t, d.call(), "after the outage")
}

func TestDrillKillAndRestart(t *testing.T) {
	p := upstreams.StartMilvus(t)
	leakFree(t)
	d := newDrill(t, p.Addr)
	require.NoError(t, d.call())
	p.Kill(t)
	d.opens(codes.Unavailable)
	p.Start(t)
	d.closes()
}

// network stands before Milvus. To change its faults it starts another proxy at
// the same address: toxiproxy 2.5 can wait for ever when a toxic is taken off a
// live connection.
type network struct {
	*testing.T
	upstream string
	proxy    *toxiproxy.Proxy
}

func newNetwork(t *testing.T, upstream string) *network {
	t.Helper()
	n := &network{T: t, upstream: upstream}
	n.start("127.0.0.1:0", "")
	t.Cleanup(func() { n.proxy.Stop() })
	return n
}

func (n *network) start(listen, toxic string) {
	n.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	n.proxy = toxiproxy.NewProxy(server, "milvus", listen, n.upstream)
	if toxic != "" {
		_, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
		require.NoError(n, err)
	}
	require.NoError(n, n.proxy.Start())
}

// set replaces the faults; "" heals. Connections that are open are cut.
func (n *network) set(toxic string) {
	n.Helper()
	n.proxy.Stop()
	n.start(n.proxy.Listen, toxic)
}

// spoil adds a fault to the connections that are open, too.
func (n *network) spoil(toxic string) {
	n.Helper()
	_, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	require.NoError(n, err)
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
		for how, strike := range map[string]func(*network){
			"open connection": func(n *network) { n.spoil(toxic) },
			"new connections": func(n *network) { n.set(toxic) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				leakFree(t)
				net := newNetwork(t, addr)
				d := newDrill(t, net.proxy.Listen)
				require.NoError(t, d.call())
				strike(net)
				d.opens(codes.DeadlineExceeded, codes.Unavailable)
				net.set("")
				d.closes()
			})
		}
	}
}

func TestDrillHang(t *testing.T) {
	p := upstreams.StartMilvus(t)
	leakFree(t)
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
	leakFree(t)
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
	leakFree(t)
	d := newDrill(t, listen(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}))
	d.opens(codes.Unavailable)
}

func TestDrillServerThatAcceptsAndSaysNothing(t *testing.T) {
	leakFree(t)
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
