package objectstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// failing is a client whose calls fail with err, a GetObject in its body.
type failing struct {
	Reader
	err error
}

func (f failing) HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	return nil, f.err
}

func (f failing) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{ETag: aws.String(`"e"`), Body: io.NopCloser(iotest.ErrReader(f.err))}, nil
}

func TestAnswerIsReadOnce(t *testing.T) {
	bucket, key := aws.String("bucket"), aws.String("key")
	for _, status := range []int{http.StatusUnauthorized, http.StatusInternalServerError, http.StatusTooManyRequests} {
		answer := &smithyhttp.Response{Response: &http.Response{StatusCode: status}}
		looks, err := testutil.Looked(
			&awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{Response: answer, Err: errors.New("no")}},
		)
		Classify(t.Context(), err)
		errors.As(err, new(*resilience.OpenError)) // the breaker looks for another breaker's refusal
		errorType(err)                             // the span's
		once := looks()
		require.Positive(t, once)

		g := Guard{Breaker: testutil.NewBreaker(t, "once", resilience.Config{})}
		_, got := g.HeadObject(t.Context(), failing{err: err}, &s3.HeadObjectInput{Bucket: bucket, Key: key})
		require.Equal(t, err, got)
		assert.Equal(t, 2*once, looks(), "a call, %d", status)
		out, got := g.GetObject(t.Context(), failing{err: err}, &s3.GetObjectInput{Bucket: bucket, Key: key})
		require.NoError(t, got)
		_, got = out.Body.Read(make([]byte, 1))
		require.Equal(t, err, got)
		require.NoError(t, out.Body.Close())
		assert.Equal(t, 3*once, looks(), "a body, %d", status)
	}
}
