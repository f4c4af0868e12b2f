package vectorstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/vectorstore"
)

// half is a vector of 16-bit numbers.
func half(bits ...uint16) []byte {
	var out []byte
	for _, b := range bits {
		out = binary.LittleEndian.AppendUint16(out, b)
	}
	return out
}

// sparse is a vector whose positions and values are taken as they are.
type sparse struct {
	positions []uint32
	values    []float32
}

func (s sparse) Dim() int                    { return len(s.positions) }
func (s sparse) Len() int                    { return len(s.positions) }
func (s sparse) FieldType() entity.FieldType { return entity.FieldTypeSparseVector }

func (s sparse) Get(i int) (uint32, float32, bool) {
	if i >= len(s.values) {
		return 0, 0, false
	}
	return s.positions[i], s.values[i], true
}

func (s sparse) Serialize() []byte {
	var out []byte
	for i, p := range s.positions {
		out = binary.LittleEndian.AppendUint32(out, p)
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(s.values[i]))
	}
	return out
}

func sparseOf(positions []uint32, values ...float32) sparse { return sparse{positions, values} }

const (
	halfNaN, halfInf, halfMax = 0x7e00, 0xfc00, 0x7bff // of IEEE
	brainNaN, brainMax        = 0x7fc0, 0x7f7f         // of bfloat16, whose exponent has eight bits
)

func field(of entity.FieldType) *entity.Field {
	return entity.NewField().WithName("x").WithDataType(of).WithMaxLength(4).WithMaxCapacity(3)
}

func arrayOf(of entity.FieldType) *entity.Field {
	return field(entity.FieldTypeArray).WithElementType(of)
}

var (
	nan   = float32(math.NaN())
	inf   = float32(math.Inf(1))
	bytes = func(rows ...string) (out [][]byte) {
		for _, r := range rows {
			out = append(out, []byte(r))
		}
		return out
	}
)

// columnCases are columns of one field, of as many rows as they have, and what
// is wrong with them, or "".
var columnCases = []struct {
	name  string
	field *entity.Field
	col   entity.Column
	wrong string
	bare  bool // seen without the collection's schema too
}{
	{
		"float",
		field(entity.FieldTypeFloatVector).WithDim(2),
		entity.NewColumnFloatVector("x", 2, [][]float32{{1, 2}, {0, -3}}),
		"",
		true,
	},
	{
		"float, 1 and 3",
		field(entity.FieldTypeFloatVector).WithDim(2),
		entity.NewColumnFloatVector("x", 2, [][]float32{{1}, {1, 2, 3}}),
		`column "x": row 0: 1 dimensions, the column has 2`,
		true,
	},
	{
		"float, no row",
		field(entity.FieldTypeFloatVector).WithDim(2),
		entity.NewColumnFloatVector("x", 2, [][]float32{{1, 2}, nil}),
		"row 1: 0 dimensions",
		true,
	},
	{
		"float, NaN",
		field(entity.FieldTypeFloatVector).WithDim(2),
		entity.NewColumnFloatVector("x", 2, [][]float32{{1, 2}, {1, nan}}),
		"row 1: dimension 1 is not finite",
		true,
	},
	{
		"float, no dimensions",
		field(entity.FieldTypeFloatVector).WithDim(2),
		entity.NewColumnFloatVector("x", 0, [][]float32{{}}),
		"the column has 0 dimensions",
		true,
	},

	{
		"binary",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 16, bytes("ab", "\x00\xff")),
		"",
		true,
	},
	{
		"binary, 1 and 3",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 16, bytes("a", "bcd")),
		`column "x": row 0: 1 bytes, 16 dimensions are 2`,
		true,
	},
	{
		"binary, 3 and 1",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 16, bytes("bcd", "a")),
		"row 0: 3 bytes",
		true,
	},
	{
		"binary, no row",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 16, [][]byte{{1, 2}, nil}),
		"row 1: 0 bytes",
		true,
	},
	{
		"binary, bits for bytes",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 16, [][]byte{make([]byte, 16)}),
		"row 0: 16 bytes",
		true,
	},
	{
		"binary, no multiple of 8",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 12, bytes("a")),
		"the column has 12 dimensions, a multiple of 8",
		true,
	},
	{
		"binary, negative",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", -8, bytes("a")),
		"the column has -8 dimensions",
		true,
	},
	{
		"binary, another dimension",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		entity.NewColumnBinaryVector("x", 8, bytes("a", "b")),
		"not match collection definition",
		false,
	},

	{
		"float16",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		entity.NewColumnFloat16Vector("x", 2, [][]byte{half(0x3c00, halfMax), half(0x8000, brainNaN&0x7bff)}),
		"",
		true,
	},
	{
		"float16, 2 and 6",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		entity.NewColumnFloat16Vector("x", 2, bytes("ab", "abcdef")),
		"row 0: 2 bytes, 2 dimensions are 4",
		true,
	},
	{
		"float16, odd",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		entity.NewColumnFloat16Vector("x", 2, bytes("abc", "abcde")),
		"row 0: 3 bytes",
		true,
	},
	{
		"float16, NaN",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		entity.NewColumnFloat16Vector("x", 2, [][]byte{half(0, halfNaN)}),
		"row 0: dimension 1 is not finite",
		true,
	},
	{
		"float16, infinite",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		entity.NewColumnFloat16Vector("x", 2, [][]byte{half(halfInf, 0)}),
		"row 0: dimension 0 is not finite",
		true,
	},
	{
		"float16, another dimension",
		field(entity.FieldTypeFloat16Vector).WithDim(4),
		entity.NewColumnFloat16Vector("x", 2, [][]byte{half(0, 0), half(0, 0)}),
		`field "x": the column has 2 dimensions, the field has 4`,
		false,
	},

	{
		"bfloat16",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		entity.NewColumnBFloat16Vector("x", 2, [][]byte{half(0x3f80, brainMax), half(halfNaN, halfInf&0x7fff)}),
		"",
		true,
	},
	{
		"bfloat16, 2 and 6",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		entity.NewColumnBFloat16Vector("x", 2, bytes("ab", "abcdef")),
		"row 0: 2 bytes",
		true,
	},
	{
		"bfloat16, NaN",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		entity.NewColumnBFloat16Vector("x", 2, [][]byte{half(brainNaN, 0)}),
		"row 0: dimension 0 is not finite",
		true,
	},
	{
		"bfloat16, infinite",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		entity.NewColumnBFloat16Vector("x", 2, [][]byte{half(0, 0xff80)}),
		"row 0: dimension 1 is not finite",
		true,
	},
	{
		"bfloat16, another dimension",
		field(entity.FieldTypeBFloat16Vector).WithDim(4),
		entity.NewColumnBFloat16Vector("x", 2, [][]byte{half(0, 0), half(0, 0)}),
		"the field has 4",
		false,
	},

	{
		"sparse",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors(
			"x",
			[]entity.SparseEmbedding{sparseOf([]uint32{0, 7, math.MaxUint32 - 1}, 0, 0.5, 1), sparseOf(nil)},
		),
		"",
		true,
	},
	{
		"sparse, nil",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf(nil), nil}),
		"row 1: no vector",
		true,
	},
	{
		"sparse, nil pointer",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{(*sparse)(nil)}),
		"row 0: no vector",
		true,
	},
	{
		"sparse, twice",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{2, 2}, 1, 1)}),
		"row 0: position 2 comes after 2",
		true,
	},
	{
		"sparse, unsorted",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{3, 1}, 1, 1)}),
		"row 0: position 1 comes after 3",
		true,
	},
	{
		"sparse, out of range",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{math.MaxUint32}, 1)}),
		"row 0: position 4294967295",
		true,
	},
	{
		"sparse, NaN",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{1}, nan)}),
		"row 0: the value at position 1 is not finite",
		true,
	},
	{
		"sparse, infinite",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{1}, inf)}),
		"not finite",
		true,
	},
	{
		"sparse, negative",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{1}, -1)}),
		"row 0: the value at position 1 is negative",
		true,
	},
	{
		"sparse, no value",
		field(entity.FieldTypeSparseVector),
		entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{1, 2}, 1)}),
		"row 0: element 1 is missing",
		true,
	},

	{"booleans", arrayOf(entity.FieldTypeBool), entity.NewColumnBoolArray("x", [][]bool{{true}, {}, nil}), "", true},
	{"numbers", arrayOf(entity.FieldTypeInt64), entity.NewColumnInt64Array("x", [][]int64{{1, 2, 3}}), "", true},
	{
		"numbers, too many",
		arrayOf(entity.FieldTypeInt64),
		entity.NewColumnInt64Array("x", [][]int64{{}, {1, 2, 3, 4}}),
		`field "x": row 1: 4 elements, the field holds 3`,
		false,
	},
	{
		"small numbers in large ones",
		arrayOf(entity.FieldTypeInt32),
		entity.NewColumnInt8Array("x", [][]int8{{-128, 127}}),
		"",
		true,
	},
	{
		"large numbers that fit",
		arrayOf(entity.FieldTypeInt8),
		entity.NewColumnInt32Array("x", [][]int32{{-128, 127}}),
		"",
		true,
	},
	{
		"numbers that do not fit",
		arrayOf(entity.FieldTypeInt8),
		entity.NewColumnInt32Array("x", [][]int32{{1, 128}}),
		`field "x": row 0: element 1: 128 is no Int8`,
		false,
	},
	{
		"numbers that do not fit 16",
		arrayOf(entity.FieldTypeInt16),
		entity.NewColumnInt32Array("x", [][]int32{{-32769}}),
		"-32769 is no Int16",
		false,
	},
	{
		"floats",
		arrayOf(entity.FieldTypeFloat),
		entity.NewColumnFloatArray("x", [][]float32{{1, nan}}),
		"",
		true,
	}, // the server keeps them
	{
		"doubles for floats",
		arrayOf(entity.FieldTypeFloat),
		entity.NewColumnDoubleArray("x", [][]float64{{1}}),
		`field "x": row 0: values of`,
		false,
	},
	{
		"numbers for texts",
		arrayOf(entity.FieldTypeVarChar),
		entity.NewColumnInt64Array("x", [][]int64{{1}}),
		`field "x": row 0: values of`,
		false,
	},
	{
		"texts",
		arrayOf(entity.FieldTypeVarChar),
		entity.NewColumnVarCharArray("x", [][][]byte{bytes("xéx", ""), nil}),
		"",
		true,
	},
	{
		"texts, too long",
		arrayOf(entity.FieldTypeVarChar),
		entity.NewColumnVarCharArray("x", [][][]byte{bytes("", "ééé")}),
		`field "x": row 0: element 1: 6 bytes, the limit is 4`,
		false,
	},
	{
		"texts, too many",
		arrayOf(entity.FieldTypeVarChar),
		entity.NewColumnVarCharArray("x", [][][]byte{bytes("", "", "", "")}),
		"row 0: 4 elements, the field holds 3",
		false,
	},
	{
		"texts, invalid",
		arrayOf(entity.FieldTypeVarChar),
		entity.NewColumnVarCharArray("x", [][][]byte{bytes("", "\xff")}),
		`column "x": row 0: element 1: not valid UTF-8`,
		true,
	},
	{
		"texts, longer than any",
		arrayOf(entity.FieldTypeVarChar),
		entity.NewColumnVarCharArray("x", [][][]byte{bytes(strings.Repeat("x", 65536))}),
		"row 0: element 0: 65536 bytes",
		true,
	},

	{"text", field(entity.FieldTypeVarChar), entity.NewColumnVarChar("x", []string{"", "éé"}), "", true},
	{
		"text, too long",
		field(entity.FieldTypeVarChar),
		entity.NewColumnVarChar("x", []string{"", "ééé"}),
		`field "x": row 1: 6 bytes, the limit is 4`,
		false,
	},
	{
		"number",
		field(entity.FieldTypeFloat),
		entity.NewColumnFloat("x", []float32{nan, inf}),
		"",
		true,
	}, // the server keeps them
	{
		"JSON",
		field(entity.FieldTypeJSON),
		entity.NewColumnJSONBytes("x", bytes(`{"a":"\ud800"}`, ` [1] `, `"é"`, "null")),
		"",
		true,
	}, // newer servers take more than objects
	{
		"JSON, cut off",
		field(entity.FieldTypeJSON),
		entity.NewColumnJSONBytes("x", bytes("{}", "{")),
		`column "x": row 1: not valid JSON`,
		true,
	},
	{
		"JSON, empty",
		field(entity.FieldTypeJSON),
		entity.NewColumnJSONBytes("x", [][]byte{nil}),
		"row 0: not valid JSON",
		true,
	},
	{
		"JSON, invalid text",
		field(entity.FieldTypeJSON),
		entity.NewColumnJSONBytes("x", bytes("{\"a\":\"\xff\"}")),
		"row 0: not valid JSON",
		true,
	},

	{
		"another type",
		field(entity.FieldTypeBinaryVector).WithDim(32),
		entity.NewColumnFloatVector("x", 1, [][]float32{{1}}),
		"but collection field definition is",
		false,
	},
	{"a nil pointer", field(entity.FieldTypeBool), (*entity.ColumnBool)(nil), "a column without rows", true},
	{"fewer rows", field(entity.FieldTypeBool), entity.NewColumnBool("x", []bool{}), "a column without rows", true},
	{
		"read as part of another",
		field(entity.FieldTypeJSON),
		entity.NewColumnDynamic(entity.NewColumnJSONBytes("$meta", bytes(`{"x":1}`)), "x"),
		`column "x": it was read out of a dynamic field`,
		true,
	},
}

// collectionOf has one field beside its key, the one of a case.
func (s *scripted) collectionOf(f *entity.Field) {
	schema := entity.NewSchema().
		WithName("docs").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(f)
	s.reply(
		"DescribeCollection",
		&milvuspb.DescribeCollectionResponse{Status: ok(), Schema: schema.ProtoMessage(), CollectionName: "docs"},
	)
}

func intIDs(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i)
	}
	return ids
}

func rowsIn(col entity.Column) (n int) {
	defer func() { _ = recover() }()
	return col.Len()
}

// accepting is a client of another make that takes everything.
type accepting struct {
	client.Client
	calls atomic.Int64
}

func (a *accepting) Upsert(_ context.Context, _, _ string, columns ...entity.Column) (entity.Column, error) {
	a.calls.Add(1)
	return columns[0], nil
}

func (a *accepting) Insert(
	ctx context.Context, coll, partition string, columns ...entity.Column,
) (entity.Column, error) {
	return a.Upsert(ctx, coll, partition, columns...)
}

// Vectors of a wrong length were stored shifted, for every type but
// FLOAT_VECTOR.
func TestColumnsAreCheckedBeforeTheyAreSent(t *testing.T) {
	for _, row := range columnCases {
		t.Run(row.name, func(t *testing.T) {
			s, addr := serve(t)
			s.collectionOf(row.field)
			ids := intIDs(rowsIn(row.col))
			for _, method := range []string{"Insert", "Upsert"} {
				s.reply(
					method,
					&milvuspb.MutationResult{
						Status: ok(),
						IDs:    &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: ids}}},
					},
				)
			}
			columns := []entity.Column{entity.NewColumnInt64("id", ids), row.col}
			g, b := guard(t)
			c := connect(t, vectorstore.Config{Address: addr})
			for _, err := range writes(t, g, c, "docs", columns) {
				if row.wrong == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, row.wrong)
				if !strings.Contains(row.wrong, "collection") { // the SDK's own words
					assert.Equal(t, codes.InvalidArgument, status.Code(err))
				}
			}
			sent := map[bool]int{true: 1}[row.wrong == ""]
			assert.Equal(t, [2]int{sent, sent}, [2]int{s.count("Insert"), s.count("Upsert")})
			assert.Zero(t, b.Snapshot().Failures)

			other := &accepting{}
			for _, err := range writes(t, g, other, "docs", columns) {
				assert.Equal(t, row.wrong != "" && row.bare, err != nil, "a client of another make: %v", err)
			}
			assert.EqualValues(t, map[bool]int{false: 2}[row.wrong != "" && row.bare], other.calls.Load())
		})
	}
}

func writes(t *testing.T, g vectorstore.Guard, c vectorstore.Writer, coll string, columns []entity.Column) []error {
	_, inserted := g.Insert(t.Context(), c, coll, "", columns...)
	_, upserted := g.Upsert(t.Context(), c, coll, "", columns...)
	return []error{inserted, upserted}
}

// Columns of a caller's own kind.
type (
	foreignFloat  struct{ *entity.ColumnFloatVector }
	foreignBits   struct{ *entity.ColumnBinaryVector }
	foreignHalf   struct{ *entity.ColumnFloat16Vector }
	foreignBrain  struct{ *entity.ColumnBFloat16Vector }
	foreignSparse struct {
		*entity.ColumnSparseFloatVector
	}
	foreignText  struct{ *entity.ColumnVarChar }
	foreignJSON  struct{ *entity.ColumnJSONBytes }
	foreignTexts struct{ *entity.ColumnVarCharArray }
	namedRows    struct{ foreignHalf } // whose values have a type of their own
	strangeRows  struct{ foreignHalf } // whose values are of another type
	failingRows  struct{ foreignHalf } // whose values cannot be had
	emptyData    struct{ foreignHalf } // whose values are not those that are sent
)

func (f namedRows) Get(i int) (any, error) { return entity.Float16Vector(f.Data()[i]), nil }
func (strangeRows) Get(int) (any, error)   { return 1, nil }
func (failingRows) Get(int) (any, error)   { return nil, errors.New("lost") }

func (f emptyData) FieldData() *schemapb.FieldData {
	return entity.NewColumnFloat16Vector(f.Name(), f.Dim(), bytes("abcd")).FieldData()
}

// Vectors of mixed lengths passed, and were stored shifted, in a column that
// embeds one of the SDK's.
func TestColumnsOfACallersOwnKindAreChecked(t *testing.T) {
	floats, bits, halves := field(
		entity.FieldTypeFloatVector,
	).WithDim(2),
		field(
			entity.FieldTypeBinaryVector,
		).WithDim(16),
		field(
			entity.FieldTypeFloat16Vector,
		).WithDim(2)
	for _, row := range []struct {
		field *entity.Field
		col   entity.Column
		wrong string
	}{
		{halves, foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("abcd", "efgh"))}, ""},
		{
			halves,
			foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("ab", "abcdef"))},
			`column "x": row 0: 2 bytes, 2 dimensions are 4`,
		},
		{
			halves,
			foreignHalf{entity.NewColumnFloat16Vector("x", 2, [][]byte{half(0, halfNaN)})},
			"dimension 1 is not finite",
		},
		{halves, namedRows{foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("abcd", "efgh"))}}, ""},
		{
			halves,
			namedRows{foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("ab", "abcdef"))}},
			"row 0: 2 bytes",
		},
		{
			halves,
			strangeRows{foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("abcd"))}},
			"row 0: a int is no Float16Vector",
		},
		{halves, failingRows{foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("abcd"))}}, "row 0: lost"},
		{
			halves,
			emptyData{foreignHalf{entity.NewColumnFloat16Vector("x", 2, bytes("abcd", "efgh"))}},
			`field "x": 1 vectors for 2 rows`,
		},
		{
			field(entity.FieldTypeBFloat16Vector).WithDim(2),
			foreignBrain{entity.NewColumnBFloat16Vector("x", 2, bytes("ab", "abcdef"))},
			"row 0: 2 bytes",
		},
		{floats, foreignFloat{entity.NewColumnFloatVector("x", 2, [][]float32{{1}, {1, 2, 3}})}, "row 0: 1 dimensions"},
		{bits, foreignBits{entity.NewColumnBinaryVector("x", 16, bytes("a", "bcd"))}, "row 0: 1 bytes"},
		{
			field(entity.FieldTypeSparseVector),
			foreignSparse{entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{1}, 1)})},
			"",
		},
		{
			field(entity.FieldTypeSparseVector),
			foreignSparse{entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf([]uint32{3, 1}, 1, 1)})},
			"row 0: position 1 comes after 3",
		},
		{
			field(entity.FieldTypeSparseVector),
			foreignSparse{entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{nil})},
			"row 0: no vector",
		},
		{
			field(entity.FieldTypeVarChar),
			foreignText{entity.NewColumnVarChar("x", []string{"a", "\xff"})},
			"row 1: not valid UTF-8",
		},
		{field(entity.FieldTypeVarChar), foreignText{entity.NewColumnVarChar("x", []string{"a"})}, ""},
		{field(entity.FieldTypeJSON), foreignJSON{entity.NewColumnJSONBytes("x", bytes("{"))}, "row 0: not valid JSON"},
	} {
		s, addr := serve(t)
		s.collectionOf(row.field)
		ids := intIDs(row.col.Len())
		for _, method := range []string{"Insert", "Upsert"} {
			s.reply(
				method,
				&milvuspb.MutationResult{
					Status: ok(),
					IDs:    &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: ids}}},
				},
			)
		}
		g, b := guard(t)
		c := connect(t, vectorstore.Config{Address: addr})
		for _, err := range writes(t, g, c, "docs", []entity.Column{entity.NewColumnInt64("id", ids), row.col}) {
			if row.wrong == "" {
				require.NoError(t, err, "%T", row.col)
				continue
			}
			e := new(vectorstore.ArgumentError)
			require.ErrorAs(t, err, &e, "%T", row.col)
			assert.Contains(t, e.Reason, row.wrong)
		}
		assert.Zero(t, b.Snapshot().Failures)
	}
}

// A key in a column of a caller's own kind could end its quotes and name other
// rows.
func TestKeysOfACallersOwnKindAreEscaped(t *testing.T) {
	s, addr := serve(t)
	sent := ""
	s.on("Delete", func(_ context.Context, req any) (any, error) {
		sent = req.(*milvuspb.DeleteRequest).GetExpr()
		return mutation(), nil
	})
	g, _ := guard(t)
	ids := foreignText{entity.NewColumnVarChar("id", []string{`a"] or id != "`})}
	require.NoError(t, g.DeleteByPks(t.Context(), connect(t, vectorstore.Config{Address: addr}), "docs", "", ids))
	assert.Equal(t, `id in ["a\"] or id != \""]`, sent)
}

// The SDK writes what has no field into the dynamic field by encoding/json,
// which makes base64 of bytes and nothing of sparse vectors: other values than
// were given were stored.
func TestColumnsThatTheDynamicFieldWouldGarbleAreNotSent(t *testing.T) {
	s, addr := serve(t)
	schema := entity.NewSchema().WithName("docs").WithDynamicFieldEnabled(true).
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("json").WithDataType(entity.FieldTypeJSON))
	s.reply(
		"DescribeCollection",
		&milvuspb.DescribeCollectionResponse{Status: ok(), Schema: schema.ProtoMessage(), CollectionName: "docs"},
	)
	for _, method := range []string{"Insert", "Upsert"} {
		s.reply(
			method,
			&milvuspb.MutationResult{
				Status: ok(),
				IDs:    &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: intIDs(1)}}},
			},
		)
	}
	c := connect(t, vectorstore.Config{Address: addr})
	for name, row := range map[string]struct {
		col   entity.Column
		wrong string
	}{
		"a text":   {entity.NewColumnVarChar("x", []string{"a"}), ""},
		"a number": {entity.NewColumnDouble("x", []float64{1}), ""},
		"numbers":  {entity.NewColumnInt8Array("x", [][]int8{{1}}), ""},
		"floats":   {entity.NewColumnFloatVector("x", 1, [][]float32{{1}}), ""},
		"JSON": {
			entity.NewColumnJSONBytes("x", bytes(`{"a":1}`)),
			`column "x": the dynamic field would keep its JSON as base64`,
		},
		"texts": {
			entity.NewColumnVarCharArray("x", [][][]byte{bytes("a")}),
			`column "x": the dynamic field would keep its VARCHAR array as base64`,
		},
		"bits":     {entity.NewColumnBinaryVector("x", 8, bytes("a")), "as base64"},
		"float16":  {entity.NewColumnFloat16Vector("x", 1, bytes("ab")), "as base64"},
		"bfloat16": {entity.NewColumnBFloat16Vector("x", 1, bytes("ab")), "as base64"},
		"sparse": {
			entity.NewColumnSparseVectors("x", []entity.SparseEmbedding{sparseOf(nil)}),
			"would keep nothing of",
		},
		"the dynamic field": {entity.NewColumnJSONBytes("any", bytes(`{"x":1}`)).WithIsDynamic(true), ""},
		"null":              {entity.NewColumnJSONBytes("any", bytes(`null`)).WithIsDynamic(true), ""},
		"invalid text":      {entity.NewColumnString("x", []string{"\xff"}), `column "x": row 0: not valid UTF-8`},
		"a valid text":      {entity.NewColumnString("x", []string{"é"}), ""},
		"one name":          {entity.NewColumnString("id", []string{"é"}), `column "id" comes twice`},
		"a name of no text": {
			entity.NewColumnVarChar("\xff", []string{"a"}),
			`column "\xff": its name is not valid UTF-8`,
		},
		"bits of one's own":  {foreignBits{entity.NewColumnBinaryVector("x", 8, bytes("a"))}, "as base64"},
		"JSON of one's own":  {foreignJSON{entity.NewColumnJSONBytes("x", bytes("{}"))}, "as base64"},
		"texts of one's own": {foreignTexts{entity.NewColumnVarCharArray("x", [][][]byte{bytes("a")})}, "as base64"},
		"no object": {
			entity.NewColumnJSONBytes("any", bytes(`[1]`)).WithIsDynamic(true),
			`column "any": row 0: not a JSON object`,
		},
		"a text for objects": {
			entity.NewColumnJSONBytes("any", bytes(` "{}"`)).WithIsDynamic(true),
			"not a JSON object",
		},
	} {
		before := s.count("Insert") + s.count("Upsert")
		g, b := guard(t)
		columns := []entity.Column{
			entity.NewColumnInt64("id", intIDs(1)),
			entity.NewColumnJSONBytes("json", bytes("{}")),
			row.col,
		}
		for _, err := range writes(t, g, c, "docs", columns) {
			if row.wrong == "" {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorContains(t, err, row.wrong, name)
			assert.Equal(t, codes.InvalidArgument, status.Code(err), name)
		}
		assert.Equal(t, map[bool]int{true: 2}[row.wrong == ""], s.count("Insert")+s.count("Upsert")-before, name)
		assert.Zero(t, b.Snapshot().Failures, name)
	}
}

// The SDK keeps the last of two columns that have no field and one name.
func TestColumnsOfOneNameAreNotSent(t *testing.T) {
	g, _ := guard(t)
	other := &accepting{}
	for _, err := range writes(t, g, other, "docs",
		append(rowsOf("a"), entity.NewColumnInt64("x", []int64{1}), entity.NewColumnInt64("x", []int64{2}))) {
		e := new(vectorstore.ArgumentError)
		require.ErrorAs(t, err, &e)
		assert.Equal(t, `column "x" comes twice`, e.Reason)
	}
	assert.Zero(t, other.calls.Load())
}

// Nil pointers in interfaces went past the doors' checks, and the SDK panicked.
func TestNilPointersAreNotSent(t *testing.T) {
	s, addr := serve(t)
	s.reply("Search", found([]int64{0}, nil))
	c := connect(t, vectorstore.Config{Address: addr})
	var (
		ids      *entity.ColumnInt64
		text     *entity.ColumnVarChar
		sp       *entity.IndexFlatSearchParam
		idx      *entity.IndexFlat
		rank     *nilReranker
		nobody   client.Client
		pointer  *accepting
		requests = []*client.ANNSearchRequest{client.NewANNSearchRequest("vector", entity.COSINE, "", vec, sp, 1)}
		param, _ = entity.NewIndexFlatSearchParam()
		whole    = []*client.ANNSearchRequest{client.NewANNSearchRequest("vector", entity.COSINE, "", vec, param, 1)}
	)
	ctx := t.Context()
	g, b := guard(t)
	for name, call := range map[string]func() error{
		"Get, numbers": func() error { _, err := g.Get(ctx, c, "docs", ids); return err },
		"Get, texts":   func() error { _, err := g.Get(ctx, c, "docs", text); return err },
		"DeleteByPks":  func() error { return g.DeleteByPks(ctx, c, "docs", "", ids) },
		"CreateIndex":  func() error { return g.CreateIndex(ctx, c, "docs", "vector", idx, true) },
		"CreateCollection": func() error {
			return g.CreateCollection(ctx, c, &entity.Schema{CollectionName: "docs", Fields: []*entity.Field{nil}}, 1)
		},
		"HybridSearch, parameters": func() error {
			_, err := g.HybridSearch(ctx, c, "docs", nil, 2, nil, client.NewRRFReranker(), requests)
			return err
		},
		"HybridSearch, reranker": func() error {
			_,
				err := g.HybridSearch(ctx, c, "docs", nil, 2, nil, rank, whole)
			return err
		},
		"no client": func() error { return g.Delete(ctx, nobody, "docs", "", "id > 0") },
		"a nil client": func() error {
			_,
				err := g.Upsert(ctx, pointer, "docs", "", rowsOf("a")...)
			return err
		},
		"no client to iterate": func() error {
			_, err := g.QueryIterator(ctx, nobody, client.NewQueryIteratorOption("docs"))
			return err
		},
	} {
		require.NotPanics(t, func() {
			e := new(vectorstore.ArgumentError)
			require.ErrorAs(t, call(), &e, name)
		}, name)
	}
	require.NotPanics(t, func() {
		_, err := g.Search(ctx, c, "docs", nil, "", nil, vec, "vector", entity.COSINE, 1, sp)
		require.NoError(t, err)
	})
	assert.Zero(t, b.Snapshot().Failures)
	for _, method := range []string{"Query", "Delete", "CreateIndex", "CreateCollection", "HybridSearch", "Upsert"} {
		assert.Zero(t, s.count(method), method)
	}
}

type nilReranker struct{ params []*commonpb.KeyValuePair }

func (r *nilReranker) GetParams() []*commonpb.KeyValuePair { return r.params }

// answersNil is a client whose columns are nil pointers.
type answersNil struct{ vectorstore.Store }

func (answersNil) Upsert(context.Context, string, string, ...entity.Column) (entity.Column, error) {
	return (*entity.ColumnVarChar)(nil), nil
}

func (answersNil) Query(
	context.Context, string, []string, string, []string, ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	return client.ResultSet{(*entity.ColumnVarChar)(nil)}, nil
}

func (answersNil) Search(
	context.Context, string, []string, string, []string, []entity.Vector, string, entity.MetricType, int,
	entity.SearchParam, ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	return []client.SearchResult{
		{
			ResultCount: 1,
			Scores:      []float32{1},
			IDs:         entity.NewColumnVarChar("id", []string{"a"}),
			Fields:      client.ResultSet{nil},
		},
	}, nil
}

func TestNilColumnsInAnAnswerAreContractErrors(t *testing.T) {
	g, b := guard(t)
	for name, call := range map[string]func() error{
		"Upsert": func() error {
			_,
				err := g.Upsert(t.Context(), answersNil{}, "docs", "", rowsOf("a")...)
			return err
		},
		"Query": func() error { _, err := g.Query(t.Context(), answersNil{}, "docs", nil, "", nil); return err },
		"Search": func() error {
			_, err := g.Search(t.Context(), answersNil{}, "docs", nil, "", nil, vec, "vector", entity.COSINE, 1, nil)
			return err
		},
	} {
		require.NotPanics(t, func() {
			e := new(vectorstore.ContractError)
			require.ErrorAs(t, call(), &e, name)
		}, name)
	}
	assert.EqualValues(t, 3, b.Snapshot().Failures)
}

// vectorCases are queries of a field, and what is wrong with them, or "".
var vectorCases = []struct {
	name    string
	field   *entity.Field
	vectors []entity.Vector
	wrong   string
	bare    bool
}{
	{
		"float",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1, 2}, entity.FloatVector{0, 0}},
		"",
		true,
	},
	{
		"float, another dimension",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1, 2, 3}},
		`vector 0 has 3 dimensions, field "x" has 2`,
		false,
	},
	{
		"float, mixed",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1, 2}, entity.FloatVector{1}},
		"row 1: 1 dimensions, the first vector has 2",
		true,
	},
	{
		"float, empty",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{entity.FloatVector{}},
		"row 0: no dimensions",
		true,
	},
	{
		"float, NaN",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1, nan}},
		"dimension 1 is not finite",
		true,
	},
	{"binary", field(entity.FieldTypeBinaryVector).WithDim(16), []entity.Vector{entity.BinaryVector{1, 2}}, "", true},
	{
		"binary, another dimension",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		[]entity.Vector{entity.BinaryVector{1}},
		`vector 0 has 8 dimensions, field "x" has 16`,
		false,
	},
	{
		"binary, mixed",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		[]entity.Vector{entity.BinaryVector{1}, entity.BinaryVector{1, 2, 3}},
		"row 1: 24 dimensions, the first vector has 8",
		true,
	},
	{
		"binary, empty",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		[]entity.Vector{entity.BinaryVector{}},
		"no dimensions",
		true,
	},
	{
		"binary, nil",
		field(entity.FieldTypeBinaryVector).WithDim(16),
		[]entity.Vector{entity.BinaryVector(nil)},
		"no vector",
		true,
	},
	{
		"floats for bits",
		field(entity.FieldTypeBinaryVector).WithDim(32),
		[]entity.Vector{entity.FloatVector{1}},
		`field "x" is BinaryVector, the vectors are FloatVector`,
		false,
	},
	{
		"bits for floats",
		field(entity.FieldTypeFloatVector).WithDim(1),
		[]entity.Vector{entity.BinaryVector{1, 2, 3, 4}},
		`field "x" is FloatVector, the vectors are BinaryVector`,
		false,
	},
	{
		"float16",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		[]entity.Vector{entity.Float16Vector(half(1, 2))},
		"",
		true,
	},
	{
		"float16, another dimension",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		[]entity.Vector{entity.Float16Vector(half(1))},
		`vector 0 has 1 dimensions, field "x" has 2`,
		false,
	},
	{
		"float16, odd",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		[]entity.Vector{entity.Float16Vector{1, 2, 3}},
		"row 0: 3 bytes, a dimension has 2",
		true,
	},
	{
		"float16, NaN",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		[]entity.Vector{entity.Float16Vector(half(0, halfNaN))},
		"dimension 1 is not finite",
		true,
	},
	{
		"floats for float16",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1, 2}},
		"",
		true,
	}, // newer servers take them
	{
		"floats for float16, another dimension",
		field(entity.FieldTypeFloat16Vector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1}},
		"vector 0 has 1 dimensions",
		false,
	},
	{
		"bfloat16",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		[]entity.Vector{entity.BFloat16Vector(half(1, 2))},
		"",
		true,
	},
	{
		"bfloat16, infinite",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		[]entity.Vector{entity.BFloat16Vector(half(0x7f80, 2))},
		"dimension 0 is not finite",
		true,
	},
	{
		"bfloat16, odd",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		[]entity.Vector{entity.BFloat16Vector{1}},
		"row 0: 1 bytes, a dimension has 2",
		true,
	},
	{
		"float16 for bfloat16",
		field(entity.FieldTypeBFloat16Vector).WithDim(2),
		[]entity.Vector{entity.Float16Vector(half(1, 2))},
		"the vectors are Float16Vector",
		false,
	},
	{
		"sparse",
		field(entity.FieldTypeSparseVector),
		[]entity.Vector{sparseOf([]uint32{1, 5}, 1, 0), sparseOf(nil)},
		"",
		true,
	},
	{"sparse, nil", field(entity.FieldTypeSparseVector), []entity.Vector{(*sparse)(nil)}, "row 0: no vector", true},
	{
		"sparse, unsorted",
		field(entity.FieldTypeSparseVector),
		[]entity.Vector{sparseOf([]uint32{5, 1}, 1, 1)},
		"row 0: position 1 comes after 5",
		true,
	},
	{
		"sparse, negative",
		field(entity.FieldTypeSparseVector),
		[]entity.Vector{sparseOf([]uint32{5}, -1)},
		"is negative",
		true,
	},
	{
		"sparse for floats",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{sparseOf([]uint32{5}, 1)},
		"the vectors are SparseFloatVector",
		false,
	},
	{
		"floats for sparse",
		field(entity.FieldTypeSparseVector),
		[]entity.Vector{entity.FloatVector{1}},
		`field "x" is SparseFloatVector, the vectors are FloatVector`,
		false,
	},
	{
		"of two types",
		field(entity.FieldTypeFloatVector).WithDim(2),
		[]entity.Vector{entity.FloatVector{1, 2}, entity.BinaryVector{1}},
		"BinaryVector among FloatVector",
		true,
	},
	{"none", field(entity.FieldTypeFloatVector).WithDim(2), nil, "no vectors", true},
}

func (a *accepting) Search(
	context.Context, string, []string, string, []string, []entity.Vector, string, entity.MetricType, int,
	entity.SearchParam, ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	a.calls.Add(1)
	return nil, errors.New("answered")
}

func (a *accepting) HybridSearch(
	context.Context, string, []string, int, []string, client.Reranker, []*client.ANNSearchRequest,
	...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	a.calls.Add(1)
	return nil, errors.New("answered")
}

type searcher interface {
	vectorstore.Reader
	vectorstore.Server
}

func searches(t *testing.T, g vectorstore.Guard, c searcher, fieldName string, vectors []entity.Vector) []error {
	sp, err := entity.NewIndexFlatSearchParam()
	require.NoError(t, err)
	_, found := g.Search(t.Context(), c, "docs", nil, "", nil, vectors, fieldName, entity.L2, 1, nil)
	_, ranked := g.HybridSearch(
		t.Context(),
		c,
		"docs",
		nil,
		1,
		nil,
		client.NewRRFReranker(),
		[]*client.ANNSearchRequest{client.NewANNSearchRequest(fieldName, entity.L2, "", vectors, sp, 1)},
	)
	return []error{found, ranked}
}

func TestVectorsAreCheckedBeforeTheyAreSent(t *testing.T) {
	for _, row := range vectorCases {
		t.Run(row.name, func(t *testing.T) {
			s, addr := serve(t)
			s.collectionOf(row.field)
			s.reply("Search", found(make([]int64, len(row.vectors)), nil))
			s.reply("HybridSearch", found(make([]int64, len(row.vectors)), nil))
			g, b := guard(t)
			c := connect(t, vectorstore.Config{Address: addr})
			for i, err := range append(searches(t, g, c, "x", row.vectors), searches(t, g, c, "", row.vectors)...) {
				if row.wrong == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, row.wrong, i)
				assert.Equal(t, codes.InvalidArgument, status.Code(err))
			}
			sent := map[bool]int{true: 2}[row.wrong == ""]
			assert.Equal(t, [2]int{sent, sent}, [2]int{s.count("Search"), s.count("HybridSearch")})
			assert.Zero(t, b.Snapshot().Failures)

			other := &accepting{}
			_ = searches(t, g, other, "x", row.vectors)
			assert.EqualValues(
				t,
				map[bool]int{false: 2}[row.wrong != "" && row.bare],
				other.calls.Load(),
				"a client of another make",
			)
		})
	}
}

func TestHybridSearchThatTheSDKWouldPanicOverIsNotSent(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	for name, request := range map[string]*client.ANNSearchRequest{
		"no request":    nil,
		"no parameters": client.NewANNSearchRequest("vector", entity.COSINE, "", vec, nil, 1),
		"a nil vector":  client.NewANNSearchRequest("vector", entity.COSINE, "", []entity.Vector{nil}, nil, 1),
	} {
		require.NotPanics(t, func() {
			_, err := g.HybridSearch(
				t.Context(),
				c,
				"docs",
				nil,
				2,
				nil,
				client.NewRRFReranker(),
				[]*client.ANNSearchRequest{request},
			)
			assert.Equal(t, codes.InvalidArgument, status.Code(err), "%s: %v", name, err)
		}, name)
	}
	assert.Zero(t, s.count("HybridSearch"))
	assert.Zero(t, b.Snapshot().Failures)
}

// A vector that fits no field that the client knows of may fit the collection's
// field of today: the alias has moved.
func TestSchemaThatHasChangedRefusesNothing(t *testing.T) {
	s, addr := serve(t)
	s.collectionOf(field(entity.FieldTypeBinaryVector).WithDim(16))
	s.reply("Search", found([]int64{0}, nil))
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	search := func(v entity.Vector) error {
		_, err := g.Search(t.Context(), c, "docs", nil, "", nil, []entity.Vector{v}, "x", entity.HAMMING, 1, nil)
		return err
	}
	require.NoError(t, search(entity.BinaryVector{1, 2}))
	s.collectionOf(field(entity.FieldTypeBinaryVector).WithDim(24))
	require.NoError(t, search(entity.BinaryVector{1, 2, 3}))
	require.ErrorContains(t, search(entity.BinaryVector{1, 2}), `field "x" has 24`)
	assert.Equal(t, 2, s.count("Search"))
	s.fail("DescribeCollection", status.Error(codes.Unavailable, "down"))
	assert.Equal(t, codes.Unavailable, status.Code(search(entity.BinaryVector{1, 2})), "nobody can say whether it fits")
	assert.EqualValues(t, 1, b.Snapshot().Failures)
}
