package httpdoor

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/penstock-go/penstock/internal/door"
)

// withBody is r with the context of its call, whose body renews a probe's lease
// as it is sent.
func withBody(ctx context.Context, r *http.Request, h *door.Handle) *http.Request {
	sent := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		sent.Body = &sending{r.Body, h}
	}
	return sent
}

type sending struct {
	io.ReadCloser
	h *door.Handle
}

func (b *sending) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.h.RenewFor(0) // what is below may have bounded a longer silence
	}
	return n, err
}

// receiving is a response's body at whose end the call ends.
type receiving struct {
	inner  io.ReadCloser
	h      *door.Handle
	cancel context.CancelFunc // ends what is below
}

// follow puts the end of the call at the end of its body. If nobody reads or
// closes it, the call is abandoned when the body is garbage-collected.
func follow(h *door.Handle, cancel context.CancelFunc, body io.ReadCloser) io.ReadCloser {
	b := &receiving{body, h, cancel}
	if h.Holds() {
		runtime.AddCleanup(b, (*door.Handle).Abandon, h)
	}
	if w, ok := body.(io.Writer); ok {
		return &switched{b, w}
	}
	return b
}

// Read ends the call at the end of the body, io.EOF or an error.
func (b *receiving) Read(p []byte) (int, error) {
	u := b.h.Using()
	defer u.Done()
	n, err := b.inner.Read(p)
	switch {
	case err != nil:
		b.h.End(err)
	case n > 0:
		b.h.Renew()
	}
	u.Returned = true
	return n, err
}

// What is left of a body at its Close may take so long, and be so long, to be
// read: a decoder of JSON stops at the end of the value, and leaves the end of
// the body behind it.
const (
	drainTime  = 20 * time.Millisecond
	drainBytes = 4 << 10
)

// Close ends the call. Before the end of the body, that says nothing.
func (b *receiving) Close() error {
	if !b.h.Over() {
		timer := time.AfterFunc(drainTime, b.cancel)
		if _, err := io.CopyN(io.Discard, b.inner, drainBytes); err == io.EOF { //nolint:errorlint // the very end
			b.h.End(nil)
		}
		timer.Stop()
		b.h.Abandon()
	}
	err := b.inner.Close()
	b.cancel()
	return err
}

// switched is the body of a response that speaks another protocol from there
// on. Its call ends with a success when it is closed.
type switched struct {
	*receiving
	w io.Writer
}

func (b *switched) Write(p []byte) (int, error) {
	n, err := b.w.Write(p)
	if n > 0 {
		b.h.Renew()
	}
	return n, err
}

func (b *switched) Close() error {
	b.h.End(nil)
	err := b.inner.Close()
	b.cancel()
	return err
}
