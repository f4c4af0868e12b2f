package vectorstore

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/penstock-go/penstock/vectorstore/internal/sdkopt"
)

// milvus is the SDK's client with typed errors, whose calls do not fail for
// ever by the schema that the SDK has kept.
type milvus struct {
	client.Client

	in *inspector
}

func (milvus) typedErrors() {}

// Insert is the SDK's, by the schema of today.
func (m milvus) Insert(ctx context.Context, coll, partition string, columns ...entity.Column) (entity.Column, error) {
	return m.write(ctx, coll, func(ctx context.Context) (entity.Column, error) {
		return m.Client.Insert(ctx, coll, partition, columns...)
	})
}

// Upsert is the SDK's, by the schema of today.
func (m milvus) Upsert(ctx context.Context, coll, partition string, columns ...entity.Column) (entity.Column, error) {
	return m.write(ctx, coll, func(ctx context.Context) (entity.Column, error) {
		return m.Client.Upsert(ctx, coll, partition, columns...)
	})
}

// Get is the SDK's, by the schema of today.
func (m milvus) Get(
	ctx context.Context, coll string, ids entity.Column, opts ...client.GetOption,
) (client.ResultSet, error) {
	return read(ctx, m, coll, evenRows, func() (client.ResultSet, error) {
		return m.Client.Get(ctx, coll, ids, opts...)
	})
}

// Query is the SDK's, by the schema of today.
func (m milvus) Query(
	ctx context.Context, coll string, partitions []string, expr string, outputFields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	return read(ctx, m, coll, evenRows, func() (client.ResultSet, error) {
		return m.Client.Query(ctx, coll, partitions, expr, outputFields, opts...)
	})
}

// Search is the SDK's, by the schema of today.
func (m milvus) Search(
	ctx context.Context, coll string, partitions []string, expr string, outputFields []string,
	vectors []entity.Vector, vectorField string, metricType entity.MetricType, topK int,
	sp entity.SearchParam, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	return read(ctx, m, coll, wantedResults(len(vectors), topK), func() ([]client.SearchResult, error) {
		return settleEmpty(m.Client.Search(
			ctx, coll, partitions, expr, outputFields, vectors, vectorField, metricType, topK, sp, opts...))
	})
}

// HybridSearch is the SDK's, by the schema of today.
func (m milvus) HybridSearch(
	ctx context.Context, coll string, partitions []string, limit int, outputFields []string,
	reranker client.Reranker, subRequests []*client.ANNSearchRequest, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	return read(ctx, m, coll, wantedRows(limit), func() ([]client.SearchResult, error) {
		return settleEmpty(m.Client.HybridSearch(
			ctx, coll, partitions, limit, outputFields, reranker, subRequests, opts...))
	})
}

// QueryIterator is the SDK's, by the schema of today: it goes from page to page
// by the name of the key.
func (m milvus) QueryIterator(
	ctx context.Context, opt *client.QueryIteratorOption,
) (*client.QueryIterator, error) {
	if coll := sdkopt.ReadIterator(opt).Collection; m.in.keptBySDK(coll) != nil {
		if _, err := m.DescribeCollection(ctx, coll); err != nil {
			return nil, err
		}
	}
	return m.Client.QueryIterator(ctx, opt)
}

// read runs a read, and once more where the SDK could not read the answer, or
// refused to ask, and may have done so by the schema that it has kept.
func read[T any](
	ctx context.Context, m milvus, coll string, valid func(T) error, do func() (T, error),
) (T, error) {
	before := m.in.keptBySDK(coll)
	v, err := do()
	if before == nil || err == nil && valid(v) == nil || err != nil && !plain(err) {
		return v, err
	}
	if changed, unknown := m.renew(ctx, coll, before); unknown != nil || !changed {
		return v, err
	}
	return do()
}

// sentKey finds, in a context, what says whether its write has left.
type sentKey struct{}

// write runs a write, and once more where the schema may have been at fault:
// the SDK checks and arranges columns by the one that it has kept, and only its
// DescribeCollection gives it another. What the server may have taken is not
// sent again.
func (m milvus) write(
	ctx context.Context, coll string, write func(context.Context) (entity.Column, error),
) (entity.Column, error) {
	before, sent := m.in.keptBySDK(coll), new(atomic.Bool)
	ids, err := write(context.WithValue(ctx, sentKey{}, sent))
	switch {
	case err == nil, before == nil: // the SDK has asked just now
		return ids, err
	case plain(err) && !sent.Load(): // the SDK refuses
		if changed, unknown := m.renew(ctx, coll, before); unknown != nil || !changed {
			return ids, cmp.Or(unknown, err)
		}
	case status.Code(err) == codes.InvalidArgument: // the inspector or the server does
		if changed, unknown := m.renew(ctx, coll, before); unknown != nil || !changed {
			return ids, err
		}
	default:
		return ids, err
	}
	return write(ctx)
}

// renew has the SDK ask for the schema of today, and reports whether it is
// another one.
func (m milvus) renew(ctx context.Context, coll string, before *schemapb.CollectionSchema) (changed bool, err error) {
	_, err = m.DescribeCollection(ctx, coll)
	return err == nil && !sameSchema(before, m.in.keptBySDK(coll)), err
}

func sameSchema(a, b *schemapb.CollectionSchema) bool {
	return a != nil && b != nil && proto.Equal(protoadapt.MessageV2Of(a), protoadapt.MessageV2Of(b))
}

// noteSent says that a write leaves.
func noteSent(ctx context.Context, req any) {
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		if _, write := req.(writeRequest); write {
			sent.Store(true)
		}
	}
}
