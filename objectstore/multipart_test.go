package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

// steps answers the requests of an upload in parts, each step by its own
// function; one that is missing is answered well.
type steps struct {
	create, part, complete, abort http.HandlerFunc
	aborts                        atomic.Int32
}

func (s *steps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	step, well := s.part, func(http.ResponseWriter, *http.Request) {}
	switch q := r.URL.Query(); {
	case q.Has("uploads"):
		step, well = s.create, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>the-upload</UploadId></InitiateMultipartUploadResult>")
		}
	case r.Method == http.MethodDelete:
		s.aborts.Add(1)
		step, well = s.abort, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	case r.Method == http.MethodPost:
		step, well = s.complete, completed
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if step == nil {
		step = well
	}
	step(w, r)
}

func completed(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, completeResult)
}

// uploadParts sends a small file in parts.
func uploadParts(
	ctx context.Context, t *testing.T, g objectstore.Guard, client objectstore.Uploader,
	options ...func(*transfermanager.Options),
) error {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	inParts := func(o *transfermanager.Options) { o.MultipartUploadThreshold, o.Concurrency = 1, 1 }
	in := &transfermanager.UploadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}
	_, err := g.UploadFile(ctx, client, in, file, append(options, inParts)...)
	return err
}

// The error of a cancelled upload was the text of two, once its clean-up failed
// as well, and no longer that of a context.
func TestCancelledUploadStaysCancelledWhenItsAbortFails(t *testing.T) {
	for stage, place := range map[string]func(*steps, http.HandlerFunc){
		"part":     func(s *steps, h http.HandlerFunc) { s.part = h },
		"complete": func(s *steps, h http.HandlerFunc) { s.complete = h },
	} {
		for name, end := range ending(t) {
			for _, abort := range []int{204, 404, 500, 403} {
				at := fmt.Sprintf("%s, %s, the abort says %d", stage, name, abort)
				ctx, now, want := end()
				begun := make(chan struct{})
				store := &steps{abort: says(abort, "Oops")}
				place(store, func(_ http.ResponseWriter, r *http.Request) { close(begun); <-r.Context().Done() })
				s := serve(t, store.ServeHTTP)
				g, b := breaker(t, resilience.Config{})
				done := make(chan error)
				go func() { done <- uploadParts(ctx, t, g, plainClient(s.URL)) }()
				<-begun
				now()
				err := <-done
				for _, w := range want {
					require.ErrorIs(t, err, w, at)
				}
				assert.EqualValues(t, 1, store.aborts.Load(), at)
				counted := b.Snapshot()
				if name == "out of time" {
					assert.EqualValues(t, 1, counted.Failures, at)
				} else {
					assert.EqualValues(t, 1, counted.Ignored, at)
				}
				if abort >= 403 && abort != 404 {
					assert.Contains(t, err.Error(), "upload ID the-upload", at)
					assert.Contains(t, err.Error(), "its parts are still in the store", at)
					assert.Contains(t, err.Error(), strconv.Itoa(abort), at)
				} else {
					assert.NotContains(t, err.Error(), "still in the store", at)
				}
				s.Close()
			}
		}
	}
}

// The outcome is that of the step that failed first, whatever the clean-up is.
func TestUploadThatFailsAtEachStep(t *testing.T) {
	for step, store := range map[string]*steps{
		"create":   {create: says(503, "ServiceUnavailable")},
		"part":     {part: says(503, "ServiceUnavailable"), abort: says(403, "AccessDenied")},
		"complete": {complete: says(503, "ServiceUnavailable"), abort: says(403, "AccessDenied")},
		"error in a 200": {complete: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "\n\n<Error><Code>InternalError</Code></Error>")
		}, abort: says(403, "AccessDenied")},
		"no answer of S3": {complete: says(200, "")},
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if step == "no answer of S3" {
				w.Header().Del("ETag")
				if r.URL.Query().Has("partNumber") {
					w.Header().Set("ETag", `"part"`)
				}
			}
			store.ServeHTTP(w, r)
		})
		g, b := breaker(t, resilience.Config{})
		err := uploadParts(t.Context(), t, g, plainClient(s.URL))
		require.Error(t, err, step)
		counted := b.Snapshot()
		assert.Equal(t, [2]uint64{1, 1}, [2]uint64{counted.Calls, counted.Failures}, "%s: %v", step, err)
		if step != "create" {
			assert.EqualValues(t, 1, store.aborts.Load(), step)
			assert.Contains(t, err.Error(), "the-upload", step)
			var upload interface{ UploadID() string }
			require.ErrorAs(t, err, &upload, step)
			assert.Equal(t, "the-upload", upload.UploadID(), step)
		}
		if store.abort != nil {
			assert.Contains(t, err.Error(), "remove them with AbortMultipartUpload", step)
		}
	}
}

// standardError collects what is written to the logger and to the file.
func standardError(t *testing.T) (written func() string) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = w
	restore := func() { os.Stderr = stderr; log.SetOutput(stderr) }
	t.Cleanup(restore)
	return func() string {
		restore()
		require.NoError(t, w.Close())
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		return logged.String() + string(text)
	}
}

// The transfer manager wrote to the standard logger, and the SDK to standard
// error.
func TestNothingIsWrittenToStandardError(t *testing.T) {
	written := standardError(t)
	for _, store := range []*steps{
		{},
		{part: says(500, "InternalError"), abort: says(500, "InternalError")},
		{complete: says(500, "InternalError"), abort: says(500, "InternalError")},
		{complete: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }},
	} {
		s := serve(t, store.ServeHTTP)
		client := newClient(t, objectstore.Config{Endpoint: s.URL}, validating)
		g, _ := breaker(t, resilience.Config{FailMax: 100})
		_ = uploadParts(t.Context(), t, g, client)
		for _, op := range operations(t, g, client) {
			_ = op(t.Context())
		}
		idle(client)
	}
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 4\r\n\r\ntext", // the SDK misses a checksum
		"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 500\r\n\r\n<Lis",
	} {
		client := newClient(t, objectstore.Config{Endpoint: hostile.Serve(t, hostile.Text(answer))}, validating)
		g, _ := breaker(t, resilience.Config{FailMax: 100})
		for range 5 {
			_ = getBody(t.Context(), client, "bucket", "key")(g)
			_, _ = g.ListObjectsV2(t.Context(), client, &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
		}
		idle(client)
	}
	assert.Empty(t, written())
}

// validating has the SDK warn of answers without a checksum.
func validating(o *s3.Options) {
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
}

// listener counts how uploads end.
type listener struct{ complete, failed int }

func (l *listener) OnObjectTransferComplete(context.Context, *transfermanager.ObjectTransferCompleteEvent) {
	l.complete++
}

func (l *listener) OnObjectTransferFailed(context.Context, *transfermanager.ObjectTransferFailedEvent) {
	l.failed++
}

func TestListenersHearHowAnUploadEnded(t *testing.T) {
	for _, row := range []struct {
		store *steps
		want  listener
	}{
		{&steps{}, listener{complete: 1}},
		{&steps{part: says(500, "InternalError")}, listener{failed: 1}},
		{&steps{complete: says(500, "InternalError")}, listener{failed: 1}},
	} {
		got := &listener{}
		g, _ := breaker(t, resilience.Config{})
		_ = uploadParts(t.Context(), t, g, plainClient(serve(t, row.store.ServeHTTP).URL),
			func(o *transfermanager.Options) { o.ObjectProgressListeners.Register(got) })
		assert.Equal(t, row.want, *got)
	}
}

// assembling answers with white space in many pieces before its result, as S3
// does while it puts a large object together.
func assembling(result string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for range 100 {
			_, _ = io.WriteString(w, "\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, result)
	}
}

const (
	copyResult     = `<CopyObjectResult><ETag>"e"</ETag></CopyObjectResult>`
	completeResult = `<CompleteMultipartUploadResult><ETag>"e-3"</ETag></CompleteMultipartUploadResult>`
)

// CallTimeout cut calls whose store still sent white space. Here it is over
// before a call begins.
func TestStoreThatStillSendsWhiteSpaceIsNotCut(t *testing.T) {
	s := serve(t, (&steps{complete: assembling(completeResult)}).ServeHTTP)
	hurried := newClient(t, objectstore.Config{Endpoint: s.URL, CallTimeout: 1})
	defer idle(hurried)
	g, _ := breaker(t, resilience.Config{})
	for range 20 { // net/http closed the connection of some, see flow
		require.NoError(t, uploadParts(t.Context(), t, g, lastStep{plainClient(s.URL), hurried}))
	}
	s.set(assembling(copyResult))
	in := &s3.CopyObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from")}
	_, err := g.CopyObject(t.Context(), hurried, in)
	require.NoError(t, err)
	_, err = g.ListObjectsV2(t.Context(), hurried, &s3.ListObjectsV2Input{Bucket: aws.String("b")})
	require.ErrorIs(t, err, context.DeadlineExceeded, "white space is no list")
}

// lastStep has a client of its own for the last step of an upload.
type lastStep struct {
	*s3.Client
	last *s3.Client
}

func (l lastStep) CompleteMultipartUpload(
	ctx context.Context, in *s3.CompleteMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.CompleteMultipartUploadOutput, error) {
	return l.last.CompleteMultipartUpload(ctx, in, optFns...)
}

// A store that falls silent in the middle of its white space is cut, and one
// that never stops sending it has an hour.
func TestWhiteSpaceHasLimits(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	client := newClient(t, objectstore.Config{Endpoint: s.URL, IdleTimeout: 50 * time.Millisecond})
	defer idle(client)
	in := &s3.CopyObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from")}
	g, b := breaker(t, resilience.Config{})
	_, err := g.CopyObject(t.Context(), client, in)
	require.Error(t, err)
	assert.EqualValues(t, 1, b.Snapshot().Failures, "%v", err)

	for call, want := range map[time.Duration]time.Duration{time.Minute: time.Hour, 2 * time.Hour: 2 * time.Hour} {
		client := newClient(t, objectstore.Config{Endpoint: s.URL, CallTimeout: call})
		limit := &deadlines{}
		_, _ = g.CopyObject(t.Context(), client, in, func(o *s3.Options) { o.HTTPClient = limit })
		assert.InDelta(t, want, limit.left, float64(10*time.Second))
		_, _ = g.HeadBucket(t.Context(), client, &s3.HeadBucketInput{Bucket: aws.String("b")},
			func(o *s3.Options) { o.HTTPClient = limit })
		assert.InDelta(t, call, limit.left, float64(10*time.Second))
	}
}

// deadlines sends nothing and sees how long a request may take.
type deadlines struct{ left time.Duration }

func (d *deadlines) Do(r *http.Request) (*http.Response, error) {
	at, _ := r.Context().Deadline()
	d.left = time.Until(at)
	return nil, errors.New("not sent")
}

// The probe of a breaker lost its lease while S3 put the object together.
func TestWhiteSpaceRenewsTheLease(t *testing.T) {
	for _, op := range []string{"CopyObject", "UploadFile"} {
		g, b, clock := probing(t)
		enough := make(chan struct{})
		ticks := 0
		slow := func(text string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				for range 5 {
					_, _ = io.WriteString(w, "\n")
					_ = http.NewResponseController(w).Flush()
					<-enough
				}
				_, _ = io.WriteString(w, text)
			}
		}
		s := serve(t, (&steps{complete: slow(completeResult)}).ServeHTTP)
		client := plainClient(s.URL)
		tick := func(o *s3.Options) {
			o.HTTPClient = &ticking{o.HTTPClient, "\n", func() {
				if ticks++; ticks <= 5 {
					clock.Advance(40 * time.Second) // the lease has 60
					enough <- struct{}{}
				}
			}}
		}
		if op == "CopyObject" {
			s.set(slow(copyResult))
			in := &s3.CopyObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from")}
			_, err := g.CopyObject(t.Context(), client, in, tick)
			require.NoError(t, err)
		} else {
			require.NoError(t, uploadParts(t.Context(), t, g, s3.New(client.Options(), tick)))
		}
		assert.Equal(t, resilience.Closed, b.State(), op)
		assert.EqualValues(t, 1, b.Snapshot().Probes, op)
	}
}

// ticking calls tick when a read of a body has given just text.
type ticking struct {
	s3.HTTPClient
	text string
	tick func()
}

func (c *ticking) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.HTTPClient.Do(r)
	if err == nil {
		resp.Body = &tickingBody{resp.Body, c.text, c.tick}
	}
	return resp, err
}

type tickingBody struct {
	io.ReadCloser
	text string
	tick func()
}

func (b *tickingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if string(p[:n]) == b.text {
		b.tick()
	}
	return n, err
}
