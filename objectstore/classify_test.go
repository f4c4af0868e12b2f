package objectstore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// TestClassify reads errors that the real SDK makes of a scripted server's
// answers.
func TestClassify(t *testing.T) {
	const (
		success   = resilience.Success
		failure   = resilience.Failure
		ignored   = resilience.Ignored
		throttled = resilience.Throttled
		denied    = resilience.Denied

		year = 365 * 24 * time.Hour
	)
	s := serve(t, says(200, ""))
	client := plainClient(s.URL)
	for _, row := range []struct {
		status  int
		code    string
		headers []string
		put     resilience.Outcome // what PutObject's error means
		head    resilience.Outcome // and HeadObject's, which has no code
		after   time.Duration
	}{
		{404, "NoSuchKey", nil, success, success, 0},
		{404, "NoSuchBucket", nil, success, success, 0},
		{404, "", nil, success, success, 0},
		{304, "", nil, success, success, 0},
		{409, "OperationAborted", nil, success, success, 0},
		{410, "", nil, success, success, 0},
		{412, "PreconditionFailed", nil, success, success, 0},
		{400, "InvalidArgument", nil, ignored, ignored, 0},
		{400, "EntityTooLarge", nil, ignored, ignored, 0},
		{405, "MethodNotAllowed", nil, ignored, ignored, 0},
		{411, "MissingContentLength", nil, ignored, ignored, 0},
		{416, "InvalidRange", nil, ignored, ignored, 0},
		{301, "PermanentRedirect", nil, ignored, ignored, 0},
		{401, "Unauthorized", nil, denied, denied, 0},
		{407, "", nil, denied, denied, 0},
		{403, "AccessDenied", nil, denied, ignored, 0},
		{403, "InvalidAccessKeyId", nil, denied, ignored, 0},
		{403, "SignatureDoesNotMatch", nil, denied, ignored, 0},
		{400, "ExpiredToken", nil, denied, ignored, 0},
		{403, "SomethingElse", nil, denied, ignored, 0},
		{400, "RequestTimeout", nil, failure, ignored, 0},
		{408, "", nil, failure, failure, 0},
		{500, "InternalError", nil, failure, failure, 0},
		{501, "NotImplemented", nil, ignored, ignored, 0},
		{501, "", nil, ignored, ignored, 0},
		{501, "", []string{"Retry-After: 7"}, ignored, ignored, 0},
		{505, "", nil, ignored, ignored, 0},
		{403, "InvalidObjectState", nil, ignored, ignored, 0},
		{403, "QuotaExceeded", nil, ignored, ignored, 0},
		{400, "XMinioAdminBucketQuotaExceeded", nil, ignored, ignored, 0},
		{413, "StorageQuotaExceeded", nil, ignored, ignored, 0},
		{429, "QuotaExceeded", nil, throttled, throttled, 0},
		{507, "XMinioStorageFull", nil, failure, failure, 0},
		{502, "", nil, failure, failure, 0},
		{503, "ServiceUnavailable", nil, failure, failure, 0},
		{504, "", nil, failure, failure, 0},
		{503, "SlowDown", nil, throttled, failure, 0},
		{503, "SlowDown", []string{"Retry-After: 7"}, throttled, throttled, 7 * time.Second},
		{503, "", []string{"Retry-After: 7"}, throttled, throttled, 7 * time.Second},
		{503, "ServiceUnavailable", []string{"Retry-After: 0"}, failure, failure, 0},
		{503, "", []string{"Retry-After: -3"}, failure, failure, 0},
		{503, "", []string{"Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"}, failure, failure, 0},
		{503, "", []string{"Retry-After: Fri, 01 Jan 2100 00:00:00 GMT"}, throttled, throttled, year},
		{529, "", nil, failure, failure, 0},
		{529, "", []string{"Retry-After: 0"}, failure, failure, 0},
		{529, "", []string{"Retry-After: 7"}, throttled, throttled, 7 * time.Second},
		{500, "", []string{"Retry-After: 7"}, failure, failure, 0},
		{429, "", nil, throttled, throttled, 0},
		{429, "TooManyRequests", []string{"Retry-After: 0.5"}, throttled, throttled, 500 * time.Millisecond},
		{429, "", []string{"Retry-After-Ms: 1500"}, throttled, throttled, 1500 * time.Millisecond},
		{429, "", []string{"Retry-After: -3"}, throttled, throttled, 0},
		{429, "", []string{"Retry-After: soon"}, throttled, throttled, 0},
		{429, "", []string{"Retry-After: NaN"}, throttled, throttled, 0},
		{429, "", []string{"Retry-After: 99999999999999999999"}, throttled, throttled, year},
		{429, "", []string{"Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"}, throttled, throttled, 0},
		{429, "", []string{"Retry-After: Fri, 01 Jan 2100 00:00:00 GMT"}, throttled, throttled, year},
	} {
		s.set(says(row.status, row.code, row.headers...))
		_, err := client.PutObject(t.Context(), put("key", "text"), noRetry)
		require.Error(t, err, "%+v", row)
		down := row.after > 0 && row.status != 429
		assert.Equal(
			t,
			resilience.Verdict{
				Outcome:     row.put,
				RetryAfter:  row.after,
				Unavailable: down && row.put == throttled && row.code != "SlowDown",
			},
			objectstore.Classify(t.Context(), err),
			"PutObject %+v: %v",
			row,
			err,
		)
		_, err = client.HeadObject(
			t.Context(),
			&s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")},
			noRetry,
		)
		require.Error(t, err, "%+v", row)
		assert.Equal(
			t,
			resilience.Verdict{Outcome: row.head, RetryAfter: row.after, Unavailable: down && row.head == throttled},
			objectstore.Classify(t.Context(), err),
			"HeadObject %+v: %v",
			row,
			err,
		)
	}
}

// A store that is unavailable is asked five times, whatever time it names; one
// that throttles is asked each time.
func TestUnavailableStoresOpenTheBreaker(t *testing.T) {
	for _, row := range []struct {
		answer http.HandlerFunc
		sent   int32
	}{
		{says(503, "ServiceUnavailable", "Retry-After: 0"), 5},
		{says(503, "ServiceUnavailable", "Retry-After: 1"), 5},
		{says(529, "", "Retry-After: 1"), 5},
		{says(503, "SlowDown", "Retry-After: 1"), 50},
		{says(429, "", "Retry-After: 1"), 50},
	} {
		s := serve(t, row.answer)
		g, _ := breaker(t, resilience.Config{})
		for range 50 {
			_, err := g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
			require.Error(t, err)
		}
		assert.Equal(t, row.sent, s.requests.Load())
	}
}

func noRetry(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

func TestRetryAfterDateIsFromNow(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		says(503, "SlowDown")(w, r)
	})
	_, err := plainClient(s.URL).PutObject(t.Context(), put("key", "text"), noRetry)
	v := objectstore.Classify(t.Context(), err)
	assert.Equal(t, resilience.Throttled, v.Outcome)
	assert.InDelta(t, time.Hour, v.RetryAfter, float64(5*time.Second))
}

func TestErrorInsideA200Counts(t *testing.T) {
	s := serve(t, says(200, "InternalError"))
	g, b := breaker(t, resilience.Config{})
	_, err := g.CopyObject(
		t.Context(),
		plainClient(s.URL),
		&s3.CopyObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from")},
	)
	require.Error(t, err)
	assert.Equal(t, uint64(1), b.Snapshot().Failures)
	s.set(says(200, "SlowDown"))
	_, err = g.CopyObject(
		t.Context(),
		plainClient(s.URL),
		&s3.CopyObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from")},
	)
	require.Error(t, err)
	assert.Equal(t, uint64(1), b.Snapshot().Throttled)
}

// TestConnectionErrorsHaveNoStatus: the SDK wraps them in a response error of
// status 0.
func TestConnectionErrorsHaveNoStatus(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	for name, url := range map[string]string{
		"refused":      "http://" + listener.Addr().String(),
		"no such host": "http://penstock.invalid",
		"reset":        serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }).URL,
		"not HTTP":     serve(t, hijacked("nonsense\r\n\r\n")).URL,
		"not XML": serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }).
			URL,
		"cut in a body": serve(t, halfBody).URL,
	} {
		_, err := plainClient(
			url,
		).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("bucket")}, noRetry)
		require.Error(t, err, name)
		assert.Equal(t, resilience.Failure, objectstore.Classify(t.Context(), err).Outcome, "%s: %v", name, err)
	}
}

func hijacked(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

func TestCallerWhoLeavesIsNotCounted(t *testing.T) {
	arrived := make(chan struct{}, 8)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-r.Context().Done() })
	g, b := breaker(t, resilience.Config{})
	for _, cause := range []error{nil, errors.New("the run's budget is spent")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-arrived; cancel(cause) }()
		_, err := g.HeadBucket(ctx, plainClient(s.URL), &s3.HeadBucketInput{Bucket: aws.String("bucket")})
		require.Error(t, err)
	}
	assert.Equal(t, uint64(2), b.Snapshot().Ignored)

	ctx := &expiring{t.Context(), make(chan struct{})}
	go func() { <-arrived; close(ctx.done) }()
	_, err := g.HeadBucket(ctx, plainClient(s.URL), &s3.HeadBucketInput{Bucket: aws.String("bucket")})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, uint64(1), b.Snapshot().Failures, "a deadline is a failure, though the SDK calls it canceled")
}

// TestWhatNeverLeftIsTheCallers: errors that the SDK makes before sending.
func TestWhatNeverLeftIsTheCallers(t *testing.T) {
	s := serve(t, says(200, ""))
	g, b := breaker(t, resilience.Config{})
	client := plainClient(s.URL)
	for name, in := range map[string]*s3.PutObjectInput{
		"no bucket": {Key: aws.String("k")},
		"no key":    {Bucket: aws.String("b")},
		"empty key": {Bucket: aws.String("b"), Key: aws.String("")},
	} {
		_, err := g.PutObject(t.Context(), client, in)
		require.Error(t, err, name)
	}
	_, err := g.PutObject(
		t.Context(),
		client,
		put("k", "text"),
		func(o *s3.Options) { o.BaseEndpoint = aws.String("::no url") },
	)
	require.Error(t, err)
	assert.Zero(t, s.requests.Load())
	assert.Equal(t, uint64(4), b.Snapshot().Ignored)
}

func TestClassifyWithoutTheSDK(t *testing.T) {
	assert.Equal(t, resilience.Success, objectstore.Classify(t.Context(), nil).Outcome)
	assert.Equal(t, resilience.Failure, objectstore.Classify(t.Context(), errors.New("some double's error")).Outcome)
	assert.Equal(t, resilience.Failure, objectstore.Classify(t.Context(), io.ErrUnexpectedEOF).Outcome)
}
