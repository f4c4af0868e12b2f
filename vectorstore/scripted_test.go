package vectorstore_test

import (
	"context"
	"net"
	"path"
	"sync"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// scripted is a Milvus that counts what reaches it and answers as told.
type scripted struct {
	milvuspb.UnimplementedMilvusServiceServer

	mu     sync.Mutex
	calls  map[string]int
	answer map[string]func(ctx context.Context, req any) (any, error) // by method
}

// serve starts the server on a free port, with a collection "docs" of the
// suite's row scheme, 4 dimensions.
func serve(t testing.TB, opts ...grpc.ServerOption) (*scripted, string) {
	t.Helper()
	s := &scripted{calls: map[string]int{}, answer: map[string]func(context.Context, any) (any, error){}}
	s.on("DescribeCollection", func(context.Context, any) (any, error) {
		return &milvuspb.DescribeCollectionResponse{
			Status:         ok(),
			Schema:         docs().ProtoMessage(),
			CollectionName: "docs",
		}, nil
	})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer(append(opts, grpc.UnaryInterceptor(s.intercept), grpc.MaxRecvMsgSize(128<<20))...)
	milvuspb.RegisterMilvusServiceServer(srv, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return s, lis.Addr().String()
}

func (s *scripted) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	method := path.Base(info.FullMethod)
	s.mu.Lock()
	s.calls[method]++
	answer := s.answer[method]
	s.mu.Unlock()
	if answer == nil {
		return next(ctx, req)
	}
	return answer(ctx, req)
}

func (s *scripted) on(method string, answer func(context.Context, any) (any, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer[method] = answer
}

func (s *scripted) reply(method string, reply any) {
	s.on(method, func(context.Context, any) (any, error) { return reply, nil })
}

func (s *scripted) fail(method string, err error) {
	s.on(method, func(context.Context, any) (any, error) { return nil, err })
}

func (s *scripted) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func ok() *commonpb.Status { return &commonpb.Status{} }

func docs() *entity.Schema {
	return entity.NewSchema().WithName("docs").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
			WithMaxLength(8).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(4))
}

func rowsOf(ids ...string) []entity.Column {
	vectors := make([][]float32, len(ids))
	for i := range vectors {
		vectors[i] = []float32{1, 0, 0, 0}
	}
	return []entity.Column{entity.NewColumnVarChar("id", ids), entity.NewColumnFloatVector("vector", 4, vectors)}
}

func mutation(ids ...string) *milvuspb.MutationResult {
	return &milvuspb.MutationResult{Status: ok(), IDs: strIDs(ids...)}
}

func strIDs(ids ...string) *schemapb.IDs {
	return &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: ids}}}
}

func found(counts []int64, scores []float32, ids ...string) *milvuspb.SearchResults {
	return &milvuspb.SearchResults{Status: ok(), Results: &schemapb.SearchResultData{
		NumQueries: int64(len(counts)), Topks: counts, Scores: scores, Ids: strIDs(ids...),
	}}
}

func connect(t testing.TB, cfg vectorstore.Config) client.Client {
	t.Helper()
	c, err := vectorstore.NewClient(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func guard(t testing.TB) (vectorstore.Guard, *resilience.Breaker) {
	t.Helper()
	b, err := resilience.New("test", resilience.Config{})
	require.NoError(t, err)
	return vectorstore.Guard{Breaker: b}, b
}
