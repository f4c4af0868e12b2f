package vectorstore

import (
	"context"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// HasCollection reports whether there is a collection of that name.
func HasCollection(ctx context.Context, c Admin, collName string) (bool, error) {
	return Guard{}.HasCollection(ctx, c, collName)
}

// HasCollection is the package's HasCollection through the guard's breaker.
func (g Guard) HasCollection(ctx context.Context, c Admin, collName string) (bool, error) {
	t := target{name: "HasCollection", label: "has_collection", collection: collName, client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) (bool, error) {
		return c.HasCollection(ctx, collName)
	})
}

// ListCollections lists the collections, without their schemas.
func ListCollections(ctx context.Context, c Admin, opts ...client.ListCollectionOption) ([]*entity.Collection, error) {
	return Guard{}.ListCollections(ctx, c, opts...)
}

// ListCollections is the package's ListCollections through the guard's breaker.
func (g Guard) ListCollections(
	ctx context.Context, c Admin, opts ...client.ListCollectionOption,
) ([]*entity.Collection, error) {
	t := target{name: "ListCollections", label: "list_collections", client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) ([]*entity.Collection, error) {
		return c.ListCollections(ctx, opts...)
	})
}

// CreateCollection makes a collection.
func CreateCollection(
	ctx context.Context, c Admin, schema *entity.Schema, shardsNum int32, opts ...client.CreateCollectionOption,
) error {
	return Guard{}.CreateCollection(ctx, c, schema, shardsNum, opts...)
}

// CreateCollection is the package's CreateCollection through the guard's
// breaker.
func (g Guard) CreateCollection(
	ctx context.Context, c Admin, schema *entity.Schema, shardsNum int32, opts ...client.CreateCollectionOption,
) error {
	t := target{
		name: "CreateCollection", label: "create_collection", collection: schemaName(schema), client: c,
		invalid: checkSchema(schema),
	}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.CreateCollection(ctx, schema, shardsNum, opts...)
	})
}

// DescribeCollection returns a collection with its schema and description.
func DescribeCollection(ctx context.Context, c Admin, collName string) (*entity.Collection, error) {
	return Guard{}.DescribeCollection(ctx, c, collName)
}

// DescribeCollection is the package's DescribeCollection through the guard's
// breaker.
func (g Guard) DescribeCollection(ctx context.Context, c Admin, collName string) (*entity.Collection, error) {
	t := target{name: "DescribeCollection", label: "describe_collection", collection: collName, client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) (*entity.Collection, error) {
		return c.DescribeCollection(ctx, collName)
	})
}

// DropCollection removes a collection with its rows. One that is not there is
// no error.
func DropCollection(ctx context.Context, c Admin, collName string, opts ...client.DropCollectionOption) error {
	return Guard{}.DropCollection(ctx, c, collName, opts...)
}

// DropCollection is the package's DropCollection through the guard's breaker.
func (g Guard) DropCollection(
	ctx context.Context, c Admin, collName string, opts ...client.DropCollectionOption,
) error {
	t := target{name: "DropCollection", label: "drop_collection", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.DropCollection(ctx, collName, opts...)
	})
}

// CreateIndex makes an index of a field and, unless async, waits for it.
func CreateIndex(
	ctx context.Context, c Admin, collName, fieldName string, idx entity.Index, async bool, opts ...client.IndexOption,
) error {
	return Guard{}.CreateIndex(ctx, c, collName, fieldName, idx, async, opts...)
}

// CreateIndex is the package's CreateIndex through the guard's breaker.
func (g Guard) CreateIndex(
	ctx context.Context, c Admin, collName, fieldName string, idx entity.Index, async bool, opts ...client.IndexOption,
) error {
	t := target{name: "CreateIndex", label: "create_index", collection: collName, client: c, invalid: checkIndex(idx)}
	return do(ctx, g, t, patiently(async, func(ctx context.Context) error {
		return c.CreateIndex(ctx, collName, fieldName, idx, async, opts...)
	}))
}

// DescribeIndex returns the indexes of a field.
func DescribeIndex(
	ctx context.Context, c Admin, collName, fieldName string, opts ...client.IndexOption,
) ([]entity.Index, error) {
	return Guard{}.DescribeIndex(ctx, c, collName, fieldName, opts...)
}

// DescribeIndex is the package's DescribeIndex through the guard's breaker.
func (g Guard) DescribeIndex(
	ctx context.Context, c Admin, collName, fieldName string, opts ...client.IndexOption,
) ([]entity.Index, error) {
	t := target{name: "DescribeIndex", label: "describe_index", collection: collName, client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) ([]entity.Index, error) {
		return c.DescribeIndex(ctx, collName, fieldName, opts...)
	})
}

// DropIndex removes the index of a field. Milvus wants the collection released
// first.
func DropIndex(ctx context.Context, c Admin, collName, fieldName string, opts ...client.IndexOption) error {
	return Guard{}.DropIndex(ctx, c, collName, fieldName, opts...)
}

// DropIndex is the package's DropIndex through the guard's breaker.
func (g Guard) DropIndex(ctx context.Context, c Admin, collName, fieldName string, opts ...client.IndexOption) error {
	t := target{name: "DropIndex", label: "drop_index", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.DropIndex(ctx, collName, fieldName, opts...)
	})
}

// LoadCollection brings a collection into memory and, unless async, waits for
// it.
func LoadCollection(
	ctx context.Context, c Admin, collName string, async bool, opts ...client.LoadCollectionOption,
) error {
	return Guard{}.LoadCollection(ctx, c, collName, async, opts...)
}

// LoadCollection is the package's LoadCollection through the guard's breaker.
func (g Guard) LoadCollection(
	ctx context.Context, c Admin, collName string, async bool, opts ...client.LoadCollectionOption,
) error {
	t := target{name: "LoadCollection", label: "load_collection", collection: collName, client: c}
	return do(ctx, g, t, patiently(async, func(ctx context.Context) error {
		return c.LoadCollection(ctx, collName, async, opts...)
	}))
}

// ReleaseCollection takes a collection out of memory.
func ReleaseCollection(ctx context.Context, c Admin, collName string, opts ...client.ReleaseCollectionOption) error {
	return Guard{}.ReleaseCollection(ctx, c, collName, opts...)
}

// ReleaseCollection is the package's ReleaseCollection through the guard's
// breaker.
func (g Guard) ReleaseCollection(
	ctx context.Context, c Admin, collName string, opts ...client.ReleaseCollectionOption,
) error {
	t := target{name: "ReleaseCollection", label: "release_collection", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.ReleaseCollection(ctx, collName, opts...)
	})
}

// GetLoadState tells whether a collection is in memory.
func GetLoadState(ctx context.Context, c Admin, collName string, partitionNames []string) (entity.LoadState, error) {
	return Guard{}.GetLoadState(ctx, c, collName, partitionNames)
}

// GetLoadState is the package's GetLoadState through the guard's breaker.
func (g Guard) GetLoadState(
	ctx context.Context, c Admin, collName string, partitionNames []string,
) (entity.LoadState, error) {
	t := target{name: "GetLoadState", label: "get_load_state", collection: collName, client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) (entity.LoadState, error) {
		return c.GetLoadState(ctx, collName, partitionNames)
	})
}

// CreatePartition makes a partition.
func CreatePartition(
	ctx context.Context, c Server, collName, partitionName string, opts ...client.CreatePartitionOption,
) error {
	return Guard{}.CreatePartition(ctx, c, collName, partitionName, opts...)
}

// CreatePartition is the package's CreatePartition through the guard's breaker.
func (g Guard) CreatePartition(
	ctx context.Context, c Server, collName, partitionName string, opts ...client.CreatePartitionOption,
) error {
	t := target{name: "CreatePartition", label: "create_partition", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.CreatePartition(ctx, collName, partitionName, opts...)
	})
}

// DropPartition removes a partition with its rows.
func DropPartition(
	ctx context.Context, c Server, collName, partitionName string, opts ...client.DropPartitionOption,
) error {
	return Guard{}.DropPartition(ctx, c, collName, partitionName, opts...)
}

// DropPartition is the package's DropPartition through the guard's breaker.
func (g Guard) DropPartition(
	ctx context.Context, c Server, collName, partitionName string, opts ...client.DropPartitionOption,
) error {
	t := target{name: "DropPartition", label: "drop_partition", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.DropPartition(ctx, collName, partitionName, opts...)
	})
}

// ShowPartitions lists the partitions of a collection.
func ShowPartitions(ctx context.Context, c Server, collName string) ([]*entity.Partition, error) {
	return Guard{}.ShowPartitions(ctx, c, collName)
}

// ShowPartitions is the package's ShowPartitions through the guard's breaker.
func (g Guard) ShowPartitions(ctx context.Context, c Server, collName string) ([]*entity.Partition, error) {
	t := target{name: "ShowPartitions", label: "show_partitions", collection: collName, client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) ([]*entity.Partition, error) {
		return c.ShowPartitions(ctx, collName)
	})
}

// HasPartition reports whether there is a partition of that name.
func HasPartition(ctx context.Context, c Server, collName, partitionName string) (bool, error) {
	return Guard{}.HasPartition(ctx, c, collName, partitionName)
}

// HasPartition is the package's HasPartition through the guard's breaker.
func (g Guard) HasPartition(ctx context.Context, c Server, collName, partitionName string) (bool, error) {
	t := target{name: "HasPartition", label: "has_partition", collection: collName, client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) (bool, error) {
		return c.HasPartition(ctx, collName, partitionName)
	})
}

// LoadPartitions brings partitions into memory and, unless async, waits for
// it.
func LoadPartitions(
	ctx context.Context, c Server, collName string, partitionNames []string, async bool,
	opts ...client.LoadPartitionsOption,
) error {
	return Guard{}.LoadPartitions(ctx, c, collName, partitionNames, async, opts...)
}

// LoadPartitions is the package's LoadPartitions through the guard's breaker.
func (g Guard) LoadPartitions(
	ctx context.Context, c Server, collName string, partitionNames []string, async bool,
	opts ...client.LoadPartitionsOption,
) error {
	t := target{name: "LoadPartitions", label: "load_partitions", collection: collName, client: c}
	return do(ctx, g, t, patiently(async, func(ctx context.Context) error {
		return c.LoadPartitions(ctx, collName, partitionNames, async, opts...)
	}))
}

// ReleasePartitions takes partitions out of memory.
func ReleasePartitions(
	ctx context.Context, c Server, collName string, partitionNames []string, opts ...client.ReleasePartitionsOption,
) error {
	return Guard{}.ReleasePartitions(ctx, c, collName, partitionNames, opts...)
}

// ReleasePartitions is the package's ReleasePartitions through the guard's
// breaker.
func (g Guard) ReleasePartitions(
	ctx context.Context, c Server, collName string, partitionNames []string, opts ...client.ReleasePartitionsOption,
) error {
	t := target{name: "ReleasePartitions", label: "release_partitions", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.ReleasePartitions(ctx, collName, partitionNames, opts...)
	})
}

// RenameCollection gives a collection another name.
func RenameCollection(ctx context.Context, c Server, collName, newName string) error {
	return Guard{}.RenameCollection(ctx, c, collName, newName)
}

// RenameCollection is the package's RenameCollection through the guard's
// breaker.
func (g Guard) RenameCollection(ctx context.Context, c Server, collName, newName string) error {
	t := target{name: "RenameCollection", label: "rename_collection", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.RenameCollection(ctx, collName, newName)
	})
}

// CreateAlias gives a collection a second name.
func CreateAlias(ctx context.Context, c Server, collName, alias string) error {
	return Guard{}.CreateAlias(ctx, c, collName, alias)
}

// CreateAlias is the package's CreateAlias through the guard's breaker.
func (g Guard) CreateAlias(ctx context.Context, c Server, collName, alias string) error {
	t := target{name: "CreateAlias", label: "create_alias", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.CreateAlias(ctx, collName, alias)
	})
}

// DropAlias removes an alias.
func DropAlias(ctx context.Context, c Server, alias string) error {
	return Guard{}.DropAlias(ctx, c, alias)
}

// DropAlias is the package's DropAlias through the guard's breaker.
func (g Guard) DropAlias(ctx context.Context, c Server, alias string) error {
	return do(ctx, g, target{name: "DropAlias", label: "drop_alias", client: c}, func(ctx context.Context) error {
		return c.DropAlias(ctx, alias)
	})
}

// AlterAlias points an alias at another collection, in one step.
func AlterAlias(ctx context.Context, c Server, collName, alias string) error {
	return Guard{}.AlterAlias(ctx, c, collName, alias)
}

// AlterAlias is the package's AlterAlias through the guard's breaker.
func (g Guard) AlterAlias(ctx context.Context, c Server, collName, alias string) error {
	t := target{name: "AlterAlias", label: "alter_alias", collection: collName, client: c}
	return do(ctx, g, t, func(ctx context.Context) error {
		return c.AlterAlias(ctx, collName, alias)
	})
}

// GetVersion returns the server's version.
func GetVersion(ctx context.Context, c Server) (string, error) {
	return Guard{}.GetVersion(ctx, c)
}

// GetVersion is the package's GetVersion through the guard's breaker.
func (g Guard) GetVersion(ctx context.Context, c Server) (string, error) {
	t := target{name: "GetVersion", label: "get_version", client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) (string, error) {
		return c.GetVersion(ctx)
	})
}

// CheckHealth returns the server's own opinion of its health. A server that
// calls itself unhealthy has answered: it is no failure.
func CheckHealth(ctx context.Context, c Server) (*entity.MilvusState, error) {
	return Guard{}.CheckHealth(ctx, c)
}

// CheckHealth is the package's CheckHealth through the guard's breaker.
func (g Guard) CheckHealth(ctx context.Context, c Server) (*entity.MilvusState, error) {
	t := target{name: "CheckHealth", label: "check_health", client: c}
	return call(ctx, g, t, nil, func(ctx context.Context) (*entity.MilvusState, error) {
		return c.CheckHealth(ctx)
	})
}
