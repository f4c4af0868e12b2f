package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/vectorstore"
)

const (
	// deleteKeys bounds one deletion by primary key.
	deleteKeys = 1000
	// staleKeys bounds one read of rows by primary key that are to be deleted.
	staleKeys = 4000
)

// vectors is the collection that holds the rows, as one run calls it.
type vectors struct {
	*scope
	service *service.Service
	loaded  func() error // waits until rows can be read
	past    past
}

func (v *vectors) call(operation string, fn func(vectorstore.Guard) error) error {
	return v.service.CallVectors(v.ctx, operation, fn)
}

func (v *vectors) describe() (*entity.Collection, error) {
	return describeCollection(v.ctx, v.service, v.Vectors, v.Collection)
}

// describeCollection asks for a collection; nil where it does not exist.
func describeCollection(
	ctx context.Context, s *service.Service, store vectorstore.Store, name string,
) (found *entity.Collection, err error) {
	there := false
	err = s.CallVectors(ctx, "has_collection", func(guard vectorstore.Guard) (err error) {
		there, err = guard.HasCollection(ctx, store, name)
		return err
	})
	if err != nil || !there {
		return nil, err
	}
	err = s.CallVectors(ctx, "describe_collection", func(guard vectorstore.Guard) (err error) {
		found, err = guard.DescribeCollection(ctx, store, name)
		return err
	})
	return found, err
}

func (v *vectors) createCollection(schema *entity.Schema) error {
	return v.call("create_collection", func(guard vectorstore.Guard) error {
		return guard.CreateCollection(v.ctx, v.Vectors, schema, entity.DefaultShardNumber)
	})
}

func (v *vectors) createIndex() error {
	index, err := entity.NewIndexAUTOINDEX(entity.COSINE)
	if err != nil {
		return err
	}
	return v.call("create_index", func(guard vectorstore.Guard) error {
		return guard.CreateIndex(v.ctx, v.Vectors, v.Collection, rows.Field.Vector, index, false)
	})
}

// indexed reports whether the vectors have an index. The server says "index not
// found" as an error.
func (v *vectors) indexed() bool {
	var indexes []entity.Index
	err := v.call("describe_index", func(guard vectorstore.Guard) (err error) {
		indexes, err = guard.DescribeIndex(v.ctx, v.Vectors, v.Collection, rows.Field.Vector)
		return err
	})
	return err == nil && len(indexes) > 0
}

// load brings the collection into memory.
func (v *vectors) load(ctx context.Context) error {
	return v.service.CallVectors(ctx, "load_collection", func(guard vectorstore.Guard) error {
		return guard.LoadCollection(ctx, v.Vectors, v.Collection, false)
	})
}

// query reads rows at Strong consistency. No document is to blame for a read
// that is refused, as that of a collection which somebody has released: the
// next run finds it repaired or says what is wrong.
func (v *vectors) query(
	expr string, fields []string, opts ...client.SearchQueryOptionFunc,
) (list []rows.Row, err error) {
	answer, err := v.answer(expr, fields, opts...)
	if err == nil {
		list, err = rows.Read(answer)
	}
	return list, v.unread(err)
}

// count counts rows at Strong consistency.
func (v *vectors) count(expr string) (n int, err error) {
	answer, err := v.answer(expr, []string{countField})
	if err == nil {
		n, err = readCount(answer)
	}
	return n, v.unread(err)
}

// countField is what a store is asked for that is to count rows.
const countField = "count(*)"

func readCount(answer client.ResultSet) (int, error) {
	for _, column := range answer {
		if numbers, ok := column.(*entity.ColumnInt64); ok && numbers.Len() == 1 {
			return int(numbers.Data()[0]), nil
		}
	}
	return 0, errors.New("the vector store answers count(*) without a number")
}

func (v *vectors) answer(
	expr string, fields []string, opts ...client.SearchQueryOptionFunc,
) (answer client.ResultSet, err error) {
	if err := v.loaded(); err != nil {
		return nil, err
	}
	opts = append(opts, client.WithSearchQueryConsistencyLevel(entity.ClStrong))
	err = v.call("query", func(guard vectorstore.Guard) (err error) {
		answer, err = guard.Query(v.ctx, v.Vectors, v.Collection, nil, expr, fields, opts...)
		return err
	})
	return answer, err
}

// unread says what a failed read means.
func (v *vectors) unread(err error) error {
	err = v.end.Blame("store", err)
	if stop.IsRefusal(err) {
		return stop.Defer("store", "upstream refused", err)
	}
	return err
}

var (
	placeOfNotes = ofDocument(version.Place)
	noteFields   = []string{rows.Field.ID, rows.Field.Meta}
)

// notes reads the notes in the collection.
func (v *vectors) notes() (version.Notes, error) {
	list, err := v.query(placeOfNotes, noteFields)
	if err != nil {
		return nil, err
	}
	found, err := version.Read(list)
	if err != nil {
		v.end.With(unreadableNotes(v.Collection, err))
		return nil, stop.Defer("store", string(StopConfiguration), err)
	}
	return found, nil
}

// unreadableNotes ends what must know the notes of a collection.
func unreadableNotes(collection string, err error) *StopError {
	return &StopError{
		Kind: StopConfiguration, Upstream: service.VectorStore, Err: fmt.Errorf("collection %q: %w", collection, err),
	}
}

// ofDocument is the filter for the rows of a document, by its hash.
func ofDocument(hash string) string { return rows.Field.Doc + " == " + vectorstore.Quote(hash) }

// andMarked narrows a filter to commit marks.
var andMarked = " and " + rows.Field.Chunks + " != 0"

// rowsOf reads all rows of documents.
func (v *vectors) rowsOf(documents []*document, fields []string, take func(*document, rows.Row)) error {
	byHash := make(map[string]*document, len(documents))
	hashes := make([]string, 0, len(documents))
	for _, d := range documents {
		hash := rows.DocumentHash(d.id)
		byHash[hash], hashes = d, append(hashes, hash)
	}
	list, err := v.query(vectorstore.In(rows.Field.Doc, hashes), fields)
	if err != nil {
		return err
	}
	for _, row := range list {
		if d := byHash[row.Doc]; d != nil {
			take(d, row)
		}
	}
	return nil
}

// upsert writes rows, all in one call.
func (v *vectors) upsert(list []*rows.Row, dimensions int) error {
	err := v.call("upsert", func(guard vectorstore.Guard) error {
		_, err := guard.Upsert(v.ctx, v.Vectors, v.Collection, "", rows.Columns(list, dimensions)...)
		return err
	})
	return v.end.Blame("store", err)
}

// deleteRows deletes rows by primary key, in calls of bounded size.
func (v *vectors) deleteRows(ids []string) error {
	for batch := range slices.Chunk(ids, deleteKeys) {
		err := v.call("delete_by_pks", func(guard vectorstore.Guard) error {
			return guard.DeleteByPks(v.ctx, v.Vectors, v.Collection, "", entity.NewColumnVarChar(rows.Field.ID, batch))
		})
		if err != nil {
			return v.end.Blame("store", err)
		}
	}
	return nil
}

// purge removes what deleted rows have left in a store that only hides them.
func (v *vectors) purge() error {
	store, ok := v.Vectors.(vectorstore.Purger)
	if !ok {
		return nil
	}
	return v.call("purge", func(guard vectorstore.Guard) error {
		return guard.Purge(v.ctx, store, v.Collection)
	})
}
