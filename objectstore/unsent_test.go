package objectstore_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// asked is an operation of the door and the input that it is called with.
type asked struct {
	name string
	in   any // a pointer to the SDK's struct
	call func(g objectstore.Guard, client *s3.Client, in any) error
}

// on is an operation that is a method of the guard, with a client of type C.
func on[C, In, Out any](
	ctx context.Context, name string, in *In,
	method func(objectstore.Guard, context.Context, C, *In, ...func(*s3.Options)) (*Out, error),
) asked {
	return asked{name, in, func(g objectstore.Guard, client *s3.Client, in any) error {
		_, err := method(g, ctx, any(client).(C), in.(*In))
		return err
	}}
}

func every(t *testing.T) []asked {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	ctx, bucket, key := t.Context(), aws.String("bucket"), aws.String("key")
	deleted := &s3.DeleteObjectsInput{
		Bucket: bucket, Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: key}}},
	}
	download := func(
		g objectstore.Guard, ctx context.Context, c objectstore.Reader, in *s3.GetObjectInput, o ...func(*s3.Options),
	) (*objectstore.DownloadFileOutput, error) {
		return g.DownloadFile(ctx, c, in, file, o...)
	}
	upload := func(options ...func(*transfermanager.Options)) func(objectstore.Guard, *s3.Client, any) error {
		return func(g objectstore.Guard, c *s3.Client, in any) error {
			_, err := g.UploadFile(ctx, c, in.(*transfermanager.UploadObjectInput), file, options...)
			return err
		}
	}
	uploaded := &transfermanager.UploadObjectInput{Bucket: bucket, Key: key}
	inParts := func(o *transfermanager.Options) { o.MultipartUploadThreshold, o.Concurrency = 1, 1 }
	copied := &s3.CopyObjectInput{Bucket: bucket, Key: key, CopySource: aws.String("bucket/from")}
	return []asked{
		on(ctx, "PutObject", &s3.PutObjectInput{Bucket: bucket, Key: key}, objectstore.Guard.PutObject),
		on(ctx, "GetObject", &s3.GetObjectInput{Bucket: bucket, Key: key}, objectstore.Guard.GetObject),
		on(ctx, "DownloadFile", &s3.GetObjectInput{Bucket: bucket, Key: key}, download),
		on(ctx, "HeadObject", &s3.HeadObjectInput{Bucket: bucket, Key: key}, objectstore.Guard.HeadObject),
		on(ctx, "DeleteObject", &s3.DeleteObjectInput{Bucket: bucket, Key: key}, objectstore.Guard.DeleteObject),
		on(ctx, "DeleteObjects", deleted, objectstore.Guard.DeleteObjects),
		on(ctx, "ListObjectsV2", &s3.ListObjectsV2Input{Bucket: bucket}, objectstore.Guard.ListObjectsV2),
		on(ctx, "CopyObject", copied, objectstore.Guard.CopyObject),
		on(ctx, "HeadBucket", &s3.HeadBucketInput{Bucket: bucket}, objectstore.Guard.HeadBucket),
		on(ctx, "CreateBucket", &s3.CreateBucketInput{Bucket: bucket}, objectstore.Guard.CreateBucket),
		{"UploadFile", uploaded, upload()},
		{"UploadFile parts", uploaded, upload(inParts)},
	}
}

// inURL are the fields that go into the URL, which can carry any text.
var inURL = map[string]bool{
	"Bucket": true, "Key": true, "VersionId": true, "VersionID": true, "Prefix": true, "Delimiter": true,
	"ContinuationToken": true, "StartAfter": true, "EncodingType": true,
	"ResponseCacheControl": true, "ResponseContentDisposition": true, "ResponseContentEncoding": true,
	"ResponseContentLanguage": true, "ResponseContentType": true,
}

// unused are fields that go into no request that is made here.
var unused = map[string]map[string]bool{
	"UploadFile":       {"ChecksumType": true},
	"UploadFile parts": afterwards,
}

// afterwards are the fields of the requests after the first one of an upload,
// which is refused.
var afterwards = map[string]bool{
	"ChecksumCRC32": true, "ChecksumCRC32C": true, "ChecksumCRC64NVME": true, "ChecksumMD5": true,
	"ChecksumSHA1": true, "ChecksumSHA256": true, "ChecksumSHA512": true, "ChecksumXXHASH128": true,
	"ChecksumXXHASH3": true, "ChecksumXXHASH64": true, "ContentMD5": true, "IfMatch": true, "IfNoneMatch": true,
}

// texts calls use for each field of a struct that is a text, with a copy of the
// struct in which the field is value.
func texts(in any, value string, use func(field string, in any)) {
	base := reflect.ValueOf(in).Elem()
	for i := range base.NumField() {
		field := base.Type().Field(i)
		changed := reflect.New(base.Type())
		changed.Elem().Set(base)
		at := changed.Elem().Field(i)
		switch {
		case !field.IsExported():
			continue
		case field.Type == reflect.TypeFor[*string]():
			at.Set(reflect.ValueOf(&value))
		case field.Type.Kind() == reflect.String:
			at.SetString(value)
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.String:
			at.Set(reflect.MakeSlice(field.Type, 1, 1))
			at.Index(0).SetString(value)
		default:
			continue
		}
		use(field.Name, changed.Interface())
	}
}

// A bad value in a header other than metadata was refused by net/http, and five
// of these opened the breaker.
func TestBadTextInAnyFieldIsNoFailure(t *testing.T) {
	s := serve(t, says(404, "NoSuchKey"))
	looked := 0
	for name, client := range map[string]*s3.Client{
		"plain": plainClient(s.URL), "NewClient": newClient(t, objectstore.Config{Endpoint: s.URL}),
	} {
		for _, op := range every(t) {
			for i, bad := range []string{"a\nb", "a\x00b", "a\x7fb", "a\tb", "a\r\nX-Evil: 1", "\xff"} {
				if op.name == "UploadFile parts" && i > 0 {
					break // it has buffers of 8 MiB
				}
				texts(op.in, bad, func(field string, in any) {
					at := fmt.Sprintf("%s, %s.%s = %q", name, op.name, field, bad)
					s.requests.Store(0)
					g, b := breaker(t, resilience.Config{})
					for range 5 {
						require.NotErrorIs(t, op.call(g, client, in), resilience.ErrOpen, at)
					}
					counted := b.Snapshot()
					assert.Zero(t, counted.Failures+counted.Denied+counted.Throttled, at)
					elsewhere := inURL[field] && bad != "\xff" || unused[op.name][field]
					if !elsewhere {
						assert.Zero(t, s.requests.Load(), at)
					}
					looked++
				})
			}
		}
	}
	assert.Greater(t, looked, 1000)
}

func TestBadHeaderIsNamed(t *testing.T) {
	s := serve(t, says(200, ""))
	for problem, bad := range map[string]string{
		"Content-Disposition has the control character U+000A": "a\nb",
		"Content-Disposition is not valid UTF-8":               "a\xffb",
	} {
		g, b := breaker(t, resilience.Config{})
		in := put("key", "text")
		in.ContentDisposition = &bad
		_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
		var input *objectstore.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, "PutObject", input.Op)
		assert.Contains(t, err.Error(), problem)
		assert.EqualValues(t, 1, b.Snapshot().Ignored)
		in.ContentDisposition = nil
		header := s3.WithAPIOptions(smithyhttp.AddHeaderValue("X-Own", bad))
		_, err = g.GeneratePresignedURL(t.Context(), s3.NewPresignClient(plainClient(s.URL)),
			objectstore.PresignInput{Get: get("key")}, s3.WithPresignClientFromClientOptions(header))
		require.ErrorAs(t, err, &input)
		assert.Contains(t, err.Error(), "X-Own")
		_, err = g.PutObject(t.Context(), plainClient(s.URL), in, header)
		require.ErrorAs(t, err, &input)
		assert.Contains(t, err.Error(), "X-Own")
		header = s3.WithAPIOptions(smithyhttp.AddHeaderValue("X Own", "a"))
		_, err = g.PutObject(t.Context(), plainClient(s.URL), in, header)
		require.ErrorAs(t, err, &input)
	}
	assert.Zero(t, s.requests.Load())
}

// Text in UTF-8 survives on every store that was tried; it is sent.
func TestTextInHeadersMayBeUnicode(t *testing.T) {
	var got string
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Content-Disposition") })
	g, _ := breaker(t, resilience.Config{})
	in := put("key", "text")
	in.ContentDisposition = aws.String(`attachment; filename="ü 文.txt"`)
	_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
	require.NoError(t, err)
	assert.Equal(t, *in.ContentDisposition, got)
}

// deaf is a client that ignores the options of a call.
type deaf struct{ *s3.Client }

func (d deaf) PutObject(
	ctx context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	return d.Client.PutObject(ctx, in)
}

func TestUnsentIsNoFailureOfAClientThatIgnoresOptions(t *testing.T) {
	s := serve(t, says(404, "NoSuchKey"))
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	texts(&s3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}, "a\nb", func(field string, in any) {
		g, b := breaker(t, resilience.Config{})
		for range 5 {
			in := in.(*s3.PutObjectInput)
			in.Body = strings.NewReader("text")
			_, err := g.PutObject(t.Context(), deaf{client}, in)
			require.Error(t, err, field)
		}
		assert.Equal(t, resilience.Closed, b.State(), field)
		assert.Zero(t, b.Snapshot().Failures, field)
	})
}

// refusals are inputs that neither PutObject nor signing for it takes.
func refusals() map[string]*s3.PutObjectInput {
	return map[string]*s3.PutObjectInput{
		"metadata":       {Metadata: map[string]string{"title": "é"}},
		"metadata break": {Metadata: map[string]string{"title": "a\nb"}},
		"metadata name":  {Metadata: map[string]string{"a b": "x"}},
		"disposition":    {ContentDisposition: aws.String("a\nb")},
		"type":           {ContentType: aws.String("a\nb")},
		"cache":          {CacheControl: aws.String("a\rb")},
		"tagging":        {Tagging: aws.String("a=\x00")},
		"owner":          {ExpectedBucketOwner: aws.String("a\nb")},
		"customer key":   {SSECustomerKeyMD5: aws.String("a\nb")},
		"condition":      {IfMatch: aws.String("a\nb")},
		"no UTF-8":       {Key: aws.String("\xff")},
		"length":         {Body: strings.NewReader("text"), ContentLength: aws.Int64(3)},
	}
}

// Signing accepted what PutObject refuses, and the URL failed in the hands of
// somebody else.
func TestPresigningRefusesWhatPutObjectRefuses(t *testing.T) {
	s := serve(t, says(200, ""))
	client := plainClient(s.URL)
	g, b := breaker(t, resilience.Config{})
	var input *objectstore.InputError
	for name, in := range refusals() {
		in.Bucket = aws.String("bucket")
		if in.Key == nil {
			in.Key = aws.String("key")
		}
		_, err := g.GeneratePresignedURL(t.Context(), s3.NewPresignClient(client), objectstore.PresignInput{Put: in})
		require.ErrorAs(t, err, &input, name)
		if in.Body == nil {
			in.Body = strings.NewReader("text")
		}
		_, err = g.PutObject(t.Context(), client, in)
		require.ErrorAs(t, err, &input, name)
	}
	base := &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}
	texts(base, "a\nb", func(field string, in any) {
		if inURL[field] || field == "ChecksumMode" {
			return
		}
		_, err := g.GeneratePresignedURL(
			t.Context(), s3.NewPresignClient(client), objectstore.PresignInput{Get: in.(*s3.GetObjectInput)})
		require.ErrorAs(t, err, &input, field)
	})
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Failures)
}

// A store that is asked to delete a key which XML cannot carry says that it has
// deleted it, and has looked for another one.
func TestKeysThatXMLCannotCarryAreNotDeletedByAnotherName(t *testing.T) {
	s := serve(t, says(200, ""))
	g, b := breaker(t, resilience.Config{})
	for _, key := range []string{"a\x01b", "a\x00", "\ufffe", "\uffff", "\xff"} {
		in := &s3.DeleteObjectsInput{Bucket: aws.String("bucket"), Delete: &types.Delete{
			Objects: []types.ObjectIdentifier{{Key: aws.String("good")}, {Key: &key}},
		}}
		_, err := g.DeleteObjects(t.Context(), plainClient(s.URL), in)
		var input *objectstore.InputError
		require.ErrorAs(t, err, &input, "%q", key)
		assert.Contains(t, err.Error(), "DeleteObject")
	}
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Failures)
}
