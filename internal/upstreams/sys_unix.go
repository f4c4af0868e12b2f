//go:build unix

package upstreams

import (
	"errors"
	"syscall"
	"time"
)

type signal = syscall.Signal

const (
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(pid int, s signal) error { return syscall.Kill(-pid, s) }

// hasExited reaps the child if it has ended. It stands for Cmd.Wait, whose
// goroutine would show up in every test for leaks.
func hasExited(pid int) bool {
	got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	return got == pid || errors.Is(err, syscall.ECHILD)
}

// awaitStop returns when all threads of the child have stopped, or it has
// ended.
func awaitStop(pid int) {
	for {
		_, err := syscall.Wait4(pid, nil, syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

func awaitExit(pid int, limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end) && !hasExited(pid); {
		time.Sleep(20 * time.Millisecond)
	}
}

func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
