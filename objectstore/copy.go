package objectstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"
)

// spoolMemory is how much of a body that cannot seek is kept in memory.
const spoolMemory = 1 << 20

// seekable returns body, or a copy of it that can seek.
func seekable(ctx context.Context, body io.Reader) (io.Reader, func(), error) {
	if body == nil || seeks(body) {
		return body, func() {}, nil
	}
	c, err := within(ctx, body, copied)
	return c.Reader, c.remove, err
}

// seeks reports whether body is one that can be read twice. A pipe, a terminal
// and a socket have a Seek that fails, a device may have one that lies.
func seeks(body io.Reader) bool {
	s, ok := body.(io.Seeker)
	if !ok {
		return false
	}
	if f, ok := body.(*os.File); ok {
		if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
			return false
		}
	}
	base, err := s.Seek(0, io.SeekCurrent)
	if err != nil {
		return false
	}
	if _, err = s.Seek(0, io.SeekEnd); err != nil {
		return false
	}
	_, _ = s.Seek(base, io.SeekStart) // newSentBody tries again, and says it
	return true
}

// spooled is a copy of a body that can seek.
type spooled struct {
	io.Reader
	remove func()
}

// copied copies a body to memory, or to a file where that is too small.
func copied(body io.Reader) (spooled, error) {
	var head bytes.Buffer
	_, err := io.Copy(&head, io.LimitReader(body, spoolMemory+1)) // CopyN drops an error that comes with the last byte
	switch {
	case err != nil:
		return spooled{}, fmt.Errorf("objectstore: cannot read the body: %w", err)
	case head.Len() <= spoolMemory:
		return spooled{bytes.NewReader(head.Bytes()), func() {}}, nil
	}
	return toFile(io.MultiReader(&head, body))
}

// toFile copies a body to a temporary file.
func toFile(body io.Reader) (spooled, error) {
	f, err := os.CreateTemp("", "penstock-body-*")
	if err != nil {
		return spooled{}, fmt.Errorf("objectstore: a body that cannot seek needs a temporary file: %w", err)
	}
	s := spooled{f, func() { _, _ = f.Close(), os.Remove(f.Name()) }}
	if _, err = io.Copy(f, body); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.remove()
		return spooled{}, fmt.Errorf("objectstore: cannot copy the body to a temporary file: %w", err)
	}
	return s, nil
}

// within copies a body while ctx lasts. A reader with a read deadline, such as
// a named pipe, stops at its end. Another one that says nothing is left behind
// with the copy, which ends with the Read.
func within(ctx context.Context, body io.Reader, copied func(io.Reader) (spooled, error)) (spooled, error) {
	if ctx.Done() == nil {
		return local(copied(body))
	}
	result := make(chan outcome, 1)
	go run(result, func() (spooled, error) { return copied(lasting{ctx, body}) })
	select {
	case o := <-result:
		if o.err != nil && ctx.Err() != nil {
			o.err = ended(ctx, o.err)
		}
		return local(o.get())
	case <-ctx.Done():
	}
	if d, ok := body.(deadliner); ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
		(<-result).drop()
		_ = d.SetReadDeadline(time.Time{})
	} else {
		go func() { (<-result).drop() }()
	}
	return local(spooled{}, ended(ctx, fmt.Errorf("objectstore: the copy of the body was given up: %w", ctx.Err())))
}

// deadliner is a reader that can be hurried: a file that the system can poll,
// or a connection.
type deadliner interface{ SetReadDeadline(t time.Time) error }

func local(s spooled, err error) (spooled, error) {
	if err != nil {
		return spooled{}, &localError{err}
	}
	return s, nil
}

// lasting is a reader that ends with its context.
type lasting struct {
	ctx context.Context
	r   io.Reader
}

func (l lasting) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.r.Read(p)
}

// outcome is what a function in a goroutine of its own ended with.
type outcome struct {
	spooled
	err      error
	returned bool
	panicked any
}

// run runs fn. Whatever way it ends is the result.
func run(result chan<- outcome, fn func() (spooled, error)) {
	var o outcome
	defer func() {
		if !o.returned {
			o.panicked = recover()
		}
		result <- o
	}()
	o.spooled, o.err = fn()
	o.returned = true
}

// get ends as the function did.
func (o outcome) get() (spooled, error) {
	switch {
	case o.panicked != nil:
		panic(o.panicked)
	case !o.returned:
		runtime.Goexit()
	}
	return o.spooled, o.err
}

// drop throws away a copy for which nobody has waited.
func (o outcome) drop() {
	if o.remove != nil {
		o.remove()
	}
}

// openWithin opens a file while ctx lasts: a named pipe that nobody writes to
// does not open.
func openWithin(ctx context.Context, path string, mode fs.FileMode) (*os.File, error) {
	if ctx.Done() == nil || mode&fs.ModeNamedPipe == 0 {
		return os.Open(path)
	}
	result := make(chan outcome, 1)
	go run(result, func() (spooled, error) {
		f, err := os.Open(path)
		if err != nil {
			return spooled{}, err
		}
		return spooled{f, func() { _ = f.Close() }}, nil
	})
	select {
	case o := <-result:
		f, _ := o.Reader.(*os.File)
		return f, o.err
	case <-ctx.Done():
	}
	// Somebody who would write to it lets the other one open. Without the right
	// to write it is left behind.
	if w, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
		(<-result).drop()
		_ = w.Close()
	} else {
		go func() { (<-result).drop() }()
	}
	return nil, &localError{ended(ctx, fmt.Errorf("objectstore: nobody writes to %q: %w", path, ctx.Err()))}
}
