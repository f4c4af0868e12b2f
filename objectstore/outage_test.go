package objectstore_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/internal/upstreams/network"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// outage takes a call through an outage between fail and heal.
func outage(t *testing.T, call func(objectstore.Guard) error, fail, heal func()) {
	t.Helper()
	d := doortest.NewDrill(t)
	guarded := func() error { return call(objectstore.Guard{Breaker: d.Breaker}) }
	require.NoError(t, guarded(), "before the outage")
	fail()
	d.Opens(guarded, nil)
	heal()
	d.Closes(guarded, 0)
}

func idle(client *s3.Client) {
	if c, ok := client.Options().HTTPClient.(*http.Client); ok {
		c.CloseIdleConnections()
	}
}

func short(c *objectstore.Config) {
	c.HeaderTimeout, c.IdleTimeout, c.DialTimeout = 150*time.Millisecond, 150*time.Millisecond, 500*time.Millisecond
}

func headBucket(ctx context.Context, client *s3.Client, bucket string) func(objectstore.Guard) error {
	return func(g objectstore.Guard) error {
		_, err := g.HeadBucket(ctx, client, &s3.HeadBucketInput{Bucket: aws.String(bucket)})
		return err
	}
}

func getBody(ctx context.Context, client *s3.Client, bucket, key string) func(objectstore.Guard) error {
	return func(g objectstore.Guard) error {
		out, err := g.GetObject(ctx, client, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		_, err = io.Copy(io.Discard, out.Body)
		return err
	}
}

func TestOutageRestartOfSeaweedFS(t *testing.T) {
	doortest.LeakFree(t)
	process, at := upstreams.StartSeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	outage(t, headBucket(t.Context(), client, at.Bucket),
		func() { process.Kill(t) },
		func() { process.Start(t) })
}

func TestOutageSeaweedFSHangs(t *testing.T) {
	doortest.LeakFree(t)
	process, at := upstreams.StartSeaweedFS(t)
	client := clientFor(t, at, short)
	defer idle(client)
	outage(t, headBucket(t.Context(), client, at.Bucket),
		func() { process.Pause(t) },
		func() { process.Resume(t) })
}

func TestOutageAcceptsAndSaysNothing(t *testing.T) {
	doortest.LeakFree(t)
	up := testutil.NewFaultyServer(t, says(200, ""))
	client := newClient(t, objectstore.Config{Endpoint: up.URL(), HeaderTimeout: 250 * time.Millisecond})
	defer idle(client)
	outage(t, headBucket(t.Context(), client, "bucket"),
		func() { up.Always(testutil.Hang()) },
		up.Recover)
}

// behind is a store that is reached through a network.
func behind(t *testing.T, at upstreams.S3) (*network.Network, upstreams.S3) {
	n := network.New(t, strings.TrimPrefix(at.Endpoint, "http://"))
	at.Endpoint = "http://" + n.Addr()
	return n, at
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
			doortest.LeakFree(t)
			net, at := behind(t, direct)
			client := clientFor(t, at, short)
			defer idle(client)
			outage(t, getBody(t.Context(), client, at.Bucket, "outage"),
				func() { net.Set(toxic) },
				func() { net.Set("") })
		})
	}
}

func TestOutageConnectionRefused(t *testing.T) {
	doortest.LeakFree(t)
	up := testutil.NewFaultyServer(t, says(200, ""))
	client := newClient(t, objectstore.Config{Endpoint: up.URL()})
	defer idle(client)
	outage(t, headBucket(t.Context(), client, "bucket"), up.Refuse, up.Accept)
}

// TestDownloadSurvivesACutConnection: the proxy cuts a download of a real
// store; the next try gets the rest.
func TestDownloadSurvivesACutConnection(t *testing.T) {
	direct := upstreams.SeaweedFS(t)
	doortest.LeakFree(t)
	body := strings.Repeat("0123456789abcdef", 1<<17)
	whole := clientFor(t, direct)
	defer idle(whole)
	_, err := whole.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(direct.Bucket), Key: aws.String("cut"), Body: strings.NewReader(body),
	})
	require.NoError(t, err)
	net, at := behind(t, direct)
	client := clientFor(t, at, short)
	defer idle(client)
	g, _ := breaker(t, resilience.Config{})
	in := &s3.GetObjectInput{Bucket: aws.String(at.Bucket), Key: aws.String("cut")}
	file := filepath.Join(t.TempDir(), "file")
	net.Set(`{"name":"t","type":"limit_data","attributes":{"bytes":1000000}}`)
	_, err = g.DownloadFile(t.Context(), client, in, file)
	require.Error(t, err)
	assert.NoFileExists(t, file)
	net.Set("")
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
	require.NoError(t, headBucket(t.Context(), client, "bucket")(g))
	s.CloseClientConnections()
	require.NoError(t, headBucket(t.Context(), client, "bucket")(g))
	assert.Equal(t, int32(2), s.requests.Load())
	assert.Equal(t, uint64(2), b.Snapshot().Successes)
}
