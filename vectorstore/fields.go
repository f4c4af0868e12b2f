package vectorstore

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// columnsKey finds the columns of an Insert or Upsert in a context.
type columnsKey struct{}

func withColumns(ctx context.Context, columns []entity.Column) context.Context {
	return context.WithValue(ctx, columnsKey{}, columns)
}

// writeRequest is an insert or an upsert.
type writeRequest interface {
	GetCollectionName() string
	GetFieldsData() []*schemapb.FieldData
	GetNumRows() uint32
}

func (in *inspector) checkWrite(ctx context.Context, req writeRequest, unique bool) error {
	known := map[string]*schemapb.FieldSchema{}
	for _, f := range in.schema(req.GetCollectionName()).GetFields() {
		known[f.GetName()] = f
	}
	columns, _ := ctx.Value(columnsKey{}).([]entity.Column)
	if err := checkExtras(known, columns); err != nil {
		return err
	}
	size := 0
	for _, data := range req.GetFieldsData() {
		size += proto.Size(protoadapt.MessageV2Of(data))
		if f := known[data.GetFieldName()]; f != nil {
			if err := checkField(f, data, int(req.GetNumRows()), unique); err != nil {
				return fmt.Errorf("field %q: %w", f.GetName(), err)
			}
		}
	}
	if size > maxMessage {
		return fmt.Errorf("the rows have %d bytes, the server takes %d; send fewer at a time", size, maxMessage)
	}
	return nil
}

// checkExtras refuses columns without a field that the SDK would garble: what
// goes into the dynamic field goes through encoding/json.
func checkExtras(known map[string]*schemapb.FieldSchema, columns []entity.Column) error {
	for _, col := range columns {
		if len(known) == 0 || known[col.Name()] != nil {
			continue
		}
		if err := checkExtra(col); err != nil {
			return fmt.Errorf("column %q: %w", col.Name(), err)
		}
	}
	return nil
}

func checkExtra(col entity.Column) error {
	kind := typeName(col.Type())
	switch col.Type() {
	case entity.FieldTypeJSON:
		if col, ok := col.(*entity.ColumnJSONBytes); ok && col.IsDynamic() {
			return nil
		}
	case entity.FieldTypeArray:
		if v, err := col.Get(0); err != nil || !isTexts(v) {
			return err
		}
		kind = "VARCHAR array"
	case entity.FieldTypeSparseVector:
		return fmt.Errorf("the dynamic field would keep nothing of its %s", kind)
	case entity.FieldTypeBinaryVector, entity.FieldTypeFloat16Vector, entity.FieldTypeBFloat16Vector:
	default:
		return nil
	}
	return fmt.Errorf("the dynamic field would keep its %s as base64; give it a field, or write the dynamic field as one column",
		kind)
}

func isTexts(v any) bool {
	_, ok := v.([][]byte)
	return ok
}

func checkField(f *schemapb.FieldSchema, data *schemapb.FieldData, rows int, unique bool) error {
	texts := data.GetScalars().GetStringData().GetData()
	switch f.GetDataType() {
	case schemapb.DataType_VarChar:
		if row, err := shortEnough(f, texts); err != nil {
			return fmt.Errorf("row %d: %w", row, err)
		}
	case schemapb.DataType_Array:
		return checkArrays(f, data.GetScalars().GetArrayData().GetData())
	default:
		if v := data.GetVectors(); v != nil {
			return checkVectorField(f, v, rows)
		}
	}
	if !unique || !f.GetIsPrimaryKey() {
		return nil
	}
	if err := distinct(texts); err != nil {
		return err
	}
	return distinct(data.GetScalars().GetLongData().GetData())
}

// param is a number among a field's parameters, such as its dimensions.
func param(f *schemapb.FieldSchema, name string) (int, bool) {
	n, err := strconv.Atoi(entity.KvPairsMap(f.GetTypeParams())[name])
	return n, err == nil
}

func shortEnough(f *schemapb.FieldSchema, texts []string) (int, error) {
	limit, ok := param(f, entity.TypeParamMaxLength)
	for i, s := range texts {
		if ok && len(s) > limit {
			return i, fmt.Errorf("%d bytes, the limit is %d", len(s), limit)
		}
	}
	return 0, nil
}

func checkArrays(f *schemapb.FieldSchema, arrays []*schemapb.ScalarField) error {
	most, bounded := param(f, entity.TypeParamMaxCapacity)
	for row, a := range arrays {
		n, err := scalarRows(f.GetElementType(), a)
		switch {
		case err != nil:
			return fmt.Errorf("row %d: %w", row, err)
		case bounded && n > most:
			return fmt.Errorf("row %d: %d elements, the field holds %d", row, n, most)
		}
		if i, err := shortEnough(f, a.GetStringData().GetData()); err != nil {
			return fmt.Errorf("row %d: element %d: %w", row, i, err)
		}
		if i, err := smallEnough(f.GetElementType(), a.GetIntData().GetData()); err != nil {
			return fmt.Errorf("row %d: element %d: %w", row, i, err)
		}
	}
	return nil
}

func smallEnough(t schemapb.DataType, numbers []int32) (int, error) {
	var most int32
	switch t {
	case schemapb.DataType_Int8:
		most = math.MaxInt8
	case schemapb.DataType_Int16:
		most = math.MaxInt16
	default:
		return 0, nil
	}
	for i, n := range numbers {
		if n > most || n < -most-1 {
			return i, fmt.Errorf("%d is no %v", n, t)
		}
	}
	return 0, nil
}

// checkVectorField compares the dimensions of a column with the field's, and
// counts its values: a caller's own kind of column may send others than it
// shows.
func checkVectorField(f *schemapb.FieldSchema, v *schemapb.VectorField, rows int) error {
	dim, dense := param(f, entity.TypeParamDim)
	n, err := vectorRows(f.GetDataType(), v)
	switch {
	case dense && int64(dim) != v.GetDim():
		return fmt.Errorf("the column has %d dimensions, the field has %d", v.GetDim(), dim)
	case err != nil:
		return err
	case n != rows:
		return fmt.Errorf("%d vectors for %d rows", n, rows)
	}
	return nil
}

func distinct[T comparable](keys []T) error {
	seen := make(map[T]int, len(keys))
	for row, k := range keys {
		if first, dup := seen[k]; dup {
			return fmt.Errorf("key %v is in rows %d and %d", k, first, row)
		}
		seen[k] = row
	}
	return nil
}

// checkSearch compares the type and the dimensions of the query with those of
// the field.
func checkSearch(schema *schemapb.CollectionSchema, req *milvuspb.SearchRequest) error {
	f := searched(schema, entity.KvPairsMap(req.GetSearchParams())["anns_field"])
	group := new(commonpb.PlaceholderGroup)
	if f == nil || proto.Unmarshal(req.GetPlaceholderGroup(), protoadapt.MessageV2Of(group)) != nil {
		return nil // the server's to say
	}
	for _, p := range group.GetPlaceholders() {
		if err := checkPlaceholder(f, p); err != nil {
			return err
		}
	}
	return nil
}

// searched is the vector field of that name, or the only one if none is named.
func searched(schema *schemapb.CollectionSchema, name string) *schemapb.FieldSchema {
	var vectors []*schemapb.FieldSchema
	for _, f := range schema.GetFields() {
		if _, ok := placeholders[f.GetDataType()]; ok && (name == "" || name == f.GetName()) {
			vectors = append(vectors, f)
		}
	}
	if len(vectors) != 1 {
		return nil
	}
	return vectors[0]
}

// placeholders are the types of queries, and the bits of a dimension, 0 where
// vectors have no length.
var placeholders = map[schemapb.DataType]struct {
	of   commonpb.PlaceholderType
	bits int
}{
	schemapb.DataType_FloatVector:       {commonpb.PlaceholderType_FloatVector, 32},
	schemapb.DataType_BinaryVector:      {commonpb.PlaceholderType_BinaryVector, 1},
	schemapb.DataType_Float16Vector:     {commonpb.PlaceholderType_Float16Vector, 16},
	schemapb.DataType_BFloat16Vector:    {commonpb.PlaceholderType_BFloat16Vector, 16},
	schemapb.DataType_SparseFloatVector: {commonpb.PlaceholderType_SparseFloatVector, 0},
}

func checkPlaceholder(f *schemapb.FieldSchema, p *commonpb.PlaceholderValue) error {
	want := placeholders[f.GetDataType()]
	switch {
	case p.GetType() == want.of, p.GetType() == commonpb.PlaceholderType_None: // of a type that the SDK does not know
	case p.GetType() == commonpb.PlaceholderType_FloatVector && want.bits == 16: // newer servers take them
		want.bits = 32
	default:
		return fmt.Errorf("field %q is %v, the vectors are %v", f.GetName(), f.GetDataType(), p.GetType())
	}
	dim, ok := param(f, entity.TypeParamDim)
	for i, v := range p.GetValues() {
		if ok && want.bits > 0 && 8*len(v) != want.bits*dim {
			return fmt.Errorf("vector %d has %d dimensions, field %q has %d", i, 8*len(v)/want.bits, f.GetName(), dim)
		}
	}
	return nil
}
