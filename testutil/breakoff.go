package testutil

import (
	"bytes"
	"io"
)

// BreakOff is a truncated body: it returns Left bytes, each an x, and then Err,
// together with the last bytes if WithLast is set. Like the bodies of net/http
// it returns Err once, and io.EOF after that. An Err that wraps io.EOF exposes
// code that mistakes it for the end of the body. It is not safe for concurrent
// use.
type BreakOff struct {
	Left     int
	Err      error
	WithLast bool
}

func (b *BreakOff) Read(p []byte) (n int, err error) {
	n = copy(p, bytes.Repeat([]byte("x"), min(len(p), b.Left)))
	b.Left -= n
	if b.Left == 0 && (b.WithLast || n == 0) {
		err, b.Err = b.Err, io.EOF
	}
	return n, err
}
