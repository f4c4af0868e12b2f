package filestore_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/objectstore/objectstoretest"
)

func TestConformance(t *testing.T) {
	objectstoretest.Run(t, func(t *testing.T) (objectstoretest.API, string) {
		s, err := filestore.Open(t.TempDir())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		_, err = s.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("conformance")})
		require.NoError(t, err)
		return s, "conformance"
	})
}
