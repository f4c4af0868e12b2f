package objectstore_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// The SDK wraps its transport in one that cannot close idle connections: a
// client that was thrown away kept them.
func TestIdleConnectionsCanBeClosed(t *testing.T) {
	s := serve(t, says(200, ""))
	before := goleak.IgnoreCurrent()
	client := newClient(t, objectstore.Config{Endpoint: s.URL})
	g, _ := breaker(t, resilience.Config{})
	require.NoError(t, headBucket(t, client, "bucket")(g))
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

// rawServer answers each connection's first request with what say writes.
func rawServer(t *testing.T, say func(io.Writer, *http.Request)) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					say(conn, r)
				}
			})
		}
	})
	return "http://" + l.Addr().String()
}

func forever(w io.Writer, text string) {
	text = strings.Repeat(text, 4<<10)
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

func writes(text string) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// bare are operations whose good answer has nothing in it by which it could be
// told from another server's.
var bare = map[string]bool{"HeadBucket": true, "CreateBucket": true, "DeleteObject": true}

func TestServersThatLie(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n"
	for _, row := range []struct {
		name string
		say  func(io.Writer, *http.Request)
	}{
		{"length no number", writes(head + "Content-Length: many\r\n\r\n")},
		{"two lengths", writes(head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n")},
		{"chunks of garbage", writes(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}")},
		{"half of its XML", writes(head + "Connection: close\r\n\r\n<Result><Na")},
		{"no HTTP", writes("SSH-2.0-OpenSSH_9.2\r\n")},
		{"a page", writes("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 28\r\nConnection: close\r\n\r\n<html><p>sign in!</p></html>")},
		{"JSON", writes("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")},
		{"nothing", writes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")},
		{"no content", writes("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")},
		{"headers without end", func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, head); forever(w, "X-More: and more\r\n") }},
		{"hints without end", func(w io.Writer, _ *http.Request) { forever(w, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") }},
		{"XML without end", func(w io.Writer, _ *http.Request) {
			_, _ = io.WriteString(w, head+"Connection: close\r\n\r\n<R>")
			forever(w, "<a>")
		}},
		{"text without end", func(w io.Writer, _ *http.Request) {
			_, _ = io.WriteString(w, head+"Connection: close\r\n\r\n<R>")
			forever(w, "aaaa")
		}},
		{"no gzip", writes(head + "Content-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")},
		{"an error without end", func(w io.Writer, _ *http.Request) {
			_, _ = io.WriteString(w, "HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n<Error><Code>")
			forever(w, "oops")
		}},
		{"no words", writes("")},
	} {
		client := newClient(t, objectstore.Config{Endpoint: rawServer(t, row.say), CallTimeout: 500 * time.Millisecond}, quietly)
		g, b := breaker(t, resilience.Config{FailMax: 1000})
		for name, op := range operations(t, g, client) {
			started, before := time.Now(), b.Snapshot()
			err := op(t.Context())
			after := b.Snapshot()
			assert.Less(t, time.Since(started), 10*time.Second, "%s, %s: %v", row.name, name, err)
			assert.Zero(t, after.Ignored+after.Denied+after.Throttled, "%s, %s: %v", row.name, name, err)
			if !bare[name] {
				require.Error(t, err, "%s, %s", row.name, name)
				assert.Equal(t, before.Failures+1, after.Failures, "%s, %s: %v", row.name, name, err)
			}
		}
		idle(client)
	}
}

// quietly keeps the SDK from logging each answer that it cannot read.
func quietly(o *s3.Options) { o.Logger = logging.Nop{} }

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
		Bucket: aws.String("bucket"), Delete: &types.Delete{Quiet: aws.Bool(true), Objects: []types.ObjectIdentifier{{Key: aws.String("a")}}},
	})
	require.NoError(t, err, "nothing went wrong")
}

// A thousand callers on one client, while the server dies and comes back.
func TestThousandCallersWhileTheServerDies(t *testing.T) {
	var broken atomic.Bool
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "0123456789")
	})
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	client := newClient(t, objectstore.Config{Endpoint: s.URL}, quietly)
	defer idle(client)
	g, b := breaker(t, resilience.Config{ResetTimeout: 20 * time.Millisecond})
	calls := []func(objectstore.Guard) error{
		headBucket(t, client, "bucket"), getBody(t, client, "bucket", "key"),
		func(g objectstore.Guard) error {
			_, err := g.PutObject(t.Context(), client, put("key", "text"))
			return err
		},
		func(g objectstore.Guard) error { // closed without a look
			out, err := g.GetObject(t.Context(), client, get("key"))
			if err == nil {
				err = out.Body.Close()
			}
			return err
		},
	}
	var answered, failed, refused atomic.Int64
	var callers sync.WaitGroup
	for caller := range 1000 {
		callers.Go(func() {
			for turn := range 5 {
				if caller == 0 {
					broken.Store(turn%2 == 1)
				}
				switch err := calls[caller%4](g); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, resilience.ErrOpen):
					refused.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	broken.Store(false)
	require.Eventually(t, func() bool { return calls[0](g) == nil }, 10*time.Second, 10*time.Millisecond)
	n := b.Snapshot()
	assert.Equal(t, n.Calls, n.Successes+n.Failures+n.Ignored+n.Throttled+n.Denied+n.Panics, "%+v", n)
	assert.EqualValues(t, 5000, answered.Load()+failed.Load()+refused.Load())
	assert.True(t, b.Ready())
}

// A caller that leaves at any point of a call is ignored, and a probe's slot is
// free.
func TestCancelledAtEachStage(t *testing.T) {
	started := make(chan struct{}, 1)
	wait := func(w io.Writer, text string) {
		_, _ = io.WriteString(w, text)
		started <- struct{}{}
		_, _ = io.Copy(io.Discard, w.(io.Reader))
	}
	for name, say := range map[string]func(io.Writer, *http.Request){
		"before the headers": func(w io.Writer, _ *http.Request) { wait(w, "") },
		"in the headers":     func(w io.Writer, _ *http.Request) { wait(w, "HTTP/1.1 200 OK\r\nETa") },
		"in the body": func(w io.Writer, _ *http.Request) {
			wait(w, "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 500\r\n\r\n<Lis")
		},
	} {
		client := newClient(t, objectstore.Config{Endpoint: rawServer(t, say)}, quietly)
		for _, op := range []string{"PutObject", "GetObject", "ListObjectsV2", "DownloadFile", "UploadFile parts"} {
			g, b, _ := probing(t)
			call := operations(t, g, client)[op]
			if op == "GetObject" {
				call = func(ctx context.Context) error {
					out, err := g.GetObject(ctx, client, get("key"))
					if err == nil {
						_, err = io.ReadAll(out.Body)
					}
					return err
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- call(ctx) }()
			<-started
			cancel()
			require.Error(t, <-done, "%s, %s", name, op)
			assert.True(t, b.Ready(), "%s, %s", name, op)
			assert.EqualValues(t, 1, b.Snapshot().Ignored, "%s, %s: %+v", name, op, b.Snapshot())
		}
		idle(client)
	}
}
