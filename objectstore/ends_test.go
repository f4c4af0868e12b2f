package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// bucket is a server that keeps the bodies that reach it whole, and whose ETags
// say nothing of them.
type bucket struct {
	*httptest.Server
	mu   sync.Mutex
	kept []int // bytes of each
}

func keeping(t *testing.T, start func(*httptest.Server)) (*bucket, *s3.Client) {
	b := &bucket{}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.kept = append(b.kept, bytes.Count(body, []byte("x"))) // the SDK may add a trailer
		w.Header().Set("ETag", `"no MD5"`)
	}))
	b.EnableHTTP2 = true
	start(b.Server)
	t.Cleanup(b.Close)
	client := b.Client()
	return b, s3.New(plainClient(b.URL).Options(), func(o *s3.Options) { o.HTTPClient = client })
}

func (b *bucket) taken() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.kept
	b.kept = nil
	return kept
}

// seeking is a body that says it has size bytes, and gives those of the reader
// that it makes for each pass.
type seeking struct {
	io.Reader
	size  int
	again func() io.Reader
}

func (s *seeking) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return int64(s.size), nil
	}
	if whence == io.SeekStart {
		s.Reader = s.again()
	}
	return 0, nil
}

func seekingOver(size int, again func() io.Reader) io.Reader {
	return &seeking{again(), size, again}
}

// stuttering gives nothing now and then, which is no end.
type stuttering struct {
	r    io.Reader
	turn int
}

func (s *stuttering) Read(p []byte) (int, error) {
	if s.turn++; s.turn%2 == 1 {
		return 0, nil
	}
	return s.r.Read(p)
}

// A body whose reader failed with an error that wraps io.EOF was stored by its
// half, as whole.
func TestReadersThatEndOddly(t *testing.T) {
	wrapped := fmt.Errorf("the source broke off: %w", io.EOF)
	unexpected := fmt.Errorf("the source broke off: %w", io.ErrUnexpectedEOF)
	for transport, start := range map[string]func(*httptest.Server){
		"HTTP": (*httptest.Server).Start,
		"TLS":  (*httptest.Server).StartTLS,
	} {
		store, client := keeping(t, start)
		for _, size := range []int{0, 1, 100_000, 1<<20 - 1, 1 << 20, 1<<20 + 1, 1<<20 + 2, 3 << 20} {
			text := func() io.Reader { return strings.NewReader(strings.Repeat("x", size)) }
			for _, row := range []struct {
				name string
				body io.Reader
				want error // nil for one that is stored whole
			}{
				{"at its end", io.MultiReader(text()), nil},
				{"with its last bytes", iotest.DataErrReader(text()), nil},
				{"in halves", iotest.HalfReader(text()), nil},
				{"with nothing in between", &stuttering{r: text()}, nil},
				{"wraps io.EOF", &testutil.BreakOff{Left: size, Err: wrapped}, wrapped},
				{
					"wraps io.EOF with its last bytes", &testutil.BreakOff{Left: size, Err: wrapped, WithLast: true},
					wrapped,
				},
				{"io.ErrUnexpectedEOF", &testutil.BreakOff{Left: size, Err: io.ErrUnexpectedEOF}, io.ErrUnexpectedEOF},
				{
					"wraps io.ErrUnexpectedEOF with its last bytes",
					&testutil.BreakOff{Left: size, Err: unexpected, WithLast: true}, unexpected,
				},

				{"seeking, in halves", seekingOver(size, func() io.Reader { return iotest.HalfReader(text()) }), nil},
				{
					"seeking, wraps io.EOF",
					seekingOver(size+5, func() io.Reader { return &testutil.BreakOff{Left: size, Err: wrapped} }),
					wrapped,
				},
				{
					"seeking, wraps io.EOF with its last bytes",
					seekingOver(size+5, func() io.Reader {
						return &testutil.BreakOff{Left: size, Err: wrapped, WithLast: true}
					}), wrapped,
				},
				{
					"seeking, wraps io.EOF behind its end",
					seekingOver(size, func() io.Reader { return &testutil.BreakOff{Left: size, Err: wrapped} }),
					wrapped,
				},
				{"seeking, ends early", seekingOver(size+5, text), io.ErrUnexpectedEOF},
			} {
				name := fmt.Sprintf("%s, %d bytes, %s", transport, size, row.name)
				if size == 0 && row.name == "seeking, wraps io.EOF behind its end" {
					continue // nobody reads a body of no bytes
				}
				g, b := breaker(t, resilience.Config{})
				in := put("key", "")
				in.Body = row.body
				_, err := g.PutObject(t.Context(), client, in)
				kept := store.taken()
				if row.want == nil {
					require.NoError(t, err, name)
					assert.Equal(t, []int{size}, kept, name)
					continue
				}
				require.ErrorIs(t, err, row.want, name)
				assert.Zero(t, b.Snapshot().Failures, "%s: the store is not at fault", name)
			}
		}
	}
}

// A body that was announced as longer or shorter than it is was sent as
// announced; as 0, nothing of it was.
func TestAnnouncedLengthIsTheBodys(t *testing.T) {
	store, client := keeping(t, (*httptest.Server).StartTLS)
	g, b := breaker(t, resilience.Config{})
	for _, length := range []int64{0, 1, 3, 5, 100} {
		for name, body := range map[string]io.Reader{
			"seeking":     strings.NewReader("xxxx"),
			"not seeking": io.MultiReader(strings.NewReader("xxxx")),
		} {
			in := put("key", "")
			in.Body, in.ContentLength = body, aws.Int64(length)
			_, err := g.PutObject(t.Context(), client, in)
			var input *objectstore.InputError
			require.ErrorAs(t, err, &input, "%s, %d", name, length)
		}
	}
	assert.Empty(t, store.taken())
	in := put("key", "xxxx")
	in.ContentLength = aws.Int64(4)
	_, err := g.PutObject(t.Context(), client, in)
	require.NoError(t, err)
	_, err = in.Body.(io.Seeker).Seek(1, io.SeekStart)
	require.NoError(t, err)
	in.ContentLength = aws.Int64(3)
	_, err = g.PutObject(t.Context(), client, in)
	require.NoError(t, err, "a body begins where it stands")
	assert.Equal(t, []int{4, 3}, store.taken())
	assert.Zero(t, b.Snapshot().Failures)
}

// jumping is a clock on which a minute passes once somebody has looked at it.
type jumping struct {
	*testutil.FakeClock
	once *sync.Once
}

func (j *jumping) Now() time.Time {
	now := j.FakeClock.Now()
	if j.once != nil {
		j.once.Do(func() { j.Advance(time.Minute) })
	}
	return now
}

// A body that was not copied, since the breaker would refuse it, was sent as it
// was when the breaker had changed its mind a moment later.
func TestBodyForABreakerThatWasNotReadyIsCopied(t *testing.T) {
	store := openStore(t)
	wrapped := fmt.Errorf("the source broke off: %w", io.EOF)
	for _, row := range []struct {
		body   io.Reader
		length *int64
	}{
		{&testutil.BreakOff{Left: 5, Err: wrapped}, nil},
		{io.MultiReader(strings.NewReader("xxxxx")), aws.Int64(0)},
		{io.MultiReader(strings.NewReader("xxxxx")), nil},
	} {
		clock := &jumping{FakeClock: testutil.NewClock()}
		g, b := breaker(t, resilience.Config{Clock: clock})
		b.Trip("test")
		clock.once = new(sync.Once)
		in := put("key", "")
		in.Body, in.ContentLength = row.body, row.length
		seen := &watching{Writer: store}
		_, err := g.PutObject(t.Context(), seen, in)
		require.NotErrorIs(t, err, resilience.ErrOpen)
		if seen.body == nil {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		assert.Implements(t, (*io.Seeker)(nil), seen.body)
	}
}

// watching keeps the body that it is given.
type watching struct {
	objectstore.Writer
	body io.Reader
}

func (w *watching) PutObject(
	ctx context.Context, in *s3.PutObjectInput, optFns ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	w.body = in.Body
	return w.Writer.PutObject(ctx, in, optFns...)
}

// impatient answers well when it has seen some of a body.
type impatient struct{ objectstore.Writer }

func (impatient) PutObject(
	_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	for {
		if _, err := in.Body.Read(make([]byte, 1)); err != nil {
			return &s3.PutObjectOutput{ETag: aws.String("e")}, nil
		}
	}
}

// The reader's error was lost when the store answered before it was sent.
func TestGoodAnswerToABodyThatBrokeOff(t *testing.T) {
	g, b := breaker(t, resilience.Config{})
	broke := errors.New("the caller's disk")
	in := put("key", "")
	in.Body = seekingOver(10, func() io.Reader { return &testutil.BreakOff{Left: 5, Err: broke} })
	_, err := g.PutObject(t.Context(), impatient{}, in)
	require.ErrorIs(t, err, broke)
	assert.EqualValues(t, 1, b.Snapshot().Ignored)
}

// A body that ended before its announced length was taken for whole.
func TestReceivedBodyThatEndsEarly(t *testing.T) {
	store := openStore(t)
	keep(t, store, "key", "0123456789", nil)
	for _, row := range []struct {
		came string
		ok   bool
	}{{"", false}, {"012345678", false}, {"0123456789", true}} {
		g, b := breaker(t, resilience.Config{})
		out, err := g.GetObject(
			t.Context(),
			lying{store, func(o *s3.GetObjectOutput) { o.Body = io.NopCloser(strings.NewReader(row.came)) }},
			get("key"),
		)
		require.NoError(t, err)
		got, err := io.ReadAll(out.Body)
		assert.Equal(t, row.came, string(got))
		require.NoError(t, out.Body.Close())
		if row.ok {
			require.NoError(t, err)
			continue
		}
		var broken *objectstore.ContractError
		require.ErrorAs(t, err, &broken)
		assert.Contains(t, err.Error(), fmt.Sprintf("%d bytes", 10-len(row.came)))
		assert.EqualValues(t, 1, b.Snapshot().Failures)
	}
}

// shutBody is a body whose Read lasts until it is closed, and whose Close lasts
// until the reader knows.
type shutBody struct {
	closed, read chan struct{}
}

func (b shutBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, errors.New("read on a closed body")
}

func (b shutBody) Close() error {
	close(b.closed)
	<-b.read
	return nil
}

// The close of a body makes a Read in another goroutine fail, which counted as
// a failure of the store.
func TestBodyClosedBesideItsReaderIsNoFailure(t *testing.T) {
	store := openStore(t)
	keep(t, store, "key", "text", nil)
	g, b := breaker(t, resilience.Config{})
	body := shutBody{make(chan struct{}), make(chan struct{})}
	out, err := g.GetObject(t.Context(), lying{store, func(o *s3.GetObjectOutput) {
		_ = o.Body.Close()
		o.Body = body
	}}, get("key"))
	require.NoError(t, err)
	go func() {
		_, _ = out.Body.Read(make([]byte, 1))
		close(body.read)
	}()
	require.NoError(t, out.Body.Close())
	assert.EqualValues(t, 1, b.Snapshot().Ignored)
	assert.Zero(t, b.Snapshot().Failures)
}
