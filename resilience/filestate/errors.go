package filestate

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// FileError says what could not be done with which file. Err is the operating
// system's: errors.Is finds fs.ErrNotExist, fs.ErrPermission, syscall.EROFS or
// syscall.ENOSPC.
type FileError struct {
	Op   string // "open", "lock", "read" or "write"
	Path string // of the file or the lock
	Err  error
}

func (e *FileError) Error() string {
	return "filestate: cannot " + e.Op + " " + e.Path + ": " + cause(e.Err).Error() + e.advice()
}

func (e *FileError) Unwrap() error { return e.Err }

// cause leaves out the names of files in an error: a temporary one says nothing
// to the operator.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if rename, ok := errors.AsType[*os.LinkError](err); ok {
		return rename.Err
	}
	return err
}

// errIrregular is a folder, a pipe or a device in the place of a file.
var errIrregular = errors.New("it is not a regular file")

// errNoSpace is ERROR_DISK_FULL, ENOSPC of Windows.
const errNoSpace = syscall.Errno(112)

func (e *FileError) advice() string {
	switch {
	case errors.Is(e.Err, errIrregular):
		return "; remove it, or name another file"
	case errors.Is(e.Err, fs.ErrNotExist):
		return "; make its folder"
	case errors.Is(e.Err, syscall.EROFS):
		return "; use a folder on a file system that is not mounted read-only"
	case errors.Is(e.Err, fs.ErrPermission):
		return "; all processes that share it must run as one user that may write to its folder"
	case errors.Is(e.Err, syscall.ENOSPC), windows && errors.Is(e.Err, errNoSpace):
		return "; free some space on its disk"
	default:
		return ""
	}
}
