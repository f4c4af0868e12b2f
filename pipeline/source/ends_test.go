package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/testutil"
)

var errWrapped = fmt.Errorf("the source broke off: %w", io.EOF)

// The half of a stream that broke off with an error that wraps io.EOF, or that
// came with the last bytes of what is held in memory, was a whole document.
func TestStreamThatBreaksOffIsNoDocument(t *testing.T) {
	for _, size := range []int{0, 1, spoolBytes - 1, spoolBytes, spoolBytes + 1, 5 << 20} {
		for _, limit := range []int64{0, 6 << 20} {
			for _, err := range []error{
				errWrapped, io.ErrUnexpectedEOF,
				fmt.Errorf("broke off: %w", io.ErrUnexpectedEOF), errors.New("interrupted"),
			} {
				for _, with := range []bool{false, true} {
					_, got := spool(&testutil.BreakOff{Left: size, Err: err, WithLast: with}, limit)
					require.ErrorIs(t, got, err, "%d bytes of at most %d, %v with the last of them: %v", size,
						limit, err, with)
				}
			}
			for _, stream := range []io.Reader{
				strings.NewReader(strings.Repeat("x", size)),
				iotest.DataErrReader(strings.NewReader(strings.Repeat("x", size))),
			} {
				c, err := spool(stream, limit)
				require.NoError(t, err)
				assert.EqualValues(t, size, c.Size())
				require.NoError(t, c.Close())
			}
		}
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// An address whose answer broke off so was taken for a document that cannot be
// read, not for a source that is unavailable.
func TestAnswerThatBreaksOffIsAway(t *testing.T) {
	w := newWeb(Options{MaxDownload: 5 << 20, Timeout: time.Minute})
	for _, err := range []error{errWrapped, io.ErrUnexpectedEOF} {
		w.client.Transport = answers(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Body: io.NopCloser(&testutil.BreakOff{Left: 10, Err: err}),
				Request: r,
			}, nil
		})
		_, got := (&page{web: w, address: &url.URL{Scheme: "http", Host: "host"}}).open(t.Context())
		var away *AwayError
		require.ErrorAs(t, got, &away)
		require.ErrorIs(t, got, err)
	}
}

// brokenStore is a store whose bodies break off.
type brokenStore struct {
	ObjectReader
	err error
}

func (b brokenStore) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{
		Body: io.NopCloser(&testutil.BreakOff{Left: 5, Err: b.err}), ETag: aws.String("e"),
		ContentLength: aws.Int64(10),
	}, nil
}

func TestObjectThatBreaksOffIsNoDocument(t *testing.T) {
	for _, end := range []error{errWrapped, io.ErrUnexpectedEOF, io.EOF} {
		options := Options{
			Objects:     func(context.Context) (ObjectReader, error) { return brokenStore{err: end}, nil },
			ObjectGuard: bucket.Guard(t),
		}
		_, err := (&objects{store: &store{options: options}, bucket: "bkt"}).read(t.Context(), "key")
		var store *stop.CallError
		require.ErrorAs(t, err, &store, "%v", end)
	}
}
