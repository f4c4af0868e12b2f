package vectorstore_test

import (
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

func TestSettledIsToldEachVerdictOnce(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	opt := client.NewQueryIteratorOption("docs").WithOutputFields("id").WithBatchSize(2)
	for _, row := range []struct {
		script func()
		want   resilience.Outcome
	}{
		{func() { s.reply("Query", idsOf("a")) }, resilience.Success},
		{func() { s.fail("Query", status.Error(codes.NotFound, "")) }, resilience.Success},
		{func() { s.fail("Query", status.Error(codes.Unavailable, "")) }, resilience.Failure},
		{func() { s.fail("Query", status.Error(codes.ResourceExhausted, "")) }, resilience.Throttled},
		{func() { s.fail("Query", status.Error(codes.Unauthenticated, "")) }, resilience.Denied},
	} {
		row.script()
		g, b := guard(t)
		told := doortest.Hear(&g.Settled)
		_, err := g.Query(t.Context(), c, "docs", nil, `id == "a"`, []string{"id"})
		assert.Equal(t, []resilience.Verdict{{Outcome: row.want}}, *told)
		b.Reset()
		*told = nil
		it, opened := g.QueryIterator(t.Context(), c, opt)
		require.Equal(t, err == nil, opened == nil)
		if opened == nil {
			assert.Empty(t, *told, "it is not decided yet")
			require.NoError(t, it.Close())
		}
		assert.Equal(t, []resilience.Verdict{{Outcome: row.want}}, *told)
		b.ForceOpen("maintenance")
		*told = nil
		_, err = g.Query(t.Context(), c, "docs", nil, `id == "a"`, []string{"id"})
		require.ErrorIs(t, err, resilience.ErrOpen)
		_, err = g.QueryIterator(t.Context(), c, opt)
		require.ErrorIs(t, err, resilience.ErrOpen)
		assert.Empty(t, *told)
	}
}

func idsOf(ids ...string) *milvuspb.QueryResults {
	return &milvuspb.QueryResults{
		Status:     ok(),
		FieldsData: []*schemapb.FieldData{entity.NewColumnVarChar("id", ids).FieldData()},
	}
}

func TestSettledHearsNothingOfPanics(t *testing.T) {
	g, _ := guard(t)
	told := doortest.Hear(&g.Settled)
	ctx := t.Context()
	testutil.Isolate(func() { _, _ = g.HasCollection(ctx, leaving{leave: func() { panic("a bug") }}, "docs") })
	assert.Empty(t, *told)
}
