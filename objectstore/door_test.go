package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// server answers with a function and counts what reaches it.
type server struct {
	*httptest.Server
	requests atomic.Int32
	answer   atomic.Pointer[http.HandlerFunc]
}

func serve(t testing.TB, answer http.HandlerFunc) *server {
	s := &server{}
	s.set(answer)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		w.Header().Set("ETag", `"no MD5"`) // as every S3 says one
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) set(answer http.HandlerFunc) { s.answer.Store(&answer) }

// says answers with a status, a service code, and headers as "Name: value".
func says(status int, code string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		if code != "" && r.Method != http.MethodHead {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		}
	}
}

// plainClient is a client as the SDK makes it: three attempts a call.
func plainClient(url string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(url), Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
}

func breaker(t testing.TB, cfg resilience.Config) (objectstore.Guard, *resilience.Breaker) {
	b, err := resilience.New("s3-"+t.Name(), cfg)
	require.NoError(t, err)
	return objectstore.Guard{Breaker: b}, b
}

func put(key, body string) *s3.PutObjectInput {
	return &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key), Body: strings.NewReader(body)}
}

func get(key string) *s3.GetObjectInput {
	return &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key)}
}

// operations calls every operation of the door once.
func operations(t testing.TB, g objectstore.Guard, client *s3.Client) map[string]func(context.Context) error {
	bucket, key := aws.String("bucket"), aws.String("key")
	small := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.WriteFile(small, []byte("text"), 0o600))
	big := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, 17<<20))
	upload := func(ctx context.Context, path string) error {
		_, err := g.UploadFile(ctx, client, &transfermanager.UploadObjectInput{Bucket: bucket, Key: key}, path)
		return err
	}
	return map[string]func(context.Context) error{
		"PutObject": func(ctx context.Context) error {
			_,
				err := g.PutObject(ctx, client, put("key", "text"))
			return err
		},
		"HeadObject": func(ctx context.Context) error {
			_, err := g.HeadObject(ctx, client, &s3.HeadObjectInput{Bucket: bucket, Key: key})
			return err
		},
		"GetObject": func(ctx context.Context) error { _, err := g.GetObject(ctx, client, get("key")); return err },
		"DeleteObject": func(ctx context.Context) error {
			_, err := g.DeleteObject(ctx, client, &s3.DeleteObjectInput{Bucket: bucket, Key: key})
			return err
		},
		"DeleteObjects": func(ctx context.Context) error {
			_, err := g.DeleteObjects(
				ctx,
				client,
				&s3.DeleteObjectsInput{
					Bucket: bucket,
					Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: key}}},
				},
			)
			return err
		},
		"ListObjectsV2": func(ctx context.Context) error {
			_, err := g.ListObjectsV2(ctx, client, &s3.ListObjectsV2Input{Bucket: bucket})
			return err
		},
		"CopyObject": func(ctx context.Context) error {
			_, err := g.CopyObject(
				ctx,
				client,
				&s3.CopyObjectInput{Bucket: bucket, Key: key, CopySource: aws.String("bucket/from")},
			)
			return err
		},
		"HeadBucket": func(ctx context.Context) error {
			_, err := g.HeadBucket(ctx, client, &s3.HeadBucketInput{Bucket: bucket})
			return err
		},
		"CreateBucket": func(ctx context.Context) error {
			_, err := g.CreateBucket(ctx, client, &s3.CreateBucketInput{Bucket: bucket})
			return err
		},
		"DownloadFile": func(ctx context.Context) error {
			_, err := g.DownloadFile(ctx, client, get("key"), filepath.Join(t.TempDir(), "file"))
			return err
		},
		"UploadFile":       func(ctx context.Context) error { return upload(ctx, small) },
		"UploadFile parts": func(ctx context.Context) error { return upload(ctx, big) },
	}
}

func TestEveryOperationIsOneAttempt(t *testing.T) {
	for _, code := range []int{500, 503, 429} {
		s := serve(t, says(code, "InternalError"))
		g, b := breaker(t, resilience.Config{FailMax: 100})
		for name, op := range operations(t, g, plainClient(s.URL)) {
			s.requests.Store(0)
			calls := b.Snapshot().Calls
			require.Error(t, op(t.Context()), name)
			assert.Equal(t, int32(1), s.requests.Load(), "%s at %d: requests", name, code)
			assert.Equal(t, calls+1, b.Snapshot().Calls, "%s at %d: calls", name, code)
		}
	}
}

func TestCallersRetryOptionsDoNotRetry(t *testing.T) {
	s := serve(t, says(500, "InternalError"))
	g, _ := breaker(t, resilience.Config{})
	_, err := g.PutObject(
		t.Context(),
		plainClient(s.URL),
		put("key", "text"),
		func(o *s3.Options) { o.RetryMaxAttempts = 4 },
	)
	require.Error(t, err)
	assert.Equal(t, int32(1), s.requests.Load())
}

func TestFailingPartIsNotSentAgain(t *testing.T) {
	var parts, aborts atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.URL.Query().Has("uploads"):
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
		case r.URL.Query().Has("partNumber"):
			parts.Add(1)
			says(500, "InternalError")(w, r)
		default:
			aborts.Add(1)
			says(500, "InternalError")(w, r) // the clean-up fails too
		}
	})
	g, b := breaker(t, resilience.Config{})
	err := operations(t, g, plainClient(s.URL))["UploadFile parts"](t.Context())
	require.Error(t, err)
	assert.LessOrEqual(t, parts.Load(), int32(3), "17 MiB are three parts")
	assert.Equal(t, int32(1), aborts.Load())
	got := b.Snapshot()
	assert.Equal(t, [2]uint64{1, 1}, [2]uint64{got.Calls, got.Failures}, "the whole upload is one call")
}

func TestOpensAfterFiveProbesOnceAndCloses(t *testing.T) {
	s := serve(t, says(500, "InternalError"))
	clock := testutil.NewClock()
	g, b := breaker(t, resilience.Config{Clock: clock})
	rec := testutil.Record(t, b)
	for name, op := range operations(t, g, plainClient(s.URL)) {
		b.Reset()
		rec.Forget()
		s.set(says(500, "InternalError"))
		s.requests.Store(0)
		for i := range 5 {
			var open *resilience.OpenError
			require.False(t, errors.As(op(t.Context()), &open), "%s: call %d", name, i)
		}
		require.ErrorIs(t, op(t.Context()), resilience.ErrOpen, name)
		assert.Equal(t, int32(5), s.requests.Load(), name)
		clock.Advance(time.Minute)
		s.set(says(404, "NoSuchKey")) // an answer
		require.NotErrorIs(t, op(t.Context()), resilience.ErrOpen, name)
		assert.Equal(t, int32(6), s.requests.Load(), name)
		assert.Equal(t, resilience.Closed, b.State(), name)
	}
}

func TestReaderErrorsOfTheCallerAreNotCounted(t *testing.T) {
	s := serve(t, says(200, ""))
	g, b := breaker(t, resilience.Config{})
	boom := errors.New("the caller's disk")
	for name, body := range map[string]io.Reader{
		"cannot seek": iotest.ErrReader(boom),
		"can seek":    struct{ io.ReadSeeker }{brokenSeeker{boom}},
	} {
		in := put("key", "")
		in.Body = body
		_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
		require.ErrorIs(t, err, boom, name)
		assert.Zero(t, b.Snapshot().Failures, name)
	}
	assert.Zero(t, s.requests.Load())
}

type brokenSeeker struct{ err error }

func (s brokenSeeker) Read([]byte) (int, error)       { return 0, s.err }
func (s brokenSeeker) Seek(int64, int) (int64, error) { return 0, nil }

func TestBodyThatCannotSeekIsSpooled(t *testing.T) {
	var got bytes.Buffer
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { got.Reset(); _, _ = got.ReadFrom(r.Body) })
	g, _ := breaker(t, resilience.Config{})
	t.Setenv("TMPDIR", t.TempDir())
	for _, size := range []int{0, 1, 1 << 20, 1<<20 + 1, 3 << 20} {
		in := put("key", "")
		in.Body = io.LimitReader(neverEnding('x'), int64(size))
		_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
		require.NoError(t, err, size)
		assert.Contains(t, got.String(), strings.Repeat("x", size)) // the SDK may add its trailer
	}
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files")
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

func TestStoreWithOtherBytesBreaksItsWord(t *testing.T) {
	s := serve(t, says(200, "", `ETag: "d41d8cd98f00b204e9800998ecf8427e"`)) // the MD5 of nothing
	g, b := breaker(t, resilience.Config{})
	_, err := g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
	var broken *objectstore.ContractError
	require.ErrorAs(t, err, &broken)
	assert.Contains(t, err.Error(), "4 bytes with the MD5 1cb251ec0d568de6a929b520c4aed8d1 were sent")
	assert.Equal(t, uint64(1), b.Snapshot().Failures)

	for _, header := range []string{
		"X-Amz-Server-Side-Encryption: aws:kms",
		"X-Amz-Server-Side-Encryption-Customer-Algorithm: AES256",
	} {
		s.set(says(200, "", `ETag: "d41d8cd98f00b204e9800998ecf8427e"`, header))
		_, err = g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
		require.NoError(t, err, "the ETag is no MD5 with %s", header)
	}
}

func TestMetadataMustBeASCII(t *testing.T) {
	s := serve(t, says(200, ""))
	g, b := breaker(t, resilience.Config{})
	in := put("key", "text")
	for _, m := range []map[string]string{{"title": "é"}, {"a b": "x"}, {"": "x"}, {"a": "x\ny"}} {
		in.Metadata = m
		_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
		var input *objectstore.InputError
		require.ErrorAs(t, err, &input, "%q", m)
	}
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Calls)
}

// probing is a breaker that waits for one probe.
func probing(t *testing.T) (objectstore.Guard, *resilience.Breaker, *testutil.FakeClock) {
	clock := testutil.NewClock()
	g, b := breaker(t, resilience.Config{Clock: clock})
	b.Trip("test")
	clock.Advance(time.Minute)
	return g, b, clock
}

func halfBody(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "10")
	_, _ = io.WriteString(w, "01234")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestBodyDecidesTheOutcome(t *testing.T) {
	whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") }
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		use    func(io.ReadCloser)
		state  resilience.State
	}{
		{"read to its end", whole, func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, resilience.Closed},
		{
			"read to its length and closed", whole,
			func(b io.ReadCloser) { _, _ = io.ReadFull(b, make([]byte, 10)); _ = b.Close() }, resilience.Closed,
		},
		{"broken off half-way", halfBody, func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, resilience.Open},
		{
			"closed early", whole, func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 3)); _ = b.Close() },
			resilience.HalfOpen,
		},
		{"closed at once", whole, func(b io.ReadCloser) { _ = b.Close() }, resilience.HalfOpen},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, b, _ := probing(t)
			out, err := g.GetObject(t.Context(), plainClient(serve(t, row.answer).URL), get("key"))
			require.NoError(t, err)
			require.Equal(t, resilience.HalfOpen, b.State(), "headers decide nothing")
			require.False(t, b.Ready(), "the body holds the slot")
			row.use(out.Body)
			assert.Equal(t, row.state, b.State())
			assert.Equal(t, row.state != resilience.Open, b.Ready(), "the slot is back")
			_ = out.Body.Close()
			assert.Equal(t, row.state, b.State(), "a second end changes nothing")
		})
	}
}

func TestAbandonedBodyGivesItsSlotBack(t *testing.T) {
	g, b, _ := probing(t)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") })
	ctx, cancel := context.WithCancel(t.Context())
	out, err := g.GetObject(ctx, plainClient(s.URL), get("key"))
	require.NoError(t, err)
	require.False(t, b.Ready())
	cancel()
	require.Eventually(t, b.Ready, 5*time.Second, time.Millisecond, "nobody closed the body, but its context has ended")
	assert.Equal(t, uint64(1), b.Snapshot().Ignored)
	_ = out.Body.Close()
}

func TestReadingRenewsTheLease(t *testing.T) {
	g, b, clock := probing(t)
	next := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 5 {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	out, err := g.GetObject(t.Context(), plainClient(s.URL), get("key"))
	require.NoError(t, err)
	for range 5 {
		clock.Advance(40 * time.Second) // the lease has 60
		_, err := io.ReadFull(out.Body, make([]byte, 1))
		require.NoError(t, err)
		next <- struct{}{}
	}
	_, err = io.ReadAll(out.Body)
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	assert.Equal(t, resilience.Closed, b.State())
}

func TestHangingProbeLosesItsLease(t *testing.T) {
	g, b, clock := probing(t)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") })
	out, err := g.GetObject(t.Context(), plainClient(s.URL), get("key"))
	require.NoError(t, err)
	clock.Advance(time.Minute)
	assert.Equal(t, resilience.Open, b.State())
	_, _ = io.ReadAll(out.Body)
	require.NoError(t, out.Body.Close())
	assert.Equal(t, uint64(1), b.Snapshot().Calls, "the end of a hung call is not counted again")
}

func TestPanicGivesTheSlotBack(t *testing.T) {
	g, b, _ := probing(t)
	assert.PanicsWithValue(
		t,
		"a bug",
		func() { _, _ = g.HeadBucket(t.Context(), leaving{leave: panics}, anyBucket) },
	)
	assert.True(t, b.Ready())
	assert.Equal(t, resilience.HalfOpen, b.State())
}

var anyBucket = &s3.HeadBucketInput{Bucket: aws.String("bucket")}

func panics() { panic("a bug") }

// leaving is a client, and its answer's body, that leave by leave.
type leaving struct {
	objectstore.Reader
	leave func()
}

func (c leaving) HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error) {
	c.leave()
	return nil, nil
}

func (c leaving) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{Body: c, ETag: aws.String("e")}, nil
}

func (c leaving) Read([]byte) (int, error) { c.leave(); return 0, nil }
func (leaving) Close() error               { return nil }

func TestPanicAndGoexitAreCountedAsPanics(t *testing.T) {
	for name, leave := range map[string]func(){"panic": panics, "goexit": runtime.Goexit} {
		g, b, _ := probing(t)
		ctx := t.Context()
		testutil.Isolate(func() { _, _ = g.HeadBucket(ctx, leaving{leave: leave}, anyBucket) })
		testutil.Isolate(func() {
			out, _ := g.GetObject(ctx, leaving{leave: leave}, get("key"))
			defer out.Body.Close()
			_, _ = out.Body.Read(nil)
		})
		testutil.Isolate(func() {
			_, _ = g.DownloadFile(ctx, leaving{leave: leave}, get("key"), filepath.Join(t.TempDir(), "file"))
		})
		s := b.Snapshot()
		assert.Equal(t, [3]uint64{3, 3, 0}, [3]uint64{s.Calls, s.Panics, s.Ignored}, name)
		assert.True(t, b.Ready(), name)
	}
}

// What the door says counts: not the breaker's own classifier, and the refusal
// shows the error of S3.
func TestVerdictIsTheDoorsAndLastFailureIsTheUpstreams(t *testing.T) {
	g, b := breaker(
		t,
		resilience.Config{FailMax: 1, StopOnDenied: true, Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Ignored}
		}},
	)
	s := serve(t, says(500, "InternalError"))
	_, failed := g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
	_, err := g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
	var open *resilience.OpenError
	require.ErrorAs(t, err, &open)
	assert.Same(t, failed, open.LastFailure())
	b.Reset()
	s.set(says(403, "InvalidAccessKeyId"))
	_, refused := g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
	_, err = g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
	var denied *resilience.DeniedError
	require.ErrorAs(t, err, &denied)
	assert.Same(t, refused, denied.Cause())
}

// A context that ends while a Read is under way, which is good all the same,
// left the call open for ever if nobody came back to the body.
func TestContextThatEndsDuringAGoodReadGivesTheSlotBack(t *testing.T) {
	g, b, _ := probing(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() { close(ended) })
	out, err := g.GetObject(ctx, leaving{leave: func() { cancel(); <-ended }}, get("key"))
	require.NoError(t, err)
	_, err = out.Body.Read(nil)
	require.NoError(t, err)
	assert.Eventually(t, b.Ready, 10*time.Second, time.Millisecond)
	assert.EqualValues(t, 1, b.Snapshot().Ignored)
}

func TestPresign(t *testing.T) {
	clock := testutil.NewClock()
	g, b := breaker(t, resilience.Config{Clock: clock})
	client := s3.NewPresignClient(plainClient("http://localhost:1"))
	inputs := map[string]objectstore.PresignInput{
		"GET": {Get: get("a b")},
		"PUT": {Put: &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String("a b")}},
	}
	for method, in := range inputs {
		out, err := g.GeneratePresignedURL(t.Context(), client, in, s3.WithPresignExpires(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, method, out.Method)
		assert.Contains(t, out.URL, "/bucket/a%20b?")
		assert.Contains(t, out.URL, "X-Amz-Expires=3600")
	}
	var input *objectstore.InputError
	for _, in := range []objectstore.PresignInput{{}, {Get: inputs["GET"].Get, Put: inputs["PUT"].Put}} {
		_, err := g.GeneratePresignedURL(t.Context(), client, in)
		require.ErrorAs(t, err, &input)
	}

	b.Trip("test")
	before := b.Snapshot()
	opened := clock.Now()
	for _, row := range []struct {
		wait  time.Duration
		state resilience.State
	}{{0, resilience.Open}, {time.Minute, resilience.HalfOpen}} {
		clock.Advance(row.wait)
		_, err := g.GeneratePresignedURL(t.Context(), client, inputs["GET"])
		var open *resilience.OpenError
		require.ErrorAs(t, err, &open)
		assert.Equal(t, b.Name(), open.Upstream())
		assert.Equal(t, row.state, open.State())
		assert.Equal(t, "test", open.Reason())
		assert.Equal(t, opened, open.OpenedAt())
	}
	after := b.Snapshot()
	assert.Equal(
		t,
		[3]uint64{before.Calls, before.Rejected, before.Probes},
		[3]uint64{after.Calls, after.Rejected, after.Probes},
		"signing counts as nothing",
	)
	assert.True(t, b.Ready(), "signing takes no slot")
}

func TestPresignIsRefusedWithADeniedCredential(t *testing.T) {
	g, _ := breaker(t, resilience.Config{StopOnDenied: true})
	s := serve(t, says(403, "ExpiredToken"))
	client := plainClient(s.URL)
	_, cause := g.PutObject(t.Context(), client, put("key", "text"))
	_, err := g.GeneratePresignedURL(
		t.Context(),
		s3.NewPresignClient(client),
		objectstore.PresignInput{Get: get("key")},
	)
	var denied *resilience.DeniedError
	require.ErrorAs(t, err, &denied)
	assert.Same(t, cause, denied.Cause())
}

func TestPackageFunctionsGoThroughTheSingleton(t *testing.T) {
	store, err := filestore.Open(t.TempDir())
	require.NoError(t, err)
	defer store.Close()
	ctx, bucket := t.Context(), aws.String("bucket")
	before := resilience.S3.Snapshot().Calls
	_, err = objectstore.CreateBucket(ctx, store, &s3.CreateBucketInput{Bucket: bucket})
	require.NoError(t, err)
	_, err = objectstore.HeadBucket(ctx, store, &s3.HeadBucketInput{Bucket: bucket})
	require.NoError(t, err)
	_, err = objectstore.PutObject(ctx, store, put("a", "text"))
	require.NoError(t, err)
	_, err = objectstore.HeadObject(ctx, store, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("a")})
	require.NoError(t, err)
	_, err = objectstore.CopyObject(
		ctx,
		store,
		&s3.CopyObjectInput{Bucket: bucket, Key: aws.String("b"), CopySource: aws.String("bucket/a")},
	)
	require.NoError(t, err)
	list, err := objectstore.ListObjectsV2(ctx, store, &s3.ListObjectsV2Input{Bucket: bucket})
	require.NoError(t, err)
	assert.Len(t, list.Contents, 2)
	file := filepath.Join(t.TempDir(), "file")
	_, err = objectstore.DownloadFile(ctx, store, get("b"), file)
	require.NoError(t, err)
	_, err = objectstore.UploadFile(
		ctx,
		store,
		&transfermanager.UploadObjectInput{Bucket: bucket, Key: aws.String("c")},
		file,
	)
	require.NoError(t, err)
	out, err := objectstore.GetObject(ctx, store, get("c"))
	require.NoError(t, err)
	body, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	assert.Equal(t, "text", string(body))
	_, err = objectstore.DeleteObject(ctx, store, &s3.DeleteObjectInput{Bucket: bucket, Key: aws.String("a")})
	require.NoError(t, err)
	_, err = objectstore.DeleteObjects(
		ctx,
		store,
		&s3.DeleteObjectsInput{
			Bucket: bucket,
			Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: aws.String("b")}}},
		},
	)
	require.NoError(t, err)
	assert.Equal(t, before+11, resilience.S3.Snapshot().Calls)
}
