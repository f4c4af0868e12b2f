package state_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/pipeline/state"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// busy is a store in which another run renews its lease between our listing
// and our reading, each time.
type busy struct{ state.ObjectStore }

func (b busy) GetObject(
	ctx context.Context,
	in *s3.GetObjectInput,
	_ ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	return b.ObjectStore.GetObject(ctx, &s3.GetObjectInput{Bucket: in.Bucket, Key: aws.String("replaced")})
}

// Contention defers a run: exit code 75, not 1.
func TestBusyLeaseIsDeferred(t *testing.T) {
	store := bucket.Open(t, "bucket")
	config := state.Config{Objects: store, Guard: bucket.Guard(t), Bucket: "bucket", Prefix: "nightly"}
	first, err := state.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, first.Close(context.WithoutCancel(t.Context()))) })
	config.Objects = busy{store}
	_, err = state.Open(t.Context(), config)
	var ended *stop.Error
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, stop.Deferred, ended.Kind)
}
