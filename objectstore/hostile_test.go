package objectstore_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

// The SDK wraps its transport in one that cannot close idle connections: a
// client that was thrown away kept them.
func TestIdleConnectionsCanBeClosed(t *testing.T) {
	s := serve(t, says(200, ""))
	before := goleak.IgnoreCurrent()
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	g, _ := breaker(t, resilience.Config{})
	require.NoError(t, headBucket(t.Context(), client, "bucket")(g))
	idle(client)
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
}

// The SDK follows 307 and 308 without an end, and a GetObject has no deadline
// of its own.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, code := range []int{301, 302, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, code) })
		client := newClient(t, objectstore.Config{Endpoint: s.URL})
		g, b := breaker(t, resilience.Config{FailMax: 100})
		for name, op := range operations(t, g, client) {
			s.requests.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.Error(t, op(ctx), name)
			require.NoError(t, ctx.Err(), "%s at %d went in a circle", name, code)
			assert.Equal(t, int32(1), s.requests.Load(), "%s at %d", name, code)
			cancel()
		}
		assert.Equal(t, b.Snapshot().Calls, b.Snapshot().Failures, "%d is the answer of another server", code)
		idle(client)
	}
}

// bare are operations whose good answer has nothing in it by which it could be
// told from another server's.
var bare = map[string]bool{"HeadBucket": true, "CreateBucket": true, "DeleteObject": true}

func TestServersThatLie(t *testing.T) {
	const closed = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n"
	answers := hostile.HTTP("application/xml", "<Result><Na", "<Error><Code>")
	maps.Copy(answers, map[string]hostile.Answer{
		"JSON": hostile.Text(
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
		),
		"nothing":          hostile.Text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
		"no content":       hostile.Text("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
		"XML without end":  hostile.Endless(closed+"<R>", "<a>"),
		"text without end": hostile.Endless(closed+"<R>", "aaaa"),
	})
	hostile.Each(t, answers, func(t *testing.T, url string) {
		client := newClient(t, objectstore.Config{Endpoint: url, CallTimeout: 500 * time.Millisecond})
		defer idle(client)
		g, b := breaker(t, resilience.Config{FailMax: 1000})
		for name, op := range operations(t, g, client) {
			started, before := time.Now(), b.Snapshot()
			err := op(t.Context())
			after := b.Snapshot()
			assert.Less(t, time.Since(started), time.Minute, "%s hangs: %v", name, err)
			assert.Zero(t, after.Ignored+after.Denied+after.Throttled, "%s: %v", name, err)
			if !bare[name] {
				require.Error(t, err, name)
				assert.Equal(t, before.Failures+1, after.Failures, "%s: %v", name, err)
			}
		}
	})
}

// The manager panicked over an upload without a name, and took the page of a
// proxy for an object otherwise.
func TestPageOfAProxyIsNoAnswer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Del("ETag")
		_, _ = io.WriteString(w, "<html><p>sign in!</p></html>")
	})
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	defer idle(client)
	g, b := breaker(t, resilience.Config{FailMax: 1000})
	for name, op := range operations(t, g, client) {
		if bare[name] {
			continue
		}
		var broken *objectstore.ContractError
		require.ErrorAs(t, op(t.Context()), &broken, name)
	}
	assert.Equal(t, b.Snapshot().Calls, b.Snapshot().Failures)
}

// Of a bucket, a page of keys and of what was deleted nothing may be missing.
func TestEmptyAnswersOfS3AreAnswers(t *testing.T) {
	list := `<ListBucketResult><Name>bucket</Name><Prefix></Prefix><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	defer idle(client)
	g, _ := breaker(t, resilience.Config{})
	out, err := g.ListObjectsV2(t.Context(), client, &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	assert.Empty(t, out.Contents)
	_, err = g.DeleteObjects(t.Context(), client, &s3.DeleteObjectsInput{
		Bucket: aws.String(
			"bucket",
		), Delete: &types.Delete{Quiet: aws.Bool(true), Objects: []types.ObjectIdentifier{{Key: aws.String("a")}}},
	})
	require.NoError(t, err, "nothing went wrong")
}

// A caller that leaves at any point of a call is ignored, a probe's slot is
// free, and the error is that of the context, with its cause.
func TestCancelledAtEachStage(t *testing.T) {
	for name, text := range map[string]string{
		"before the headers": "", "in the headers": "HTTP/1.1 200 OK\r\nETa",
		"in the body": "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 500\r\n\r\n<Lis",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{}, 1)
			tell := func() { started <- struct{}{} }
			said, watch := tell, func(*s3.Options) {}
			if name == "in the body" {
				said, watch = nil, func(o *s3.Options) { o.HTTPClient = &reading{o.HTTPClient, tell} }
			}
			url := hostile.Serve(t, hostile.Stalled(text, said))
			client := newClient(t, objectstore.Config{Endpoint: url}, watch)
			defer idle(client)
			for op := range operations(t, objectstore.Guard{}, client) {
				if name == "in the body" && headersSuffice[op] {
					continue
				}
				for _, cause := range []error{nil, errors.New("the run's budget is spent")} {
					g, b, _ := probing(t)
					call := operations(t, g, client)[op]
					if op == "GetObject" {
						call = func(ctx context.Context) error { return getBody(ctx, client, "bucket", "key")(g) }
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					done := make(chan error)
					go func() { done <- call(ctx) }()
					<-started
					cancel(cause)
					err := <-done
					require.ErrorIs(t, err, context.Canceled, op)
					require.ErrorIs(t, err, context.Cause(ctx), op)
					assert.True(t, b.Ready(), op)
					assert.EqualValues(t, 1, b.Snapshot().Ignored, "%s: %+v", op, b.Snapshot())
				}
			}
		})
	}
}

// reading calls begun when the body of an answer is first read.
type reading struct {
	s3.HTTPClient
	begun func()
}

func (c *reading) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.HTTPClient.Do(r)
	if err == nil {
		resp.Body = &readingBody{ReadCloser: resp.Body, begun: sync.OnceFunc(c.begun)}
	}
	return resp, err
}

type readingBody struct {
	io.ReadCloser
	begun func()
}

func (b *readingBody) Read(p []byte) (int, error) {
	b.begun()
	return b.ReadCloser.Read(p)
}

// headersSuffice are operations that are over with the headers of the answer.
var headersSuffice = map[string]bool{
	"HeadObject": true, "HeadBucket": true, "PutObject": true, "UploadFile": true, "CreateBucket": true,
	"DeleteObject": true,
}

// A deadline counts, and is one of the context's own, whatever its cause is
// called.
func TestDeadlineWithACauseIsADeadline(t *testing.T) {
	url := hostile.Serve(t, hostile.Stalled("", nil))
	client := newClient(t, objectstore.Config{Endpoint: url})
	defer idle(client)
	cause := errors.New("the run's budget is spent")
	g, b := breaker(t, resilience.Config{FailMax: 100})
	var group sync.WaitGroup
	for name, op := range operations(t, g, client) {
		group.Go(func() {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
			defer cancel()
			err := op(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.ErrorIs(t, err, cause, name)
		})
	}
	group.Wait()
	assert.Equal(t, b.Snapshot().Calls, b.Snapshot().Failures)

	g, _ = breaker(t, resilience.Config{FailMax: 1})
	inner, cancel := context.WithCancelCause(t.Context())
	ctx := &expiring{inner, make(chan struct{})}
	once := hostile.Serve(t, hostile.Stalled("", func() { cancel(cause); close(ctx.done) }))
	client = newClient(t, objectstore.Config{Endpoint: once})
	defer idle(client)
	err := headBucket(ctx, client, "bucket")(g)
	var open *resilience.OpenError
	require.ErrorAs(t, headBucket(t.Context(), client, "bucket")(g), &open)
	assert.Equal(t, err, open.LastFailure(), "the refusal shows the error that the caller got")
}

// A context that has ended before says why, too, and nothing is sent.
func TestContextThatHasEndedBeforeTheCall(t *testing.T) {
	s := serve(t, says(200, ""))
	cause := errors.New("the run's budget is spent")
	g, b := breaker(t, resilience.Config{})
	for name, op := range operations(t, g, plainClient(s.URL)) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := op(ctx)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, cause, name)
	}
	assert.Zero(t, s.requests.Load())
	assert.Zero(t, b.Snapshot().Failures)
}
