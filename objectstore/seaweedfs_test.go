package objectstore_test

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/objectstoretest"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

func clientFor(t testing.TB, at upstreams.S3, change ...func(*objectstore.Config)) *s3.Client {
	t.Helper()
	cfg := objectstore.Config{
		Endpoint: at.Endpoint, Region: at.Region, AccessKeyID: at.AccessKey, SecretAccessKey: at.SecretKey,
		Breaker: testutil.NewBreaker(t, "below", resilience.Config{}),
	}
	for _, c := range change {
		c(&cfg)
	}
	client, err := objectstore.NewClient(t.Context(), cfg)
	require.NoError(t, err)
	return client
}

func TestConformanceOfSeaweedFS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	objectstoretest.Run(t, func(*testing.T) (objectstoretest.API, string) { return client, at.Bucket })
}

// What the guide says of SeaweedFS beyond the suite.
func TestSeaweedFSIsNotAWS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	g, b := breaker(t, resilience.Config{})
	object := func(bucket, key string) *s3.PutObjectInput {
		return &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), Body: strings.NewReader("text")}
	}

	bucket := "made-by-a-put"
	_, err := g.HeadBucket(t.Context(), client, &s3.HeadBucketInput{Bucket: aws.String(bucket)})
	require.Error(t, err)
	_, err = g.PutObject(t.Context(), client, object(bucket, "key"))
	require.NoError(t, err, "a put makes the bucket")
	_, err = g.HeadBucket(t.Context(), client, &s3.HeadBucketInput{Bucket: aws.String(bucket)})
	require.NoError(t, err)

	_, err = g.PutObject(t.Context(), client, object(at.Bucket, "segment/"+strings.Repeat("a", 255)))
	require.NoError(t, err)
	_, err = g.PutObject(t.Context(), client, object(at.Bucket, "segment/"+strings.Repeat("a", 256)))
	require.Error(t, err)
	assert.Equal(t, uint64(1), b.Snapshot().Ignored, "%v", err)

	_, err = g.PutObject(t.Context(), client, object(at.Bucket, `back\slash`))
	require.NoError(t, err)
	out, err := g.ListObjectsV2(
		t.Context(),
		client,
		&s3.ListObjectsV2Input{Bucket: aws.String(at.Bucket), Prefix: aws.String("back")},
	)
	require.NoError(t, err)
	require.Len(t, out.Contents, 1)
	assert.Equal(t, "back/slash", aws.ToString(out.Contents[0].Key))

	for _, key := range []string{"twice//slashed", "twice/slashed"} {
		_, err = g.PutObject(t.Context(), client, object(at.Bucket, key))
		require.NoError(t, err)
	}
	out, err = g.ListObjectsV2(
		t.Context(),
		client,
		&s3.ListObjectsV2Input{Bucket: aws.String(at.Bucket), Prefix: aws.String("twice/")},
	)
	require.NoError(t, err)
	assert.Len(t, out.Contents, 1)
}

// A document of more than a million bytes under an awkward key, as a body and
// as a file.
func TestMillionBytesOnSeaweedFS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	g, _ := breaker(t, resilience.Config{})
	document := strings.Repeat("ünïcode 文書 🚰 \x00 \\ line\n", 40_000)
	require.Greater(t, len(document), 1_000_000)
	bucket, key := aws.String(at.Bucket), aws.String("million/a b+c%20d&e=f?g#h \"ü\" 文書 🚰/e\u0301.txt")
	_, err := g.PutObject(
		t.Context(),
		client,
		&s3.PutObjectInput{Bucket: bucket, Key: key, Body: io.MultiReader(strings.NewReader(document))},
	)
	require.NoError(t, err)
	out, err := g.GetObject(t.Context(), client, &s3.GetObjectInput{Bucket: bucket, Key: key})
	require.NoError(t, err)
	got, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	assert.True(t, string(got) == document, "%d bytes came back", len(got))

	file := filepath.Join(t.TempDir(), "file")
	_, err = g.DownloadFile(t.Context(), client, &s3.GetObjectInput{Bucket: bucket, Key: key}, file)
	require.NoError(t, err)
	_, err = g.UploadFile(
		t.Context(),
		client,
		&transfermanager.UploadObjectInput{Bucket: bucket, Key: aws.String(*key + "2")},
		file,
	)
	require.NoError(t, err)
	down, err := g.DownloadFile(
		t.Context(),
		client,
		&s3.GetObjectInput{Bucket: bucket, Key: aws.String(*key + "2")},
		file,
	)
	require.NoError(t, err)
	assert.EqualValues(t, len(document), down.Size)
	again, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(again) == document)
}

// What has no door goes through the breaker below the client.
func TestSeaweedFSBelowAClient(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	b := testutil.NewBreaker(t, "below", resilience.Config{})
	client := clientFor(t, at, func(c *objectstore.Config) { c.Breaker = b })
	defer idle(client)
	bucket := aws.String(at.Bucket)
	manager := transfermanager.New(client, inParts)
	for i := range 8 {
		_, err := manager.UploadObject(t.Context(), &transfermanager.UploadObjectInput{
			Bucket: bucket, Key: aws.String("below/" + strconv.Itoa(i)), Body: strings.NewReader("text"),
		})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 8, b.Snapshot().Successes)
	in := &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("below/"), MaxKeys: aws.Int32(1)}
	keys := 0
	for pages := s3.NewListObjectsV2Paginator(client, in); pages.HasMorePages(); {
		out, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		keys += len(out.Contents)
	}
	assert.Equal(t, 8, keys)
	assert.EqualValues(t, 16, b.Snapshot().Successes)

	one := aws.String("below/0")
	head := &s3.HeadObjectInput{Bucket: bucket, Key: one}
	require.NoError(t, s3.NewObjectExistsWaiter(client).Wait(t.Context(), head, time.Minute))
	_, err := client.PutObjectTagging(t.Context(), &s3.PutObjectTaggingInput{
		Bucket: bucket, Key: one,
		Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}},
	})
	require.NoError(t, err)
	tags, err := client.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: bucket, Key: one})
	require.NoError(t, err)
	assert.Len(t, tags.TagSet, 1)
	out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: one})
	require.NoError(t, err)
	assert.EqualValues(t, 19, b.Snapshot().Successes, "headers decide nothing")
	_, err = io.ReadAll(out.Body)
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	assert.EqualValues(t, 20, b.Snapshot().Successes)
	assert.EqualValues(t, 20, b.Snapshot().Calls)
}

// What the guide says of its listings.
func TestListingsOfSeaweedFS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	g, _ := breaker(t, resilience.Config{})
	for key, text := range map[string]string{
		"q/": "", "q/a": "x", "q/b": "x", ".uploads/a": "x", "in/.uploads/a": "x",
	} {
		_, err := g.PutObject(t.Context(), client, &s3.PutObjectInput{
			Bucket: aws.String(at.Bucket), Key: aws.String(key), Body: strings.NewReader(text),
		})
		require.NoError(t, err, key)
	}
	list := func(prefix string, atMost int32) (keys []string, token *string) {
		out, err := g.ListObjectsV2(t.Context(), client, &s3.ListObjectsV2Input{
			Bucket: aws.String(at.Bucket), Prefix: aws.String(prefix), MaxKeys: aws.Int32(atMost),
		})
		require.NoError(t, err)
		for _, o := range out.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
		return keys, out.NextContinuationToken
	}
	keys, token := list("q/", 1)
	assert.Equal(t, []string{"q/"}, keys)
	assert.Nil(t, token, "the listing ends")
	keys, _ = list("q/", 1000)
	assert.Equal(t, []string{"q/", "q/a", "q/b"}, keys)
	for _, prefix := range []string{".uploads/", "in/"} {
		keys, _ = list(prefix, 1000)
		assert.Empty(t, keys, "a folder .uploads is not listed")
	}
}
