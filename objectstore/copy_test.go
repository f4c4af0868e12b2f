package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// temporaries makes a folder for temporary files, and returns what is in it.
func temporaries(t *testing.T) (left func() []string) {
	t.Setenv("TMPDIR", t.TempDir())
	return func() []string { return folder(t, os.TempDir()) }
}

// unseekable is a body whose Seek fails in one of its ways.
type unseekable struct {
	io.Reader
	fails int // how it was asked: io.SeekCurrent or io.SeekEnd
}

func (u unseekable) Seek(_ int64, whence int) (int64, error) {
	if whence == u.fails {
		return 0, errors.New("illegal seek")
	}
	return 0, nil
}

// Pipes, sockets and devices have a Seek too, which fails or lies; a body of
// such a kind was refused, though the docs say that it is copied.
func TestBodyWhoseSeekFailsIsCopied(t *testing.T) {
	left := temporaries(t)
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	for _, size := range []int{0, 1, 3 << 20} {
		text := strings.Repeat("x", size)
		for name, body := range map[string]io.Reader{
			"pipe":       piped(t, text),
			"wrapped":    struct{ io.ReadSeeker }{piped(t, text)},
			"connection": connected(t, text),
			"no seek":    unseekable{strings.NewReader(text), io.SeekCurrent},
			"no end":     unseekable{strings.NewReader(text), io.SeekEnd},
		} {
			in := put("key", "")
			in.Body = body
			_, err := g.PutObject(t.Context(), store, in)
			require.NoError(t, err, "%s, %d bytes", name, size)
			out, err := g.GetObject(t.Context(), store, get("key"))
			require.NoError(t, err)
			got, err := io.ReadAll(out.Body)
			require.NoError(t, err)
			require.NoError(t, out.Body.Close())
			assert.True(t, string(got) == text, "%s, %d bytes: %d came", name, size, len(got))
		}
	}
	assert.Empty(t, left())
	device, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer device.Close()
	in := put("key", "")
	in.Body = device
	_, err = g.PutObject(t.Context(), store, in)
	require.NoError(t, err)
}

// piped is the end of a pipe from which text can be read.
func piped(t *testing.T, text string) *os.File {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	go func() {
		_, _ = io.WriteString(w, text)
		_ = w.Close()
	}()
	return r
}

// connected is one end of a connection, as a file.
func connected(t *testing.T, text string) *os.File {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// ending are contexts that end while a body is being copied, and what an error
// then is.
func ending(t *testing.T) map[string]func() (context.Context, func(), []error) {
	cause := errors.New("the run's budget is spent")
	return map[string]func() (context.Context, func(), []error){
		"cancelled": func() (context.Context, func(), []error) {
			ctx, cancel := context.WithCancel(t.Context())
			return ctx, cancel, []error{context.Canceled}
		},
		"cancelled with a cause": func() (context.Context, func(), []error) {
			ctx, cancel := context.WithCancelCause(t.Context())
			return ctx, func() { cancel(cause) }, []error{context.Canceled, cause}
		},
		"out of time": func() (context.Context, func(), []error) {
			ctx := &expiring{t.Context(), make(chan struct{})}
			return ctx, func() { close(ctx.done) }, []error{context.DeadlineExceeded}
		},
	}
}

// expiring is a context whose deadline is reached when the test says so.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A pipe that says nothing held a call for ever.
func TestCopyOfASilentBodyEndsWithItsContext(t *testing.T) {
	left := temporaries(t)
	before := goleak.IgnoreCurrent()
	s := serve(t, says(200, ""))
	for name, end := range ending(t) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		for _, body := range []io.Reader{r, io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)), r)} {
			ctx, now, want := end()
			started := make(chan struct{}, 1)
			in := put("key", "")
			in.Body = &reporting{body, started}
			if f, ok := body.(*os.File); ok {
				in.Body = f
				started <- struct{}{}
			}
			g, b := breaker(t, resilience.Config{})
			done := make(chan error)
			go func() { _, err := g.PutObject(ctx, plainClient(s.URL), in); done <- err }()
			<-started
			now()
			err := <-done
			for _, w := range want {
				require.ErrorIs(t, err, w, name)
			}
			assert.Zero(t, b.Snapshot().Calls, name)
		}
		_ = w.Close()
		_, _ = io.ReadAll(r) // its deadline is gone
		require.NoError(t, r.Close())
	}
	assert.Zero(t, s.requests.Load())
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*Server).Serve"))
	assert.Empty(t, left())
}

// reporting is a reader without a deadline, which says that it is read.
type reporting struct {
	io.Reader
	started chan struct{}
}

func (r *reporting) Read(p []byte) (int, error) {
	select {
	case r.started <- struct{}{}:
	default:
	}
	return r.Reader.Read(p)
}

// What a reader does in the goroutine that copies it happens to the caller.
func TestPanicOfABodyIsTheCallers(t *testing.T) {
	g, _ := breaker(t, resilience.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := put("key", "")
	in.Body = leaving{leave: panics}
	assert.PanicsWithValue(t, "a bug", func() { _, _ = g.PutObject(ctx, writeOnly{}, in) })
	in.Body = leaving{leave: runtime.Goexit}
	returned := false
	testutil.Isolate(func() { _, _ = g.PutObject(ctx, writeOnly{}, in); returned = true })
	assert.False(t, returned)
}

// What a file of the system says of itself is not its end.
func TestFileWithoutASizeIsUploadedWhole(t *testing.T) {
	const file = "/proc/self/status"
	if _, err := os.Stat(file); err != nil {
		t.Skip(err)
	}
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	in := put("key", "")
	in.Body = f
	_, err = g.PutObject(t.Context(), store, in)
	require.NoError(t, err)
	out, err := store.GetObject(t.Context(), get("key"))
	require.NoError(t, err)
	got, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	assert.True(t, bytes.HasPrefix(got, []byte("Name:")), "%d bytes", len(got))
}

// The temporary file is gone where the disk is full or the folder missing.
func TestBodyThatCannotBeCopiedIsNoFailure(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	g, b := breaker(t, resilience.Config{})
	in := put("key", "")
	in.Body = io.LimitReader(neverEnding('x'), 2<<20)
	_, err := g.PutObject(t.Context(), plainClient("http://127.0.0.1:1"), in)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Zero(t, b.Snapshot().Failures)
}

// An ETag without quotes is none of S3's, and says nothing of the bytes.
func TestBareETagIsNoMD5(t *testing.T) {
	const other = "d41d8cd98f00b204e9800998ecf8427e" // the MD5 of nothing
	for etag, fits := range map[string]bool{other: true, `"` + other + `"`: false, `"` + other: true} {
		s := serve(t, says(200, "", "ETag: "+etag))
		g, b := breaker(t, resilience.Config{})
		_, err := g.PutObject(t.Context(), plainClient(s.URL), put("key", "text"))
		s.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", etag)
			_, _ = io.WriteString(w, "text")
		})
		_, downErr := g.DownloadFile(t.Context(), plainClient(s.URL), get("key"), filepath.Join(t.TempDir(), "file"))
		if fits {
			require.NoError(t, err, etag)
			require.NoError(t, downErr, etag)
			continue
		}
		var broken *objectstore.ContractError
		require.ErrorAs(t, err, &broken, etag)
		require.ErrorAs(t, downErr, &broken, etag)
		assert.EqualValues(t, 2, b.Snapshot().Failures)
	}
}
