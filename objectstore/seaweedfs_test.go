package objectstore_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/objectstoretest"
)

func clientFor(t testing.TB, at upstreams.S3, change ...func(*objectstore.Config)) *s3.Client {
	t.Helper()
	cfg := objectstore.Config{
		Endpoint: at.Endpoint, Region: at.Region, AccessKeyID: at.AccessKey, SecretAccessKey: at.SecretKey,
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
