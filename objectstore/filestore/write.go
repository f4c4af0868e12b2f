package filestore

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
)

// draft is an object being written. It ends with commit or discard.
type draft struct {
	store *Store
	file  *os.File
	name  string
	sum   hash.Hash
	size  int64
}

func (s *Store) newDraft() (*draft, error) {
	name := path.Join(tempDir, rand.Text())
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &draft{store: s, file: f, name: name, sum: md5.New()}, nil
}

// bodyError is an error of the caller's reader, as opposed to the disk's.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

type bodyReader struct {
	ctx  context.Context
	body io.Reader
}

func (r bodyReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.body.Read(p)
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	return n, err
}

// fill appends body to the draft.
func (d *draft) fill(ctx context.Context, body io.Reader) error {
	if body == nil {
		return nil
	}
	n, err := io.Copy(io.MultiWriter(d.file, d.sum), bodyReader{ctx, body})
	d.size += n
	return err
}

func (d *draft) md5() string { return hex.EncodeToString(d.sum.Sum(nil)) }

func (d *draft) discard() {
	_ = d.file.Close()
	_ = d.store.root.Remove(d.name)
}

// seal writes the trailer and syncs the file.
func (d *draft) seal(r record) error {
	text, err := r.trailer()
	if err != nil {
		return err
	}
	if _, err := d.file.Write(text); err != nil {
		return err
	}
	return d.file.Sync()
}

// publish gives the sealed draft its final name. With create it returns
// fs.ErrExist if the name is taken.
func (d *draft) publish(final string, create bool) error {
	for range 100 {
		if err := d.store.makeFolder(path.Dir(final)); err != nil {
			return err
		}
		err := d.move(final, create)
		// A delete may have removed the folder again, since it was empty.
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return &fs.PathError{Op: "rename", Path: final, Err: fs.ErrNotExist}
}

func (d *draft) move(final string, create bool) error {
	if create {
		if err := d.store.root.Link(d.name, final); err != nil {
			return err
		}
	} else if err := d.store.root.Rename(d.name, final); err != nil {
		return err
	}
	return d.store.syncFolder(path.Dir(final))
}

// makeFolder makes dir and what is missing above it, each synced into the
// folder that holds it.
func (s *Store) makeFolder(dir string) error {
	if info, err := s.root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if parent := path.Dir(dir); parent != "." {
		if err := s.makeFolder(parent); err != nil {
			return err
		}
	}
	err := s.root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.syncFolder(path.Dir(dir))
}

func (s *Store) syncFolder(dir string) error {
	if runtime.GOOS == "windows" { // a folder's handle cannot be synced there
		return nil
	}
	f, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// condition is a write's condition on the object it replaces.
type condition struct{ ifMatch, ifNoneMatch *string }

// commit seals d as r and puts it under its final name if c holds.
func (s *Store) commit(op string, d *draft, r record, final string, c condition) error {
	if err := d.seal(r); err != nil {
		return diskFailure(op, err)
	}
	mu := s.lock(final)
	mu.Lock()
	defer mu.Unlock()
	if err := s.checkMatch(op, final, r.Key, c.ifMatch); err != nil {
		return err
	}
	err := d.publish(final, c.ifNoneMatch != nil)
	if c.ifNoneMatch != nil && errors.Is(err, fs.ErrExist) {
		return preconditionFailed(op)
	}
	if err != nil {
		return diskFailure(op, err)
	}
	return nil
}

// checkMatch checks the existing object against an If-Match header.
func (s *Store) checkMatch(op, final, key string, ifMatch *string) error {
	if ifMatch == nil {
		return nil
	}
	f, r, err := s.openObject(op, final, key)
	if err != nil {
		return err
	}
	_ = f.Close()
	if !matches(*ifMatch, r.ETag) {
		return preconditionFailed(op)
	}
	return nil
}
