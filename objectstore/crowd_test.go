package objectstore_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil"
)

func TestThousandCallersShareAClientThroughAnOutage(t *testing.T) {
	clock := testutil.NewClock()
	g, b := breaker(t, resilience.Config{Clock: clock})
	s := serve(t, says(200, ""))
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	testutil.Crowd{
		N: 1000, Breaker: b, Clock: clock,
		Call: func() error {
			_, err := g.HeadBucket(t.Context(), client, &s3.HeadBucketInput{Bucket: aws.String("bucket")})
			return err
		},
		Fail: func() { s.set(says(500, "InternalError")) },
		Heal: func(release <-chan struct{}) { s.set(func(http.ResponseWriter, *http.Request) { <-release }) },
		Seen: func() int { return int(s.requests.Load()) },
	}.ThroughAnOutage(t)
}

func TestLimiterSendsFiveDoomedCallsOfAThousand(t *testing.T) {
	_, b := breaker(t, resilience.Config{})
	limiter, err := inflight.New(b, 0)
	require.NoError(t, err)
	g := objectstore.Guard{InFlight: limiter}
	s := serve(t, says(500, "InternalError"))
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	for name, call := range map[string]func() error{
		"HeadBucket": func() error {
			_, err := g.HeadBucket(t.Context(), client, &s3.HeadBucketInput{Bucket: aws.String("bucket")})
			return err
		},
		"GetObject": func() error { _, err := g.GetObject(t.Context(), client, get("key")); return err },
	} {
		b.Reset()
		s.requests.Store(0)
		for _, err := range testutil.Stampede(1000, call) {
			require.Error(t, err)
		}
		assert.Equal(t, int32(5), s.requests.Load(), name)
	}
}

func TestThousandCallersWhileTheServerDies(t *testing.T) {
	upstream := testutil.NewFaultyServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"no MD5"`)
		_, _ = io.WriteString(w, "0123456789")
	}))
	client := newClient(t, objectstore.Config{Endpoint: upstream.URL()})
	defer idle(client)
	g, b := breaker(t, resilience.Config{ResetTimeout: 20 * time.Millisecond, ProbeTimeout: time.Minute})
	calls, next := []func(objectstore.Guard) error{
		headBucket(t.Context(), client, "bucket"), getBody(t.Context(), client, "bucket", "key"),
		func(g objectstore.Guard) error {
			_, err := g.PutObject(t.Context(), client, put("key", "text"))
			return err
		},
		func(g objectstore.Guard) error { // closed without a look
			out, err := g.GetObject(t.Context(), client, get("key"))
			if err == nil {
				err = out.Body.Close()
			}
			return err
		},
	}, atomic.Int64{}
	testutil.Crowd{
		N: 1000, Breaker: b,
		Call: func() error { return calls[next.Add(1)%4](g) },
		Fail: func() { upstream.Always(testutil.Reset()) },
		Heal: func(<-chan struct{}) { upstream.Recover() },
	}.WhileItFlaps(t, 5)
}
