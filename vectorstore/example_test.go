package vectorstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// A store in a file stands in for a server: the calls are the same.
func Example() {
	dir, err := os.MkdirTemp("", "vectorstore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var store vectorstore.Store
	store, err = sqlitestore.Open(filepath.Join(dir, "rows.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	ctx := context.Background()
	schema := entity.NewSchema().WithName("docs").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
			WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(2))
	index := entity.NewGenericIndex("", entity.Flat, map[string]string{"metric_type": "COSINE"})
	for _, err := range []error{
		vectorstore.CreateCollection(ctx, store, schema, entity.DefaultShardNumber),
		vectorstore.CreateIndex(ctx, store, "docs", "vector", index, false),
		vectorstore.LoadCollection(ctx, store, "docs", false),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	ids, err := vectorstore.Upsert(ctx, store, "docs", "",
		entity.NewColumnVarChar("id", []string{`it's "a"`, "b"}),
		entity.NewColumnFloatVector("vector", 2, [][]float32{{1, 0}, {0, 1}}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids.Len(), "rows written")

	rows, err := vectorstore.Query(ctx, store, "docs", nil, vectorstore.In("id", []string{`it's "a"`}), []string{"id"})
	if err != nil {
		log.Fatal(err)
	}
	id, _ := rows.GetColumn("id").GetAsString(0)
	fmt.Println(id)
	// Output:
	// 2 rows written
	// it's "a"
}

// One breaker for each tenant's server: the same operations as methods.
func ExampleGuard() {
	breaker := resilience.NewRegistry(resilience.Config{}).
		MustRegister("milvus:tenant-a", resilience.Config{FailMax: 3})
	door := vectorstore.Guard{Breaker: breaker}
	client, err := vectorstore.NewClient(context.Background(), vectorstore.Config{Address: "milvus.example:19530"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	breaker.ForceOpen("maintenance")
	_, err = door.HasCollection(context.Background(), client, "docs")
	fmt.Println(errors.Is(err, resilience.ErrOpen))
	// Output: true
}

func ExampleIn() {
	fmt.Println(vectorstore.In("doc", []string{"a", `b"] or id != ["`}))
	fmt.Println(vectorstore.In("ordinal", []int64{1, 2}))
	// Output:
	// doc in ["a","b\"] or id != [\""]
	// ordinal in [1,2]
}
