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
	if bare(c) && strong(ctx) {
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

// keptKey finds, in a context, that a read has the consistency of its
// collection.
type keptKey struct{}

// asKept is ctx for a read that names no consistency: the SDK would read with
// the one that the collection had when it first asked.
func asKept(ctx context.Context) context.Context { return context.WithValue(ctx, keptKey{}, true) }

// asAsked is asKept unless an option names a consistency.
func asAsked(ctx context.Context, opts []client.SearchQueryOptionFunc) context.Context {
	asked := client.SearchQueryOption{ConsistencyLevel: unnamed}
	for _, o := range opts {
		o(&asked)
	}
	if asked.ConsistencyLevel == unnamed {
		return asKept(ctx)
	}
	return ctx
}

const unnamed entity.ConsistencyLevel = -1

// strengthen writes the wish into a request.
func strengthen(ctx context.Context, req any) {
	kept := ctx.Value(keptKey{}) != nil
	switch req := req.(type) {
	case *milvuspb.QueryRequest:
		level(ctx, kept, &req.GuaranteeTimestamp, &req.ConsistencyLevel, &req.UseDefaultConsistency)
	case *milvuspb.SearchRequest:
		level(ctx, kept, &req.GuaranteeTimestamp, &req.ConsistencyLevel, &req.UseDefaultConsistency)
	case *milvuspb.HybridSearchRequest:
		level(ctx, kept, &req.GuaranteeTimestamp, &req.ConsistencyLevel, &req.UseDefaultConsistency)
		for _, r := range req.GetRequests() {
			strengthen(ctx, r)
		}
	}
}

func level(ctx context.Context, kept bool, guarantee *uint64, of *commonpb.ConsistencyLevel, byDefault *bool) {
	switch {
	case strong(ctx):
		*guarantee, *of, *byDefault = client.StrongTimestamp, commonpb.ConsistencyLevel_Strong, false
	case kept:
		*byDefault = true
	}
}
