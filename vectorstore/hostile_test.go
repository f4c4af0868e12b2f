package vectorstore_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/hostile"
	"github.com/penstock-go/penstock/vectorstore"
)

// Servers that are no Milvus: each call fails, counts, and ends in time.
func TestServersThatLie(t *testing.T) {
	hostile.Each(t, map[string]hostile.Answer{
		"a page": hostile.Text(
			"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\n\r\n<html>sign in!</html>\n",
		),
		"a redirect":         hostile.Text("HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\n\r\n"),
		"a greeting":         hostile.Text("SSH-2.0-OpenSSH_9.2\r\n"),
		"nothing":            hostile.Text(""),
		"half a frame":       hostile.Text("\x00\x00\x06\x04\x00"),
		"frames without end": hostile.Endless("", "\x00"),
		"a frame too large":  hostile.Text("\xff\xff\xff\x00\x00\x00\x00\x00\x01"),
	}, func(t *testing.T, url string) {
		c := connect(t, vectorstore.Config{Address: strings.TrimPrefix(url, "http://"), CallTimeout: time.Second})
		g, b := guard(t)
		for range 3 {
			_, err := g.HasCollection(t.Context(), c, "docs")
			assert.Contains(t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, status.Code(err), "%v", err)
		}
		assert.EqualValues(t, 3, b.Snapshot().Failures)
	})
}

// Replies whose parts do not fit: no panic, and a failure of the server.
func TestRepliesThatLie(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	text := func(name string, values ...string) *schemapb.FieldData {
		return entity.NewColumnVarChar(name, values).FieldData()
	}
	query := func(fields ...*schemapb.FieldData) func(vectorstore.Guard) error {
		return func(g vectorstore.Guard) error {
			s.reply("Query", &milvuspb.QueryResults{Status: ok(), FieldsData: fields})
			_, err := g.Query(t.Context(), c, "docs", nil, `id == "a"`, []string{"id", "text"})
			return err
		}
	}
	search := func(change func(*schemapb.SearchResultData)) func(vectorstore.Guard) error {
		return func(g vectorstore.Guard) error {
			r := found([]int64{2}, []float32{2, 1}, "a", "b")
			change(r.Results)
			s.reply("Search", r)
			_, err := g.Search(t.Context(), c, "docs", nil, "", []string{"text"}, vec, "vector", entity.COSINE, 2, nil)
			return err
		}
	}
	for name, run := range map[string]func(vectorstore.Guard) error{
		"columns of different lengths": query(text("id", "a", "b"), text("text", "x")),
		"a column without a type": query(text("id", "a"),
			&schemapb.FieldData{FieldName: "text", Type: schemapb.DataType_VarChar}),
		"a column of nothing": query(text("id", "a"), &schemapb.FieldData{}),
		"a vector without numbers": query(text("id", "a"), &schemapb.FieldData{
			FieldName: "vector", Type: schemapb.DataType_FloatVector,
			Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{Dim: 0}},
		}),
		"a vector of broken rows": query(text("id", "a"), &schemapb.FieldData{
			FieldName: "vector", Type: schemapb.DataType_FloatVector,
			Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
				Dim:  4,
				Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: []float32{1, 2, 3}}},
			}},
		}),
		"floats under the type of bits": query(text("id", "a"), &schemapb.FieldData{
			FieldName: "vector", Type: schemapb.DataType_BinaryVector,
			Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
				Dim:  4,
				Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: []float32{1, 2, 3, 4}}},
			}},
		}),
		"a sparse vector of three bytes": query(text("id", "a"), &schemapb.FieldData{
			FieldName: "vector", Type: schemapb.DataType_SparseFloatVector,
			Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
				Data: &schemapb.VectorField_SparseFloatVector{
					SparseFloatVector: &schemapb.SparseFloatArray{Contents: [][]byte{{1, 2, 3}}},
				},
			}},
		}),
		"a dynamic field of text": query(text("id", "a"), func() *schemapb.FieldData {
			f := text("$meta", "{}")
			f.IsDynamic = true
			return f
		}()),
		"an array of elements unknown": query(text("id", "a"), &schemapb.FieldData{
			FieldName: "text", Type: schemapb.DataType_Array,
			Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{
				Data: &schemapb.ScalarField_ArrayData{ArrayData: &schemapb.ArrayArray{
					ElementType: 77, Data: []*schemapb.ScalarField{text("", "a").GetScalars()},
				}},
			}},
		}),
		"more rows than the limit": func(g vectorstore.Guard) error {
			two := []*schemapb.FieldData{text("id", "a", "b")}
			s.reply("Query", &milvuspb.QueryResults{Status: ok(), FieldsData: two})
			_, err := g.Query(t.Context(), c, "docs", nil, `id != ""`, []string{"id"}, client.WithLimit(1))
			return err
		},
		"a page without the key": func(g vectorstore.Guard) error {
			s.reply("Query", &milvuspb.QueryResults{Status: ok(), FieldsData: []*schemapb.FieldData{text("text", "a")}})
			it, err := g.QueryIterator(t.Context(), c, client.NewQueryIteratorOption("docs").WithOutputFields("id"))
			if err == nil {
				_, err = it.Next(t.Context())
			}
			return err
		},
		"partitions without names": func(g vectorstore.Guard) error {
			s.reply("ShowPartitions", &milvuspb.ShowPartitionsResponse{
				Status: ok(), PartitionIDs: []int64{1, 2}, PartitionNames: []string{"a"},
			})
			_, err := g.ShowPartitions(t.Context(), c, "docs")
			return err
		},
		"a schema without a key": func(g vectorstore.Guard) error {
			other := docs().WithName("keyless")
			other.Fields[0].WithIsPrimaryKey(false)
			described := s.answer["DescribeCollection"]
			defer s.on("DescribeCollection", described)
			s.of(other)
			return g.DeleteByPks(t.Context(), c, "keyless", "", entity.NewColumnVarChar("id", []string{"a"}))
		},
		"an index that cannot be built": func(g vectorstore.Guard) error {
			s.reply("HasCollection", &milvuspb.BoolResponse{Status: ok(), Value: true})
			s.reply("CreateIndex", ok())
			s.reply("DescribeIndex", &milvuspb.DescribeIndexResponse{
				Status: ok(), IndexDescriptions: []*milvuspb.IndexDescription{{
					FieldName: "vector", State: commonpb.IndexState_Failed, IndexStateFailReason: "out of memory",
				}},
			})
			err := g.CreateIndex(t.Context(), c, "docs", "vector", flat(t, entity.L2), false)
			assert.ErrorContains(t, err, "out of memory")
			return err
		},
		"groups of fewer rows": search(func(r *schemapb.SearchResultData) { r.GroupByFieldValue = text("text", "x") }),
		"counts that sum up to nothing": search(func(r *schemapb.SearchResultData) {
			r.Topks, r.NumQueries = []int64{1 << 62, 1 << 62, 1 << 62, 1 << 62}, 4
			r.Scores, r.Ids = nil, nil
		}),
		"fields of fewer rows": search(
			func(r *schemapb.SearchResultData) { r.FieldsData = []*schemapb.FieldData{text("text", "x")} }),
		"fields of more rows": search(func(r *schemapb.SearchResultData) {
			r.FieldsData = []*schemapb.FieldData{text("text", "x", "y", "z")}
		}),
		"a field without a type": search(func(r *schemapb.SearchResultData) {
			r.FieldsData = []*schemapb.FieldData{{FieldName: "text", Type: schemapb.DataType_VarChar}}
		}),
		"counts beyond all bounds": search(func(r *schemapb.SearchResultData) { r.Topks = []int64{math.MaxInt64} }),
		"scores that are infinite": search(func(r *schemapb.SearchResultData) { r.Scores[0] = float32(math.Inf(1)) }),
	} {
		t.Run(name, func(t *testing.T) {
			g, b := guard(t)
			require.NotPanics(t, func() { assert.Error(t, run(g), name) }, name)
			assert.EqualValues(t, 1, b.Snapshot().Failures, name)
		})
	}
}

// Batches that hold nothing or too much are the caller's, whatever the store.
func TestEmptyAndHugeBatches(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	empty := []entity.Column{entity.NewColumnVarChar("id", nil), entity.NewColumnFloatVector("vector", 4, nil)}
	for name, cols := range map[string][]entity.Column{
		"no rows": empty, "a nil column": {rowsOf("a")[0], nil},
		"a vector of no dimensions": {rowsOf("a")[0], entity.NewColumnFloatVector("vector", 0, [][]float32{{}})},
		"a huge vector": {
			rowsOf("a")[0],
			entity.NewColumnFloatVector("vector", 20<<20, [][]float32{make([]float32, 20<<20)}),
		},
	} {
		for _, write := range []func() error{
			func() error { _, err := g.Upsert(t.Context(), c, "docs", "", cols...); return err },
			func() error { _, err := g.Insert(t.Context(), c, "docs", "", cols...); return err },
		} {
			require.NotPanics(t, func() { assert.Error(t, write(), name) }, name)
		}
	}
	for name, v := range map[string][]entity.Vector{
		"none": nil, "a nil one": {nil}, "empty": {entity.FloatVector{}},
		"not a number": {entity.FloatVector{float32(math.NaN()), 0, 0, 0}},
	} {
		require.NotPanics(t, func() {
			_, err := g.Search(t.Context(), c, "docs", nil, "", nil, v, "vector", entity.COSINE, 1, nil)
			assert.Error(t, err, name)
		}, name)
	}
	assert.Zero(t, b.Snapshot().Failures+b.Snapshot().Panics)
	assert.Zero(t, s.count("Upsert")+s.count("Insert")+s.count("Search"))
}

// The caller who leaves in the middle of an iteration that nobody closes gives
// the probe's slot back.
func TestAbandonedIteratorGivesItsSlotBack(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.reply(
		"Query",
		&milvuspb.QueryResults{
			Status:     ok(),
			FieldsData: []*schemapb.FieldData{entity.NewColumnVarChar("id", []string{"a", "b"}).FieldData()},
		},
	)
	b := testutil.NewBreaker(
		t,
		"test",
		resilience.Config{FailMax: 1, ResetTimeout: time.Millisecond, ProbeTimeout: time.Hour},
	)
	g := vectorstore.Guard{Breaker: b}
	require.Error(t, b.Do(t.Context(), func(context.Context) error { return errors.New("down") }))
	require.Eventually(t, b.Ready, time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := g.QueryIterator(ctx, c, client.NewQueryIteratorOption("docs").WithOutputFields("id").WithBatchSize(2))
	require.NoError(t, err)
	require.False(t, b.Ready(), "the iteration is the probe")
	cancel()
	require.Eventually(t, b.Ready, 5*time.Second, time.Millisecond, "its context has ended")
}
