package vectorstore

import (
	"context"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// Reader reads rows by key and by expression, and finds those whose vectors are
// nearest.
type Reader interface {
	Get(
		ctx context.Context, collectionName string, ids entity.Column, opts ...client.GetOption,
	) (client.ResultSet, error)
	Query(
		ctx context.Context, collectionName string, partitionNames []string, expr string, outputFields []string,
		opts ...client.SearchQueryOptionFunc,
	) (client.ResultSet, error)
	Search(
		ctx context.Context, collName string, partitions []string, expr string, outputFields []string,
		vectors []entity.Vector, vectorField string, metricType entity.MetricType, topK int,
		sp entity.SearchParam, opts ...client.SearchQueryOptionFunc,
	) ([]client.SearchResult, error)
}

// Writer adds, replaces and removes rows, and makes what was written durable.
type Writer interface {
	Upsert(ctx context.Context, collName, partitionName string, columns ...entity.Column) (entity.Column, error)
	Insert(ctx context.Context, collName, partitionName string, columns ...entity.Column) (entity.Column, error)
	Delete(ctx context.Context, collName, partitionName, expr string) error
	DeleteByPks(ctx context.Context, collName, partitionName string, ids entity.Column) error
	Flush(ctx context.Context, collName string, async bool, opts ...client.FlushOption) error
}

// Admin keeps collections and their indexes, and brings them into memory, which
// searching needs.
type Admin interface {
	HasCollection(ctx context.Context, collName string) (bool, error)
	ListCollections(ctx context.Context, opts ...client.ListCollectionOption) ([]*entity.Collection, error)
	CreateCollection(
		ctx context.Context, schema *entity.Schema, shardsNum int32, opts ...client.CreateCollectionOption,
	) error
	DescribeCollection(ctx context.Context, collName string) (*entity.Collection, error)
	DropCollection(ctx context.Context, collName string, opts ...client.DropCollectionOption) error

	CreateIndex(
		ctx context.Context, collName, fieldName string, idx entity.Index, async bool, opts ...client.IndexOption,
	) error
	DescribeIndex(ctx context.Context, collName, fieldName string, opts ...client.IndexOption) ([]entity.Index, error)
	DropIndex(ctx context.Context, collName, fieldName string, opts ...client.IndexOption) error

	LoadCollection(ctx context.Context, collName string, async bool, opts ...client.LoadCollectionOption) error
	ReleaseCollection(ctx context.Context, collName string, opts ...client.ReleaseCollectionOption) error
	GetLoadState(ctx context.Context, collectionName string, partitionNames []string) (entity.LoadState, error)
}

// TextSearcher finds rows by the words of a question. The SDK has no such
// method; a store that can search text implements it. One result comes back,
// best first, scores positive and comparable within it only; a question
// without a word gives an empty result and no error.
type TextSearcher interface {
	SearchText(
		ctx context.Context, collection, expr string, outputFields []string, question string, topK int,
	) ([]client.SearchResult, error)
}

// Purger removes what deleted rows have left in a store that only hides them at
// first. The SDK has no such method; Milvus compacts by itself. Purge may read
// the whole store, so call it once, after a deletion. If it fails, deleted rows
// stay hidden and it can be called again; an error with the code Unavailable
// says that others are using the store.
type Purger interface {
	Purge(ctx context.Context, collName string) error
}

// Server is what Milvus offers beyond a Store: rows a batch at a time, searches
// of several fields ranked as one, partitions, other names for collections, and
// what the server says of itself.
type Server interface {
	QueryIterator(ctx context.Context, opt *client.QueryIteratorOption) (*client.QueryIterator, error)
	HybridSearch(
		ctx context.Context, collName string, partitions []string, limit int, outputFields []string,
		reranker client.Reranker, subRequests []*client.ANNSearchRequest, opts ...client.SearchQueryOptionFunc,
	) ([]client.SearchResult, error)

	CreatePartition(ctx context.Context, collName, partitionName string, opts ...client.CreatePartitionOption) error
	DropPartition(ctx context.Context, collName, partitionName string, opts ...client.DropPartitionOption) error
	ShowPartitions(ctx context.Context, collName string) ([]*entity.Partition, error)
	HasPartition(ctx context.Context, collName, partitionName string) (bool, error)
	LoadPartitions(
		ctx context.Context, collName string, partitionNames []string, async bool, opts ...client.LoadPartitionsOption,
	) error
	ReleasePartitions(
		ctx context.Context, collName string, partitionNames []string, opts ...client.ReleasePartitionsOption,
	) error

	RenameCollection(ctx context.Context, collName, newName string) error
	CreateAlias(ctx context.Context, collName, alias string) error
	DropAlias(ctx context.Context, alias string) error
	AlterAlias(ctx context.Context, collName, alias string) error

	GetVersion(ctx context.Context) (string, error)
	CheckHealth(ctx context.Context) (*entity.MilvusState, error)
}

// Store is what a retrieval pipeline asks of a vector store. The SDK's
// client.Client is one, and so is *sqlitestore.Store. An implementation must
// be safe for concurrent use, must write all rows of a call or none where it
// can, must give the scores of COSINE as similarities (higher is better), and
// must return errors from which google.golang.org/grpc/status.Code reads the
// kind of fault. Package vectorstoretest checks one.
type Store interface {
	Reader
	Writer
	Admin
	Close() error
}

// The SDK's client fits both.
var _ interface {
	Store
	Server
} = client.Client(nil)
