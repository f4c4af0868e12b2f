//go:build !unix

package upstreams

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// The servers need process groups and signals of Unix. Elsewhere nothing
// starts, so that every test with a server is skipped.

type signal int

const (
	sigTerm signal = iota
	sigKill
	sigStop
	sigCont
)

func ownGroup() *syscall.SysProcAttr { return nil }

func signalGroup(int, signal) error { return errors.ErrUnsupported }

func hasExited(int) bool { return true }

func awaitStop(int) {}

func awaitExit(int, time.Duration) {}

func reap(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
