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
	"github.com/penstock-go/penstock/testutil/llmtest"
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
		for _, content := range []string{ // read once, and twice
			page(100), page(4 << 20)} {
			whole := false
			for half := 0; !whole; half++ {
				name := fmt.Sprintf("%s, %d bytes, after %d halves of it", row.name, len(content), half)
				require.Less(t, half, 100, name)
				w := newWorld(t, llmtest.Options{})
				w.corpus(1)
				_, err := w.run() // makes the collection
				require.NoError(t, err)
				file := &breaking{content: content, err: row.err}
				file.left.Store(int64(half * len(content) / 2))
				_, err = w.pipeline().Run(t.Context(), one(opened("docs/a.html", file)))
				assert.Zero(t, w.config.ObjectGuard.Breaker.Snapshot().Failures, "%s: no fault of the store", name)
				got := w.reports["docs/a.html"]
				if whole = file.left.Load() >= 0; whole {
					require.NoError(t, err, name)
					require.Equal(t, pipeline.Ingested, got.Result, "%s: %+v", name, got)
					continue
				}
				require.Equal(t, row.result, got.Result, "%s: %+v", name, got)
				require.Equal(t, row.result == pipeline.Deferred, err != nil, name)
				for _, row := range w.rows() {
					require.False(t, row.IsMark() && row.Source == "docs/a.html", name)
				}
				assert.Equal(t, [2]string{"read", row.kind}, [2]string{got.Stage, got.Kind}, name)
			}
		}
	}
}
