// Package rows is the layout of ingested documents in a vector store: which
// fields a row has, how its id is made, and how rows become the columns of the
// Milvus SDK and back.
//
// # Rows are immutable
//
// A row's id is the hash of all that the row says (see [Row.Seal]), so a row
// whose id is already there needs no writing, whatever machine or run it comes
// from, and a document that changed towards its end shares the rows before that
// with the version before.
//
// # The commit mark
//
// The last row of a document carries the content's hash and the number of rows,
// and is written after all the others. A document version is complete exactly
// when that row is there. The other rows carry, in the same field, the stamp of
// the attempt that wrote them (see pipeline/version), which is no part of their
// id.
package rows

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/internal/plain"
)

// Field holds the names of a row's fields in the store, in the order of the
// schema.
var Field = struct {
	ID      string // primary key
	Doc     string // DocumentHash of the document's id
	Source  string // the document's id
	Ordinal string // position in the document, from 0
	Chunks  string // number of rows of the document on its commit mark, else 0
	SHA     string // content hash of the document on its commit mark, else the stamp of who wrote it
	Policy  string // how the document was parsed, chunked and embedded
	TextSHA string // TextHash of the embedded text
	Heading string // heading path, "A > B"
	Text    string // the chunk as stored
	Meta    string // JSON object: title, page, language, …
	Vector  string
}{
	ID: "id", Doc: "doc", Source: "source", Ordinal: "ordinal", Chunks: "chunks", SHA: "sha", Policy: "policy",
	TextSHA: "text_sha", Heading: "heading", Text: "text", Meta: "meta", Vector: "vector",
}

// Limits of the text fields in bytes, as Milvus counts them.
const (
	hashBytes    = 64
	sourceBytes  = 2048
	headingBytes = 2048
	textBytes    = 65535
)

// layout is the version of this layout. It is kept in a collection's record.
const layout = 1

// Row is one chunk of a document as it is stored; [Field] says what its fields
// hold.
type Row struct {
	ID, Doc, Source  string
	Ordinal, Chunks  int
	SHA, Policy      string
	TextSHA, Heading string
	Text             string
	Meta             json.RawMessage
	Vector           []float32
}

// field is one field of the schema and where a row keeps its value: exactly one
// of the accessors is set.
type field struct {
	name   string
	limit  int // of a text, in bytes
	text   func(*Row) *string
	number func(*Row) *int
	meta   func(*Row) *[]byte
	vector func(*Row) *[]float32
}

// fields is the layout: the schema, the columns of an upsert and the reading of
// an answer follow it.
var fields = []field{
	{name: Field.ID, limit: hashBytes, text: func(r *Row) *string { return &r.ID }},
	{name: Field.Doc, limit: hashBytes, text: func(r *Row) *string { return &r.Doc }},
	{name: Field.Source, limit: sourceBytes, text: func(r *Row) *string { return &r.Source }},
	{name: Field.Ordinal, number: func(r *Row) *int { return &r.Ordinal }},
	{name: Field.Chunks, number: func(r *Row) *int { return &r.Chunks }},
	{name: Field.SHA, limit: hashBytes, text: func(r *Row) *string { return &r.SHA }},
	{name: Field.Policy, limit: hashBytes, text: func(r *Row) *string { return &r.Policy }},
	{name: Field.TextSHA, limit: hashBytes, text: func(r *Row) *string { return &r.TextSHA }},
	{name: Field.Heading, limit: headingBytes, text: func(r *Row) *string { return &r.Heading }},
	{name: Field.Text, limit: textBytes, text: func(r *Row) *string { return &r.Text }},
	{name: Field.Meta, meta: func(r *Row) *[]byte { return (*[]byte)(&r.Meta) }},
	{name: Field.Vector, vector: func(r *Row) *[]float32 { return &r.Vector }},
}

// DocumentHash is the hash under which a document's rows and originals are
// kept.
func DocumentHash(id string) string { return hexSum("penstock document 1", id) }

// TextHash is the hash of an embedded text: equal texts share one embedding.
func TextHash(text string) string { return hexSum("penstock text 1", text) }

// PolicyHash names a way of making rows from content: parser, chunker and
// model, each with its version and settings.
func PolicyHash(parts ...string) string {
	return hexSum(append([]string{"penstock policy 1"}, parts...)...)
}

// Seal sets Doc and TextSHA, clips Heading to its limit and makes the ID from
// everything but the vector and the stamp; embedded is the text that the vector
// stands for.
// The row must not change afterwards.
func (r *Row) Seal(embedded string) {
	r.Doc = DocumentHash(r.Source)
	r.TextSHA = TextHash(embedded)
	r.Heading = plain.Front(r.Heading, headingBytes)
	sha := ""
	if r.IsMark() {
		sha = r.SHA
	}
	r.ID = hexSum("penstock row 1", r.Source, r.Policy, strconv.Itoa(r.Ordinal),
		embedded, r.Heading, r.Text, string(r.Meta), sha, strconv.Itoa(r.Chunks))
}

// Mark makes the row its document's commit mark. It comes before Seal.
func (r *Row) Mark(contentSHA string, chunks int) { r.SHA, r.Chunks = contentSHA, chunks }

// IsMark reports whether the row is a commit mark.
func (r *Row) IsMark() bool { return r.Chunks > 0 }

// Check reports what makes the row impossible to store.
func (r *Row) Check() error {
	switch {
	case len(r.Source) > sourceBytes:
		return fmt.Errorf("the document id has %d bytes, more than the %d that can be stored; shorten its path",
			len(r.Source), sourceBytes)
	case len(r.Text) > textBytes:
		return fmt.Errorf("chunk %d has %d bytes, more than the %d that can be stored; lower the chunk size", r.Ordinal,
			len(r.Text), textBytes)
	case !utf8.ValidString(r.Text) || !utf8.ValidString(r.Heading) || !utf8.ValidString(r.Source):
		return fmt.Errorf("chunk %d is not valid UTF-8", r.Ordinal)
	}
	return nil
}

// hexSum hashes fields with their lengths before them, so that no two lists of
// fields give the same bytes.
func hexSum(fields ...string) string {
	h := sha256.New()
	for _, field := range fields {
		writeField(h, field)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeField(h hash.Hash, field string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(field)))
	h.Write(length[:]) // a hash never fails to write
	_, _ = io.WriteString(h, field)
}

// Record is what a collection says about itself, in its description.
type Record struct {
	Layout     int    `json:"penstock"`     // version of the layout of its rows
	ID         string `json:"id,omitempty"` // tells a collection from another of that name
	Model      string `json:"model"`
	Dimensions int    `json:"dimensions"`
	Metric     string `json:"metric"`
}

// NewRecord describes a collection of this layout for a model. Its ID is empty.
func NewRecord(model string, dimensions int) Record {
	return Record{Layout: layout, Model: model, Dimensions: dimensions, Metric: string(entity.COSINE)}
}

// ReadRecord reads a collection's record; false means that it has none.
func ReadRecord(description string) (Record, bool) {
	var r Record
	err := json.Unmarshal([]byte(description), &r)
	return r, err == nil && r.Layout > 0
}

// Schema is the schema of a collection with that record.
func (r Record) Schema(collection string) (*entity.Schema, error) {
	description, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("record of collection %q: %w", collection, err)
	}
	s := entity.NewSchema().WithName(collection).WithDescription(string(description))
	for _, f := range fields {
		s.WithField(f.entity(r.Dimensions).WithIsPrimaryKey(f.name == Field.ID))
	}
	return s, nil
}

func (f field) entity(dimensions int) *entity.Field {
	e := entity.NewField().WithName(f.name)
	switch {
	case f.text != nil:
		return e.WithDataType(entity.FieldTypeVarChar).WithMaxLength(int64(f.limit))
	case f.number != nil:
		return e.WithDataType(entity.FieldTypeInt64)
	case f.meta != nil:
		return e.WithDataType(entity.FieldTypeJSON)
	}
	return e.WithDataType(entity.FieldTypeFloatVector).WithDim(int64(dimensions))
}

// Misfit says in which way a collection that exists cannot hold rows of this
// record; nil means that it can.
func (r Record) Misfit(found *entity.Collection) error {
	record, ok := ReadRecord(found.Schema.Description)
	switch {
	case !ok:
		return errors.New("it was not made by penstock (its description holds no record)")
	case record.Layout != r.Layout:
		return fmt.Errorf("it has row layout %d, this version writes %d", record.Layout, r.Layout)
	case record.Model != r.Model || record.Dimensions != r.Dimensions:
		return fmt.Errorf("it holds vectors of model %q with %d dimensions, this run makes those of %q with %d",
			record.Model, record.Dimensions, r.Model, r.Dimensions)
	case record.Metric != r.Metric:
		return fmt.Errorf("it uses metric %s, not %s", record.Metric, r.Metric)
	}
	return r.fieldsFit(found.Schema)
}

func (r Record) fieldsFit(found *entity.Schema) error {
	schema, err := r.Schema(found.CollectionName)
	if err != nil {
		return err
	}
	have := map[string]*entity.Field{}
	for _, f := range found.Fields {
		have[f.Name] = f
	}
	for _, f := range schema.Fields {
		other, ok := have[f.Name]
		if !ok {
			return fmt.Errorf("it has no field %q", f.Name)
		}
		if other.DataType != f.DataType || other.PrimaryKey != f.PrimaryKey ||
			other.TypeParams["dim"] != f.TypeParams["dim"] {
			return fmt.Errorf("its field %q is of another type", f.Name)
		}
	}
	return nil
}

// Columns turns rows, each with its vector, into the columns of an upsert.
func Columns(list []*Row, dimensions int) []entity.Column {
	columns := make([]entity.Column, len(fields))
	for i, f := range fields {
		columns[i] = f.column(list, dimensions)
	}
	return columns
}

func (f field) column(list []*Row, dimensions int) entity.Column {
	switch {
	case f.text != nil:
		return entity.NewColumnVarChar(f.name, each(list, func(r *Row) string { return *f.text(r) }))
	case f.number != nil:
		return entity.NewColumnInt64(f.name, each(list, func(r *Row) int64 { return int64(*f.number(r)) }))
	case f.meta != nil:
		return entity.NewColumnJSONBytes(f.name, each(list, func(r *Row) []byte { return *f.meta(r) }))
	}
	return entity.NewColumnFloatVector(f.name, dimensions, each(list, func(r *Row) []float32 { return *f.vector(r) }))
}

func each[V, T any](list []V, get func(V) T) []T {
	values := make([]T, len(list))
	for i, v := range list {
		values[i] = get(v)
	}
	return values
}

// Read turns the columns of an answer back into rows; fields that were not
// asked for stay zero, and columns that no row has are passed over. The error
// names a column that is too long or short, or not of its field's type.
func Read(columns client.ResultSet) ([]Row, error) {
	list := make([]Row, columns.Len())
	for _, column := range columns {
		if column.Len() != len(list) {
			return nil, fmt.Errorf("column %q has %d values for %d rows", column.Name(), column.Len(), len(list))
		}
		if err := readColumn(list, column); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func readColumn(list []Row, column entity.Column) error {
	f := fieldNamed(column.Name())
	if f.name != "" && f.entity(0).DataType != column.Type() {
		return fmt.Errorf("column %q is of another type than its field: %T", column.Name(), column)
	}
	switch c := column.(type) {
	case *entity.ColumnVarChar:
		fill(list, c.Data(), f.text)
	case *entity.ColumnInt64:
		fill(list, each(c.Data(), func(v int64) int { return int(v) }), f.number)
	case *entity.ColumnJSONBytes:
		fill(list, c.Data(), f.meta)
	case *entity.ColumnFloatVector:
		fill(list, c.Data(), f.vector)
	default:
		return fmt.Errorf("column %q is of a type that this layout does not have: %T", column.Name(), column)
	}
	return nil
}

// fieldNamed is the field of that name, or the zero field.
func fieldNamed(name string) field {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return field{}
	}
	return fields[i]
}

// fill puts a column's values where the rows keep them; at is nil for a column
// that no row has.
func fill[T any](list []Row, values []T, at func(*Row) *T) {
	if at == nil {
		return
	}
	for i, v := range values {
		*at(&list[i]) = v
	}
}
