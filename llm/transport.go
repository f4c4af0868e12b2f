package llm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
)

// transport bounds each call in time and size, and tells the door what the
// answer's head says.
type transport struct {
	pooled *http.Transport // for requests with a body, which net/http never sends twice
	fresh  *http.Transport // for the others, which it sends again when a reused connection breaks

	timeout, chat, idle time.Duration
	limit               int64
}

// timeoutError says which bound was exceeded. It is a context.DeadlineExceeded
// to errors.Is.
type timeoutError struct {
	what  string
	after time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("llm: %s for %v: no answer in time", e.what, e.after)
}
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// RoundTrip sends one request once.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, limit := waitOf(r.Context()), t.timeout
	chat := isChat(w, r)
	if chat {
		limit = t.chat
	}
	keys := keysOf(r.Header)
	w.sent.Store(&keys)
	b := newBounds(r.Context())
	timer := b.after(limit, "waited")
	w.hold(limit)
	response, err := t.base(r).RoundTrip(r.WithContext(b.ctx))
	w.heard()
	if err == nil && response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest {
		_ = response.Body.Close()
		err = redirected(response, keys)
	}
	if err != nil {
		timer.Stop()
		err = redact(b.because(err), keys)
		b.cancel(nil)
		return nil, err
	}
	w.read(response.Header)
	response.Status = plain.Shorten(mask(response.Status, keys), mostWords)
	answer := &body{
		inner: response.Body, bounds: b, wait: w, timer: timer, silence: limit, left: t.limit, limit: t.limit,
	}
	if r.Header.Get("Accept") == "text/event-stream" {
		timer.Stop()
		answer.streams(chat, t.idle)
	}
	response.Body = &closable{ReadCloser: seen(w, response.StatusCode, answer, keys), body: answer}
	return response, nil
}

// seen is the body of an answer, rewritten where the SDK cannot read it or
// would pass over an error in it.
func seen(w *wait, status int, b io.ReadCloser, keys []string) io.ReadCloser {
	switch {
	case status >= http.StatusBadRequest:
		return &whole{
			ReadCloser: b, read: func(r io.ReadCloser) ([]byte, error) { return w.readError(r, status) },
			see: func(text []byte) ([]byte, error) { return shortError(mask(text, keys)), nil },
		}
	case w.operation == opChatStream:
		return newEvents(b, keys, w)
	case w.operation != "":
		read := func(r io.ReadCloser) ([]byte, error) { return readValue(r, keys) }
		return &whole{ReadCloser: b, read: read, see: func(text []byte) ([]byte, error) {
			if errorIn(w.operation, text) == nil {
				return text, nil
			}
			return nil, errorIn(w.operation, mask(text, keys))
		}}
	}
	return b // no door's: what an error in it means is the caller's to know
}

// whole is a body that is read as a whole before the SDK reads it: the key that
// a server says back is masked, since errors are logged, and an error in an
// answer is returned in place of the answer.
type whole struct {
	io.ReadCloser
	read func(io.ReadCloser) ([]byte, error)
	see  func([]byte) ([]byte, error)
	text *bytes.Reader // nil until something is read
	err  error         // after it
}

func (w *whole) Read(p []byte) (int, error) {
	if w.text == nil {
		text, err := w.read(w.ReadCloser)
		text, w.err = w.see(text)
		w.err = cmp.Or(w.err, err)
		w.text = bytes.NewReader(text)
	}
	if w.text.Len() == 0 && w.err != nil {
		return 0, w.err
	}
	return w.text.Read(p)
}

// readValue reads one JSON value, as the SDK does: some servers send their
// answer and do not end the response. keys are masked in what its error quotes.
func readValue(r io.ReadCloser, keys []string) ([]byte, error) {
	var value json.RawMessage
	var begun beginning
	if err := json.NewDecoder(io.TeeReader(r, &begun)).Decode(&value); err != nil {
		return nil, begun.quote(err, keys)
	}
	return value, io.EOF
}

func (t *transport) base(r *http.Request) *http.Transport {
	if r.Body == nil || r.Body == http.NoBody {
		return t.fresh
	}
	return t.pooled
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	t.pooled.CloseIdleConnections()
	t.fresh.CloseIdleConnections()
}

// bounds are the times after which one call is cut off.
type bounds struct {
	caller context.Context
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	late   []*timeoutError // its own, since the caller's cause may be another call's
}

func newBounds(caller context.Context) *bounds {
	ctx, cancel := context.WithCancelCause(caller)
	return &bounds{caller: caller, ctx: ctx, cancel: cancel}
}

// after cuts the call off after d, unless the timer is stopped.
func (b *bounds) after(d time.Duration, what string) *time.Timer {
	late := timeoutError{what, d}
	i := slices.IndexFunc(b.late, func(known *timeoutError) bool { return *known == late })
	if i < 0 {
		i, b.late = len(b.late), append(b.late, &late)
	}
	cause := b.late[i]
	return time.AfterFunc(d, func() { b.cancel(cause) })
}

// because gives the end that caused err, if one did: a bound's, or the
// caller's.
func (b *bounds) because(err error) error {
	late, ok := context.Cause(b.ctx).(*timeoutError) //nolint:errorlint // the very value: its own
	if ok && slices.Contains(b.late, late) {
		return late
	}
	return ended(b.caller, err)
}

// isEnd tells the end of an answer from a cause of the caller's, which net/http
// hands on as it is.
func (b *bounds) isEnd(err error) bool {
	return err == io.EOF && //nolint:errorlint // the very end; a broken connection may wrap one
		(b.caller.Err() == nil || !errors.Is(context.Cause(b.caller), io.EOF))
}

// body is an answer's body within its bounds.
type body struct {
	*bounds
	inner io.ReadCloser
	wait  *wait
	timer *time.Timer // of the call as a whole

	silence     time.Duration // how long a stream may say nothing; otherwise the bound of the whole answer
	stream      bool
	idle        time.Duration // the silence after the first content
	first       *listener     // for the first content; nil after it
	left, limit int64
}

// streams makes b the body of a stream, in which each silence is bounded.
func (b *body) streams(chat bool, idle time.Duration) {
	b.stream, b.idle = true, idle
	if chat {
		b.first = new(listener)
	} else {
		b.silence = idle
	}
}

// Read fails once the answer is larger than its bound, or a stream silent for
// too long.
func (b *body) Read(p []byte) (n int, err error) {
	if b.stream {
		defer b.after(b.silence, "a stream was silent").Stop()
	}
	b.wait.hold(b.silence)
	defer b.wait.heard()
	if b.left <= 0 {
		n, err = b.overflow()
	} else {
		n, err = b.inner.Read(p[:min(int64(len(p)), b.left)])
	}
	b.left -= int64(n)
	if b.first != nil && b.first.hears(p[:n]) {
		b.first, b.silence = nil, b.idle
	}
	if err != nil && !b.isEnd(err) {
		err = b.because(err)
	}
	if err != nil { // the SDK does not close the body of a stream that was refused
		b.timer.Stop()
		b.cancel(nil)
	}
	return n, err
}

// overflow tells an answer of just the allowed size from a longer one.
func (b *body) overflow() (int, error) {
	n, err := b.inner.Read(make([]byte, 1))
	if n > 0 {
		return 0, broken("request", "the answer is larger than %d bytes", b.limit)
	}
	return 0, err
}

// Close ends the call. The SDK stops reading where the JSON value ends; what
// may be left of the answer is read, so that its connection can be used again.
// httpdoor does the same at the end of its own calls, which those of a door are
// not.
func (b *body) Close() error {
	if !b.stream && b.timer.Reset(drainTime) {
		_, _ = io.CopyN(io.Discard, b.inner, drainBytes)
	}
	return b.shut()
}

// shut ends the call, and a Read that waits. It may run beside one.
func (b *body) shut() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.inner.Close()
}

// What the rest of an answer may take to be read; beyond that a new connection
// is cheaper.
const (
	drainTime  = 20 * time.Millisecond
	drainBytes = 4 << 10
)

// closable is the body of an answer that may be closed beside its reader.
type closable struct {
	io.ReadCloser // what is above body
	body          *body

	reading sync.Mutex
	closed  atomic.Bool
}

// Read fails after Close, and as soon as that is called.
func (c *closable) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := c.ReadCloser.Read(p)
	if err != nil && err != io.EOF && c.closed.Load() {
		err = http.ErrBodyReadAfterClose
	}
	return n, err
}

// Close does not wait for a Read: it ends it.
func (c *closable) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if c.reading.TryLock() {
		defer c.reading.Unlock()
		return c.ReadCloser.Close()
	}
	return c.body.shut()
}
