package vectorstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

func TestThousandCallersShareAClientThroughAnOutage(t *testing.T) {
	s, addr := serve(t)
	c, clock := connect(t, vectorstore.Config{Address: addr}), testutil.NewClock()
	g := vectorstore.Guard{Breaker: testutil.NewBreaker(t, "test", resilience.Config{Clock: clock})}
	testutil.Crowd{
		N: 1000, Breaker: g.Breaker, Clock: clock,
		Call: func() error {
			_, err := g.ListCollections(t.Context(), c)
			return err
		},
		Fail: func() { s.fail("ShowCollections", status.Error(codes.Unavailable, "down")) },
		Heal: func(release <-chan struct{}) {
			s.on("ShowCollections", func(context.Context, any) (any, error) {
				<-release
				return &milvuspb.ShowCollectionsResponse{Status: ok()}, nil
			})
		},
		Seen: func() int { return s.count("ShowCollections") },
	}.ThroughAnOutage(t)
}

func TestLimiterSendsFiveDoomedCallsOfAThousand(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.fail("Query", status.Error(codes.Unavailable, "down"))
	_, b := guard(t)
	limiter, err := inflight.New(b, 0)
	require.NoError(t, err)
	g := vectorstore.Guard{InFlight: limiter}
	for i, call := range []func() error{
		func() error { _, err := g.Query(t.Context(), c, "docs", nil, `id == "a"`, nil); return err },
		func() error {
			_, err := g.QueryIterator(t.Context(), c, client.NewQueryIteratorOption("docs").WithOutputFields("id"))
			return err
		},
	} {
		b.Reset()
		for _, err := range testutil.Stampede(1000, call) {
			require.Error(t, err)
		}
		assert.Equal(t, 5*(i+1), s.count("Query"))
	}
}

func TestThousandCallersWhileTheServerDies(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	b := testutil.NewBreaker(
		t,
		"test",
		resilience.Config{ResetTimeout: 20 * time.Millisecond, ProbeTimeout: time.Minute},
	)
	heal := func() { s.reply("HasCollection", &milvuspb.BoolResponse{Status: ok(), Value: true}) }
	heal()
	testutil.Crowd{
		N: 1000, Breaker: b,
		Call: func() error {
			_, err := vectorstore.Guard{Breaker: b}.HasCollection(t.Context(), c, "docs")
			return err
		},
		Fail: func() { s.fail("HasCollection", status.Error(codes.Unavailable, "down")) },
		Heal: func(<-chan struct{}) { heal() },
		Seen: func() int { return s.count("HasCollection") },
	}.WhileItFlaps(t, 10)
}
