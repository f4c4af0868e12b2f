package vectorstore

import (
	"context"
	"sync/atomic"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// milvus is the SDK's client with typed errors, whose writes do not fail for
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

// sentKey finds, in a context, what says whether its write has left.
type sentKey struct{}

// write runs a write, and once more where the schema may have been at fault:
// the SDK checks and arranges columns by the one that it has kept, and only its
// DescribeCollection gives it another. What the server may have taken is not
// sent again.
func (m milvus) write(
	ctx context.Context, coll string, write func(context.Context) (entity.Column, error),
) (entity.Column, error) {
	before, sent := m.in.schema(coll), new(atomic.Bool)
	ids, err := write(context.WithValue(ctx, sentKey{}, sent))
	switch {
	case err == nil, before == nil: // the SDK has asked just now
		return ids, err
	case plain(err) && !sent.Load(): // the SDK refuses
		if _, err := m.DescribeCollection(ctx, coll); err != nil {
			return nil, err
		}
	case status.Code(err) == codes.InvalidArgument: // the inspector or the server does
		if _, unknown := m.DescribeCollection(ctx, coll); unknown != nil || sameSchema(before, m.in.schema(coll)) {
			return ids, err
		}
	default:
		return ids, err
	}
	return write(ctx)
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
