package pipeline_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
)

// breaking is content that can be read so many bytes long, and then only up to
// its half, where reads end with err.
type breaking struct {
	content string
	err     error
	left    atomic.Int64
}

func (b *breaking) Size() int64  { return int64(len(b.content)) }
func (b *breaking) Close() error { return nil }

func (b *breaking) ReadAt(p []byte, off int64) (int, error) {
	content, end := b.content, io.EOF
	if b.left.Add(-int64(len(p))) < 0 {
		content, end = content[:len(content)/2], b.err
	}
	if off >= int64(len(content)) {
		return 0, end
	}
	if n := copy(p, content[off:]); n < len(p) {
		return n, end
	}
	return len(p), nil
}

// A file that broke off while it was read, or was cut short meanwhile, became a
// document of its half.
func TestFileThatBreaksOffIsNoDocument(t *testing.T) {
	page := func(comment int) string {
		return "<html><p>A valve was opened.</p><!--" + strings.Repeat("-", comment) + "--><p>It was closed.</p></html>"
	}
	for _, row := range []struct {
		name   string
		err    error
		result pipeline.Result
		kind   string
	}{
		{"cut short", io.EOF, pipeline.Deferred, "changed"},
		{"an error that wraps io.EOF", fmt.Errorf("broke off: %w", io.EOF), pipeline.DeadLetter, "unreadable"},
		{"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF, pipeline.DeadLetter, "unreadable"},
		{"another error", errors.New("broke off"), pipeline.DeadLetter, "unreadable"},
	} {
		for _, content := range []string{page(100), page(4 << 20)} { // read once, and twice
			t.Run(fmt.Sprintf("%s, %d bytes", row.name, len(content)), func(t *testing.T) {
				t.Parallel()
				half := 0
				for readsHalves(t, content, row.err, half, row.result, row.kind) {
					half++
					require.Less(t, half, 100)
				}
			})
		}
	}
}

// readsHalves ingests a document that breaks off after so many halves of it
// were read. It is false if that was enough to read it.
func readsHalves(t *testing.T, content string, end error, half int, result pipeline.Result, kind string) bool {
	t.Helper()
	const id = "docs/a.html"
	name := fmt.Sprintf("after %d halves", half)
	w := newStillWorld(t)
	w.corpus(1)
	_, err := w.run() // makes the collection
	require.NoError(t, err)
	file := &breaking{content: content, err: end}
	file.left.Store(int64(half * len(content) / 2))
	_, err = w.pipeline().Run(t.Context(), one(opened(id, file)))
	assert.Zero(t, w.config.ObjectGuard.Breaker.Snapshot().Failures, "%s: the store is not to blame", name)
	got := w.reports[id]
	if file.left.Load() >= 0 {
		require.NoError(t, err, name)
		require.Equal(t, pipeline.Ingested, got.Result, "%s: %+v", name, got)
		return false
	}
	require.Equal(t, result, got.Result, "%s: %+v", name, got)
	require.Equal(t, result == pipeline.Deferred, err != nil, name)
	for _, row := range w.rowsOf(id) {
		require.False(t, row.IsMark(), name)
	}
	assert.Equal(t, [2]string{"read", kind}, [2]string{got.Stage, got.Kind}, name)
	return true
}
