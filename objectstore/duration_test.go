package objectstore

import (
	"crypto/rand"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

func TestCallsAreTimed(t *testing.T) {
	store, err := filestore.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	name := "timed-" + rand.Text() // since durations are kept by name, also between runs
	g := Guard{Breaker: testutil.NewBreaker(t, name, resilience.Config{})}
	_, err = g.CreateBucket(t.Context(), store, &s3.CreateBucketInput{Bucket: aws.String("timed")})
	require.NoError(t, err)
	g.Breaker.ForceOpen("test")
	_, err = g.HeadBucket(t.Context(), store, &s3.HeadBucketInput{Bucket: aws.String("timed")})
	require.ErrorIs(t, err, resilience.ErrOpen)

	page := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, page.Body.String(), `_count{operation="create_bucket",upstream="`+name+`"} 1`)
	assert.NotContains(t, page.Body.String(), `operation="head_bucket",upstream="`+name+`"`, "a refusal is no call")
}

func TestOperationNames(t *testing.T) {
	for op, want := range map[string]string{
		"PutObject": "put_object", "ListObjectsV2": "list_objects_v2",
		"HeadBucket": "head_bucket",
	} {
		assert.Equal(t, want, snake(op))
		assert.False(t, strings.Contains(snake(op), "__"))
	}
}
