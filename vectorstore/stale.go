package vectorstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
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

// DescribeCollection is the SDK's, which keeps the schema.
func (m milvus) DescribeCollection(ctx context.Context, coll string) (*entity.Collection, error) {
	c, err := m.Client.DescribeCollection(ctx, coll)
	if err == nil {
		m.in.keep(coll, c.Schema.ProtoMessage())
	}
	return c, err
}

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
	return read(asKept(ctx), m, coll, evenRows, func(ctx context.Context) (client.ResultSet, error) {
		return m.Client.Get(ctx, coll, ids, opts...)
	})
}

// Query is the SDK's, by the schema of today.
func (m milvus) Query(
	ctx context.Context, coll string, partitions []string, expr string, outputFields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	ctx = asAsked(ctx, opts)
	return read(ctx, m, coll, evenRows, func(ctx context.Context) (client.ResultSet, error) {
		return m.Client.Query(ctx, coll, partitions, expr, outputFields, opts...)
	})
}

// Search is the SDK's, by the schema of today.
func (m milvus) Search(
	ctx context.Context, coll string, partitions []string, expr string, outputFields []string,
	vectors []entity.Vector, vectorField string, metricType entity.MetricType, topK int,
	sp entity.SearchParam, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	ctx, valid := asAsked(ctx, opts), wantedResults(len(vectors), topK)
	return read(ctx, m, coll, valid, func(ctx context.Context) ([]client.SearchResult, error) {
		return settleEmpty(m.Client.Search(
			ctx, coll, partitions, expr, outputFields, vectors, vectorField, metricType, topK, sp, opts...))
	})
}

// HybridSearch is the SDK's, by the schema of today.
func (m milvus) HybridSearch(
	ctx context.Context, coll string, partitions []string, limit int, outputFields []string,
	reranker client.Reranker, subRequests []*client.ANNSearchRequest, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	ctx, valid := asAsked(ctx, opts), wantedRows(limit)
	return read(ctx, m, coll, valid, func(ctx context.Context) ([]client.SearchResult, error) {
		return settleEmpty(m.Client.HybridSearch(
			ctx, coll, partitions, limit, outputFields, reranker, subRequests, opts...))
	})
}

// QueryIterator is the SDK's, by the schema of today: it goes from page to page
// by the name of the key.
func (m milvus) QueryIterator(
	ctx context.Context, opt *client.QueryIteratorOption,
) (*client.QueryIterator, error) {
	asked := sdkopt.ReadIterator(opt)
	if _, err := m.DescribeCollection(ctx, asked.Collection); err != nil {
		return nil, err
	}
	key := m.in.keyField(asked.Collection)
	if !slices.Contains(asked.OutputFields, key) && !slices.Contains(asked.OutputFields, "*") { // the SDK would panic
		reason := fmt.Sprintf("the key, %q, is not among the output fields", key)
		return nil, &ArgumentError{Op: nameIterator, Reason: reason}
	}
	return m.Client.QueryIterator(asKept(ctx), opt)
}

// prime has the SDK know the collection before it needs to. It would ask once
// for all callers that wait, with the context of the first, at whose end all of
// them fail.
func (m milvus) prime(ctx context.Context, coll string) (kept uint64, err error) {
	if kept = m.in.kept(coll); kept == 0 {
		_, err = m.DescribeCollection(ctx, coll)
		kept = m.in.kept(coll)
	}
	return kept, err
}

// renew has the SDK ask for the schema of today, and reports whether it has
// kept another one since.
func (m milvus) renew(ctx context.Context, coll string, since uint64) (changed bool, err error) {
	_, err = m.DescribeCollection(ctx, coll)
	return err == nil && m.in.kept(coll) != since, err
}

// read runs a read, and once more where the SDK could not read the answer, or
// refused to ask, and may have done so by the schema that it has kept.
func read[T any](
	ctx context.Context, m milvus, coll string, valid func(T) error, do func(context.Context) (T, error),
) (T, error) {
	kept, err := m.prime(ctx, coll)
	if err != nil {
		var none T
		return none, err
	}
	v, err := do(ctx)
	if err == nil && valid(v) == nil || err != nil && !plain(err) {
		return v, err
	}
	if changed, unknown := m.renew(ctx, coll, kept); unknown != nil || !changed {
		return v, err
	}
	return do(ctx)
}

// sending finds, in a context, what becomes of a write.
type sendingKey struct{}

type sending struct {
	left atomic.Bool                  // it was sent
	ids  atomic.Pointer[schemapb.IDs] // the keys of the server's answer
}

// write runs a write, and once more where the schema may have been at fault:
// the SDK checks and arranges columns by the one that it has kept, and only its
// DescribeCollection gives it another. What the server may have taken is not
// sent again.
func (m milvus) write(
	ctx context.Context, coll string, write func(context.Context) (entity.Column, error),
) (entity.Column, error) {
	kept, err := m.prime(ctx, coll)
	if err != nil {
		return nil, err
	}
	s := new(sending)
	ctx = context.WithValue(ctx, sendingKey{}, s)
	ids, err := write(ctx)
	switch {
	case err == nil:
		return m.keysOf(ctx, coll, ids, s), nil
	case plain(err) && !s.left.Load(): // the SDK refuses
		if changed, unknown := m.renew(ctx, coll, kept); unknown != nil || !changed {
			return ids, cmp.Or(unknown, err)
		}
	case refused(err): // the inspector or the server does
		if changed, unknown := m.renew(ctx, coll, kept); unknown != nil || !changed {
			return ids, err
		}
	default:
		return ids, err
	}
	if ids, err = write(ctx); err == nil {
		ids = m.keysOf(ctx, coll, ids, s)
	}
	return ids, err
}

// refused reports whether an error says for certain that nothing was written.
func refused(err error) bool {
	if _, ours := errors.AsType[*ArgumentError](err); ours {
		return true
	}
	server, ok := errors.AsType[*ServerError](err)
	if !ok {
		return false
	}
	m, known := milvusCodes[server.Code]
	if !known {
		m, known = definite(server)
	}
	return known && m == wrongRequest
}

// keysOf are the keys that the server has answered with. The SDK reads them by
// the type that it has kept, and finds none of another.
func (m milvus) keysOf(ctx context.Context, coll string, ids entity.Column, s *sending) entity.Column {
	answered := s.ids.Load()
	numbers, texts := answered.GetIntId().GetData(), answered.GetStrId().GetData()
	if columnLen(ids) == len(numbers)+len(texts) {
		return ids
	}
	_, _ = m.DescribeCollection(ctx, coll) // the rows are there, whatever it says
	if len(texts) > 0 {
		return entity.NewColumnVarChar(m.in.keyField(coll), texts)
	}
	return entity.NewColumnInt64(m.in.keyField(coll), numbers)
}

func sameSchema(a, b *schemapb.CollectionSchema) bool {
	return a != nil && b != nil && proto.Equal(protoadapt.MessageV2Of(a), protoadapt.MessageV2Of(b))
}

// sendingOf is the write that ctx belongs to, or one that nobody reads.
func sendingOf(ctx context.Context) *sending {
	if s, ok := ctx.Value(sendingKey{}).(*sending); ok {
		return s
	}
	return new(sending)
}

// noteSent says that a write leaves.
func noteSent(ctx context.Context, req any) {
	if _, write := req.(writeRequest); write {
		sendingOf(ctx).left.Store(true)
	}
}
