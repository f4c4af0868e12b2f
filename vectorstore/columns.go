package vectorstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"unicode/utf8"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/vectorstore/internal/sdkopt"
)

// maxVarChar is the most bytes that any VARCHAR field can have.
const maxVarChar = 65535

// checkColumns finds what the SDK would send although it cannot be stored, or,
// for vectors of mixed lengths, would be stored shifted.
func checkColumns(columns []entity.Column) error {
	if len(columns) == 0 {
		return errors.New("no columns")
	}
	names := make(map[string]bool, len(columns))
	for _, col := range columns {
		if isNil(col) || col.Len() == 0 {
			return errors.New("a column without rows")
		}
		if names[col.Name()] { // the SDK would keep the last of those without a field
			return fmt.Errorf("column %q comes twice", col.Name())
		}
		names[col.Name()] = true
		if col.Len() != columns[0].Len() {
			return fmt.Errorf("column %q has %d rows, %q has %d",
				col.Name(), col.Len(), columns[0].Name(), columns[0].Len())
		}
		if err := checkColumn(col); err != nil {
			return fmt.Errorf("column %q: %w", col.Name(), err)
		}
	}
	return nil
}

// isNil holds for the nil pointers, slices, maps and functions in an interface
// too, over whose methods the SDK would panic.
func isNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Func:
		return r.IsNil()
	default:
		return false
	}
}

func checkColumn(col entity.Column) error {
	if !utf8.ValidString(col.Name()) {
		return errors.New("its name is not valid UTF-8")
	}
	switch col := col.(type) {
	case *entity.ColumnFloatVector:
		return checkFloats(col.Dim(), col.Data())
	case *entity.ColumnBinaryVector:
		return checkBits(col.Dim(), col.Data())
	case *entity.ColumnFloat16Vector:
		return checkHalves(col.Dim(), col.Data(), float16)
	case *entity.ColumnBFloat16Vector:
		return checkHalves(col.Dim(), col.Data(), bfloat16)
	case *entity.ColumnSparseFloatVector:
		return checkRows(col.Data(), checkSparse)
	case *entity.ColumnVarChar:
		return checkRows(col.Data(), checkText)
	case *entity.ColumnString:
		return checkRows(col.Data(), checkText)
	case *entity.ColumnVarCharArray:
		return checkRows(col.Data(), checkTexts)
	case *entity.ColumnJSONBytes:
		return checkRows(col.Data(), checkJSON(col.IsDynamic()))
	case *entity.ColumnDynamic:
		return errors.New("it was read out of a dynamic field and would be written as text; give its values a column of their own type")
	}
	return checkForeign(col)
}

// checkForeign looks at the rows of a column of the caller's own kind, such as
// one that embeds a column of the SDK's, one by one.
func checkForeign(col entity.Column) error {
	switch col.Type() {
	case entity.FieldTypeFloatVector:
		return checkGot(col, func(rows [][]float32) error { return checkFloats(dimOf(col), rows) })
	case entity.FieldTypeBinaryVector:
		return checkGot(col, func(rows [][]byte) error { return checkBits(dimOf(col), rows) })
	case entity.FieldTypeFloat16Vector:
		return checkGot(col, func(rows [][]byte) error { return checkHalves(dimOf(col), rows, float16) })
	case entity.FieldTypeBFloat16Vector:
		return checkGot(col, func(rows [][]byte) error { return checkHalves(dimOf(col), rows, bfloat16) })
	case entity.FieldTypeSparseVector:
		return checkGot(col, func(rows []entity.SparseEmbedding) error { return checkRows(rows, checkSparse) })
	case entity.FieldTypeVarChar, entity.FieldTypeString:
		return checkGot(col, func(rows []string) error { return checkRows(rows, checkText) })
	case entity.FieldTypeJSON:
		return checkGot(col, func(rows [][]byte) error { return checkRows(rows, checkJSON(false)) })
	default:
		return nil
	}
}

// dimOf is the dimensions that a column of a kind not known here would send.
func dimOf(col entity.Column) int { return int(col.FieldData().GetVectors().GetDim()) }

// checkGot collects a column's values. One of a nil interface is the check's to
// refuse.
func checkGot[T any](col entity.Column, check func([]T) error) error {
	rows, want := make([]T, col.Len()), reflect.TypeFor[T]()
	for i := range rows {
		v, err := col.Get(i)
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		switch r := reflect.ValueOf(v); {
		case v == nil:
		case r.Kind() != want.Kind() && want.Kind() != reflect.Interface, !r.CanConvert(want):
			return fmt.Errorf("row %d: a %T is no %s", i, v, typeName(col.Type()))
		default:
			rows[i], _ = reflect.TypeAssert[T](r.Convert(want))
		}
	}
	return check(rows)
}

func checkRows[T any](rows []T, check func(T) error) error {
	for i, v := range rows {
		if err := check(v); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

func checkFloats(dim int, rows [][]float32) error {
	if dim <= 0 {
		return fmt.Errorf("the column has %d dimensions", dim)
	}
	return checkRows(rows, func(v []float32) error {
		if len(v) != dim {
			return fmt.Errorf("%d dimensions, the column has %d", len(v), dim)
		}
		return finite(v)
	})
}

func checkBits(dim int, rows [][]byte) error {
	if dim <= 0 || dim%8 != 0 {
		return fmt.Errorf("the column has %d dimensions, a multiple of 8 is needed", dim)
	}
	return checkRows(rows, sized(dim, dim/8))
}

func checkHalves(dim int, rows [][]byte, exponent uint16) error {
	if dim <= 0 {
		return fmt.Errorf("the column has %d dimensions", dim)
	}
	long := sized(dim, 2*dim)
	return checkRows(rows, func(v []byte) error {
		if err := long(v); err != nil {
			return err
		}
		return finiteHalves(v, exponent)
	})
}

func sized(dim, size int) func([]byte) error {
	return func(v []byte) error {
		if len(v) != size {
			return fmt.Errorf("%d bytes, %d dimensions are %d", len(v), dim, size)
		}
		return nil
	}
}

func finite(v []float32) error {
	for i, x := range v {
		if !isFinite(x) {
			return fmt.Errorf("dimension %d is not finite", i)
		}
	}
	return nil
}

func isFinite(x float32) bool {
	return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0)
}

// The bits of the exponents of numbers of 16 bits. Where all are set, the
// number is infinite or none.
const (
	float16  = 0x7c00
	bfloat16 = 0x7f80
)

func finiteHalves(v []byte, exponent uint16) error {
	for i := 0; i+1 < len(v); i += 2 {
		if binary.LittleEndian.Uint16(v[i:])&exponent == exponent {
			return fmt.Errorf("dimension %d is not finite", i/2)
		}
	}
	return nil
}

// checkSparse asks for what the server asks for: positions that rise, and
// values of zero or more. A vector without elements is one; early 2.4 refuses
// it.
func checkSparse(v entity.SparseEmbedding) error {
	if isNil(v) {
		return errors.New("no vector")
	}
	var last uint32
	for i := range v.Len() {
		position, value, ok := v.Get(i)
		switch {
		case !ok:
			return fmt.Errorf("element %d is missing", i)
		case position == math.MaxUint32:
			return fmt.Errorf("position %d is not below %d", position, uint32(math.MaxUint32))
		case i > 0 && position <= last:
			return fmt.Errorf("position %d comes after %d", position, last)
		case !isFinite(value):
			return fmt.Errorf("the value at position %d is not finite", position)
		case value < 0:
			return fmt.Errorf("the value at position %d is negative", position)
		}
		last = position
	}
	return nil
}

func checkText[T ~string | ~[]byte](s T) error {
	switch {
	case len(s) > maxVarChar:
		return fmt.Errorf("%d bytes, VARCHAR holds %d", len(s), maxVarChar)
	case !utf8.ValidString(string(s)):
		return errors.New("not valid UTF-8")
	}
	return nil
}

func checkTexts(texts [][]byte) error {
	for i, s := range texts {
		if err := checkText(s); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// checkJSON asks for UTF-8, which encoding/json does not: the server keeps
// other bytes, and then fails in every filter on the field.
func checkJSON(object bool) func([]byte) error {
	return func(v []byte) error {
		if !json.Valid(v) || !utf8.Valid(v) {
			return errors.New("not valid JSON")
		}
		text := bytes.TrimSpace(v)
		if object && text[0] != '{' && string(text) != "null" {
			return errors.New("not a JSON object")
		}
		return nil
	}
}

func checkVectors(vectors []entity.Vector) error {
	if len(vectors) == 0 {
		return errors.New("no vectors to search for")
	}
	return checkRows(vectors, func(v entity.Vector) error {
		switch first := vectors[0]; {
		case isNil(v): // the SDK would panic
			return errors.New("no vector")
		case v.FieldType() != first.FieldType():
			return fmt.Errorf("%s among %s", typeName(v.FieldType()), typeName(first.FieldType()))
		case v.Dim() != first.Dim() && v.FieldType() != entity.FieldTypeSparseVector:
			return fmt.Errorf("%d dimensions, the first vector has %d", v.Dim(), first.Dim())
		}
		return checkVector(v)
	})
}

// typeName is what the server calls a type; the SDK has no name for some.
func typeName(t entity.FieldType) string { return schemapb.DataType(t).String() }

func checkVector(v entity.Vector) error {
	switch v := v.(type) {
	case entity.SparseEmbedding:
		return checkSparse(v)
	case entity.Float16Vector:
		return checkHalf(v, float16)
	case entity.BFloat16Vector:
		return checkHalf(v, bfloat16)
	case entity.FloatVector:
		if len(v) > 0 {
			return finite(v)
		}
	}
	if v.Dim() == 0 {
		return errors.New("no dimensions")
	}
	return nil
}

func checkHalf(v []byte, exponent uint16) error {
	switch {
	case len(v) == 0:
		return errors.New("no dimensions")
	case len(v)%2 != 0:
		return fmt.Errorf("%d bytes, a dimension has 2", len(v))
	}
	return finiteHalves(v, exponent)
}

func checkHybrid(reranker client.Reranker, requests []*client.ANNSearchRequest) error {
	if isNil(reranker) || len(requests) == 0 {
		return errors.New("a reranker and at least one request are needed")
	}
	for i, r := range requests {
		if r == nil {
			return fmt.Errorf("request %d is nil", i)
		}
		search := sdkopt.ReadSearch(r)
		if err := checkVectors(search.Vectors); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		if isNil(search.Param) { // the SDK would panic
			return fmt.Errorf("request %d: no search parameters", i)
		}
		if err := checkTopK(search.Limit, search.Options); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}
