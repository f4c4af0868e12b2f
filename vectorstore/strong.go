package vectorstore

import (
	"context"
	"errors"
	"slices"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// strongKey finds, in a context, the wish for strong reads.
type strongKey struct{}

// Strong returns a context in which reads see every row that was written before
// them, by whichever client: Get, Query, Search, HybridSearch and the pages of
// an iterator that was opened with it. It takes precedence over the
// consistency of a call's options and of the collection. Milvus waits until its
// clock has passed the read, about 200 ms. The embedded store always reads like
// that.
//
// For Query and Search any client will do. The others have no way to ask, so
// they need a client of [NewClient]: with the SDK's own they are an
// [*ArgumentError].
func Strong(ctx context.Context) context.Context { return context.WithValue(ctx, strongKey{}, true) }

func strong(ctx context.Context) bool { return ctx.Value(strongKey{}) != nil }

// checkStrong refuses a strong read that the SDK's bare client cannot ask for.
func checkStrong(ctx context.Context, c any) error {
	if _, bare := c.(*client.GrpcClient); bare && strong(ctx) {
		return errors.New("only a client made by NewClient can ask for a strong read here; " +
			"Query and Search can with any client")
	}
	return nil
}

// withStrong adds the wish to a call's options.
func withStrong(ctx context.Context, opts []client.SearchQueryOptionFunc) []client.SearchQueryOptionFunc {
	if !strong(ctx) {
		return opts
	}
	return append(slices.Clip(opts), func(o *client.SearchQueryOption) {
		o.ConsistencyLevel, o.GuaranteeTimestamp = entity.ClStrong, 0
	})
}

// strengthen writes the wish into a request.
func strengthen(ctx context.Context, req any) {
	if !strong(ctx) {
		return
	}
	switch req := req.(type) {
	case *milvuspb.QueryRequest:
		req.GuaranteeTimestamp, req.ConsistencyLevel = client.StrongTimestamp, commonpb.ConsistencyLevel_Strong
		req.UseDefaultConsistency = false
	case *milvuspb.SearchRequest:
		req.GuaranteeTimestamp, req.ConsistencyLevel = client.StrongTimestamp, commonpb.ConsistencyLevel_Strong
		req.UseDefaultConsistency = false
	case *milvuspb.HybridSearchRequest:
		req.GuaranteeTimestamp, req.ConsistencyLevel = client.StrongTimestamp, commonpb.ConsistencyLevel_Strong
		req.UseDefaultConsistency = false
		for _, r := range req.GetRequests() {
			strengthen(ctx, r)
		}
	}
}
