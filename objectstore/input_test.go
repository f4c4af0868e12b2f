package objectstore_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// everyAndPresigning are the operations, and signing for them.
func everyAndPresigning(t *testing.T) []asked {
	sign := func(g objectstore.Guard, client *s3.Client, in objectstore.PresignInput) error {
		_, err := g.GeneratePresignedURL(t.Context(), s3.NewPresignClient(client), in)
		return err
	}
	bucket, key := aws.String("bucket"), aws.String("key")
	return append(every(t),
		asked{
			"presigned get", &s3.GetObjectInput{Bucket: bucket, Key: key},
			func(g objectstore.Guard, c *s3.Client, in any) error {
				return sign(g, c, objectstore.PresignInput{Get: in.(*s3.GetObjectInput)})
			},
		},
		asked{
			"presigned put", &s3.PutObjectInput{Bucket: bucket, Key: key},
			func(g objectstore.Guard, c *s3.Client, in any) error {
				return sign(g, c, objectstore.PresignInput{Put: in.(*s3.PutObjectInput)})
			},
		},
	)
}

// with is a copy of an input with another value in a field, or nil without the
// field.
func with(in any, field string, value *string) any {
	changed := reflect.New(reflect.TypeOf(in).Elem())
	changed.Elem().Set(reflect.ValueOf(in).Elem())
	at := changed.Elem().FieldByName(field)
	if !at.IsValid() {
		return nil
	}
	at.Set(reflect.ValueOf(value))
	return changed.Interface()
}

// noKeys are keys that a store takes for the bucket, or for another object.
var noKeys = []string{
	"", "/", "//", `\`, `/\/`, ".", "..", "./a", "../bucket/a", "a/../b", "a/.", "a/..", "a/./b",
	`..\bucket\a`, `a\..\b`,
}

// A bucket of "" made the key the name of a bucket: DeleteObject deleted the
// bucket of that name with its objects, and PutObject made one.
func TestInputsThatNameNothingAreNotSent(t *testing.T) {
	s := serve(t, says(200, ""))
	client := plainClient(s.URL)
	g, b := breaker(t, resilience.Config{})
	refused := func(op asked, in any, problem string) {
		t.Helper()
		var input *objectstore.InputError
		require.ErrorAs(t, op.call(g, client, in), &input, "%s: %+v", op.name, in)
		assert.Contains(t, input.Error(), problem, op.name)
	}
	for _, op := range everyAndPresigning(t) {
		problem := "is nil"
		if strings.HasPrefix(op.name, "presigned") {
			problem = "exactly one"
		}
		refused(op, reflect.Zero(reflect.TypeOf(op.in)).Interface(), problem)
		refused(op, with(op.in, "Bucket", nil), "Bucket")
		for _, bucket := range []string{"", "/", "bucket/", "/bucket", "a/b", `a\b`, ".", "..", "arn:a/b"} {
			refused(op, with(op.in, "Bucket", &bucket), "Bucket")
		}
		if with(op.in, "Key", nil) == nil {
			continue
		}
		refused(op, with(op.in, "Key", nil), "Key")
		for _, key := range noKeys {
			refused(op, with(op.in, "Key", &key), "Key")
		}
	}
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Failures+b.Snapshot().Denied+b.Snapshot().Throttled)
	assert.Equal(t, resilience.Closed, b.State())
}

func TestDeleteObjectsNamesEachKey(t *testing.T) {
	s := serve(t, says(200, ""))
	g, b := breaker(t, resilience.Config{})
	var input *objectstore.InputError
	del := func(d *types.Delete) error {
		in := &s3.DeleteObjectsInput{Bucket: aws.String("bucket"), Delete: d}
		_, err := g.DeleteObjects(t.Context(), plainClient(s.URL), in)
		return err
	}
	require.ErrorAs(t, del(nil), &input)
	for _, key := range append(noKeys, "nil") {
		last := types.ObjectIdentifier{Key: &key}
		if key == "nil" {
			last.Key = nil
		}
		err := del(&types.Delete{Objects: []types.ObjectIdentifier{{Key: aws.String("good")}, last}})
		require.ErrorAs(t, err, &input, "%q", key)
	}
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Failures)
}

// A source of "" or "junk" made an empty object of the target, whatever was
// there before.
func TestCopySourceNamesABucketAndAKey(t *testing.T) {
	s := serve(t, says(404, "NoSuchKey"))
	g, b := breaker(t, resilience.Config{})
	const point = "arn:aws:s3:eu-west-1:123456789012:accesspoint/point"
	try := func(source *string) error {
		_, err := g.CopyObject(t.Context(), plainClient(s.URL), &s3.CopyObjectInput{
			Bucket: aws.String("bucket"), Key: aws.String("key"), CopySource: source,
		})
		return err
	}
	var input *objectstore.InputError
	require.ErrorAs(t, try(nil), &input)
	for _, source := range []string{
		"", "junk", "junk%", "/", "//", "//key", "bucket", "/bucket", "bucket/", "/bucket/", "bucket%2F", "%2Fbucket",
		"?versionId=1", "bucket?versionId=1", "bucket/?versionId=1", "bucket?a/b", "bucket//", `bucket/\`,
		"bucket/..", "bucket/../other/key", "bucket/%2e%2E/other/key", "../bucket/key", "./key", `bucket\..\key`,
		`bucket/a\..\key`, point, point + "/object/", point + "/key",
	} {
		require.ErrorAs(t, try(&source), &input, "%q", source)
		assert.Contains(t, input.Error(), "CopySource")
	}
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Failures)
	good := []string{
		"bucket/key", "/bucket/key", "bucket/a/b", "bucket%2Fkey", "bucket/a%2Fb", "bucket/key?versionId=1",
		"bucket//key",
		"bucket/100%", "bucket/...", "bucket/a%3Fb", point + "/object/key", point + "/object/a/b?versionId=1",
	}
	for _, source := range good {
		require.Equal(t, 404, objectstore.StatusCode(try(&source)), "%q", source)
	}
	assert.EqualValues(t, len(good), s.requests.Load())
}

// What looks odd and is right is sent.
func TestOddNamesAreSent(t *testing.T) {
	s := serve(t, says(404, "NoSuchKey"))
	g, _ := breaker(t, resilience.Config{})
	head := func(bucket, key string) error {
		_, err := g.HeadObject(t.Context(), plainClient(s.URL), &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
		return err
	}
	for _, key := range []string{
		"...", ".a", "a.", "a/...", "a..b", "..a/b", " ", "/a", "a/", "a//b", "%2e%2e", `a\b`, "?", "#",
	} {
		require.Equal(t, 404, objectstore.StatusCode(head("bucket", key)), "%q", key)
	}
	for _, bucket := range []string{"a.b", "A_b", "tenant:bucket", "...", "%2e%2e", "a?b", "ü"} {
		require.Equal(t, 404, objectstore.StatusCode(head(bucket, "key")), "%q", bucket)
	}
}

// An access point is a bucket whose name has a slash.
func TestAccessPointsAreBuckets(t *testing.T) {
	g, _ := breaker(t, resilience.Config{})
	client := s3.New(s3.Options{Region: "eu-west-1", Credentials: plainClient("http://x").Options().Credentials})
	signed, err := g.GeneratePresignedURL(t.Context(), s3.NewPresignClient(client), objectstore.PresignInput{
		Get: &s3.GetObjectInput{
			Bucket: aws.String("arn:aws:s3:eu-west-1:123456789012:accesspoint/point"), Key: aws.String("key"),
		},
	})
	require.NoError(t, err)
	assert.Contains(t, signed.URL, "https://point-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/key?")
}

func TestNothingOfSeaweedFSIsLostToAnEmptyName(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	g, b := breaker(t, resilience.Config{})
	ctx, empty := t.Context(), aws.String("")
	put := func(bucket, key *string) error {
		in := &s3.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("text")}
		_, err := g.PutObject(ctx, client, in)
		return err
	}
	reports, key := aws.String("reports"), aws.String("key")
	require.NoError(t, put(reports, key))
	var input *objectstore.InputError
	_, err := g.DeleteObject(ctx, client, &s3.DeleteObjectInput{Bucket: empty, Key: reports})
	require.ErrorAs(t, err, &input)
	require.ErrorAs(t, put(empty, aws.String("made-by-an-empty-name")), &input)
	require.ErrorAs(t, put(reports, aws.String("/")), &input)
	for _, source := range []string{"", "junk", "reports", "?versionId=1"} {
		_, err = g.CopyObject(ctx, client, &s3.CopyObjectInput{Bucket: reports, Key: key, CopySource: &source})
		require.ErrorAs(t, err, &input)
	}
	head, err := g.HeadObject(ctx, client, &s3.HeadObjectInput{Bucket: reports, Key: key})
	require.NoError(t, err)
	assert.EqualValues(t, 4, aws.ToInt64(head.ContentLength))
	list, err := g.ListObjectsV2(ctx, client, &s3.ListObjectsV2Input{Bucket: reports})
	require.NoError(t, err)
	assert.Len(t, list.Contents, 1)
	_, err = g.HeadBucket(ctx, client, &s3.HeadBucketInput{Bucket: aws.String("made-by-an-empty-name")})
	require.Equal(t, 404, objectstore.StatusCode(err))
	assert.Zero(t, b.Snapshot().Failures)
}
