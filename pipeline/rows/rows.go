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
// when that row is there.
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
	"strconv"
	"unicode/utf8"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// Names of the fields, in the order of the schema.
const (
	ID      = "id"       // primary key
	Doc     = "doc"      // DocumentHash of the document's id
	Source  = "source"   // the document's id
	Ordinal = "ordinal"  // position in the document, from 0
	Chunks  = "chunks"   // number of rows of the document on its commit mark, else 0
	SHA     = "sha"      // content hash of the document on its commit mark, else ""
	Policy  = "policy"   // how the document was parsed, chunked and embedded
	TextSHA = "text_sha" // TextHash of the embedded text
	Heading = "heading"  // heading path, "A > B"
	Text    = "text"     // the chunk as stored
	Meta    = "meta"     // JSON object: title, page, language, …
	Vector  = "vector"
)

// Limits of the text fields in bytes, as Milvus counts them.
const (
	hashBytes    = 64
	SourceBytes  = 2048
	HeadingBytes = 2048
	TextBytes    = 65535
)

// Layout is the version of this layout. It is kept in a collection's record.
const Layout = 1

// Row is one chunk of a document as it is stored.
type Row struct {
	ID, Doc, Source  string
	Ordinal, Chunks  int
	SHA, Policy      string
	TextSHA, Heading string
	Text             string
	Meta             json.RawMessage
	Vector           []float32
}

// DocumentHash is the hash under which a document's rows and originals are kept.
func DocumentHash(id string) string { return hexSum("penstock document 1", id) }

// TextHash is the hash of an embedded text: equal texts share one embedding.
func TextHash(text string) string { return hexSum("penstock text 1", text) }

// PolicyHash names a way of making rows from content: parser, chunker and
// model, each with its version and settings.
func PolicyHash(parts ...string) string {
	return hexSum(append([]string{"penstock policy 1"}, parts...)...)
}

// Seal sets Doc and TextSHA, clips Heading to its limit and makes the ID from
// everything but the vector; embedded is the text that the vector stands for.
// The row must not change afterwards.
func (r *Row) Seal(embedded string) {
	r.Doc = DocumentHash(r.Source)
	r.TextSHA = TextHash(embedded)
	r.Heading = clip(r.Heading, HeadingBytes)
	r.ID = hexSum("penstock row 1", r.Source, r.Policy, strconv.Itoa(r.Ordinal),
		embedded, r.Heading, r.Text, string(r.Meta), r.SHA, strconv.Itoa(r.Chunks))
}

// Mark makes the row its document's commit mark. It comes before Seal.
func (r *Row) Mark(contentSHA string, chunks int) { r.SHA, r.Chunks = contentSHA, chunks }

// IsMark reports whether the row is a commit mark.
func (r *Row) IsMark() bool { return r.Chunks > 0 }

// Check reports what makes the row impossible to store.
func (r *Row) Check() error {
	switch {
	case len(r.Source) > SourceBytes:
		return fmt.Errorf("the document id has %d bytes, more than the %d that can be stored; shorten its path", len(r.Source), SourceBytes)
	case len(r.Text) > TextBytes:
		return fmt.Errorf("chunk %d has %d bytes, more than the %d that can be stored; lower the chunk size", r.Ordinal, len(r.Text), TextBytes)
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

// clip cuts a text to at most limit bytes, never inside a rune.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Record is what a collection says of itself, in its description.
type Record struct {
	Layout     int    `json:"penstock"`
	ID         string `json:"id,omitempty"` // tells a collection from another of that name
	Model      string `json:"model"`
	Dimensions int    `json:"dimensions"`
	Metric     string `json:"metric"`
}

// NewRecord describes a collection of this layout for a model. Its ID is empty.
func NewRecord(model string, dimensions int) Record {
	return Record{Layout: Layout, Model: model, Dimensions: dimensions, Metric: string(entity.COSINE)}
}

// ReadRecord reads a collection's record; false means that it has none.
func ReadRecord(description string) (Record, bool) {
	var r Record
	err := json.Unmarshal([]byte(description), &r)
	return r, err == nil && r.Layout > 0
}

// Schema is the schema of a collection with that record.
func Schema(collection string, record Record) (*entity.Schema, error) {
	description, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("record of collection %q: %w", collection, err)
	}
	s := entity.NewSchema().WithName(collection).WithDescription(string(description))
	s.WithField(varchar(ID, hashBytes).WithIsPrimaryKey(true))
	for _, f := range []*entity.Field{
		varchar(Doc, hashBytes), varchar(Source, SourceBytes),
		integer(Ordinal), integer(Chunks),
		varchar(SHA, hashBytes), varchar(Policy, hashBytes), varchar(TextSHA, hashBytes),
		varchar(Heading, HeadingBytes), varchar(Text, TextBytes),
		entity.NewField().WithName(Meta).WithDataType(entity.FieldTypeJSON),
		entity.NewField().WithName(Vector).WithDataType(entity.FieldTypeFloatVector).WithDim(int64(record.Dimensions)),
	} {
		s.WithField(f)
	}
	return s, nil
}

func varchar(name string, limit int64) *entity.Field {
	return entity.NewField().WithName(name).WithDataType(entity.FieldTypeVarChar).WithMaxLength(limit)
}

func integer(name string) *entity.Field {
	return entity.NewField().WithName(name).WithDataType(entity.FieldTypeInt64)
}

// Misfit says in which way a collection that exists cannot hold rows of the
// wanted record; nil means that it can.
func Misfit(found *entity.Collection, want Record) error {
	record, ok := ReadRecord(found.Schema.Description)
	switch {
	case !ok:
		return errors.New("it was not made by penstock (its description holds no record)")
	case record.Layout != want.Layout:
		return fmt.Errorf("it has row layout %d, this version writes %d", record.Layout, want.Layout)
	case record.Model != want.Model || record.Dimensions != want.Dimensions:
		return fmt.Errorf("it holds vectors of model %q with %d dimensions, this run makes those of %q with %d",
			record.Model, record.Dimensions, want.Model, want.Dimensions)
	case record.Metric != want.Metric:
		return fmt.Errorf("it uses metric %s, not %s", record.Metric, want.Metric)
	}
	return fieldsFit(found.Schema, want)
}

func fieldsFit(found *entity.Schema, want Record) error {
	schema, err := Schema(found.CollectionName, want)
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
		if other.DataType != f.DataType || other.PrimaryKey != f.PrimaryKey || other.TypeParams["dim"] != f.TypeParams["dim"] {
			return fmt.Errorf("its field %q is of another type", f.Name)
		}
	}
	return nil
}

// Columns turns rows, each with its vector, into the columns of an upsert.
func Columns(list []*Row, dimensions int) []entity.Column {
	text := func(name string, get func(*Row) string) entity.Column {
		return entity.NewColumnVarChar(name, each(list, get))
	}
	number := func(name string, get func(*Row) int) entity.Column {
		return entity.NewColumnInt64(name, each(list, func(r *Row) int64 { return int64(get(r)) }))
	}
	return []entity.Column{
		text(ID, func(r *Row) string { return r.ID }),
		text(Doc, func(r *Row) string { return r.Doc }),
		text(Source, func(r *Row) string { return r.Source }),
		number(Ordinal, func(r *Row) int { return r.Ordinal }),
		number(Chunks, func(r *Row) int { return r.Chunks }),
		text(SHA, func(r *Row) string { return r.SHA }),
		text(Policy, func(r *Row) string { return r.Policy }),
		text(TextSHA, func(r *Row) string { return r.TextSHA }),
		text(Heading, func(r *Row) string { return r.Heading }),
		text(Text, func(r *Row) string { return r.Text }),
		entity.NewColumnJSONBytes(Meta, each(list, func(r *Row) []byte { return r.Meta })),
		entity.NewColumnFloatVector(Vector, dimensions, each(list, func(r *Row) []float32 { return r.Vector })),
	}
}

func each[T any](list []*Row, get func(*Row) T) []T {
	values := make([]T, len(list))
	for i, r := range list {
		values[i] = get(r)
	}
	return values
}

// Read turns the columns of an answer back into rows; fields that were not
// asked for stay zero. The error says which column is not of its type.
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
	switch c := column.(type) {
	case *entity.ColumnVarChar:
		if set := textField(column.Name()); set != nil {
			for i, v := range c.Data() {
				*set(&list[i]) = v
			}
		}
	case *entity.ColumnInt64:
		if set := intField(column.Name()); set != nil {
			for i, v := range c.Data() {
				*set(&list[i]) = int(v)
			}
		}
	case *entity.ColumnJSONBytes:
		for i, v := range c.Data() {
			list[i].Meta = v
		}
	case *entity.ColumnFloatVector:
		for i, v := range c.Data() {
			list[i].Vector = v
		}
	default:
		return fmt.Errorf("column %q is of a type that this layout does not have: %T", column.Name(), column)
	}
	return nil
}

// textField gives access to a text field by its column's name, nil for a
// column that is none of ours.
func textField(name string) func(*Row) *string {
	return map[string]func(*Row) *string{
		ID: func(r *Row) *string { return &r.ID }, Doc: func(r *Row) *string { return &r.Doc },
		Source: func(r *Row) *string { return &r.Source }, SHA: func(r *Row) *string { return &r.SHA },
		Policy: func(r *Row) *string { return &r.Policy }, TextSHA: func(r *Row) *string { return &r.TextSHA },
		Heading: func(r *Row) *string { return &r.Heading }, Text: func(r *Row) *string { return &r.Text },
	}[name]
}

func intField(name string) func(*Row) *int {
	return map[string]func(*Row) *int{
		Ordinal: func(r *Row) *int { return &r.Ordinal }, Chunks: func(r *Row) *int { return &r.Chunks },
	}[name]
}
