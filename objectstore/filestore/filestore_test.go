package filestore

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
)

func openTemp(t testing.TB) (*Store, string) {
	t.Helper()
	s, err := Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	return s, "bucket"
}

func put(t testing.TB, s *Store, bucket, key, body string) {
	t.Helper()
	_, err := s.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(bucket), Key: aws.String(key), Body: strings.NewReader(body),
	})
	require.NoError(t, err)
}

func listAll(t testing.TB, s *Store, bucket string, pageSize int32) (keys []string) {
	t.Helper()
	pages := s3.NewListObjectsV2Paginator(s,
		&s3.ListObjectsV2Input{Bucket: aws.String(bucket), MaxKeys: aws.Int32(pageSize)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
	}
	return keys
}
