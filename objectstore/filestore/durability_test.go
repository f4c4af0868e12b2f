package filestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const writerFolder = "PENSTOCK_TEST_WRITER"

// TestMain is also the process that TestKillLeavesOldOrNew kills: it writes
// versions of one object for ever.
func TestMain(m *testing.M) {
	dir := os.Getenv(writerFolder)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := Open(dir)
	for i := 0; err == nil; i++ {
		body := bytes.Repeat([]byte{'a' + byte(i%26)}, 300_000)
		_, err = s.PutObject(context.Background(), &s3.PutObjectInput{
			Bucket: aws.String("bucket"), Key: aws.String("doc"), Body: bytes.NewReader(body),
			Metadata: map[string]string{"version": string(body[:1])},
		})
		_, _ = os.Stdout.WriteString(".")
	}
	os.Exit(1)
}

func TestKillLeavesOldOrNew(t *testing.T) {
	s, bucket := openTemp(t)
	put(t, s, bucket, "doc", strings.Repeat("a", 300_000))
	for round := range 20 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerFolder+"="+s.root.Name())
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 1+round%3)) // it is writing
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		got, err := s.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("doc")})
		require.NoError(t, err)
		body, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		require.Len(t, body, 300_000)
		require.Equal(t, len(body), bytes.Count(body, body[:1]), "a mixture")
		require.Equal(t, string(body[:1]), got.Metadata["version"], "metadata of another version")
		require.Equal(t, []string{"doc"}, listAll(t, s, bucket, 10))
	}
}

func TestOpenSweepsWhatTheKilledLeft(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	old, fresh, upload := filepath.Join(dir, tempDir, "old"), filepath.Join(dir, tempDir, "fresh"),
		filepath.Join(dir, uploadsDir, "old")
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, os.WriteFile(fresh, nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(upload, "part"), 0o700))
	past := time.Now().Add(-8 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(old, past, past))
	require.NoError(t, os.Chtimes(upload, past, past))
	s, err = Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	assert.NoFileExists(t, old)
	assert.NoDirExists(t, upload)
	assert.FileExists(t, fresh, "somebody may be writing it")
}

// awkward are keys that S3 keeps apart and most file systems do not.
var awkward = []string{
	"..", "../..", "../../etc/passwd", ".", "./a", "/", "//", "/a", "a", "a/", "a//", "a//b", "a/b", "a/.", "a/..",
	"A", "A/b", "a.",
	"back\\slash", strings.Repeat("é", 512), strings.Repeat("s", 300) + "/t", strings.Repeat("/", 64), "%", "%2e", "a@",
	"a+", "^a", "tab\t", "line\n",
	"con", "CON", "com1.txt", "~", ".tmp", ".uploads",
}

func TestAwkwardKeysStayApartAndInside(t *testing.T) {
	outer := t.TempDir()
	s, err := Open(filepath.Join(outer, "store"))
	require.NoError(t, err)
	defer s.Close()
	bucket := "bucket"
	_, err = s.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	require.NoError(t, err)
	for _, k := range awkward {
		put(t, s, bucket, k, "of "+k)
	}
	for _, k := range awkward {
		out, err := s.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &k})
		require.NoError(t, err, "key %q", k)
		body, err := io.ReadAll(out.Body)
		require.NoError(t, err)
		require.NoError(t, out.Body.Close())
		assert.Equal(t, "of "+k, string(body), "key %q", k)
	}
	assert.ElementsMatch(t, awkward, listAll(t, s, bucket, 5))
	entries, err := os.ReadDir(outer)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "something was written beside the store")
	for _, k := range awkward {
		_, err := s.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &k})
		require.NoError(t, err)
	}
	left, err := os.ReadDir(filepath.Join(outer, "store", bucket))
	require.NoError(t, err)
	assert.Empty(t, left, "empty folders stay behind")
}

func refusal(t *testing.T, err error) (int, string) {
	t.Helper()
	var resp *awshttp.ResponseError
	require.ErrorAs(t, err, &resp)
	code, _ := apiError(err)
	return resp.HTTPStatusCode(), code
}

func TestRefusals(t *testing.T) {
	s, bucket := openTemp(t)
	put(t, s, bucket, "doc", "text")
	in := func(change func(*s3.PutObjectInput)) *s3.PutObjectInput {
		p := &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("k"), Body: strings.NewReader("text")}
		change(p)
		return p
	}
	for _, row := range []struct {
		name   string
		in     *s3.PutObjectInput
		status int
		code   string
	}{
		{"no key", in(func(p *s3.PutObjectInput) { p.Key = nil }), 400, "InvalidArgument"},
		{"NUL", in(func(p *s3.PutObjectInput) { p.Key = aws.String("a\x00b") }), 400, "InvalidArgument"},
		{"not UTF-8", in(func(p *s3.PutObjectInput) { p.Key = aws.String("a\xff") }), 400, "InvalidArgument"},
		{
			"long", in(func(p *s3.PutObjectInput) { p.Key = aws.String(strings.Repeat("x", 1025)) }),
			400, "KeyTooLongError",
		},
		{"no bucket", in(func(p *s3.PutObjectInput) { p.Bucket = aws.String("none") }), 404, "NoSuchBucket"},
		{"bucket escapes", in(func(p *s3.PutObjectInput) { p.Bucket = aws.String("..") }), 400, "InvalidBucketName"},
		{"bucket is ours", in(func(p *s3.PutObjectInput) { p.Bucket = aws.String(".tmp") }), 400, "InvalidBucketName"},
		{
			"metadata", in(func(p *s3.PutObjectInput) { p.Metadata = map[string]string{"a": "é"} }),
			400, "InvalidArgument",
		},
		{
			"much metadata", in(
				func(p *s3.PutObjectInput) { p.Metadata = map[string]string{"a": strings.Repeat("x", 2048)} }),
			400, "MetadataTooLarge",
		},
		{"short body", in(func(p *s3.PutObjectInput) { p.ContentLength = aws.Int64(5) }), 400, "IncompleteBody"},
		{
			"other MD5", in(func(p *s3.PutObjectInput) { p.ContentMD5 = aws.String("1B2M2Y8AsgTpgAmY7PhCfg==") }),
			400, "BadDigest",
		},
		{"no MD5", in(func(p *s3.PutObjectInput) { p.ContentMD5 = aws.String("x") }), 400, "InvalidDigest"},
		{"If-None-Match", in(func(p *s3.PutObjectInput) { p.IfNoneMatch = aws.String(`"x"`) }), 501, "NotImplemented"},
		{
			"If-Match", in(func(p *s3.PutObjectInput) { p.Key, p.IfMatch = aws.String("doc"), aws.String(`"x"`) }),
			412, "PreconditionFailed",
		},
		{"If-Match of nothing", in(func(p *s3.PutObjectInput) { p.IfMatch = aws.String("*") }), 404, "NoSuchKey"},
	} {
		_, err := s.PutObject(t.Context(), row.in)
		status, code := refusal(t, err)
		assert.Equal(t, [2]any{row.status, row.code}, [2]any{status, code}, row.name)
	}
	assert.Equal(t, []string{"doc"}, listAll(t, s, bucket, 10))
	temp, err := fs.ReadDir(s.root.FS(), tempDir)
	require.NoError(t, err)
	assert.Empty(t, temp, "temporary files")
}

func TestReaderErrorIsReturnedAndNothingIsStored(t *testing.T) {
	s, bucket := openTemp(t)
	boom := errors.New("boom")
	_, err := s.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: aws.String("k"), Body: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(boom)),
	})
	require.ErrorIs(t, err, boom)
	assert.Empty(t, listAll(t, s, bucket, 10))
}

func TestDamagedFileIsAnErrorNotAnAnswer(t *testing.T) {
	s, bucket := openTemp(t)
	put(t, s, bucket, "doc", "text")
	file := filepath.Join(s.root.Name(), bucket, objectPath("doc"))
	require.NoError(t, os.Truncate(file, 6))
	_, err := s.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("doc")})
	status, code := refusal(t, err)
	assert.Equal(t, [2]any{500, "InternalError"}, [2]any{status, code})
	require.ErrorIs(t, err, errForeign)
}

// One damaged file made every listing fail that came across it, so that nobody
// could find it, replace it or delete it.
func TestDamagedFileIsListedAsEmpty(t *testing.T) {
	s, bucket := openTemp(t)
	put(t, s, bucket, "doc", "text")
	put(t, s, bucket, "other", "text")
	file := filepath.Join(s.root.Name(), bucket, objectPath("doc"))
	require.NoError(t, os.Truncate(file, 6))
	listing, err := s.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	require.NoError(t, err)
	require.Len(t, listing.Contents, 2)
	damaged := listing.Contents[0]
	assert.Equal(t, "doc", *damaged.Key)
	assert.Zero(t, *damaged.Size)
	assert.Empty(t, *damaged.ETag)
	assert.False(t, damaged.LastModified.IsZero())

	put(t, s, bucket, "doc", "text again")
	again, err := s.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: aws.String("doc")})
	require.NoError(t, err)
	assert.EqualValues(t, len("text again"), *again.ContentLength)
	require.NoError(t, os.Truncate(file, 6))
	_, err = s.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String("doc")})
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, listAll(t, s, bucket, 10))
}

func TestReaderKeepsItsVersion(t *testing.T) {
	s, bucket := openTemp(t)
	put(t, s, bucket, "doc", "old")
	out, err := s.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("doc")})
	require.NoError(t, err)
	put(t, s, bucket, "doc", "new")
	_, err = s.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String("doc")})
	require.NoError(t, err)
	body, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	assert.Equal(t, "old", string(body))
}

func TestSymbolicLinkDoesNotLeadOut(t *testing.T) {
	s, bucket := openTemp(t)
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(s.root.Name(), bucket, "out")))
	_, err := s.PutObject(t.Context(),
		&s3.PutObjectInput{Bucket: &bucket, Key: aws.String("out/k"), Body: strings.NewReader("x")})
	require.Error(t, err)
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestDeleteObjectsReportsEachKey(t *testing.T) {
	s, bucket := openTemp(t)
	put(t, s, bucket, "a", "x")
	out, err := s.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{
		Objects: []types.ObjectIdentifier{{Key: aws.String("a")}, {Key: aws.String("a\x00")}},
	}})
	require.NoError(t, err)
	require.Len(t, out.Deleted, 1)
	require.Len(t, out.Errors, 1)
	assert.Equal(t, "InvalidArgument", aws.ToString(out.Errors[0].Code))
	_, err = s.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{}})
	_, code := refusal(t, err)
	assert.Equal(t, "MalformedXML", code)
}
