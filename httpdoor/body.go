package httpdoor

import (
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/door"
)

// withBody is r with the context of its call, and its body, or nil.
func withBody(r *http.Request, h *door.Handle) (*http.Request, *sending) {
	sent := r.WithContext(h.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return sent, nil
	}
	body := &sending{ReadCloser: r.Body, h: h}
	sent.Body = body
	return sent, body
}

// sending is a request's body, which renews a probe's lease as it is sent.
type sending struct {
	io.ReadCloser

	h      *door.Handle
	closed atomic.Bool // after which its reader may say anything
	broken atomic.Bool // its reader said an error before
}

func (b *sending) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.h.RenewFor(0) // what is below may have bounded a longer silence
	}
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.broken.Store(true)
	}
	return n, err
}

func (b *sending) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// failed reports whether the caller's reader did.
func (b *sending) failed() bool { return b != nil && b.broken.Load() }

// receiving is a response's body at whose end the call ends.
type receiving struct {
	inner io.ReadCloser
	h     *door.Handle
}

// follow puts the end of the call at the end of its body. If nobody reads or
// closes it, the call is abandoned when the body is garbage-collected.
func follow(h *door.Handle, body io.ReadCloser) io.ReadCloser {
	b := &receiving{body, h}
	if h.Holds() {
		runtime.AddCleanup(b, (*door.Handle).Abandon, h)
	}
	w, writes := body.(io.Writer)
	half, halves := body.(halfCloser)
	switch {
	case writes && halves:
		return &switchedHalf{switched{b, w}, half}
	case writes:
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

// Close ends the call. Before the end of the body, or beside a Read, that says
// nothing.
func (b *receiving) Close() error {
	if !b.h.Over() {
		if !b.h.InUse() && b.drained() {
			b.h.End(nil)
		}
		b.h.Abandon()
	}
	return b.inner.Close()
}

// drained reads what is left, if that is next to nothing. It may leave a Read
// behind, which ends with the Close that follows.
func (b *receiving) drained() bool {
	whole := make(chan bool, 1)
	go func() {
		defer func() {
			if recover() != nil { // the caller would have had it, and did not read
				whole <- false
			}
		}()
		_, err := io.CopyN(io.Discard, b.inner, drainBytes)
		whole <- err == io.EOF //nolint:errorlint // the very end
	}()
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case w := <-whole:
		return w
	case <-timer.C:
		return false
	}
}

// halfCloser ends one direction of a connection.
type halfCloser interface{ CloseWrite() error }

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
	return b.inner.Close()
}

// switchedHalf is one that can be closed in one direction.
type switchedHalf struct {
	switched
	halfCloser
}
