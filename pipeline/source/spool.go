package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
)

const (
	// spoolBytes is the size up to which content that comes as a stream is held
	// in memory.
	spoolBytes         = 4 << 20
	defaultMaxDownload = 1 << 30
)

// spooled is content that came as a stream.
type spooled struct {
	io.ReaderAt
	size    int64
	version string
	current func(context.Context) (version string, err error)
	file    *os.File // nil when it is in memory
}

func (s *spooled) Size() int64     { return s.size }
func (s *spooled) Version() string { return s.version }

// Current reports whether the source names the same version. What has no
// version counts as the same.
func (s *spooled) Current(ctx context.Context) (bool, error) {
	if s.version == "" || s.current == nil {
		return true, nil
	}
	now, err := s.current(ctx)
	return now == s.version || now == "", err
}

func (s *spooled) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// spool reads a stream to its end, which is io.EOF itself, up to limit bytes;
// limit ≤ 0 means unlimited. The error is a [*TooLargeError], the stream's own,
// or a [*diskError].
func spool(from io.Reader, limit int64) (*spooled, error) {
	if limit > 0 && limit < math.MaxInt64 {
		from = io.LimitReader(from, limit+1)
	}
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(from, spoolBytes)) // CopyN drops an error that comes with the last byte
	switch {
	case err != nil:
		return nil, err
	case n == spoolBytes:
		return spoolFile(io.MultiReader(&head, from), limit)
	case limit > 0 && n > limit:
		return nil, &TooLargeError{Limit: limit}
	}
	return &spooled{ReaderAt: bytes.NewReader(head.Bytes()), size: n}, nil
}

// diskError reports that a temporary file could not be written.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

// diskWriter marks errors of writing, to distinguish them from errors of
// reading.
type diskWriter struct{ *os.File }

func (w diskWriter) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		err = &diskError{err}
	}
	return n, err
}

func spoolFile(from io.Reader, limit int64) (*spooled, error) {
	file, err := os.CreateTemp("", "penstock-spool-*")
	if err != nil {
		return nil, &diskError{err}
	}
	// An unlinked file disappears with the process.
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(&diskError{err}, file.Close())
	}
	n, err := io.Copy(diskWriter{file}, from)
	if err == nil && limit > 0 && n > limit {
		err = &TooLargeError{Limit: limit}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spooled{ReaderAt: file, size: n, file: file}, nil
}

var errNoStdin = errors.New("no standard input")

// stdin is the input "-": one document that can be read once.
type stdin struct{ options Options }

func (s *stdin) key() string             { return "-" }
func (s *stdin) covers(string) bool      { return false }
func (s *stdin) again(id, _ string) Item { return s.item(id) }
func (s *stdin) list(w *walker) (more bool) {
	return w.emit(s.item(identity(s.options.Prefix, s.options.StdinName)))
}

func (s *stdin) item(id string) Item {
	return Item{ID: id, Size: -1, Open: func(context.Context) (Content, error) {
		if s.options.Stdin == nil {
			return nil, errNoStdin
		}
		return spool(s.options.Stdin, 0)
	}}
}
