package source

import (
	"bytes"
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

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// bends gives n bytes and ends with an error that is not the end of a stream.
// Like net/http's bodies it says so once: then it is at its end.
type bends struct {
	left int
	err  error
	with bool // the error comes with the last bytes
}

func (b *bends) Read(p []byte) (n int, err error) {
	n = copy(p, bytes.Repeat([]byte("x"), min(len(p), b.left)))
	b.left -= n
	if b.left == 0 && (b.with || n == 0) {
		err, b.err = b.err, io.EOF
	}
	return n, err
}

var errWrapped = fmt.Errorf("the source broke off: %w", io.EOF)

// The half of a stream that broke off with an error that wraps io.EOF, or that
// came with the last bytes of what is held in memory, was a whole document.
func TestStreamThatBreaksOffIsNoDocument(t *testing.T) {
	for _, size := range []int{0, 1, spoolBytes - 1, spoolBytes, spoolBytes + 1, 5 << 20} {
		for _, limit := range []int64{0, 6 << 20} {
			for _, err := range []error{errWrapped, io.ErrUnexpectedEOF, fmt.Errorf("broke off: %w", io.ErrUnexpectedEOF), errors.New("broke off")} {
				for _, with := range []bool{false, true} {
					_, got := spool(&bends{size, err, with}, limit)
					require.ErrorIs(t, got, err, "%d bytes of at most %d, %v with the last of them: %v", size, limit, err, with)
				}
			}
			for _, stream := range []io.Reader{strings.NewReader(strings.Repeat("x", size)), iotest.DataErrReader(strings.NewReader(strings.Repeat("x", size)))} {
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

// An address whose answer broke off so was a document that cannot be read, and
// none whose source is away.
func TestAnswerThatBreaksOffIsAway(t *testing.T) {
	w := newWeb(Options{MaxDownload: 5 << 20, Timeout: time.Minute})
	for _, err := range []error{errWrapped, io.ErrUnexpectedEOF} {
		w.client.Transport = answers(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&bends{10, err, false}), Request: r}, nil
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
	return &s3.GetObjectOutput{Body: io.NopCloser(&bends{5, b.err, false}), ETag: aws.String("e"), ContentLength: aws.Int64(10)}, nil
}

func TestObjectThatBreaksOffIsNoDocument(t *testing.T) {
	for _, end := range []error{errWrapped, io.ErrUnexpectedEOF, io.EOF} {
		options := Options{
			Objects:     func(context.Context) (ObjectReader, error) { return brokenStore{err: end}, nil },
			ObjectGuard: objectstore.Guard{Breaker: resilience.MustNew("s3-"+t.Name(), resilience.Config{})},
		}
		_, err := (&objects{store: &store{options: options}, bucket: "bkt"}).read(t.Context(), "key")
		var store *StoreError
		require.ErrorAs(t, err, &store, "%v", end)
	}
}
