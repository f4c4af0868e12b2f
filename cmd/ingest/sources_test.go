package main

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline"
)

// bucketOf makes the bucket of the test in the real object store.
func bucketOf(t *testing.T) (name string, client *s3.Client) {
	t.Helper()
	name, client = bucketName(t), bucket.Client(t, upstreams.SeaweedFS(t))
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
	require.NoError(t, err)
	return name, client
}

// Documents in a bucket, which also has the originals: these are not ingested,
// and what has not changed is not read again.
func TestBucketAsSource(t *testing.T) {
	name, client := bucketOf(t)
	put := func(key, content string) { bucket.Put(t, client, name, key, content) }
	for i := range 20 {
		put(fmt.Sprintf("docs/note%02d.txt", i), fmt.Sprintf("Note %d says that valve %d was opened.", i, i*13))
	}
	c := newCommand(t, atS3(upstreams.SeaweedFS(t), name)...)
	first := c.ingest(t, "s3://"+name)
	require.Zero(t, first.code, first.stdout+first.stderr)
	assert.Equal(t, 20, first.summary.Ingested)
	again := c.ingest(t, "s3://"+name)
	require.Zero(t, again.code)
	assert.Equal(t, 20, again.summary.Unchanged, "originals are no documents")

	put("docs/note03.txt", "Note 3 has changed.")
	_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &name, Key: aws.String("docs/note04.txt")})
	require.NoError(t, err)
	changed := c.ingest(t, "s3://"+name+"/docs", "--prune")
	require.Zero(t, changed.code, changed.stdout+changed.stderr)
	assert.Equal(t, pipeline.Ingested, changed.documents["s3://"+name+"/docs/note03.txt"].Result)
	assert.Equal(t, pipeline.Deleted, changed.documents["s3://"+name+"/docs/note04.txt"].Result)
	assert.Len(t, c.stored(t, "documents"), 19)

	missing := c.ingest(t, "s3://no-such-bucket-here/docs")
	assert.Equal(t, exitConfiguration, missing.code, missing.stdout)
}

// A bucket that cannot be reached ends the run, and no document is lost.
func TestBucketThatIsAway(t *testing.T) {
	c := newCommand(t, "PENSTOCK_S3_ENDPOINT=http://"+refused(t), "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
	o := c.ingest(t, "s3://some-bucket/docs")
	requireRetry(t, o, "s3")
}

// A prefix without documents passed without a word, objects that never are text
// were dead letters, and so was one that had gone.
func TestSilenceOfARealBucket(t *testing.T) {
	name, client := bucketOf(t)
	put := func(key, content string) { bucket.Put(t, client, name, key, content) }
	put("docs/a.md", "A text about pumps.")
	put("docs/empty.md", "")
	put("docs/b.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01")
	put("docs/c.json", `{"cut off`)
	c := newCommand(t, atS3(upstreams.SeaweedFS(t), name)...)
	typo := "s3://" + name + "/tpyo/"
	o := c.ingest(t, typo)
	assert.Zero(t, o.code)
	assert.Equal(t, []string{typo}, o.summary.EmptyInputs)
	assert.Contains(t, o.stderr, typo)
	assert.Equal(t, exitData, c.ingest(t, "--strict", typo).code)

	docs := "s3://" + name + "/docs/"
	o = c.ingest(t, docs)
	assert.Equal(t, exitData, o.code)
	assert.Equal(t, [3]int{1, 2, 1}, [3]int{o.summary.Ingested, o.summary.Skipped, o.summary.DeadLetters})
	assert.Equal(t, exitData, c.ingest(t, docs+"empty.md").code, "it is named itself")

	_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &name, Key: aws.String("docs/c.json")})
	require.NoError(t, err)
	o = c.ingest(t, "retry")
	assert.Equal(t, pipeline.Gone, o.documents[docs+"c.json"].Result, o.stdout)
}
