package bucket_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/internal/upstreams"
)

// Each bucket takes a volume of its own, and by default SeaweedFS has as many
// as fit on the disk, a gigabyte each: on a small one the last tests found no
// room for their buckets.
func TestSeaweedFSHasRoomForEveryTest(t *testing.T) {
	_, at := upstreams.StartSeaweedFS(t)
	client := bucket.Client(t, at)
	for i := range 40 {
		name := fmt.Sprintf("bucket-%d", i)
		_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
		require.NoError(t, err, name)
		bucket.Put(t, client, name, "a", "text")
	}
}
