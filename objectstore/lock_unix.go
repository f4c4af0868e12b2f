//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package objectstore

import (
	"os"
	"syscall"
)

// lock takes the file or fails at once. The kernel lets go of it with the
// process, so a killed download can be resumed.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
