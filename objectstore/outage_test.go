package objectstore_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// drill is the life of an outage: fail must make every call fail, heal must
// end that. Between the two the breaker is seen to open after five, to refuse,
// to probe once and to close, and Prometheus sees the same.
type drill struct {
	*testing.T
	registry *resilience.Registry
	guard    objectstore.Guard
	breaker  *resilience.Breaker
	clock    *testutil.FakeClock
	call     func(objectstore.Guard) error
}

func newDrill(t *testing.T, call func(objectstore.Guard) error) *drill {
	clock, registry := testutil.NewClock(), resilience.NewRegistry(resilience.Config{})
	b := registry.MustRegister("drill", resilience.Config{Clock: clock})
	d := &drill{t, registry, objectstore.Guard{Breaker: b}, b, clock, call}
	require.NoError(t, call(d.guard), "before the outage")
	d.gauge(resilience.Closed)
	return d
}

// gauge holds circuit_breaker_state against a state.
func (d *drill) gauge(want resilience.State) {
	d.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(d.registry))
	families, err := reg.Gather()
	require.NoError(d, err)
	for _, f := range families {
		if f.GetName() == "circuit_breaker_state" {
			assert.InDelta(d, float64(want), f.GetMetric()[0].GetGauge().GetValue(), 0, "the gauge of a breaker that is %v", want)
			return
		}
	}
	d.Error("there is no gauge")
}

func (d *drill) run(fail, heal func()) {
	d.Helper()
	rec := testutil.Record(d.T, d.breaker)
	fail()
	for i := range 5 {
		err := d.call(d.guard)
		require.Error(d, err, "call %d", i)
		require.NotErrorIs(d, err, resilience.ErrOpen, "call %d has the upstream's own error", i)
	}
	var open *resilience.OpenError
	require.ErrorAs(d, d.call(d.guard), &open)
	assert.Equal(d, resilience.Open, d.breaker.State())
	d.gauge(resilience.Open)
	d.clock.Advance(time.Minute)
	d.gauge(resilience.HalfOpen)
	require.NotErrorIs(d, d.call(d.guard), resilience.ErrOpen, "the probe meets the outage")
	require.ErrorIs(d, d.call(d.guard), resilience.ErrOpen)
	d.gauge(resilience.Open)
	heal()
	d.clock.Advance(time.Minute)
	d.gauge(resilience.HalfOpen)
	require.NoError(d, d.call(d.guard), "the probe")
	d.gauge(resilience.Closed)
	rec.Want("closed → open", "open → half_open", "half_open → open", "open → half_open", "half_open → closed")
	got := d.breaker.Snapshot()
	assert.Equal(d, [3]uint64{6, 2, 2}, [3]uint64{got.Failures, got.Probes, got.Rejected})
	require.NoError(d, d.call(d.guard), "after the outage")
}

// leakFree fails the test if goroutines are left when everything is closed. An
// open connection has two of them, so it is a connection too that leaks here.
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

func idle(client *s3.Client) {
	if c, ok := client.Options().HTTPClient.(*http.Client); ok {
		c.CloseIdleConnections()
	}
}

func short(c *objectstore.Config) {
	c.HeaderTimeout, c.IdleTimeout, c.DialTimeout = 150*time.Millisecond, 150*time.Millisecond, 500*time.Millisecond
}

func headBucket(t *testing.T, client *s3.Client, bucket string) func(objectstore.Guard) error {
	return func(g objectstore.Guard) error {
		_, err := g.HeadBucket(t.Context(), client, &s3.HeadBucketInput{Bucket: aws.String(bucket)})
		return err
	}
}

func getBody(t *testing.T, client *s3.Client, bucket, key string) func(objectstore.Guard) error {
	return func(g objectstore.Guard) error {
		out, err := g.GetObject(t.Context(), client, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		_, err = io.Copy(io.Discard, out.Body)
		return err
	}
}

func TestOutageRestartOfSeaweedFS(t *testing.T) {
	leakFree(t)
	process, at := upstreams.StartSeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	newDrill(t, headBucket(t, client, at.Bucket)).run(
		func() { process.Kill(t) },
		func() { process.Start(t) })
}

func TestOutageSeaweedFSHangs(t *testing.T) {
	leakFree(t)
	process, at := upstreams.StartSeaweedFS(t)
	client := clientFor(t, at, short)
	defer idle(client)
	newDrill(t, headBucket(t, client, at.Bucket)).run(
		func() { process.Pause(t) },
		func() { process.Resume(t) })
}

func TestOutageAcceptsAndSaysNothing(t *testing.T) {
	leakFree(t)
	up := testutil.NewUpstream(t, says(200, ""))
	client := newClient(t, objectstore.Config{Endpoint: up.URL(), HeaderTimeout: 50 * time.Millisecond})
	defer idle(client)
	newDrill(t, headBucket(t, client, "bucket")).run(
		func() { up.Always(testutil.Hang()) },
		up.Recover)
}

// network stands before SeaweedFS. To change its faults it starts another
// proxy at the same address: toxiproxy 2.5 can wait for ever when a toxic is
// taken off a live connection.
type network struct {
	*testing.T
	upstream string
	proxy    *toxiproxy.Proxy
}

func newNetwork(t *testing.T, at upstreams.S3) (*network, upstreams.S3) {
	t.Helper()
	n := &network{T: t, upstream: strings.TrimPrefix(at.Endpoint, "http://")}
	n.start("127.0.0.1:0", "")
	t.Cleanup(func() { n.proxy.Stop() })
	at.Endpoint = "http://" + n.proxy.Listen
	return n, at
}

func (n *network) start(listen, toxic string) {
	n.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	n.proxy = toxiproxy.NewProxy(server, "s3", listen, n.upstream)
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

func TestOutageThroughToxiproxy(t *testing.T) {
	direct := upstreams.SeaweedFS(t)
	body := strings.Repeat("x", 1<<20)
	_, err := clientFor(t, direct).PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(direct.Bucket), Key: aws.String("outage"), Body: strings.NewReader(body),
	})
	require.NoError(t, err)
	for name, toxic := range map[string]string{
		"latency beyond the timeout":  `{"name":"t","type":"latency","attributes":{"latency":400}}`,
		"reset":                       `{"name":"t","type":"reset_peer","attributes":{"timeout":0}}`,
		"cut in the middle of a body": `{"name":"t","type":"limit_data","attributes":{"bytes":100000}}`,
		"half-open connection":        `{"name":"t","type":"timeout","attributes":{"timeout":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			leakFree(t)
			net, at := newNetwork(t, direct)
			client := clientFor(t, at, short)
			defer idle(client)
			newDrill(t, getBody(t, client, at.Bucket, "outage")).run(
				func() { net.set(toxic) },
				func() { net.set("") })
		})
	}
}

func TestOutageConnectionRefused(t *testing.T) {
	leakFree(t)
	up := testutil.NewUpstream(t, says(200, ""))
	client := newClient(t, objectstore.Config{Endpoint: up.URL()})
	defer idle(client)
	newDrill(t, headBucket(t, client, "bucket")).run(up.Refuse, up.Accept)
}

// TestDownloadSurvivesACutConnection: the proxy cuts a download of a real
// store; the next try gets the rest.
func TestDownloadSurvivesACutConnection(t *testing.T) {
	direct := upstreams.SeaweedFS(t)
	leakFree(t)
	body := strings.Repeat("0123456789abcdef", 1<<17)
	whole := clientFor(t, direct)
	defer idle(whole)
	_, err := whole.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(direct.Bucket), Key: aws.String("cut"), Body: strings.NewReader(body),
	})
	require.NoError(t, err)
	net, at := newNetwork(t, direct)
	client := clientFor(t, at, short)
	defer idle(client)
	g, _ := breaker(t, resilience.Config{})
	in := &s3.GetObjectInput{Bucket: aws.String(at.Bucket), Key: aws.String("cut")}
	file := filepath.Join(t.TempDir(), "file")
	net.set(`{"name":"t","type":"limit_data","attributes":{"bytes":1000000}}`)
	_, err = g.DownloadFile(t.Context(), client, in, file)
	require.Error(t, err)
	assert.NoFileExists(t, file)
	net.set("")
	out, err := g.DownloadFile(t.Context(), client, in, file)
	require.NoError(t, err)
	assert.Equal(t, int64(len(body)), out.Size)
	assert.Greater(t, out.Resumed, int64(900_000))
}

// TestStalePooledConnection: what net/http does by itself with a kept-alive
// connection that the server has closed. The request never reached anyone.
func TestStalePooledConnection(t *testing.T) {
	s := serve(t, says(200, ""))
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	g, b := breaker(t, resilience.Config{})
	require.NoError(t, headBucket(t, client, "bucket")(g))
	s.CloseClientConnections()
	require.NoError(t, headBucket(t, client, "bucket")(g))
	assert.Equal(t, int32(2), s.requests.Load())
	assert.Equal(t, uint64(2), b.Snapshot().Successes)
}
