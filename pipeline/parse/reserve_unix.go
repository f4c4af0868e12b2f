//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package parse

import "syscall"

// reserve returns size bytes of zeros, of which the system provides a page when
// it is written.
func reserve(size int64) ([]byte, error) {
	return syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// release gives back what reserve returned.
func release(memory []byte) { _ = syscall.Munmap(memory) } // fails for foreign memory only
