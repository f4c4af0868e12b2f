// Package objectstoretest checks that a backend does what the doors of package
// objectstore and their callers rely on. Run it over your own store, or over a
// decorator of one:
//
//	func TestConformance(t *testing.T) {
//		objectstoretest.Run(t, func(t *testing.T) (objectstoretest.API, string) {
//			return myStore, "an-existing-bucket"
//		})
//	}
//
// The suite runs over package filestore and over a real SeaweedFS.
package objectstoretest

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
)

// API is everything that the doors call. *s3.Client has it.
type API interface {
	objectstore.Reader
	objectstore.Uploader
}

// Run runs the suite. open returns the backend and the name of a bucket that
// exists; it is called once for each part of the suite, and the suite uses
// keys of its own below a prefix of the part's name, so one bucket will do.
func Run(t *testing.T, open func(t *testing.T) (API, string)) {
	for _, part := range []struct {
		name string
		run  func(*suite)
	}{
		{"put-get", (*suite).putGet},
		{"metadata", (*suite).metadata},
		{"missing", (*suite).missing},
		{"range", (*suite).ranges},
		{"conditions", (*suite).conditions},
		{"create-once", (*suite).createOnce},
		{"keys", (*suite).keys},
		{"list", (*suite).list},
		{"delete", (*suite).remove},
		{"copy", (*suite).copies},
		{"buckets", (*suite).buckets},
		{"multipart", (*suite).multipart},
		{"cancelled", (*suite).cancelled},
		{"overwrite", (*suite).overwrite},
	} {
		t.Run(part.name, func(t *testing.T) {
			api, bucket := open(t)
			part.run(&suite{t, api, aws.String(bucket), part.name + "/"})
		})
	}
}

type suite struct {
	*testing.T
	api    API
	bucket *string
	prefix string
}

func (s *suite) key(name string) *string { return aws.String(s.prefix + name) }

func (s *suite) put(name, body string) *s3.PutObjectOutput {
	s.Helper()
	out, err := s.api.PutObject(
		s.Context(),
		&s3.PutObjectInput{Bucket: s.bucket, Key: s.key(name), Body: strings.NewReader(body)},
	)
	require.NoError(s, err, "put %q", name)
	return out
}

func (s *suite) get(in *s3.GetObjectInput) (string, *s3.GetObjectOutput) {
	s.Helper()
	in.Bucket = s.bucket
	out, err := s.api.GetObject(s.Context(), in)
	require.NoError(s, err, "get %q", aws.ToString(in.Key))
	body, err := io.ReadAll(out.Body)
	require.NoError(s, err)
	require.NoError(s, out.Body.Close())
	return string(body), out
}

// refused holds an error against a status and a code; "" takes any code.
func (s *suite) refused(err error, status int, codes ...string) {
	s.Helper()
	var op *smithy.OperationError
	var resp *awshttp.ResponseError
	var api smithy.APIError
	require.ErrorAs(s, err, &op)
	require.ErrorAs(s, err, &resp)
	assert.Equal(s, status, resp.HTTPStatusCode())
	require.ErrorAs(s, err, &api)
	if len(codes) > 0 {
		assert.Contains(s, codes, api.ErrorCode())
	}
}

func etagOf(body string) string {
	sum := md5.Sum([]byte(body))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *suite) putGet() {
	for _, size := range []int{0, 1, 1000, 1 << 20} {
		body := strings.Repeat("x", size)
		name := fmt.Sprintf("size-%d", size)
		out := s.put(name, body)
		assert.Equal(s, etagOf(body), aws.ToString(out.ETag))
		got, head := s.get(&s3.GetObjectInput{Key: s.key(name)})
		assert.True(s, body == got, "the body of %d bytes came back with %d", size, len(got))
		assert.Equal(s, int64(size), aws.ToInt64(head.ContentLength))
		assert.Equal(s, etagOf(body), aws.ToString(head.ETag))
	}
}

func (s *suite) metadata() {
	_, err := s.api.PutObject(s.Context(), &s3.PutObjectInput{
		Bucket: s.bucket, Key: s.key("doc"), Body: strings.NewReader("text"),
		ContentType: aws.String("text/markdown"), Metadata: map[string]string{"Source": "a%20b", "lang": "en"},
	})
	require.NoError(s, err)
	head, err := s.api.HeadObject(s.Context(), &s3.HeadObjectInput{Bucket: s.bucket, Key: s.key("doc")})
	require.NoError(s, err)
	assert.Equal(s, "text/markdown", aws.ToString(head.ContentType))
	assert.Equal(s, map[string]string{"source": "a%20b", "lang": "en"}, head.Metadata)
	assert.Equal(s, int64(4), aws.ToInt64(head.ContentLength))
	assert.Equal(s, etagOf("text"), aws.ToString(head.ETag))
	require.NotNil(s, head.LastModified)
	_, got := s.get(&s3.GetObjectInput{Key: s.key("doc")})
	assert.Equal(s, head.Metadata, got.Metadata)
	assert.Equal(s, "text/markdown", aws.ToString(got.ContentType))
}

func (s *suite) missing() {
	_, err := s.api.GetObject(s.Context(), &s3.GetObjectInput{Bucket: s.bucket, Key: s.key("no")})
	s.refused(err, 404, "NoSuchKey")
	var noKey *types.NoSuchKey
	assert.ErrorAs(s, err, &noKey)
	_, err = s.api.HeadObject(s.Context(), &s3.HeadObjectInput{Bucket: s.bucket, Key: s.key("no")})
	s.refused(err, 404, "NotFound")
	var notFound *types.NotFound
	assert.ErrorAs(s, err, &notFound)
}

func (s *suite) ranges() {
	s.put("digits", "0123456789")
	for header, want := range map[string]string{
		"bytes=0-0": "0", "bytes=3-5": "345", "bytes=8-": "89", "bytes=-2": "89", "bytes=5-100": "56789",
	} {
		got, out := s.get(&s3.GetObjectInput{Key: s.key("digits"), Range: aws.String(header)})
		assert.Equal(s, want, got, header)
		assert.Equal(s, int64(len(want)), aws.ToInt64(out.ContentLength), header)
		assert.Contains(s, aws.ToString(out.ContentRange), "/10", header)
	}
	_, err := s.api.GetObject(
		s.Context(),
		&s3.GetObjectInput{Bucket: s.bucket, Key: s.key("digits"), Range: aws.String("bytes=10-")},
	)
	s.refused(err, 416)
}

func (s *suite) conditions() {
	etag := s.put("doc", "v1").ETag
	_, err := s.api.GetObject(s.Context(), &s3.GetObjectInput{Bucket: s.bucket, Key: s.key("doc"), IfNoneMatch: etag})
	s.refused(err, 304)
	_, err = s.api.HeadObject(s.Context(), &s3.HeadObjectInput{Bucket: s.bucket, Key: s.key("doc"), IfNoneMatch: etag})
	s.refused(err, 304)
	_, err = s.api.GetObject(
		s.Context(),
		&s3.GetObjectInput{Bucket: s.bucket, Key: s.key("doc"), IfMatch: aws.String(etagOf("v2"))},
	)
	s.refused(err, 412, "PreconditionFailed")
	got, _ := s.get(&s3.GetObjectInput{Key: s.key("doc"), IfMatch: etag})
	assert.Equal(s, "v1", got)
	got, _ = s.get(&s3.GetObjectInput{Key: s.key("doc"), IfNoneMatch: aws.String(etagOf("v2"))})
	assert.Equal(s, "v1", got)
}

func (s *suite) createOnce() {
	create := func(body string) error {
		_, err := s.api.PutObject(s.Context(), &s3.PutObjectInput{
			Bucket: s.bucket, Key: s.key("lease"), Body: strings.NewReader(body), IfNoneMatch: aws.String("*"),
		})
		return err
	}
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if create(strconv.Itoa(i)) == nil {
				won.Add(1)
			}
		})
	}
	group.Wait()
	assert.Equal(s, int32(1), won.Load(), "writers that created the one object")
	before, _ := s.get(&s3.GetObjectInput{Key: s.key("lease")})
	s.refused(create("late"), 412, "PreconditionFailed")
	after, _ := s.get(&s3.GetObjectInput{Key: s.key("lease")})
	assert.Equal(s, before, after)
}

// awkwardKeys are keys that every backend must keep apart.
var awkwardKeys = []string{
	"plain", "Plain", "PLAIN", "with space", " lead", "a+b", "a%20b", "a&b=c", "q?x#y", "'quote\"",
	"ünï/çødé", "文書/資料.txt",
	"emoji 🚰", "tilde~", "star*", "pipe|", "colon:", "comma,semi;", "deep/er/and/deep/er/still",
	".hidden", "dots..dots",
	"con", "nul.txt", "e\u0301", "\u00e9", strings.Repeat("long", 50),
	"(paren)[bracket]{brace}<angle>", "$dollar^caret`tick",
}

func (s *suite) keys() {
	for _, k := range awkwardKeys {
		s.put(k, "content of "+k)
	}
	for _, k := range awkwardKeys {
		got, _ := s.get(&s3.GetObjectInput{Key: s.key(k)})
		assert.Equal(s, "content of "+k, got, "key %q", k)
	}
	want := make([]string, 0, len(awkwardKeys))
	for _, k := range awkwardKeys {
		want = append(want, s.prefix+k)
	}
	slices.Sort(want)
	got, _ := s.listing(&s3.ListObjectsV2Input{MaxKeys: aws.Int32(7)})
	slices.Sort(got) // the order of bytes is the list part's matter
	assert.Equal(s, want, got)
}

// listing reads all pages below the suite's prefix.
func (s *suite) listing(in *s3.ListObjectsV2Input) (keys, prefixes []string) {
	s.Helper()
	in.Bucket, in.Prefix = s.bucket, aws.String(s.prefix+aws.ToString(in.Prefix))
	pages := s3.NewListObjectsV2Paginator(s.api, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(s.Context())
		require.NoError(s, err)
		if in.MaxKeys != nil {
			assert.LessOrEqual(s, len(page.Contents)+len(page.CommonPrefixes), int(*in.MaxKeys))
		}
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
		for _, p := range page.CommonPrefixes {
			prefixes = append(prefixes, aws.ToString(p.Prefix))
		}
	}
	return keys, prefixes
}

func (s *suite) under(names ...string) (keys []string) {
	for _, n := range names {
		keys = append(keys, s.prefix+n)
	}
	return keys
}

func (s *suite) list() {
	names := []string{"a/1", "a/2", "a/b/3", "b.txt", "c/4", "d"}
	for _, n := range names {
		s.put(n, n)
	}
	for size := range int32(8) {
		in := func() *s3.ListObjectsV2Input {
			if size == 0 {
				return &s3.ListObjectsV2Input{}
			}
			return &s3.ListObjectsV2Input{MaxKeys: aws.Int32(size)}
		}
		keys, _ := s.listing(in())
		assert.Equal(s, s.under(names...), keys, "pages of %d", size)

		folders := in()
		folders.Delimiter = aws.String("/")
		keys, prefixes := s.listing(folders)
		assert.Equal(s, s.under("b.txt", "d"), keys, "pages of %d", size)
		assert.Equal(s, s.under("a/", "c/"), prefixes, "pages of %d", size)

		inside := in()
		inside.Delimiter, inside.Prefix = aws.String("/"), aws.String("a/")
		keys, prefixes = s.listing(inside)
		assert.Equal(s, s.under("a/1", "a/2"), keys, "pages of %d", size)
		assert.Equal(s, s.under("a/b/"), prefixes, "pages of %d", size)
	}
	partial := &s3.ListObjectsV2Input{Prefix: aws.String("b.")}
	keys, _ := s.listing(partial)
	assert.Equal(s, s.under("b.txt"), keys)
	none, _ := s.listing(&s3.ListObjectsV2Input{Prefix: aws.String("zzz")})
	assert.Empty(s, none)
	s.entries()
}

func (s *suite) entries() {
	out, err := s.api.ListObjectsV2(s.Context(), &s3.ListObjectsV2Input{
		Bucket: s.bucket, Prefix: aws.String(s.prefix), StartAfter: s.key("c/4"),
	})
	require.NoError(s, err)
	require.Len(s, out.Contents, 1)
	assert.Equal(s, s.prefix+"d", aws.ToString(out.Contents[0].Key))
	assert.Equal(s, int64(1), aws.ToInt64(out.Contents[0].Size))
	assert.Equal(s, etagOf("d"), aws.ToString(out.Contents[0].ETag))
	assert.NotNil(s, out.Contents[0].LastModified)
}

func (s *suite) remove() {
	for _, n := range []string{"1", "2", "3", "x/y/z"} {
		s.put(n, n)
	}
	for _, n := range []string{"x/y/z", "x/y/z", "never"} { // deleting nothing succeeds
		_, err := s.api.DeleteObject(s.Context(), &s3.DeleteObjectInput{Bucket: s.bucket, Key: s.key(n)})
		require.NoError(s, err, "delete %q", n)
	}
	out, err := s.api.DeleteObjects(s.Context(), &s3.DeleteObjectsInput{
		Bucket: s.bucket, Delete: &types.Delete{Objects: []types.ObjectIdentifier{
			{Key: s.key("1")},
			{Key: s.key("2")},
			{Key: s.key("never")},
		}},
	})
	require.NoError(s, err)
	assert.Empty(s, out.Errors)
	keys, _ := s.listing(&s3.ListObjectsV2Input{})
	assert.Equal(s, s.under("3"), keys)
}

func (s *suite) copies() {
	_, err := s.api.PutObject(s.Context(), &s3.PutObjectInput{
		Bucket: s.bucket, Key: s.key("from"), Body: strings.NewReader("text"),
		ContentType: aws.String("text/plain"), Metadata: map[string]string{"a": "1"},
	})
	require.NoError(s, err)
	source := aws.String(*s.bucket + "/" + *s.key("from"))
	_, err = s.api.CopyObject(s.Context(), &s3.CopyObjectInput{Bucket: s.bucket, Key: s.key("to"), CopySource: source})
	require.NoError(s, err)
	got, out := s.get(&s3.GetObjectInput{Key: s.key("to")})
	assert.Equal(s, "text", got)
	assert.Equal(s, "text/plain", aws.ToString(out.ContentType))
	assert.Equal(s, map[string]string{"a": "1"}, out.Metadata)
	_, err = s.api.CopyObject(s.Context(), &s3.CopyObjectInput{
		Bucket: s.bucket, Key: s.key("replaced"), CopySource: source,
		MetadataDirective: types.MetadataDirectiveReplace, Metadata: map[string]string{"b": "2"},
	})
	require.NoError(s, err)
	_, out = s.get(&s3.GetObjectInput{Key: s.key("replaced")})
	assert.Equal(s, map[string]string{"b": "2"}, out.Metadata)
	_, err = s.api.CopyObject(s.Context(), &s3.CopyObjectInput{
		Bucket: s.bucket, Key: s.key("to"), CopySource: aws.String(*s.bucket + "/" + s.prefix + "no"),
	})
	s.refused(err, 404, "NoSuchKey")
}

func (s *suite) buckets() {
	_, err := s.api.HeadBucket(s.Context(), &s3.HeadBucketInput{Bucket: s.bucket})
	require.NoError(s, err)
	_, err = s.api.HeadBucket(s.Context(), &s3.HeadBucketInput{Bucket: aws.String("penstock-no-such-bucket")})
	s.refused(err, 404, "NotFound", "NoSuchBucket")
	var notFound *types.NotFound
	assert.ErrorAs(s, err, &notFound)
	_, err = s.api.CreateBucket(s.Context(), &s3.CreateBucketInput{Bucket: s.bucket})
	s.refused(err, 409, "BucketAlreadyOwnedByYou", "BucketAlreadyExists")
}

func (s *suite) begin(name string) *string {
	s.Helper()
	out, err := s.api.CreateMultipartUpload(s.Context(), &s3.CreateMultipartUploadInput{
		Bucket: s.bucket, Key: s.key(name), Metadata: map[string]string{"a": "1"},
	})
	require.NoError(s, err)
	return out.UploadId
}

func (s *suite) part(name string, id *string, number int32, body []byte) types.CompletedPart {
	s.Helper()
	out, err := s.api.UploadPart(s.Context(), &s3.UploadPartInput{
		Bucket: s.bucket, Key: s.key(name), UploadId: id, PartNumber: aws.Int32(number), Body: bytes.NewReader(body),
	})
	require.NoError(s, err)
	return types.CompletedPart{PartNumber: aws.Int32(number), ETag: out.ETag}
}

func (s *suite) multipart() {
	first, second := bytes.Repeat([]byte("a"), 5<<20), []byte("end")
	id := s.begin("big")
	parts := []types.CompletedPart{s.part("big", id, 1, first), s.part("big", id, 2, second)}
	keys, _ := s.listing(&s3.ListObjectsV2Input{})
	assert.Empty(s, keys, "an upload is not an object before it is complete")
	_, err := s.api.CompleteMultipartUpload(s.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: s.bucket, Key: s.key("big"), UploadId: id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	require.NoError(s, err)
	got, out := s.get(&s3.GetObjectInput{Key: s.key("big")})
	assert.True(s, string(first)+string(second) == got, "the parts came back as %d bytes", len(got))
	assert.Equal(s, map[string]string{"a": "1"}, out.Metadata)
	assert.Contains(s, aws.ToString(out.ETag), "-2")

	id = s.begin("aborted")
	s.part("aborted", id, 1, second)
	_, err = s.api.AbortMultipartUpload(
		s.Context(),
		&s3.AbortMultipartUploadInput{Bucket: s.bucket, Key: s.key("aborted"), UploadId: id},
	)
	require.NoError(s, err)
	_, err = s.api.CompleteMultipartUpload(s.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: s.bucket, Key: s.key("aborted"), UploadId: id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{parts[1]}},
	})
	s.refused(err, 404, "NoSuchUpload")
}

func (s *suite) cancelled() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, err := s.api.PutObject(ctx, &s3.PutObjectInput{Bucket: s.bucket, Key: s.key("k"), Body: strings.NewReader("x")})
	require.ErrorIs(s, err, context.Canceled)
	_, err = s.api.HeadObject(s.Context(), &s3.HeadObjectInput{Bucket: s.bucket, Key: s.key("k")})
	s.refused(err, 404)
}

// overwrite has readers look at an object while it is replaced: they see one
// version or another, never a mixture.
func (s *suite) overwrite() {
	version := func(i int) string { return strings.Repeat(strconv.Itoa(i%10), 100_000) }
	s.put("doc", version(0))
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := s.whole(); err != nil {
					assert.NoError(s, err)
					return
				}
			}
		})
	}
	for i := range 20 {
		s.put("doc", version(i))
	}
	close(done)
	group.Wait()
}

var errMixture = errors.New("a reader saw a mixture of two versions")

func (s *suite) whole() error {
	out, err := s.api.GetObject(s.Context(), &s3.GetObjectInput{Bucket: s.bucket, Key: s.key("doc")})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	if err != nil {
		return err
	}
	if len(body) != 100_000 || strings.Count(string(body), string(body[:1])) != len(body) {
		return errMixture
	}
	return nil
}
