package vectorstore

import (
	"cmp"
	"context"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// Upsert adds rows and replaces those whose key is there. It returns the keys.
// Keys are compared within a call too: the same key twice is refused, since
// servers disagree about which row stays.
func Upsert(
	ctx context.Context, c Writer, collName, partitionName string, columns ...entity.Column,
) (entity.Column, error) {
	return Guard{}.Upsert(ctx, c, collName, partitionName, columns...)
}

// Upsert is the package's Upsert through the guard's breaker.
func (g Guard) Upsert(
	ctx context.Context, c Writer, collName, partitionName string, columns ...entity.Column,
) (entity.Column, error) {
	t := target{name: "Upsert", label: "upsert", collection: collName, client: c, invalid: checkColumns(columns)}
	return call(ctx, g, t, sameRows(columns), func(ctx context.Context) (entity.Column, error) {
		return c.Upsert(withColumns(ctx, columns), collName, partitionName, columns...)
	})
}

// Insert adds rows and returns their keys.
func Insert(
	ctx context.Context, c Writer, collName, partitionName string, columns ...entity.Column,
) (entity.Column, error) {
	return Guard{}.Insert(ctx, c, collName, partitionName, columns...)
}

// Insert is the package's Insert through the guard's breaker.
func (g Guard) Insert(
	ctx context.Context, c Writer, collName, partitionName string, columns ...entity.Column,
) (entity.Column, error) {
	t := target{name: "Insert", label: "insert", collection: collName, client: c, invalid: checkColumns(columns)}
	return call(ctx, g, t, sameRows(columns), func(ctx context.Context) (entity.Column, error) {
		return c.Insert(withColumns(ctx, columns), collName, partitionName, columns...)
	})
}

// Get reads rows by key. The column of keys has the name of the primary key. It
// reads with the collection's consistency, so that rows that were written just
// now may be missing; see [Strong].
func Get(
	ctx context.Context, c Reader, collName string, ids entity.Column, opts ...client.GetOption,
) (client.ResultSet, error) {
	return Guard{}.Get(ctx, c, collName, ids, opts...)
}

// Get is the package's Get through the guard's breaker.
func (g Guard) Get(
	ctx context.Context, c Reader, collName string, ids entity.Column, opts ...client.GetOption,
) (client.ResultSet, error) {
	t := target{
		name: "Get", label: "get", collection: collName, client: c,
		invalid: cmp.Or(checkKeys(c, ids, true), checkStrong(ctx, c)),
	}
	return call(ctx, g, t, evenRows, func(ctx context.Context) (client.ResultSet, error) {
		return c.Get(withKeys(ctx, ids), collName, ids, opts...)
	})
}

// Query reads the rows that the expression matches. Build expressions of
// values with [In] and [Quote]. A negative limit or offset and an offset
// without a limit, over which the SDK or the server passes, are an
// [*ArgumentError]; how far the server pages, its configuration
// says (16,384 rows by default). For rows that were written just now see
// [Strong].
func Query(
	ctx context.Context, c Reader, collName string, partitionNames []string, expr string, outputFields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	return Guard{}.Query(ctx, c, collName, partitionNames, expr, outputFields, opts...)
}

// Query is the package's Query through the guard's breaker.
func (g Guard) Query(
	ctx context.Context, c Reader, collName string, partitionNames []string, expr string, outputFields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	t := target{name: "Query", label: "query", collection: collName, client: c, invalid: checkPage(opts)}
	opts = withStrong(ctx, opts)
	return call(ctx, g, t, wantedPage(opts), func(ctx context.Context) (client.ResultSet, error) {
		return c.Query(ctx, collName, partitionNames, expr, outputFields, opts...)
	})
}

// Search finds for each vector the topK nearest rows that the expression
// matches, best first. A nil sp means no parameters. For rows that were written
// just now see [Strong].
func Search(
	ctx context.Context, c Reader, collName string, partitions []string, expr string, outputFields []string,
	vectors []entity.Vector, vectorField string, metricType entity.MetricType, topK int,
	sp entity.SearchParam, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	return Guard{}.Search(ctx, c, collName, partitions, expr, outputFields,
		vectors, vectorField, metricType, topK, sp, opts...)
}

// Search is the package's Search through the guard's breaker.
func (g Guard) Search(
	ctx context.Context, c Reader, collName string, partitions []string, expr string, outputFields []string,
	vectors []entity.Vector, vectorField string, metricType entity.MetricType, topK int,
	sp entity.SearchParam, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	if isNil(sp) {
		sp = noParams()
	}
	t := target{
		name: "Search", label: "search", collection: collName, client: c,
		invalid: cmp.Or(checkVectors(vectors), checkTopK(topK, opts)),
	}
	opts = withStrong(ctx, opts)
	return call(ctx, g, t, wantedResults(len(vectors), topK), func(ctx context.Context) ([]client.SearchResult, error) {
		return settleEmpty(c.Search(ctx, collName, partitions, expr, outputFields,
			vectors, vectorField, metricType, topK, sp, opts...))
	})
}

// HybridSearch searches several vector fields and ranks the results as one.
// Milvus has it from 2.4 on.
func HybridSearch(
	ctx context.Context, c Server, collName string, partitions []string, limit int, outputFields []string,
	reranker client.Reranker, subRequests []*client.ANNSearchRequest, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	return Guard{}.HybridSearch(ctx, c, collName, partitions, limit, outputFields, reranker, subRequests, opts...)
}

// HybridSearch is the package's HybridSearch through the guard's breaker.
func (g Guard) HybridSearch(
	ctx context.Context, c Server, collName string, partitions []string, limit int, outputFields []string,
	reranker client.Reranker, subRequests []*client.ANNSearchRequest, opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	t := target{
		name: "HybridSearch", label: "hybrid_search", collection: collName, client: c,
		invalid: cmp.Or(
			checkHybrid(reranker, subRequests), checkTopK(limit, opts), checkStrong(ctx, c)),
	}
	return call(ctx, g, t, wantedRows(limit), func(ctx context.Context) ([]client.SearchResult, error) {
		return settleEmpty(c.HybridSearch(ctx, collName, partitions, limit, outputFields,
			reranker, subRequests, opts...))
	})
}

// SearchText finds the topK rows that fit the words of the question best,
// among those that the expression matches.
func SearchText(
	ctx context.Context, c TextSearcher, collName, expr string, outputFields []string, question string, topK int,
) ([]client.SearchResult, error) {
	return Guard{}.SearchText(ctx, c, collName, expr, outputFields, question, topK)
}

// SearchText is the package's SearchText through the guard's breaker.
func (g Guard) SearchText(
	ctx context.Context, c TextSearcher, collName, expr string, outputFields []string, question string, topK int,
) ([]client.SearchResult, error) {
	t := target{name: "SearchText", label: "search_text", collection: collName, client: c}
	return call(ctx, g, t, wantedResults(1, topK), func(ctx context.Context) ([]client.SearchResult, error) {
		return c.SearchText(ctx, collName, expr, outputFields, question, topK)
	})
}

// Delete removes the rows that the expression matches. Build expressions of
// values with [In] and [Quote]. An empty expression is refused: stores disagree
// about whether it means no row or every row.
func Delete(ctx context.Context, c Writer, collName, partitionName, expr string) error {
	return Guard{}.Delete(ctx, c, collName, partitionName, expr)
}

// Delete is the package's Delete through the guard's breaker.
func (g Guard) Delete(ctx context.Context, c Writer, collName, partitionName, expr string) error {
	t := target{name: "Delete", label: "delete", collection: collName, client: c, invalid: checkFilter(expr)}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.Delete(ctx, collName, partitionName, expr)
	})
}

// DeleteByPks removes rows by key; keys that are not there are passed over. By
// key it is a hundred times as fast as by an expression on another field.
func DeleteByPks(ctx context.Context, c Writer, collName, partitionName string, ids entity.Column) error {
	return Guard{}.DeleteByPks(ctx, c, collName, partitionName, ids)
}

// DeleteByPks is the package's DeleteByPks through the guard's breaker.
func (g Guard) DeleteByPks(ctx context.Context, c Writer, collName, partitionName string, ids entity.Column) error {
	t := target{
		name: "DeleteByPks", label: "delete", collection: collName, client: c, invalid: checkKeys(c, ids, false),
	}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.DeleteByPks(withKeys(ctx, ids), collName, partitionName, ids)
	})
}

// Flush makes what was written durable and, unless async, waits for it.
func Flush(ctx context.Context, c Writer, collName string, async bool, opts ...client.FlushOption) error {
	return Guard{}.Flush(ctx, c, collName, async, opts...)
}

// Flush is the package's Flush through the guard's breaker.
func (g Guard) Flush(ctx context.Context, c Writer, collName string, async bool, opts ...client.FlushOption) error {
	t := target{name: "Flush", label: "flush", collection: collName, client: c}
	return do(ctx, g, t, patiently(async, func(ctx context.Context) error {
		return c.Flush(ctx, collName, async, opts...)
	}))
}

// Purge removes what deleted rows have left in a store that only hides them at
// first.
func Purge(ctx context.Context, c Purger, collName string) error {
	return Guard{}.Purge(ctx, c, collName)
}

// Purge is the package's Purge through the guard's breaker.
func (g Guard) Purge(ctx context.Context, c Purger, collName string) error {
	t := target{name: "Purge", label: "purge", collection: collName, client: c}
	return do(ctx, g, t, patiently(false, func(ctx context.Context) error {
		return c.Purge(ctx, collName)
	}))
}
