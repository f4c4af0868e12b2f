package pipeline_test

import (
	"context"
	"net"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

// scriptedMilvus answers what its interceptor does not: nothing.
type scriptedMilvus struct {
	milvuspb.UnimplementedMilvusServiceServer
}

// Rows are looked up while the SDK's iterator reads them all, in a store with
// 250 documents that the journal does not know.
func TestVerifyWithRoomForOneCall(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(250)
	_, err := w.run()
	require.NoError(t, err)
	list := w.rows()
	w.loseJournal()

	store, queries := iterable(t, w, list)
	w.config.VectorGuard.Breaker = testutil.NewBreaker(t, "milvus", resilience.Config{FailMax: 1})
	for _, concurrency := range []int{5, 1} {
		t.Run(strconv.Itoa(concurrency), func(t *testing.T) {
			queries.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := w.pipeline(func(c *pipeline.Config) { c.Vectors, c.Concurrency, c.Grace = store, concurrency, -1 })
			v, err := p.Verify(ctx, pipeline.VerifyOptions{}, func(pipeline.Fault) {})
			require.NoError(t, err)
			assert.Equal(t, 250, v.Unknown)
		})
	}
}

// iterable is the world's store with the iterator of the SDK over the rows, and
// the number of queries that it has sent.
func iterable(t *testing.T, w *world, list []rows.Row) (vectorstore.Store, *atomic.Int64) {
	t.Helper()
	queries := new(atomic.Int64)
	ok := &commonpb.Status{}
	schema := entity.NewSchema().WithName("docs").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
			WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(4))
	answer := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		switch path.Base(info.FullMethod) {
		case "DescribeCollection":
			return &milvuspb.DescribeCollectionResponse{
				Status:         ok,
				Schema:         schema.ProtoMessage(),
				CollectionName: "docs",
			}, nil
		case "Query":
			var ids, docs, sources []string
			if expr := req.(*milvuspb.QueryRequest).GetExpr(); queries.Add(1) < 9 && !strings.Contains(expr, "id >") {
				for _, row := range list {
					ids, docs, sources = append(ids, row.ID), append(docs, row.Doc), append(sources, row.Source)
				}
			}
			return &milvuspb.QueryResults{Status: ok, FieldsData: []*schemapb.FieldData{
				entity.NewColumnVarChar("id", ids).
					FieldData(),
				entity.NewColumnVarChar("doc", docs).
					FieldData(),
				entity.NewColumnVarChar("source", sources).FieldData(),
			}}, nil
		}
		return next(ctx, req)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer(grpc.UnaryInterceptor(answer))
	milvuspb.RegisterMilvusServiceServer(srv, &scriptedMilvus{})
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	c, err := vectorstore.NewClient(t.Context(), vectorstore.Config{Address: lis.Addr().String()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return struct {
		vectorstore.Store
		vectorstore.Server
	}{w.store, c}, queries
}
