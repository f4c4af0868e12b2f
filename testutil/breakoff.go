package testutil

import (
	"bytes"
	"io"
)

// BreakOff is a body that breaks off: it gives Left bytes, each an x, and then
// Err, with the last of them where WithLast is set. Like net/http's bodies it
// says so once, and is at its end after that. An Err that wraps io.EOF finds out
// who takes any such error for the end. It is for one goroutine.
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
