package objectstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// guarded is a client of s, and the breaker below it.
func guarded(
	t *testing.T, s *server, cfg resilience.Config, optFns ...func(*s3.Options),
) (*s3.Client, *resilience.Breaker) {
	b := testutil.NewBreaker(t, "below-"+rand.Text(), cfg)
	return newClient(t, objectstore.Config{Endpoint: s.URL, Breaker: b}, optFns...), b
}

// refused is a breaker's refusal as the SDK returns it.
func refused(t *testing.T, err error, of *resilience.Breaker, name string) {
	t.Helper()
	var open *resilience.OpenError
	var operation *smithy.OperationError
	require.ErrorAs(t, err, &open, name)
	assert.True(t, open.By(of), name)
	assert.ErrorAs(t, err, &operation, name)
}

// everywhere has each request reach s, whatever its host is called.
func everywhere(s *server) func(*s3.Options) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
	}
	return func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: dial}} }
}

// unfit are the fields of an input that must fit others.
var unfit = regexp.MustCompile("Checksum|SSECustomer|^ContentLength$")

// fill gives an operation's input, or a part of it, values that pass the SDK's
// checks.
func fill(v reflect.Value) {
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case kind == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case kind == reflect.String:
		v.SetString("text")
	case v.CanInt():
		v.SetInt(1)
	case kind == reflect.Interface:
		key := types.SSEKMSEncryption{KMSKeyArn: aws.String("text")}
		for _, value := range []any{strings.NewReader("text"), &types.ObjectEncryptionMemberSSEKMS{Value: key}} {
			if reflect.TypeOf(value).Implements(v.Type()) {
				v.Set(reflect.ValueOf(value))
			}
		}
	case kind == reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).CanSet() && !unfit.MatchString(name) {
				fill(v.Field(i))
			}
		}
	}
}

// methods calls every operation of the SDK's client, but for one that is sent
// to AWS's own endpoint alone.
func methods(client *s3.Client) map[string]func(context.Context) error {
	all := map[string]func(context.Context) error{}
	for m := range reflect.TypeFor[*s3.Client]().Methods() {
		if m.Name == "Options" || m.Name == "ListDirectoryBuckets" {
			continue
		}
		all[m.Name] = func(ctx context.Context) error {
			in := reflect.New(m.Type.In(2).Elem())
			fill(in.Elem())
			out := m.Func.Call([]reflect.Value{reflect.ValueOf(client), reflect.ValueOf(ctx), in})
			err, _ := reflect.TypeAssert[error](out[1])
			return err
		}
	}
	return all
}

// 104 methods of the SDK have no door, and nothing stopped a caller from using
// them, or the others, without one.
func TestClientCannotGoAroundItsBreaker(t *testing.T) {
	s := serve(t, says(404, "NoSuchKey"))
	client, b := guarded(t, s, resilience.Config{}, everywhere(s))
	all := methods(client)
	require.Greater(t, len(all), 100)
	for name, call := range all {
		s.requests.Store(0)
		before := b.Snapshot()
		err := call(t.Context())
		require.NotErrorIs(t, err, resilience.ErrOpen, name)
		assert.EqualValues(t, 1, s.requests.Load(), "%s: %v", name, err)
		assert.Equal(t, before.Calls+1, b.Snapshot().Calls, name)
		assert.Equal(t, before.Successes+1, b.Snapshot().Successes, name)
	}
	s.set(says(500, "InternalError"))
	for name, call := range all {
		b.Reset()
		s.requests.Store(0)
		for range 5 {
			require.NotErrorIs(t, call(t.Context()), resilience.ErrOpen, name)
		}
		refused(t, call(t.Context()), b, name)
		assert.EqualValues(t, 5, s.requests.Load(), name)
	}
}

// The singleton is the breaker of a client whose Config names none.
func TestBreakerOfAClientIsTheSingleton(t *testing.T) {
	noAmbient(t)
	s := serve(t, says(404, "NoSuchKey"))
	client, err := objectstore.NewClient(t.Context(), objectstore.Config{
		Endpoint: s.URL, AccessKeyID: "key", SecretAccessKey: "secret",
	})
	require.NoError(t, err)
	before := resilience.S3.Snapshot().Successes
	_, err = client.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	require.Error(t, err)
	assert.Equal(t, before+1, resilience.S3.Snapshot().Successes)
}

// A paginator made 8 requests, and the breaker saw none.
func TestPagesAreCallsOfTheBreaker(t *testing.T) {
	var page atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n := page.Add(1)
		fmt.Fprintf(w, `<ListBucketResult><Name>bucket</Name><Contents><Key>%d</Key></Contents>`+
			`<IsTruncated>%v</IsTruncated><NextContinuationToken>%d</NextContinuationToken></ListBucketResult>`, n, n < 8, n)
	})
	client, b := guarded(t, s, resilience.Config{})
	in := &s3.ListObjectsV2Input{Bucket: aws.String("bucket")}
	keys := 0
	for pages := s3.NewListObjectsV2Paginator(client, in); pages.HasMorePages(); {
		out, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		keys += len(out.Contents)
	}
	assert.Equal(t, 8, keys)
	assert.EqualValues(t, 8, s.requests.Load())
	assert.EqualValues(t, 8, b.Snapshot().Calls)
	assert.EqualValues(t, 8, b.Snapshot().Successes)

	b.Trip("drill")
	_, err := s3.NewListObjectsV2Paginator(client, in).NextPage(t.Context())
	refused(t, err, b, "a page")
	assert.EqualValues(t, 8, s.requests.Load())
}

func TestWaitersAskThroughTheBreaker(t *testing.T) {
	var asked atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			says(404, "NoSuchKey")(w, r)
		}
	})
	client, b := guarded(t, s, resilience.Config{})
	w := s3.NewObjectExistsWaiter(client, func(o *s3.ObjectExistsWaiterOptions) { o.MinDelay, o.MaxDelay = 1, 1 })
	in := &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}
	require.NoError(t, w.Wait(t.Context(), in, time.Minute))
	assert.EqualValues(t, 3, s.requests.Load())
	assert.EqualValues(t, 3, b.Snapshot().Successes, "not there yet is an answer")

	b.Trip("drill")
	refused(t, w.Wait(t.Context(), in, time.Minute), b, "a waiter does not wait for a breaker")
	assert.EqualValues(t, 3, s.requests.Load())
}

// inParts has the transfer manager send 17 MiB in three parts, one after
// another.
func inParts(o *transfermanager.Options) { o.Concurrency, o.FailTimeout = 1, time.Minute }

func TestTransfersWithoutADoorAreCallsOfTheBreaker(t *testing.T) {
	store := &steps{}
	s := serve(t, store.ServeHTTP)
	client, b := guarded(t, s, resilience.Config{})
	manager := transfermanager.New(client, inParts)
	upload := func(size int) error {
		s.requests.Store(0)
		_, err := manager.UploadObject(t.Context(), &transfermanager.UploadObjectInput{
			Bucket: aws.String("bucket"), Key: aws.String("key"), Body: bytes.NewReader(make([]byte, size)),
		})
		return err
	}
	require.NoError(t, upload(17<<20))
	assert.EqualValues(t, 5, s.requests.Load(), "its begin, three parts, its end")
	assert.EqualValues(t, 5, b.Snapshot().Successes)
	require.NoError(t, upload(4))
	assert.EqualValues(t, 1, s.requests.Load())
	assert.EqualValues(t, 6, b.Snapshot().Successes)

	s.set((&steps{part: says(500, "InternalError"), abort: says(204, "")}).ServeHTTP)
	require.Error(t, upload(17<<20))
	assert.EqualValues(t, 3, s.requests.Load(), "its begin, a part, its removal")
	assert.EqualValues(t, 9, b.Snapshot().Calls)
	assert.EqualValues(t, 1, b.Snapshot().Failures)

	b.Trip("drill")
	for _, size := range []int{4, 17 << 20} {
		var open *resilience.OpenError
		require.ErrorAs(t, upload(size), &open)
		assert.Zero(t, s.requests.Load())
	}

	b.Reset()
	s.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") })
	s.requests.Store(0)
	before := b.Snapshot().Successes
	out, err := manager.GetObject(t.Context(), &transfermanager.GetObjectInput{
		Bucket: aws.String("bucket"), Key: aws.String("key"),
	})
	require.NoError(t, err)
	text, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	assert.Equal(t, "0123456789", string(text))
	assert.EqualValues(t, s.requests.Load(), b.Snapshot().Successes-before)
}

// A door's own breaker is the only one that counts its calls, also those of
// several requests, and the removal of what is left of them.
func TestDoorAndClientCountOnce(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"well":  (&steps{}).ServeHTTP,
		"badly": (&steps{part: says(500, "InternalError"), abort: says(500, "InternalError")}).ServeHTTP,
		"down":  says(500, "InternalError"),
	} {
		s := serve(t, answer)
		client, below := guarded(t, s, resilience.Config{})
		g, above := breaker(t, resilience.Config{FailMax: 1000})
		for range 2 {
			calls := operations(t, g, client)
			calls["GetObject"] = func(ctx context.Context) error { return getBody(ctx, client, "bucket", "key")(g) }
			for op, call := range calls {
				before := above.Snapshot().Calls
				require.NotErrorIs(t, call(t.Context()), resilience.ErrOpen, op)
				assert.Equal(t, before+1, above.Snapshot().Calls, "%s, %s", name, op)
			}
			assert.Zero(t, below.Snapshot().Calls, name)
			below.Trip("drill") // which is no matter to a door
		}
		if name != "down" {
			_, err := client.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: aws.String("bucket")})
			refused(t, err, below, "a method with a door, called without it")
		}
	}
}

// The parts of an upload that failed were left in the store where the breaker
// below the client was open, or did not know that they belong to a call.
func TestDoorRemovesPartsThroughAnOpenClient(t *testing.T) {
	for _, store := range []*steps{{part: says(500, "InternalError")}, {complete: says(500, "InternalError")}} {
		s := serve(t, store.ServeHTTP)
		client, below := guarded(t, s, resilience.Config{})
		below.Trip("drill")
		g, _ := breaker(t, resilience.Config{})
		err := uploadParts(t.Context(), t, g, client)
		require.ErrorContains(t, err, "InternalError")
		assert.EqualValues(t, 1, store.aborts.Load())
		assert.Zero(t, below.Snapshot().Calls)
	}
}

// Each attempt of a retryer is a call, and a refusal ends them.
func TestAttemptsAreCallsOfTheBreaker(t *testing.T) {
	s := serve(t, says(500, "InternalError"))
	client, b := guarded(t, s, resilience.Config{}, func(o *s3.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.RateLimiter = 3, unlimited{}
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		})
	})
	in := &s3.PutObjectTaggingInput{
		Bucket: aws.String("bucket"), Key: aws.String("key"),
		Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}},
	}
	_, err := client.PutObjectTagging(t.Context(), in)
	require.NotErrorIs(t, err, resilience.ErrOpen)
	assert.EqualValues(t, 3, s.requests.Load())
	assert.EqualValues(t, 3, b.Snapshot().Failures)
	_, err = client.PutObjectTagging(t.Context(), in)
	refused(t, err, b, "the third attempt")
	assert.EqualValues(t, 5, s.requests.Load())
	_, err = client.PutObjectTagging(t.Context(), in)
	refused(t, err, b, "the first attempt")
	require.ErrorContains(t, err, "last failure: operation error S3: PutObjectTagging, ", "a refusal says what failed")
	assert.EqualValues(t, 5, s.requests.Load())
}

// unlimited lets every retry through.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (unlimited) AddTokens(uint) error { return nil }

// A user's options for the client could have thrown the breaker out.
func TestOptionsOfAClientKeepItsBreaker(t *testing.T) {
	for name, option := range map[string]func(*s3.Options){
		"options replaced": func(o *s3.Options) { o.APIOptions = nil },
		"retryer removed": func(o *s3.Options) {
			o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
				_, err := stack.Finalize.Remove("Retry")
				return err
			})
		},
	} {
		s := serve(t, says(500, "InternalError"))
		client, b := guarded(t, s, resilience.Config{}, option)
		for _, c := range []*s3.Client{client, s3.New(client.Options())} {
			b.Reset()
			s.requests.Store(0)
			for range 7 {
				_, err := c.ListBuckets(t.Context(), &s3.ListBucketsInput{})
				require.Error(t, err)
			}
			assert.EqualValues(t, 5, s.requests.Load(), name)
		}
	}
}

// Signing is local: it is no call, and an open breaker does not refuse it. A
// door to it does.
func TestPresigningIsNoCall(t *testing.T) {
	s := serve(t, says(200, ""))
	client, b := guarded(t, s, resilience.Config{})
	signer := s3.NewPresignClient(client)
	for range 2 {
		for name, sign := range map[string]func() (string, error){
			"get": func() (string, error) {
				out, err := signer.PresignGetObject(t.Context(), get("key"))
				return out.URL, err
			},
			"put": func() (string, error) {
				out, err := signer.PresignPutObject(t.Context(), put("key", "text"))
				return out.URL, err
			},
			"post": func() (string, error) {
				out, err := signer.PresignPostObject(t.Context(), put("key", ""))
				return out.URL, err
			},
			"part": func() (string, error) {
				out, err := signer.PresignUploadPart(t.Context(), &s3.UploadPartInput{
					Bucket: aws.String("bucket"), Key: aws.String("key"),
					PartNumber: aws.Int32(1), UploadId: aws.String("u"),
				})
				return out.URL, err
			},
		} {
			url, err := sign()
			require.NoError(t, err, name)
			assert.Contains(t, url, s.URL, name)
		}
		b.Trip("drill")
	}
	assert.Zero(t, b.Snapshot().Calls+b.Snapshot().Rejected)
	assert.Zero(t, s.requests.Load())
	in := objectstore.PresignInput{Get: get("key")}
	_, err := objectstore.Guard{Breaker: b}.GeneratePresignedURL(t.Context(), signer, in)
	require.ErrorIs(t, err, resilience.ErrOpen)
}

// What an error means below a client is what it means at a door.
func TestOutcomesBelowAClient(t *testing.T) {
	bucket, key := aws.String("bucket"), aws.String("key")
	tags := func(c *s3.Client) error {
		_, err := c.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: bucket, Key: key})
		return err
	}
	head := func(c *s3.Client) error {
		_, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: bucket, Key: key})
		return err
	}
	broken := func(c *s3.Client) error {
		in := put("key", "text")
		in.ContentDisposition = aws.String("a\nb")
		_, err := c.PutObject(t.Context(), in)
		return err
	}
	cancelled := func(c *s3.Client) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the run's budget is spent")
		_, err := c.ListBuckets(ctx, &s3.ListBucketsInput{}, func(o *s3.Options) {
			o.HTTPClient = sender(func(*http.Request) (*http.Response, error) {
				cancel(cause)
				return nil, io.ErrUnexpectedEOF
			})
		})
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, context.Canceled)
		return err
	}
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		call   func(*s3.Client) error
		want   resilience.Outcome
	}{
		"missing key":       {says(404, "NoSuchKey"), tags, resilience.Success},
		"bad key":           {says(403, "InvalidAccessKeyId"), tags, resilience.Denied},
		"HEAD of no key":    {says(403, ""), head, resilience.Ignored},
		"slow down":         {says(503, "SlowDown"), tags, resilience.Throttled},
		"not implemented":   {says(501, "NotImplemented"), tags, resilience.Ignored},
		"error":             {says(500, "InternalError"), tags, resilience.Failure},
		"not XML":           {says(200, "<"), tags, resilience.Failure},
		"cut":               {halfBody, tags, resilience.Failure},
		"never sent":        {says(200, ""), broken, resilience.Ignored},
		"the caller leaves": {says(200, ""), cancelled, resilience.Ignored},
	} {
		client, b := guarded(t, serve(t, row.answer), resilience.Config{})
		err := row.call(client)
		require.Error(t, err, name)
		assert.EqualValues(t, 1, b.Snapshot().Calls, name)
		assert.EqualValues(t, 1, counted(b)[row.want], "%s: %v: %+v", name, err, b.Snapshot())
	}
}

func counted(b *resilience.Breaker) map[resilience.Outcome]uint64 {
	s := b.Snapshot()
	return map[resilience.Outcome]uint64{
		resilience.Success: s.Successes, resilience.Failure: s.Failures, resilience.Ignored: s.Ignored,
		resilience.Throttled: s.Throttled, resilience.Denied: s.Denied,
	}
}

type sender func(*http.Request) (*http.Response, error)

func (send sender) Do(r *http.Request) (*http.Response, error) { return send(r) }

// The time that a server names is waited for, as at a door.
func TestRetryAfterBelowAClient(t *testing.T) {
	s := serve(t, says(429, "TooManyRequests", "Retry-After: 300"))
	clock := testutil.NewClock()
	client, b := guarded(t, s, resilience.Config{Clock: clock})
	list := func() error { _, err := client.ListBuckets(t.Context(), &s3.ListBucketsInput{}); return err }
	b.Trip("drill")
	clock.Advance(time.Minute)
	require.NotErrorIs(t, list(), resilience.ErrOpen, "the probe")
	var open *resilience.OpenError
	require.ErrorAs(t, list(), &open)
	assert.Equal(t, 5*time.Minute, open.RetryAt().Sub(clock.Now()))
}

// transfers are the operations whose answer is a stream of bytes.
func transfers(ctx context.Context, c *s3.Client) map[string]func() (io.ReadCloser, error) {
	bucket, key := aws.String("bucket"), aws.String("key")
	return map[string]func() (io.ReadCloser, error){
		"GetObject": func() (io.ReadCloser, error) {
			out, err := c.GetObject(ctx, get("key"))
			return orNone(out, err, func() io.ReadCloser { return out.Body })
		},
		"GetObjectAnnotation": func() (io.ReadCloser, error) {
			out, err := c.GetObjectAnnotation(ctx, &s3.GetObjectAnnotationInput{
				Bucket: bucket, Key: key, AnnotationName: aws.String("a"),
			})
			return orNone(out, err, func() io.ReadCloser { return out.AnnotationPayload })
		},
		"GetObjectTorrent": func() (io.ReadCloser, error) {
			out, err := c.GetObjectTorrent(ctx, &s3.GetObjectTorrentInput{Bucket: bucket, Key: key})
			return orNone(out, err, func() io.ReadCloser { return out.Body })
		},
	}
}

func orNone[T any](_ *T, err error, body func() io.ReadCloser) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	return body(), nil
}

// streams are the operations of the SDK that carry a body of any length, up or
// down.
func streams() (up, down []string) {
	for m := range reflect.TypeFor[*s3.Client]().Methods() {
		if m.Name == "Options" {
			continue
		}
		if has[io.Reader](m.Type.In(2)) {
			up = append(up, m.Name)
		}
		if has[io.ReadCloser](m.Type.Out(0)) {
			down = append(down, m.Name)
		}
		if _, events := m.Type.Out(0).MethodByName("GetStream"); events {
			down = append(down, m.Name)
		}
	}
	return up, down
}

// has reports whether what t points to has a field of a type.
func has[T any](t reflect.Type) bool {
	for f := range t.Elem().Fields() {
		if f.Type == reflect.TypeFor[T]() {
			return true
		}
	}
	return false
}

// An SDK update may bring an operation whose answer is a stream.
func TestEveryStreamIsFollowed(t *testing.T) {
	_, down := streams()
	followed := append(slices.Collect(maps.Keys(transfers(t.Context(), nil))), "SelectObjectContent")
	assert.ElementsMatch(t, down, followed)
}

// CallTimeout cut the bodies of operations without a door, at the latest with
// its context, which ended at the headers.
func TestOperationsThatCarryABodyHaveNoDeadline(t *testing.T) {
	up, down := streams()
	var limited bool
	see := sender(func(r *http.Request) (*http.Response, error) {
		_, limited = r.Context().Deadline()
		return nil, errors.New("not sent")
	})
	s := serve(t, says(200, ""))
	client, _ := guarded(t, s, resilience.Config{FailMax: 1000}, func(o *s3.Options) { o.HTTPClient = see })
	for name, call := range methods(client) {
		_ = call(t.Context())
		assert.Equal(t, !slices.Contains(append(up, down...), name), limited, name)
	}
}

// A client's own GetObject says nothing at its headers either, and the streams
// of other operations ended with CallTimeout's context before they were read.
func TestBodyDecidesTheOutcomeBelowAClient(t *testing.T) {
	whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") }
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		use    func(io.ReadCloser) error
		state  resilience.State
	}{
		{"read to its end", whole, func(b io.ReadCloser) error {
			_, err := io.ReadAll(b)
			return err
		}, resilience.Closed},
		{"broken off half-way", halfBody, func(b io.ReadCloser) error {
			if _, err := io.ReadAll(b); err == nil {
				return errors.New("half was taken for all of it")
			}
			return nil
		}, resilience.Open},
		{"closed early", whole, func(b io.ReadCloser) error {
			_, err := b.Read(make([]byte, 3))
			return errors.Join(err, b.Close())
		}, resilience.HalfOpen},
		{"closed at once", whole, io.ReadCloser.Close, resilience.HalfOpen},
	} {
		s := serve(t, row.answer)
		for op := range transfers(t.Context(), nil) {
			clock := testutil.NewClock()
			client, b := guarded(t, s, resilience.Config{Clock: clock})
			b.Trip("test")
			clock.Advance(time.Minute)
			body, err := transfers(t.Context(), client)[op]()
			require.NoError(t, err, op)
			require.Equal(t, resilience.HalfOpen, b.State(), "%s: headers decide nothing", op)
			require.False(t, b.Ready(), "%s: the body holds the slot", op)
			require.NoError(t, row.use(body), "%s, %s", op, row.name)
			assert.Equal(t, row.state, b.State(), "%s, %s", op, row.name)
			_ = body.Close()
			assert.Equal(t, row.state, b.State(), "%s, %s: a second end changes nothing", op, row.name)
		}
	}
}

func TestAbandonedBodyBelowAClientGivesItsSlotBack(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") })
	for op := range transfers(t.Context(), nil) {
		clock := testutil.NewClock()
		client, b := guarded(t, s, resilience.Config{Clock: clock})
		b.Trip("test")
		clock.Advance(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		body, err := transfers(ctx, client)[op]()
		require.NoError(t, err, op)
		require.False(t, b.Ready(), op)
		cancel()
		require.Eventually(t, b.Ready, 10*time.Second, time.Millisecond, op)
		assert.EqualValues(t, 1, b.Snapshot().Ignored, op)
		_ = body.Close()
	}
}

// wait waits for the test, or for its end.
func wait(r *http.Request, next <-chan struct{}) {
	select {
	case <-next:
	case <-r.Context().Done():
	}
}

// A select's events are read as soon as the headers are there, and decide the
// outcome by their bytes.
func TestEventsDecideTheOutcomeBelowAClient(t *testing.T) {
	next := make(chan struct{})
	for _, whole := range []bool{true, false} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			wait(r, next)
			if !whole {
				panic(http.ErrAbortHandler)
			}
		})
		clock := testutil.NewClock()
		client, b := guarded(t, s, resilience.Config{Clock: clock})
		b.Trip("test")
		clock.Advance(time.Minute)
		out, err := client.SelectObjectContent(t.Context(), &s3.SelectObjectContentInput{
			Bucket: aws.String("bucket"), Key: aws.String("key"),
			Expression: aws.String("SELECT * FROM S3Object"), ExpressionType: types.ExpressionTypeSql,
			InputSerialization: &types.InputSerialization{}, OutputSerialization: &types.OutputSerialization{},
		})
		require.NoError(t, err)
		require.Equal(t, resilience.HalfOpen, b.State())
		next <- struct{}{}
		for range out.GetStream().Events() {
		}
		assert.Equal(t, whole, out.GetStream().Close() == nil)
		assert.Equal(t, whole, b.State() == resilience.Closed, "%v", b.State())
	}
}

// pausing gives a byte at a time, after a call of between.
type pausing struct {
	*strings.Reader
	between func()
}

func (p pausing) Read(b []byte) (int, error) {
	p.between()
	return p.Reader.Read(b[:min(len(b), 1)])
}

// What moves in either direction keeps a probe, also where no door is above.
func TestDataBelowAClientRenewsTheLease(t *testing.T) {
	clock := testutil.NewClock()
	next := make(chan struct{})
	s := serve(t, says(200, ""))
	client, b := guarded(t, s, resilience.Config{Clock: clock})
	for name, call := range map[string]func(){
		"down": func() {
			s.set(func(w http.ResponseWriter, r *http.Request) {
				for range 5 {
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
					wait(r, next)
				}
			})
			out, err := client.GetObject(t.Context(), get("key"))
			require.NoError(t, err)
			for range 5 {
				clock.Advance(40 * time.Second) // the lease has 60
				_, err := io.ReadFull(out.Body, make([]byte, 1))
				require.NoError(t, err)
				next <- struct{}{}
			}
			_, err = io.ReadAll(out.Body)
			require.NoError(t, err)
		},
		"up": func() {
			s.set(says(200, ""))
			in := put("key", "")
			in.Body = pausing{strings.NewReader("01234"), func() { clock.Advance(40 * time.Second) }}
			_, err := client.PutObject(t.Context(), in, v4Unsigned)
			require.NoError(t, err)
		},
		"white space": func() {
			s.set(func(w http.ResponseWriter, r *http.Request) {
				for range 5 {
					_, _ = io.WriteString(w, "\n")
					_ = http.NewResponseController(w).Flush()
					wait(r, next)
				}
				_, _ = io.WriteString(w, copyResult)
			})
			in := &s3.CopyObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from")}
			_, err := client.CopyObject(t.Context(), in, func(o *s3.Options) {
				o.HTTPClient = &ticking{o.HTTPClient, "\n", func() {
					clock.Advance(40 * time.Second)
					next <- struct{}{}
				}}
			})
			require.NoError(t, err)
		},
	} {
		b.Trip("test")
		clock.Advance(time.Minute)
		call()
		assert.Equal(t, resilience.Closed, b.State(), name)
	}
}

func TestSpansAndDurationsBelowAClient(t *testing.T) {
	s := serve(t, says(404, "NoSuchKey"))
	client, b := guarded(t, s, resilience.Config{})
	tags := func() {
		_, err := client.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{
			Bucket: aws.String("bucket"), Key: aws.String("key"),
		})
		require.Error(t, err)
	}
	want := map[string]string{
		"": "S3.GetObjectTagging", "rpc.system": "aws-api", "rpc.service": "S3", "rpc.method": "GetObjectTagging",
		"aws.s3.bucket": "bucket", "aws.s3.key": "key", "error.type": "NoSuchKey",
		"penstock.breaker.name": b.Name(), "penstock.breaker.state": "closed", "penstock.outcome": "success",
	}
	assert.Equal(t, want, spanOf(t, tags))
	page := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, page.Body.String(), `_count{operation="get_object_tagging",upstream="`+b.Name()+`"} 1`)
	b.Trip("test")
	want["penstock.breaker.state"], want["penstock.outcome"], want["error.type"] = "open", "rejected", "circuit_open"
	assert.Equal(t, want, spanOf(t, tags))
	want[""], want["rpc.method"] = "S3.ListBuckets", "ListBuckets"
	delete(want, "aws.s3.bucket")
	delete(want, "aws.s3.key")
	assert.Equal(t, want, spanOf(t, func() { _, _ = client.ListBuckets(t.Context(), nil) }))
}
