//go:build unix

package objectstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

func fifo(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	return path
}

func toKey() *transfermanager.UploadObjectInput {
	return &transfermanager.UploadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}
}

// An upload of a named pipe held its goroutine as long as nobody wrote to it,
// whatever the caller's deadline.
func TestUploadOfASilentPipeEndsWithItsContext(t *testing.T) {
	left := temporaries(t)
	before := goleak.IgnoreCurrent()
	store := openStore(t)
	for _, writer := range []bool{false, true} {
		for name, end := range ending(t) {
			path := fifo(t)
			if writer { // that says something and does not go
				w, err := os.OpenFile(path, os.O_RDWR, 0)
				require.NoError(t, err)
				_, err = w.WriteString("half")
				require.NoError(t, err)
				defer w.Close()
			}
			g, b := breaker(t, resilience.Config{})
			ctx, now, want := end()
			done := make(chan error)
			go func() { _, err := g.UploadFile(ctx, store, toKey(), path); done <- err }()
			now()
			err := <-done
			for _, w := range want {
				require.ErrorIs(t, err, w, "%s, with a writer: %v", name, writer)
			}
			assert.Zero(t, b.Snapshot().Calls, name)
		}
	}
	goleak.VerifyNone(t, before)
	assert.Empty(t, left())
}

func TestUploadOfAPipeIsWhole(t *testing.T) {
	left := temporaries(t)
	store := openStore(t)
	g, _ := breaker(t, resilience.Config{})
	for _, size := range []int{0, 4, 17 << 20} {
		text := strings.Repeat("x", size)
		path := fifo(t)
		go func() { _ = os.WriteFile(path, []byte(text), 0) }()
		_, err := g.UploadFile(t.Context(), store, toKey(), path)
		require.NoError(t, err, size)
		file := filepath.Join(t.TempDir(), "file")
		out, err := g.DownloadFile(t.Context(), store, get("key"), file)
		require.NoError(t, err, size)
		assert.EqualValues(t, size, out.Size)
		assert.Equal(t, out.SHA256, out.Metadata["sha256"])
	}
	assert.Empty(t, left())
}

// A pipe is read once, so it is not read while the breaker refuses.
func TestRefusedUploadLeavesThePipe(t *testing.T) {
	g, b := breaker(t, resilience.Config{})
	b.Trip("test")
	path := fifo(t)
	_, err := g.UploadFile(t.Context(), openStore(t), toKey(), path)
	require.ErrorIs(t, err, resilience.ErrOpen)
}

// A download in the place of a device or a pipe replaced it by a file.
func TestDownloadDoesNotReplaceAPipe(t *testing.T) {
	store := openStore(t)
	keep(t, store, "key", "text", nil)
	g, b := breaker(t, resilience.Config{})
	path := fifo(t)
	_, err := g.DownloadFile(t.Context(), store, get("key"), path)
	var input *objectstore.InputError
	require.ErrorAs(t, err, &input)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	assert.Zero(t, b.Snapshot().Calls)
}
