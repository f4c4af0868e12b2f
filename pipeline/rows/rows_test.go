package rows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sample() Row {
	r := Row{Source: "docs/a.md", Ordinal: 1, Policy: "p", Heading: "A > B", Text: "text", Meta: []byte(`{"page":1}`)}
	r.Seal("A > B\ntext")
	return r
}

// The ids are in stores out there: this value may change only with layout.
func TestIDIsStable(t *testing.T) {
	assert.Equal(t, "15384f4234cf7c876e46fafcb2d2543559f8893d0e178798952d1cc0a25be179", sample().ID)
}

func TestEveryFieldIsInTheID(t *testing.T) {
	base := sample()
	for name, change := range map[string]func(*Row){
		"source": func(r *Row) { r.Source = "docs/b.md" }, "ordinal": func(r *Row) { r.Ordinal++ },
		"policy": func(r *Row) { r.Policy = "q" }, "heading": func(r *Row) { r.Heading = "A" },
		"text": func(r *Row) { r.Text = "other" }, "meta": func(r *Row) { r.Meta = []byte(`{}`) },
		"mark": func(r *Row) { r.Mark("sha", 2) },
	} {
		r := base
		change(&r)
		r.Seal("A > B\ntext")
		assert.NotEqual(t, base.ID, r.ID, name)
	}
	embedded := base
	embedded.Seal("other prefix\ntext")
	assert.NotEqual(t, base.ID, embedded.ID)
	assert.NotEqual(t, hexSum("ab", "c"), hexSum("a", "bc"), "the lengths are hashed too")
}

func TestHeadingIsClippedInsideItsLimit(t *testing.T) {
	r := Row{Heading: strings.Repeat("é", headingBytes)}
	r.Seal("x")
	assert.LessOrEqual(t, len(r.Heading), headingBytes)
	assert.True(t, utf8.ValidString(r.Heading))
}

func TestCheck(t *testing.T) {
	ok := sample()
	require.NoError(t, ok.Check())
	for want, r := range map[string]Row{
		"document id": {Source: strings.Repeat("x", sourceBytes+1)},
		"chunk size":  {Text: strings.Repeat("x", textBytes+1)},
		"UTF-8":       {Text: "\xff"},
	} {
		require.ErrorContains(t, r.Check(), want)
	}
}

func TestColumnsAndBack(t *testing.T) {
	a, b := sample(), sample()
	b.Mark("content", 2)
	b.Seal("A > B\ntext")
	a.Vector, b.Vector = []float32{1, 2}, []float32{3, 4}
	back, err := Read(Columns([]*Row{&a, &b}, 2))
	require.NoError(t, err)
	assert.Equal(t, []Row{a, b}, back)
	assert.False(t, back[0].IsMark())
	assert.True(t, back[1].IsMark())
}

func TestColumnsFollowTheSchema(t *testing.T) {
	schema, err := NewRecord("m", 2).Schema("c")
	require.NoError(t, err)
	r := sample()
	columns := Columns([]*Row{&r}, 2)
	require.Len(t, columns, len(schema.Fields))
	for i, f := range schema.Fields {
		assert.Equal(t, f.Name, columns[i].Name())
		assert.Equal(t, f.DataType, columns[i].Type())
	}
	assert.Equal(t, Field.ID, schema.PKFieldName())
}

func TestReadRefusesWhatIsNotOurs(t *testing.T) {
	_, err := Read(client.ResultSet{entity.NewColumnBool("flag", []bool{true})})
	require.ErrorContains(t, err, "flag")
	_, err = Read(client.ResultSet{
		entity.NewColumnInt64(Field.Ordinal, []int64{1}),
		entity.NewColumnInt64(Field.Chunks, []int64{1, 2}),
	})
	require.ErrorContains(t, err, "2 values for 1 rows")
	_, err = Read(client.ResultSet{entity.NewColumnInt64(Field.Text, []int64{1})})
	require.ErrorContains(t, err, `"text" is of another type`)
	list, err := Read(client.ResultSet{
		entity.NewColumnInt64("count(*)", []int64{7}),
		entity.NewColumnVarChar("other", []string{"x"}),
	})
	require.NoError(t, err)
	assert.Equal(t, []Row{{}}, list)
}

func TestMisfit(t *testing.T) {
	collection := func(change func(*Record), fields func(*entity.Schema)) *entity.Collection {
		record := NewRecord("m", 2)
		if change != nil {
			change(&record)
		}
		schema, err := record.Schema("c")
		require.NoError(t, err)
		if fields != nil {
			fields(schema)
		}
		return &entity.Collection{Name: "c", Schema: schema}
	}
	want := NewRecord("m", 2)
	require.NoError(t, want.Misfit(collection(nil, nil)))
	for text, found := range map[string]*entity.Collection{
		"not made by penstock": collection(nil, func(s *entity.Schema) { s.Description = "mine" }),
		"row layout 7":         collection(func(r *Record) { r.Layout = 7 }, nil),
		`model "other"`:        collection(func(r *Record) { r.Model = "other" }, nil),
		"with 3 dimensions":    collection(func(r *Record) { r.Dimensions = 3 }, nil),
		"metric L2":            collection(func(r *Record) { r.Metric = "L2" }, nil),
		`no field "vector"`:    collection(nil, func(s *entity.Schema) { s.Fields = s.Fields[:len(s.Fields)-1] }),
		`field "vector" is of`: collection(nil, func(s *entity.Schema) { s.Fields[len(s.Fields)-1].WithDim(5) }),
	} {
		require.ErrorContains(t, want.Misfit(found), text)
	}
}
