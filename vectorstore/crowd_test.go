package vectorstore_test

import (
	"context"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

func TestThousandCallersShareAClientThroughAnOutage(t *testing.T) {
	s, addr := serve(t)
	c, clock := connect(t, vectorstore.Config{Address: addr}), testutil.NewClock()
	g := vectorstore.Guard{Breaker: resilience.MustNew("test", resilience.Config{Clock: clock})}
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
