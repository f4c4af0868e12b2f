package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline"
)

// bucketOf opens the bucket that the command is configured with, as a client
// beside it.
func bucketOf(t *testing.T, bucket string) *s3.Client {
	t.Helper()
	place := upstreams.SeaweedFS(t)
	client, err := objectstore.NewClient(context.Background(), objectstore.Config{
		Endpoint: place.Endpoint, Region: place.Region, AccessKeyID: place.AccessKey, SecretAccessKey: place.SecretKey,
	})
	require.NoError(t, err)
	_, err = client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
	require.NoError(t, err)
	return client
}

// Documents in a bucket, which also has the originals: these are not ingested,
// and what has not changed is not read again.
func TestBucketAsSource(t *testing.T) {
	place := upstreams.SeaweedFS(t)
	bucket := bucketName(t)
	client := bucketOf(t, bucket)
	put := func(key, content string) {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), Body: strings.NewReader(content)})
		require.NoError(t, err)
	}
	for i := range 20 {
		put(fmt.Sprintf("docs/note%02d.txt", i), fmt.Sprintf("Note %d says that valve %d was opened.", i, i*13))
	}
	c := newCommand(t, "PENSTOCK_S3_ENDPOINT="+place.Endpoint, "AWS_REGION="+place.Region, "PENSTOCK_S3_BUCKET="+bucket,
		"AWS_ACCESS_KEY_ID="+place.AccessKey, "AWS_SECRET_ACCESS_KEY="+place.SecretKey)
	first := c.ingest(t, "s3://"+bucket)
	require.Zero(t, first.code, first.stdout+first.stderr)
	assert.Equal(t, 20, first.summary.Ingested)
	again := c.ingest(t, "s3://"+bucket)
	require.Zero(t, again.code)
	assert.Equal(t, 20, again.summary.Unchanged, "originals are no documents")

	put("docs/note03.txt", "Note 3 has changed.")
	_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String("docs/note04.txt")})
	require.NoError(t, err)
	changed := c.ingest(t, "s3://"+bucket+"/docs", "--prune")
	require.Zero(t, changed.code, changed.stdout+changed.stderr)
	assert.Equal(t, pipeline.Ingested, changed.documents["s3://"+bucket+"/docs/note03.txt"].Result)
	assert.Equal(t, pipeline.Deleted, changed.documents["s3://"+bucket+"/docs/note04.txt"].Result)
	assert.Len(t, requireComplete(t, storedRows(t, openStore(t, c), "documents")), 19)

	missing := c.ingest(t, "s3://no-such-bucket-here/docs")
	assert.Equal(t, exitConfiguration, missing.code, missing.stdout)
}

// A bucket that cannot be reached ends the run, and no document is lost.
func TestBucketThatIsAway(t *testing.T) {
	c := newCommand(t, "PENSTOCK_S3_ENDPOINT=http://"+refused(t), "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
	o := c.ingest(t, "s3://some-bucket/docs")
	requireRetry(t, o, "s3")
}
