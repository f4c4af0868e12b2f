// Package frozen reads SQLite databases in folders that cannot be written, such
// as a volume that is mounted read-only. A database in WAL mode needs a file
// beside it even to be read.
package frozen

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// SQLite's primary result codes for a database that cannot be written, or not
// be opened for lack of the files beside it.
const (
	sqliteReadOnly = 8
	sqliteCantOpen = 14
)

// Unwritable reports whether an error says that a file or folder may be written
// by nobody, or not by this process. It holds for errors of the operating
// system and of SQLite.
func Unwritable(err error) bool {
	if coded, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		code := coded.Code() & 0xff
		return code == sqliteReadOnly || code == sqliteCantOpen
	}
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// Database is how to open a database that nobody writes.
type Database struct {
	Path  string // of the file to open
	Query string // parameters of its URI
	made  string // a folder that was made for it; empty for none
}

// Find finds out how to open the database in a file. What a process that was
// killed has left in the log beside it belongs to it: then the database is a
// copy, in a temporary folder. The error satisfies errors.Is(err,
// fs.ErrNotExist) without a file.
func Find(path string) (*Database, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	if log, err := os.Stat(path + "-wal"); err != nil || log.Size() == 0 {
		return &Database{Path: path, Query: "mode=ro&immutable=1"}, nil
	}
	made, err := os.MkdirTemp("", "penstock-")
	if err != nil {
		return nil, err
	}
	d := &Database{Path: filepath.Join(made, filepath.Base(path)), Query: "mode=ro", made: made}
	for _, end := range []string{"", "-wal"} {
		if err := copyFile(d.Path+end, path+end); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close removes a copy, if one was made. Close the database first.
func (d *Database) Close() error {
	if d == nil || d.made == "" {
		return nil
	}
	return os.RemoveAll(d.made)
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
