package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A large folder is read once for a listing, and again when it has changed.
func TestLargeFolderIsRemembered(t *testing.T) {
	s, bucket := openTemp(t)
	dir := s.root.Name()
	key := func(i int) string { return fmt.Sprintf("k/%04d/a", i) }
	var want []string
	put(t, s, bucket, key(0), "")
	object, err := os.ReadFile(filepath.Join(dir, bucket, "k", "0000", "a@"))
	require.NoError(t, err)
	for i := range 1100 { // 1,100 puts would take seconds
		name := filepath.Join(dir, bucket, filepath.FromSlash(key(2*i))+"@")
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, object, 0o644))
		want = append(want, key(2*i))
	}
	assert.Equal(t, want, listAll(t, s, bucket, 100))
	assert.Nil(t, s.last.Load(), "it has just changed")

	aged := func() {
		at := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, bucket, "k"), at, at))
	}
	aged()
	in := &s3.ListObjectsV2Input{Bucket: aws.String(bucket), MaxKeys: aws.Int32(500)}
	page, err := s.ListObjectsV2(t.Context(), in)
	require.NoError(t, err)
	require.NotNil(t, s.last.Load())
	assert.Equal(t, want, listAll(t, s, bucket, 100))
	assert.Equal(t, want, listAll(t, s, bucket, 7))

	put(t, s, bucket, key(2001), "")
	_, err = s.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: in.Bucket, Key: aws.String(key(2000))})
	require.NoError(t, err)
	in.ContinuationToken, in.MaxKeys = page.NextContinuationToken, nil
	page, err = s.ListObjectsV2(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, page.Contents, 600)
	assert.Equal(t, key(2001), aws.ToString(page.Contents[500].Key), "a later page has what came meanwhile")

	aged()
	other, err := s.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
		Bucket: in.Bucket, Prefix: aws.String("k/20"), StartAfter: aws.String(key(2001)),
	})
	require.NoError(t, err)
	assert.Equal(t, key(2002), aws.ToString(other.Contents[0].Key))
}

// Each deletion of a document listed its folder, and read the names of all
// others: that of 3,000 took a minute.
func TestListingBelowALargeFolderDoesNotReadIt(t *testing.T) {
	s, bucket := openTemp(t)
	dir := s.root.Name()
	large := filepath.Join(dir, bucket, "k")
	for i := range maxPage + 100 {
		require.NoError(t, os.MkdirAll(filepath.Join(large, fmt.Sprintf("%04d", i)), 0o755))
	}
	long := strings.Repeat("Long ", 100)
	for _, key := range []string{"k/0007/a", "k/0007/b/c", "k/0007//d", "k/" + long + "/e", "k/0007x"} {
		put(t, s, bucket, key, "")
	}
	require.NoError(t, os.WriteFile(filepath.Join(large, "file"), nil, 0o644))
	at := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(large, at, at))
	for _, row := range []struct {
		prefix string
		want   []string
	}{
		{"k/0007/", []string{"k/0007//d", "k/0007/a", "k/0007/b/c"}},
		{"k/0007/a", []string{"k/0007/a"}},
		{"k/0007/b/", []string{"k/0007/b/c"}},
		{"k/0007//", []string{"k/0007//d"}},
		{"k/" + long + "/", []string{"k/" + long + "/e"}},
		{"k/none/", nil},
		{"k/file/", nil},
		{"k/file/below/", nil},
	} {
		page, err := s.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
			Bucket: aws.String(bucket), Prefix: aws.String(row.prefix),
		})
		require.NoError(t, err, row.prefix)
		var keys []string
		for _, object := range page.Contents {
			keys = append(keys, aws.ToString(object.Key))
		}
		assert.Equal(t, row.want, keys)
		assert.Nil(t, s.last.Load(), "the names of the folder were not read")
	}
	page, err := s.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
		Bucket: aws.String(bucket), Prefix: aws.String(strings.Repeat("k/", maxKey)),
	})
	require.NoError(t, err)
	assert.Empty(t, page.Contents)
}
