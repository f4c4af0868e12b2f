package objectstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/resilience"
)

func openStore(t testing.TB) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	return s
}

func keep(t testing.TB, store objectstore.Writer, key, body string, metadata map[string]string) {
	t.Helper()
	in := put(key, body)
	in.Metadata = metadata
	_, err := store.PutObject(t.Context(), in)
	require.NoError(t, err)
}

// folder lists the names in a folder.
func folder(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// breaking is a store whose bodies break off after so many bytes, and that
// notes the ranges it was asked for.
type breaking struct {
	objectstore.Reader
	after  int64
	ranges []string
}

func (b *breaking) GetObject(
	ctx context.Context, in *s3.GetObjectInput, optFns ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	b.ranges = append(b.ranges, aws.ToString(in.Range))
	out, err := b.Reader.GetObject(ctx, in, optFns...)
	if err == nil && b.after >= 0 {
		out.Body = &breakingBody{out.Body, b.after}
	}
	return out, err
}

type breakingBody struct {
	io.ReadCloser
	left int64
}

func (b *breakingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func TestDownloadIsResumed(t *testing.T) {
	store := openStore(t)
	g, b := breaker(t, resilience.Config{})
	body := strings.Repeat("0123456789", 50_000)
	keep(t, store, "key", body, map[string]string{"a": "1"})
	file := filepath.Join(t.TempDir(), "file")
	flaky := &breaking{store, 300_000, nil}
	_, err := g.DownloadFile(t.Context(), flaky, get("key"), file)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, uint64(1), b.Snapshot().Failures, "a body that breaks off counts")
	assert.NoFileExists(t, file)

	out, err := g.DownloadFile(t.Context(), flaky, get("key"), file)
	require.NoError(t, err)
	assert.Equal(t, []string{"", "bytes=300000-"}, flaky.ranges)
	sum := sha256.Sum256([]byte(body))
	assert.Equal(t, hex.EncodeToString(sum[:]), out.SHA256)
	assert.Equal(t, [2]int64{500_000, 300_000}, [2]int64{out.Size, out.Resumed})
	assert.Equal(t, map[string]string{"a": "1"}, out.Metadata)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(got) == body, "the file is not the object")
	assert.Equal(t, []string{"file"}, folder(t, filepath.Dir(file)))
}

func TestResumedDownloadOfAnotherVersionStartsOver(t *testing.T) {
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	file := filepath.Join(t.TempDir(), "file")
	for _, second := range []string{strings.Repeat("b", 2000), "b"} { // 412, and a range beyond the end
		keep(t, store, "key", strings.Repeat("a", 1000), nil)
		flaky := &breaking{store, 400, nil}
		_, err := g.DownloadFile(t.Context(), flaky, get("key"), file)
		require.Error(t, err)
		keep(t, store, "key", second, nil)
		flaky.after = -1
		out, err := g.DownloadFile(t.Context(), flaky, get("key"), file)
		require.NoError(t, err)
		assert.Zero(t, out.Resumed)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, second, string(got))
		assert.Equal(t, []string{"file"}, folder(t, filepath.Dir(file)))
	}
}

// TestFileIsWholeOrNotThere looks at the final name while downloads run, break
// off and are cancelled.
func TestFileIsWholeOrNotThere(t *testing.T) {
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{FailMax: 1000})
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	body := strings.Repeat("new", 100_000)
	keep(t, store, "key", body, nil)
	for _, after := range []int64{0, 1, 65536, 100_000} {
		_, err := g.DownloadFile(t.Context(), &breaking{store, after, nil}, get("key"), file)
		require.Error(t, err)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "old", string(got))
	}
	_, err := g.DownloadFile(t.Context(), store, get("key"), file)
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(got) == body)
}

func TestChecksumMismatchIsDetected(t *testing.T) {
	store := openStore(t)
	g, b := breaker(t, resilience.Config{})
	file := filepath.Join(t.TempDir(), "file")
	keep(t, store, "hash", "text", map[string]string{"sha256": strings.Repeat("0", 64)})
	keep(t, store, "md5", "text", nil)
	keep(t, store, "short", "text", nil)
	for _, row := range []struct {
		key     string
		client  objectstore.Reader
		problem string
	}{
		{"hash", store, "SHA-256"},
		{"md5", lying{store, func(o *s3.GetObjectOutput) { o.Body = io.NopCloser(strings.NewReader("tixt")) }}, "MD5"},
		{
			"short",
			lying{store, func(o *s3.GetObjectOutput) { o.Body = io.NopCloser(strings.NewReader("tex")) }},
			"has 4 bytes, 3 came",
		},
		{
			"short",
			lying{store, func(o *s3.GetObjectOutput) { o.ContentRange = aws.String("bytes x") }},
			"Content-Range",
		},
	} {
		_, err := g.DownloadFile(t.Context(), row.client, get(row.key), file)
		var broken *objectstore.ContractError
		require.ErrorAs(t, err, &broken, row.problem)
		assert.Contains(t, err.Error(), row.problem)
		assert.Empty(t, folder(t, filepath.Dir(file)), "nothing wrong is kept to be resumed")
	}
	assert.Equal(t, uint64(4), b.Snapshot().Failures)
}

type lying struct {
	objectstore.Reader
	change func(*s3.GetObjectOutput)
}

func (l lying) GetObject(
	ctx context.Context, in *s3.GetObjectInput, optFns ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	out, err := l.Reader.GetObject(ctx, in, optFns...)
	if err == nil {
		l.change(out)
	}
	return out, err
}

// TestPartialWithOtherBytesIsNotPublished: a resumed file is checked whole.
func TestPartialWithOtherBytesIsNotPublished(t *testing.T) {
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	keep(t, store, "key", strings.Repeat("a", 1000), nil)
	file := filepath.Join(t.TempDir(), "file")
	_, err := g.DownloadFile(t.Context(), &breaking{store, 400, nil}, get("key"), file)
	require.Error(t, err)
	partial := filepath.Join(filepath.Dir(file), folder(t, filepath.Dir(file))[0])
	require.NoError(t, os.WriteFile(partial, bytes.Repeat([]byte("b"), 400), 0o600))
	_, err = g.DownloadFile(t.Context(), store, get("key"), file)
	var broken *objectstore.ContractError
	require.ErrorAs(t, err, &broken)
	out, err := g.DownloadFile(t.Context(), store, get("key"), file)
	require.NoError(t, err, "the next try starts over")
	assert.Zero(t, out.Resumed)
}

func TestDownloadsToOnePathDoNotDisturbEachOther(t *testing.T) {
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	body := strings.Repeat("x", 1<<20)
	keep(t, store, "key", body, nil)
	file := filepath.Join(t.TempDir(), "file")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			out, err := g.DownloadFile(t.Context(), store, get("key"), file)
			if assert.NoError(t, err) {
				assert.Equal(t, int64(1<<20), out.Size)
			}
		})
	}
	group.Wait()
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(got) == body)
	_, err = g.DownloadFile(t.Context(), store, get("key"), file)
	require.NoError(t, err)
	assert.Equal(t, []string{"file"}, folder(t, filepath.Dir(file)))
}

func TestLocalFaultsAreNotCounted(t *testing.T) {
	store := openStore(t)
	g, b := breaker(t, resilience.Config{})
	keep(t, store, "key", "text", nil)
	_, err := g.DownloadFile(t.Context(), store, get("key"), filepath.Join(t.TempDir(), "no", "such", "folder", "file"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = g.UploadFile(
		t.Context(),
		store,
		&transfermanager.UploadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")},
		"/no/such/file",
	)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = g.UploadFile(
		t.Context(),
		store,
		&transfermanager.UploadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")},
		t.TempDir(),
	)
	require.Error(t, err, "a folder is not a file")
	for _, in := range []*s3.GetObjectInput{{Range: aws.String("bytes=0-1")}, {PartNumber: aws.Int32(1)}} {
		_, err = g.DownloadFile(t.Context(), store, in, "file")
		var input *objectstore.InputError
		require.ErrorAs(t, err, &input)
	}
	assert.Zero(t, b.Snapshot().Failures)
}

func TestUploadRefusesABodyAndUnprintableMetadata(t *testing.T) {
	store := openStore(t)
	var input *objectstore.InputError
	_, err := objectstore.UploadFile(
		t.Context(),
		store,
		&transfermanager.UploadObjectInput{Body: strings.NewReader("x")},
		"file",
	)
	require.ErrorAs(t, err, &input)
	_, err = objectstore.UploadFile(
		t.Context(),
		store,
		&transfermanager.UploadObjectInput{Metadata: map[string]string{"a": "é"}},
		"file",
	)
	require.ErrorAs(t, err, &input)
}

// changing appends to the file when the upload begins.
type changing struct {
	*filestore.Store
	file string
}

func (c changing) CreateMultipartUpload(
	ctx context.Context, in *s3.CreateMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.CreateMultipartUploadOutput, error) {
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("y"), 18<<20)
		_ = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return c.Store.CreateMultipartUpload(ctx, in, optFns...)
}

func TestFileThatChangesIsNotUploaded(t *testing.T) {
	store := openStore(t)
	g, b := breaker(t, resilience.Config{})
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, make([]byte, 20<<20), 0o600))
	_, err := g.UploadFile(
		t.Context(),
		changing{store, file},
		&transfermanager.UploadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")},
		file,
	)
	require.ErrorContains(t, err, "changed while it was uploaded")
	assert.Equal(t, uint64(1), b.Snapshot().Ignored)
	_, err = store.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
	require.Error(t, err)
}

func TestPartWithOtherBytesBreaksItsWord(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
		if r.URL.Query().Has("uploads") {
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
		}
	})
	g, b := breaker(t, resilience.Config{})
	err := operations(t, g, plainClient(s.URL))["UploadFile parts"](t.Context())
	var broken *objectstore.ContractError
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, uint64(1), b.Snapshot().Failures)
}

// bigFile writes size bytes that do not compress or repeat, and their SHA-256.
func bigFile(t testing.TB, size int64) (string, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(file)
	require.NoError(t, err)
	h := sha256.New()
	block := make([]byte, 1<<20)
	for i := int64(0); i < size; i += int64(len(block)) {
		sum := sha256.Sum256(fmt.Append(nil, i))
		copy(block, bytes.Repeat(sum[:], len(block)/len(sum)))
		_, err = io.MultiWriter(f, h).Write(block)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	return file, hex.EncodeToString(h.Sum(nil))
}

// peakHeap samples the heap while fn runs.
func peakHeap(fn func()) uint64 {
	var peak atomic.Uint64
	done, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapInuse))
			}
		}
	}()
	fn()
	close(done)
	<-sampled
	return peak.Load()
}

func testLargeFile(t *testing.T, client interface {
	objectstore.Reader
	objectstore.Uploader
}, bucket string,
) {
	const size = 200 << 20
	file, sum := bigFile(t, size)
	g, _ := breaker(t, resilience.Config{})
	runtime.GC()
	start := time.Now()
	peak := peakHeap(func() {
		_, err := g.UploadFile(
			t.Context(),
			client,
			&transfermanager.UploadObjectInput{Bucket: aws.String(bucket), Key: aws.String("big")},
			file,
		)
		require.NoError(t, err)
	})
	t.Logf("upload of 200 MiB: %v, peak heap %d MiB", time.Since(start).Round(time.Millisecond), peak>>20)
	assert.Less(t, peak, uint64(180<<20))
	start = time.Now()
	peak = peakHeap(func() {
		in := &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String("big")}
		out, err := g.DownloadFile(t.Context(), client, in, filepath.Join(t.TempDir(), "copy"))
		require.NoError(t, err)
		assert.Equal(t, sum, out.SHA256)
		assert.Equal(t, sum, out.Metadata["sha256"])
	})
	t.Logf("download of 200 MiB: %v, peak heap %d MiB", time.Since(start).Round(time.Millisecond), peak>>20)
	assert.Less(t, peak, uint64(180<<20))
}

func TestLargeFileEmbedded(t *testing.T) { testLargeFile(t, openStore(t), "bucket") }

func TestLargeFileSeaweedFS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	testLargeFile(t, clientFor(t, at), at.Bucket)
}

// What the caller's disk does not have is not a failure of S3.
func TestFilesThatAreNotThereAreTheCallers(t *testing.T) {
	store := openStore(t)
	nowhere := filepath.Join(t.TempDir(), "none", "file")
	_, err := objectstore.UploadFile(t.Context(), store, &transfermanager.UploadObjectInput{
		Bucket: aws.String("bucket"), Key: aws.String("k"),
	}, nowhere)
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, resilience.Ignored, objectstore.Classify(t.Context(), err).Outcome)
	_, err = objectstore.DownloadFile(t.Context(), store, &s3.GetObjectInput{
		Bucket: aws.String("bucket"), Key: aws.String("k"),
	}, nowhere)
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, resilience.Ignored, objectstore.Classify(t.Context(), err).Outcome)
}
