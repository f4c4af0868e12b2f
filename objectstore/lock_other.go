//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package objectstore

import (
	"errors"
	"os"
	"strings"
)

var errNoLocks = errors.New("no file locks on this system")

// lock lets a download have a file of its own only, since no other can be told
// from one in use: downloads start over here.
func lock(f *os.File) error {
	name := f.Name()
	if i := strings.LastIndex(name, "-"); i >= 0 && strings.HasPrefix(name[i+1:], "x") {
		return nil
	}
	return errNoLocks
}
