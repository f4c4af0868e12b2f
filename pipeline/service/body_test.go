package service_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// endless has an object of zeros without an end.
type endless struct{ objectstore.Reader }

type zeros struct{ ctx context.Context }

func (z zeros) Read(p []byte) (int, error) { return min(len(p), 512), z.ctx.Err() }
func (zeros) Close() error                 { return nil }

func (e endless) GetObject(
	ctx context.Context,
	_ *s3.GetObjectInput,
	_ ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{Body: zeros{ctx}, ETag: aws.String(`"e"`)}, nil
}

// The context ends while a body is read: its verdict comes from another
// goroutine, and maybe after the call (under the race detector).
func TestVerdictOfAnAbandonedBody(t *testing.T) {
	for range 300 {
		guard := objectstore.Guard{Breaker: testutil.NewBreaker(t, "s3", resilience.Config{})}
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := service.Objects(guard).CallObjects(ctx, "get_object", func(guard objectstore.Guard) error {
			out, err := guard.GetObject(
				ctx,
				endless{},
				&s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")},
			)
			if err != nil {
				return err
			}
			defer out.Body.Close()
			for buffer := make([]byte, 512); ; n++ {
				if n == 3 {
					go cancel()
				}
				if _, err := out.Body.Read(buffer); err != nil && err != io.EOF {
					return err
				}
			}
		})
		require.Error(t, err)
		cancel()
	}
}

// closing has an object whose body cannot be closed.
type closing struct{ objectstore.Reader }

type broken struct{ sent bool }

func (b *broken) Read(p []byte) (int, error) {
	if b.sent {
		return 0, io.EOF
	}
	b.sent = true
	return copy(p, "text"), nil
}
func (*broken) Close() error { return io.ErrUnexpectedEOF }

func (closing) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{Body: &broken{}, ETag: aws.String(`"e"`)}, nil
}

// The document is not to blame for a good answer that could not be used.
func TestLocalErrorAfterAGoodAnswerDefers(t *testing.T) {
	guard := objectstore.Guard{Breaker: testutil.NewBreaker(t, "s3", resilience.Config{})}
	err := service.Objects(guard).CallObjects(t.Context(), "get_object", func(guard objectstore.Guard) error {
		out, err := guard.GetObject(
			t.Context(),
			closing{},
			&s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")},
		)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(out.Body)
		return errors.Join(err, out.Body.Close())
	})
	require.Error(t, err)
	ending := stop.NewEnding(t.Context())
	var f *stop.Failure
	require.ErrorAs(t, ending.Blame("read", err), &f)
	require.True(t, f.Deferred, "%+v", f)
}
