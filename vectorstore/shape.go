package vectorstore

import (
	"fmt"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
)

// checkFieldData finds fields of a reply whose values do not fit their type or
// each other, over which the SDK panics or takes them for the caller's mistake.
// rows is how many there must be; negative, as many as the first field has.
func checkFieldData(fields []*schemapb.FieldData, rows int) error {
	for _, f := range fields {
		n, err := fieldRows(f)
		switch {
		case err == nil && f.GetIsDynamic() && f.GetType() != schemapb.DataType_JSON:
			return fmt.Errorf("the dynamic field %q is %v", f.GetFieldName(), f.GetType())
		case err != nil:
			return fmt.Errorf("field %q: %w", f.GetFieldName(), err)
		case rows < 0:
			rows = n
		case n != rows:
			return fmt.Errorf("field %q has %d rows instead of %d", f.GetFieldName(), n, rows)
		}
	}
	return nil
}

func fieldRows(f *schemapb.FieldData) (int, error) {
	switch data := f.GetField().(type) {
	case *schemapb.FieldData_Scalars:
		return scalarRows(f.GetType(), data.Scalars)
	case *schemapb.FieldData_Vectors:
		return vectorRows(f.GetType(), data.Vectors)
	}
	return 0, fmt.Errorf("no values of type %v", f.GetType())
}

func scalarRows(t schemapb.DataType, s *schemapb.ScalarField) (int, error) {
	n, fits := 0, false
	switch data := s.GetData().(type) {
	case *schemapb.ScalarField_BoolData:
		n, fits = len(data.BoolData.GetData()), t == schemapb.DataType_Bool
	case *schemapb.ScalarField_IntData:
		n = len(data.IntData.GetData())
		fits = t == schemapb.DataType_Int8 || t == schemapb.DataType_Int16 || t == schemapb.DataType_Int32
	case *schemapb.ScalarField_LongData:
		n, fits = len(data.LongData.GetData()), t == schemapb.DataType_Int64
	case *schemapb.ScalarField_FloatData:
		n, fits = len(data.FloatData.GetData()), t == schemapb.DataType_Float
	case *schemapb.ScalarField_DoubleData:
		n, fits = len(data.DoubleData.GetData()), t == schemapb.DataType_Double
	case *schemapb.ScalarField_StringData:
		n, fits = len(data.StringData.GetData()), t == schemapb.DataType_VarChar || t == schemapb.DataType_String
	case *schemapb.ScalarField_JsonData:
		n, fits = len(data.JsonData.GetData()), t == schemapb.DataType_JSON
	case *schemapb.ScalarField_ArrayData:
		n, fits = len(data.ArrayData.GetData()), t == schemapb.DataType_Array
		if err := checkElements(data.ArrayData); err != nil {
			return 0, err
		}
	}
	if !fits {
		return 0, fmt.Errorf("values of %T under type %v", s.GetData(), t)
	}
	return n, nil
}

func vectorRows(t schemapb.DataType, v *schemapb.VectorField) (int, error) {
	size, unit, fits := 0, 0, false // values, and values of a row
	switch data := v.GetData().(type) {
	case *schemapb.VectorField_FloatVector:
		size, unit, fits = len(data.FloatVector.GetData()), int(v.GetDim()), t == schemapb.DataType_FloatVector
	case *schemapb.VectorField_BinaryVector:
		size, unit, fits = len(data.BinaryVector), int(v.GetDim())/8, t == schemapb.DataType_BinaryVector
	case *schemapb.VectorField_Float16Vector:
		size, unit, fits = len(data.Float16Vector), int(v.GetDim())*2, t == schemapb.DataType_Float16Vector
	case *schemapb.VectorField_Bfloat16Vector:
		size, unit, fits = len(data.Bfloat16Vector), int(v.GetDim())*2, t == schemapb.DataType_BFloat16Vector
	case *schemapb.VectorField_SparseFloatVector:
		return sparseRows(t, data.SparseFloatVector.GetContents())
	}
	if !fits || unit <= 0 || size%unit != 0 {
		return 0, fmt.Errorf("%d values of %T for a %v of %d dimensions", size, v.GetData(), t, v.GetDim())
	}
	return size / unit, nil
}

// sparseRows counts sparse vectors, whose elements have eight bytes.
func sparseRows(t schemapb.DataType, rows [][]byte) (int, error) {
	if t != schemapb.DataType_SparseFloatVector {
		return 0, fmt.Errorf("sparse vectors under type %v", t)
	}
	for i, row := range rows {
		if len(row)%8 != 0 {
			return 0, fmt.Errorf("row %d: a sparse vector of %d bytes", i, len(row))
		}
	}
	return len(rows), nil
}

// checkElements finds arrays of elements that their type does not have.
func checkElements(a *schemapb.ArrayArray) error {
	for i, row := range a.GetData() {
		if row.GetData() == nil { // without elements
			continue
		}
		if _, err := scalarRows(a.GetElementType(), row); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}
