package sqlitestore

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// batch is the columns of one Insert or Upsert, in the order of the schema.
type batch struct {
	c    *collection
	cols []entity.Column
	rows int
}

// newBatch checks the columns against the schema: names, types, lengths,
// limits, and duplicate keys.
func newBatch(c *collection, columns []entity.Column) (*batch, error) {
	b := &batch{c: c, cols: make([]entity.Column, len(c.schema.Fields))}
	for _, col := range columns {
		i, ok := c.field(col.Name())
		if !ok {
			return nil, invalid("collection %q has no field %q", c.schema.CollectionName, col.Name())
		}
		if b.cols[i] != nil {
			return nil, invalid("field %q is given twice", col.Name())
		}
		b.cols[i] = col
	}
	for i, f := range c.schema.Fields {
		if b.cols[i] == nil {
			return nil, invalid("field %q is missing", f.Name)
		}
		if err := b.check(i, f); err != nil {
			return nil, err
		}
	}
	return b, b.checkKeys()
}

func (b *batch) check(i int, f *entity.Field) error {
	col := b.cols[i]
	if i == 0 {
		b.rows = col.Len()
	}
	switch {
	case col.Type() != f.DataType:
		return invalid("field %q is %s, the column is %s", f.Name, f.DataType.Name(), col.Type().Name())
	case col.Len() != b.rows || b.rows == 0:
		return invalid("field %q has %d rows, the first field %d; at least one is needed", f.Name, col.Len(), b.rows)
	}
	switch col := col.(type) {
	case *entity.ColumnVarChar:
		return checkStrings(f, col.Data())
	case *entity.ColumnJSONBytes:
		return checkJSON(f, col.Data())
	case *entity.ColumnFloatVector:
		return b.c.checkVectors(f, col.Data())
	case *entity.ColumnFloat:
		return checkNumbers(f, col.Data())
	case *entity.ColumnDouble:
		return checkNumbers(f, col.Data())
	}
	if f.DataType == entity.FieldTypeFloatVector {
		return invalid("field %q: the column is %T, not the SDK's", f.Name, col)
	}
	return nil
}

// checkNumbers refuses NaN, which is NULL to SQLite.
func checkNumbers[T float32 | float64](f *entity.Field, data []T) error {
	for row, v := range data {
		if math.IsNaN(float64(v)) {
			return invalid("field %q, row %d: not a number", f.Name, row)
		}
	}
	return nil
}

func checkStrings(f *entity.Field, data []string) error {
	limit, _ := strconv.Atoi(f.TypeParams[entity.TypeParamMaxLength])
	for row, v := range data {
		if len(v) > limit {
			return invalid("field %q, row %d: %d bytes, the limit is %d", f.Name, row, len(v), limit)
		}
		if !utf8.ValidString(v) {
			return invalid("field %q, row %d: not valid UTF-8", f.Name, row)
		}
	}
	return nil
}

func checkJSON(f *entity.Field, data [][]byte) error {
	for row, v := range data {
		if !json.Valid(v) || !utf8.Valid(v) {
			return invalid("field %q, row %d: not valid JSON", f.Name, row)
		}
	}
	return nil
}

func (c *collection) checkVectors(f *entity.Field, data [][]float32) error {
	for row, v := range data {
		if err := c.checkVector(v); err != nil {
			return invalid("field %q, row %d: %v", f.Name, row, err)
		}
	}
	return nil
}

func (c *collection) checkVector(v []float32) error {
	if len(v) != c.dim() {
		return invalid("%d dimensions, the field has %d", len(v), c.dim())
	}
	var sum float64
	for i, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return invalid("dimension %d is not finite", i)
		}
		sum += float64(x) * float64(x)
	}
	if sum == 0 && c.metric == entity.COSINE {
		return invalid("a vector of zeros has no direction to compare")
	}
	return nil
}

func (b *batch) checkKeys() error {
	seen := make(map[any]int, b.rows)
	for row := range b.rows {
		key, err := b.cols[b.c.pk].Get(row)
		if err != nil {
			return err
		}
		if first, dup := seen[key]; dup {
			return invalid("key %v is in rows %d and %d", key, first, row)
		}
		seen[key] = row
	}
	return nil
}

// keys returns the key column as JSON, to be bound as one parameter.
func (b *batch) keys() (string, error) { return jsonList(b.cols[b.c.pk]) }

// ids returns the result of Insert and Upsert.
func (b *batch) ids() entity.Column { return b.cols[b.c.pk].Slice(0, -1) }

// scalars fills args with the values of a row, without the vector.
func (b *batch) scalars(row int, args []any) ([]any, error) {
	for i, col := range b.cols {
		if i == b.c.vector {
			continue
		}
		v, err := col.Get(row)
		if err != nil {
			return nil, err
		}
		if raw, ok := v.([]byte); ok { // JSON is kept as text
			v = string(raw)
		}
		args = append(args, v)
	}
	return args, nil
}

func (b *batch) vector(row int) ([]byte, error) {
	col, ok := b.cols[b.c.vector].(*entity.ColumnFloatVector)
	if !ok {
		return nil, fmt.Errorf("column %T holds no vectors", b.cols[b.c.vector])
	}
	return encodeVector(col.Data()[row]), nil
}

func jsonList(col entity.Column) (string, error) {
	var (
		text []byte
		err  error
	)
	switch col := col.(type) {
	case *entity.ColumnVarChar:
		text, err = json.Marshal(col.Data())
	case *entity.ColumnInt64:
		text, err = json.Marshal(col.Data())
	default:
		err = invalid("keys are VARCHAR or INT64, not %s", col.Type().Name())
	}
	return string(text), err
}

// encodeVector returns the little-endian bytes that vec0 expects.
func encodeVector(v []float32) []byte {
	out := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
	}
	return out
}

func decodeVector(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// builder collects the values of one output field from scanned rows.
type builder interface {
	dest() any // where Scan puts the next value
	push()     // take it
	column(name string) entity.Column
}

// values is the builder for values that need no conversion after Scan.
type values[T any] struct {
	next T
	all  []T
	make func(name string, all []T) entity.Column
}

func (b *values[T]) dest() any                        { return &b.next }
func (b *values[T]) push()                            { b.all = append(b.all, b.next) }
func (b *values[T]) column(name string) entity.Column { return b.make(name, b.all) }

// direct holds the builders of types that need no conversion after Scan.
var direct = map[entity.FieldType]func() builder{
	entity.FieldTypeBool:    plainly(entity.NewColumnBool),
	entity.FieldTypeInt8:    plainly(entity.NewColumnInt8),
	entity.FieldTypeInt16:   plainly(entity.NewColumnInt16),
	entity.FieldTypeInt32:   plainly(entity.NewColumnInt32),
	entity.FieldTypeInt64:   plainly(entity.NewColumnInt64),
	entity.FieldTypeFloat:   plainly(entity.NewColumnFloat),
	entity.FieldTypeDouble:  plainly(entity.NewColumnDouble),
	entity.FieldTypeVarChar: plainly(entity.NewColumnVarChar),
}

func plainly[T any, C entity.Column](column func(string, []T) C) func() builder {
	return func() builder {
		return &values[T]{make: func(name string, all []T) entity.Column { return column(name, all) }}
	}
}

// converted is the builder for values that need a conversion after Scan.
type converted[S, T any] struct {
	values[T]
	raw S
	by  func(S) T
}

func (b *converted[S, T]) dest() any { return &b.raw }
func (b *converted[S, T]) push()     { b.all = append(b.all, b.by(b.raw)) }

func (c *collection) builder(i int) builder {
	switch kind := c.schema.Fields[i].DataType; kind {
	case entity.FieldTypeJSON:
		return &converted[string, []byte]{
			by: func(s string) []byte { return []byte(s) },
			values: values[[]byte]{make: func(n string,
				v [][]byte,
			) entity.Column {
				return entity.NewColumnJSONBytes(n, v)
			}},
		}
	case entity.FieldTypeFloatVector:
		return &converted[[]byte, []float32]{
			by: decodeVector,
			values: values[[]float32]{make: func(n string,
				v [][]float32,
			) entity.Column {
				return entity.NewColumnFloatVector(n, c.dim(), v)
			}},
		}
	default:
		if column, ok := direct[kind]; ok {
			return column()
		}
		return direct[entity.FieldTypeInt64]()
	}
}
