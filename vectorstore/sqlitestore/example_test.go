package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

func Example() {
	dir, err := os.MkdirTemp("", "sqlitestore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	st, err := sqlitestore.Open(filepath.Join(dir, "rows.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()

	ctx := context.Background()
	schema := entity.NewSchema().WithName("notes").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
			WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("text").WithDataType(entity.FieldTypeVarChar).WithMaxLength(65535)).
		WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(2))
	index := entity.NewGenericIndex("", entity.Flat, map[string]string{"metric_type": "COSINE"})
	for _, err := range []error{
		st.CreateCollection(ctx, schema, entity.DefaultShardNumber),
		st.CreateIndex(ctx, "notes", "vector", index, false),
		st.LoadCollection(ctx, "notes", false),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	_, err = st.Upsert(ctx, "notes", "",
		entity.NewColumnVarChar("id", []string{"a", "b"}),
		entity.NewColumnVarChar("text", []string{"The breaker opens after five failures.", "A probe closes it."}),
		entity.NewColumnFloatVector("vector", 2, [][]float32{{1, 0}, {0, 1}}))
	if err != nil {
		log.Fatal(err)
	}

	near, err := st.Search(ctx, "notes", nil, "", []string{"text"}, []entity.Vector{entity.FloatVector{3, 4}},
		"vector", entity.COSINE, 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	for i := range near[0].ResultCount {
		text, _ := near[0].Fields.GetColumn("text").GetAsString(i)
		fmt.Printf("%.1f %s\n", near[0].Scores[i], text)
	}
	worded, err := st.SearchText(ctx, "notes", "", []string{"text"}, "When does it open?", 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(worded[0].ResultCount, "by words")
	// Output:
	// 0.8 A probe closes it.
	// 0.6 The breaker opens after five failures.
	// 1 by words
}
