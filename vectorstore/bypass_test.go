package vectorstore_test

import (
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

// 54 methods of the SDK have no door, and nothing stopped a caller from using
// them, or the others, without one.
func TestClientCannotGoAroundItsBreaker(t *testing.T) {
	s, addr := serve(t)
	below := testutil.NewBreaker(t, "below", resilience.Config{})
	c := connect(t, vectorstore.Config{Address: addr, Breaker: below})
	s.reply("ListResourceGroups", &milvuspb.ListResourceGroupsResponse{Status: ok()})
	_, err := c.ListResourceGroups(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, below.Snapshot().Successes)

	s.fail("ListResourceGroups", status.Error(codes.Unavailable, "down"))
	for range 5 {
		_, err = c.ListResourceGroups(t.Context())
		assert.Equal(t, codes.Unavailable, status.Code(err))
	}
	_, err = c.ListResourceGroups(t.Context())
	require.ErrorIs(t, err, resilience.ErrOpen)
	_, err = c.HasCollection(t.Context(), "docs")
	require.ErrorIs(t, err, resilience.ErrOpen, "a method with a door, called without it")
	assert.Equal(t, 6, s.count("ListResourceGroups"))
	assert.Zero(t, s.count("HasCollection"))
}

// A door's own breaker is the only one that counts its calls, also those that
// take several requests.
func TestDoorAndClientCountOnce(t *testing.T) {
	s, addr := serve(t)
	below := testutil.NewBreaker(t, "below", resilience.Config{})
	c := connect(t, vectorstore.Config{Address: addr, Breaker: below})
	g, above := guard(t)
	s.reply("Upsert", mutation("a"))
	_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
	require.NoError(t, err)
	assert.Equal(t, 1, s.count("DescribeCollection"))
	assert.EqualValues(t, 1, above.Snapshot().Calls)
	assert.Zero(t, below.Snapshot().Calls)
	below.Trip("drill")
	_, err = g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
	require.NoError(t, err, "the door's breaker is closed")
}
