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
	"strings"
	"time"
)

// transport bounds each call in time and size, and tells the door what the
// headers say.
type transport struct {
	pooled *http.Transport // for requests with a body, which net/http never sends twice
	fresh  *http.Transport // for the others, which it sends again when a reused connection breaks

	timeout, idle time.Duration
	limit         int64
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
	ctx, cancel := context.WithCancelCause(r.Context())
	late := &timeoutError{"waited", t.timeout}
	timer := time.AfterFunc(t.timeout, func() { cancel(late) })
	response, err := t.base(r).RoundTrip(r.WithContext(ctx))
	if err == nil && response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest {
		_ = response.Body.Close()
		err = redirected(response)
	}
	if err != nil {
		timer.Stop()
		err = because(ctx, err)
		cancel(nil)
		return nil, err
	}
	note(r.Context(), response.Header)
	b := &body{inner: response.Body, ctx: ctx, cancel: cancel, timer: timer, left: t.limit, limit: t.limit}
	if r.Header.Get("Accept") == "text/event-stream" {
		timer.Stop()
		b.idle = t.idle
	}
	response.Body = seen(r, response.StatusCode, b)
	return response, nil
}

// seen is the body of an answer without what the SDK cannot read, or passes
// over.
func seen(r *http.Request, status int, b io.ReadCloser) io.ReadCloser {
	operation, key := operationOf(r.Context()), sentKey(r)
	switch {
	case status >= http.StatusBadRequest:
		masked := func(text []byte) ([]byte, error) { return mask(text, key), nil }
		return &whole{ReadCloser: b, read: io.ReadAll, see: masked}
	case operation == opChatStream:
		return newEvents(b, key)
	case operation != "":
		return &whole{ReadCloser: b, read: readValue, see: func(text []byte) ([]byte, error) {
			if errorIn(operation, text) == nil {
				return text, nil
			}
			return nil, errorIn(operation, mask(text, key))
		}}
	}
	return b // no door's: what an error in it means is the caller's to know
}

// leastKey is the length below which a key is a stand-in, such as "none", that
// may be part of any word.
const leastKey = 8

// sentKey is the key that a request shows its server, "" without one.
func sentKey(r *http.Request) string {
	return cmp.Or(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Header.Get("Api-Key"))
}

// whole is a body that is seen as a whole before the SDK reads it. Servers say
// back the key that was sent, and errors are logged; an error in an answer has
// the place of the answer.
type whole struct {
	io.ReadCloser
	read func(io.Reader) ([]byte, error)
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
// answer and do not end the response.
func readValue(r io.Reader) ([]byte, error) {
	var value json.RawMessage
	if err := json.NewDecoder(r).Decode(&value); err != nil {
		return nil, err
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

// because gives the timeout that caused err, if one did.
func because(ctx context.Context, err error) error {
	if late, ok := errors.AsType[*timeoutError](context.Cause(ctx)); ok {
		return late
	}
	return err
}

// body is an answer's body within its bounds.
type body struct {
	inner  io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // of the call as a whole

	idle        time.Duration // of a stream, else 0
	left, limit int64
}

// Read fails once the answer is larger than its bound, or a stream silent for
// too long.
func (b *body) Read(p []byte) (n int, err error) {
	if b.idle > 0 {
		late := &timeoutError{"a stream was silent", b.idle}
		defer time.AfterFunc(b.idle, func() { b.cancel(late) }).Stop()
	}
	if b.left <= 0 {
		n, err = b.overflow()
	} else {
		n, err = b.inner.Read(p[:min(int64(len(p)), b.left)])
	}
	b.left -= int64(n)
	if err != nil && err != io.EOF { //nolint:errorlint // the very end; a broken connection may wrap one
		err = because(b.ctx, err)
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
func (b *body) Close() error {
	if b.idle == 0 && b.timer.Reset(drainTime) {
		_, _ = io.CopyN(io.Discard, b.inner, drainBytes)
	}
	b.timer.Stop()
	err := b.inner.Close()
	b.cancel(nil)
	return err
}

// What a rest of an answer may take; a new connection is cheaper than more.
const (
	drainTime  = 20 * time.Millisecond
	drainBytes = 4 << 10
)
